"""Pipelines beside each other, with a batch each: pipeline and data parallelism together. Cases of pipeline_test.py."""

from __future__ import annotations

import copy
from typing import Any

import torch
from nets import Case, Drawn, alone, cross_entropy, drawn_plan, ids, sgd
from states import assertSameOptimizer
from torch import Tensor, nn

import dear


class Replicas(Case):
    """Ranks 0 and 1 have the first stages, ranks 2 and 3 the last; ranks 0 and 2 are one pipeline."""

    def batches(self, seed: int) -> tuple[list[Tensor], list[Tensor]]:
        """This rank's, and those of both pipelines as one."""
        both = [ids(2 * seed), ids(2 * seed + 1)]
        return list(both[self.rank % 2]), [torch.cat(one) for one in zip(*both)]

    def test_gradients_are_means_over_both(self) -> None:
        for seed, schedule in ((1, "1f1b"), (7, "zb-h1"), (8, "gpipe"), (4, "interleaved")):
            with self.subTest(seed=seed, schedule=schedule):
                model = Drawn(seed)
                made = copy.deepcopy(model)
                options: dict[str, Any] = {"sample": ids(0)[0], "replicas": 2}
                stages = 4 if schedule == "interleaved" else 2
                pipe, _ = dear.pipeline(made, sgd(made), micro_batches=4, schedule=schedule, stages=stages, **options)
                if schedule != "interleaved":
                    made = copy.deepcopy(model)
                    plan = drawn_plan(pipe.plan, seed, 2, schedule)
                    pipe, _ = dear.pipeline(made, sgd(made), plan=plan, **options)
                for step in range(2):  # whose gradients add up
                    (x, y), (both_x, both_y) = self.batches(step)
                    expected = alone(model, both_x, both_y, cross_entropy, 8)
                    found = pipe.step(x, y, loss=cross_entropy)
                    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
                self.assertAsAlone(pipe, model)

    def test_train_as_one_process(self) -> None:
        model = Drawn(5)
        model.last.weight = model.first.weight
        made, expected = copy.deepcopy(model), copy.deepcopy(model)
        if self.rank:  # ranks begin as rank 0
            with torch.no_grad():
                made.scale += self.rank
        pipe, optimizer = dear.pipeline(
            made, torch.optim.AdamW(made.parameters(), eps=1e-3), sample=ids(0)[0], micro_batches=4, replicas=2
        )
        other = torch.optim.AdamW(expected.parameters(), eps=1e-3)
        for step in range(3):
            (x, y), (both_x, both_y) = self.batches(step)
            optimizer.zero_grad()
            other.zero_grad()
            pipe.step(x, y, loss=cross_entropy)
            alone(expected, both_x, both_y, cross_entropy, 8)
            norm = pipe.clip_grad_norm_(0.5)
            torch.testing.assert_close(norm.double(), nn.utils.clip_grad_norm_(expected.parameters(), 0.5))
            optimizer.step()
            other.step()
        assertSameOptimizer(self, pipe.optimizer_state_dict(), other.state_dict())
        for name, value in pipe.state_dict().items():
            torch.testing.assert_close(value, expected.state_dict()[name], rtol=1e-9, atol=1e-9)

    def test_refusals(self) -> None:
        for sentence, options in (
            ("replicas=3 on 4 ranks", {"replicas": 3}),
            ("replicas=0 on 4 ranks", {"replicas": 0}),
            ("3 stages cannot be dealt to 4 ranks with 2 replicas", {"replicas": 2, "stages": 3}),
            ("48 devices.* a device for each 2 ranks", {"replicas": 2, "cluster": "fusionllm-48"}),
        ):
            model = Drawn(1)
            with self.assertRaisesRegex(dear.ConfigError, sentence):
                dear.pipeline(model, sgd(model), sample=ids(0)[0], micro_batches=2, **options)
        model = Drawn(1)
        with self.assertRaisesRegex(dear.MismatchError, "replicas are .1, 2, 2, 2."):
            dear.pipeline(model, sgd(model), sample=ids(0)[0], replicas=2 if self.rank else 1)

    def test_a_replica_that_fails_ends_the_step_on_all_ranks(self) -> None:
        model = Drawn(2)
        pipe, _ = dear.pipeline(model, sgd(model), sample=ids(0)[0], micro_batches=2, replicas=2)

        def loss(output: Tensor, target: Tensor) -> Tensor:
            if self.rank == 3:
                raise ValueError("a loss of a test")
            return cross_entropy(output, target)

        error: Any = ValueError if self.rank == 3 else dear.Error
        with self.assertRaises(error) as caught:
            pipe.step(*ids(0), loss=loss)
        if self.rank == 2:  # the other replica, or rank 0, which ended for want of its own
            self.assertRegex(str(caught.exception), r"^rank 2(: stage 1 \(.*\))? waited for ")
