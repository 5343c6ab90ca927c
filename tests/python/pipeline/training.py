"""Training in a pipeline: models of several kinds, optimisers, clipping, states. Cases of pipeline_test.py."""

from __future__ import annotations

import copy
import gc
import json
import weakref
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from nets import DOUBLE, Case, Drawn, alone, cross_entropy, drawn_plan, groups, ids, sgd
from torch import Tensor, nn
from torch.nn import functional

import dear
from dear import _pipeline_gradients, _pipeline_wire


class Several(nn.Module):
    """Two inputs, one of them a mask that travels far; outputs by name, one of which is made early."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.first = nn.Linear(4, 6, dtype=DOUBLE)
        self.recurrent = nn.LSTM(6, 6, batch_first=True, dtype=DOUBLE)
        self.norm = nn.BatchNorm1d(5, dtype=DOUBLE)
        self.frozen = nn.Linear(6, 6, dtype=DOUBLE).requires_grad_(False)
        self.last = nn.Linear(6, 3, dtype=DOUBLE)
        self.bare = nn.Parameter(torch.ones(3, dtype=DOUBLE))  # which depends on no input
        self.register_buffer("triangle", torch.ones(6, 6, dtype=DOUBLE).tril(), persistent=False)

    def forward(self, x: Tensor, mask: Tensor, scale: float = 2.0) -> dict[str, Any]:
        early = functional.relu(self.first(x), inplace=True)
        out, (state, _) = self.recurrent(early)
        out = self.frozen(self.norm(out)) @ self.triangle[: x.shape[-1] + 2]
        late = self.last(out.masked_fill(mask[..., None], 0) * scale)
        return {"early": early, "both": (late, state.squeeze(0)), "inputs": mask, "bare": torch.tanh(self.bare)}


def of_several(output: dict[str, Any], target: Tensor) -> Tensor:
    late, state = output["both"]
    return (late.mean((1, 2)) - target).square().mean() + output["early"].mean() + state.mean() + output["bare"].sum()


def several_batch(seed: int) -> tuple[dict[str, Tensor], Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(8, 5, 4, generator=generator, dtype=DOUBLE)
    return {"x": x, "mask": x[..., 0] > 0.5}, x.sum((1, 2))


class Training(Case):
    def trained(
        self, model: nn.Module, make: Callable[[Any], Any], plan: Any = None, clip: float = 0, **options: Any
    ) -> tuple[dear.Pipeline, nn.Module]:
        """The pipeline, and the model as one process trains it."""
        made, expected = copy.deepcopy(model), copy.deepcopy(model)
        options = {"plan": plan} if plan is not None else {"micro_batches": 4, **options}
        pipe, optimizer = dear.pipeline(made, make(made), sample=ids(0)[0], **options)
        other = make(expected)
        for step in range(4):
            x, y = ids(step)
            optimizer.zero_grad()
            other.zero_grad()
            pipe.step(x, y, loss=cross_entropy)
            alone(expected, x, y, cross_entropy, 4)
            if clip:
                norm = pipe.clip_grad_norm_(clip)
                torch.testing.assert_close(norm.double(), nn.utils.clip_grad_norm_(expected.parameters(), clip))
            optimizer.step()
            other.step()
        return pipe, expected

    def assertSameState(self, pipe: dear.Pipeline, model: nn.Module, tolerance: float = 1e-9) -> None:
        found, expected = pipe.state_dict(), model.state_dict()
        self.assertEqual(list(found), list(expected))
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=tolerance, atol=tolerance)

    def test_optimisers(self) -> None:
        def with_groups(model: Any) -> Any:
            tied = [model.last.weight]
            rest = [one for one in model.parameters() if one is not model.last.weight]
            return torch.optim.AdamW([{"params": tied, "lr": 0.02}, {"params": rest, "weight_decay": 0.1}], eps=1e-3)

        for seed, make in ((4, sgd), (5, with_groups), (6, lambda model: torch.optim.Adagrad(model.parameters()))):
            model = Drawn(seed)
            model.last.weight = model.first.weight
            self.assertSameState(*self.trained(model, make, schedule=("gpipe", "1f1b")[seed % 2]))

    def test_rows_of_tied_gradients(self) -> None:
        """What is zero does not travel, and what is added up is what was there."""
        generator = torch.Generator().manual_seed(1)
        for shape, used, size in (
            ((20, 3), [4, 11], 8 + 2 * (8 + 24)),
            ((20, 3), range(20), 8 + 20 * 24),
            ((20, 3), [], 8),
            ((6,), [1], 8 + 8 + 8),
            ((6,), [1, 3, 5], 8 + 6 * 8),
            ((), [0], 8 + 8),
            ((9, 2, 2), [8], 8 + 8 + 32),
        ):
            with self.subTest(shape=shape, used=used):
                gradient = torch.zeros(shape, dtype=DOUBLE)
                rows = gradient.view(shape[0] if shape else 1, -1)
                for row in used:
                    rows[row] = torch.randn(rows.shape[1], dtype=DOUBLE, generator=generator)
                message = _pipeline_gradients.encoded(gradient)
                self.assertEqual(message.nbytes, size)
                there = torch.randn(shape, dtype=DOUBLE, generator=generator)
                expected = there + gradient
                longer = torch.cat([message, torch.full((40,), 7, dtype=torch.uint8)])
                _pipeline_gradients.add_encoded(there, longer)
                self.assertTrue(torch.equal(there, expected))
        bad = torch.zeros(20, 3)
        bad[3, 1] = float("nan")
        self.assertEqual(_pipeline_gradients.encoded(bad).nbytes, 8 + 8 + 12)

    def test_tied_gradients_leave_as_soon_as_they_are_whole(self) -> None:
        """That of the head while stages in front compute; and of the embedding the rows of a batch alone."""
        torch.manual_seed(3)
        head = nn.Linear(4, 500, bias=False)
        model = nn.Sequential(nn.Embedding(500, 4), nn.Linear(4, 4), nn.Linear(4, 4), head)
        model[0].weight = head.weight
        made = copy.deepcopy(model)
        x = torch.tensor([[1, 2], [2, 1], [1, 7], [7, 1]])
        with mock.patch.object(dear._C, "pipeline_digest", wraps=dear._C.pipeline_digest) as told:
            pipe, _ = dear.pipeline(made, sgd(made), sample=x, micro_batches=4, process_group=groups.pair)
        # The planner knows it, too.
        operators = json.loads(told.call_args.args[0])["operators"]
        self.assertEqual([one.get("picks_rows", False) for one in operators], [True, False, False, False])
        first_tag, events, send = pipe._made.wire.tags, [], torch.distributed.isend

        def sent(message: Tensor, **where: Any) -> Any:
            events.append(("tied", message.nbytes) if where["tag"] >= first_tag else ("message", 0))
            return send(message, **where)

        def end(gradients: Any) -> None:
            events.append(("end", 0))
            finished(gradients)

        finished = _pipeline_gradients.Gradients.end
        with (
            mock.patch.object(_pipeline_wire.dist, "isend", sent),
            mock.patch.object(_pipeline_gradients.Gradients, "end", end),
        ):
            pipe.step(x, x, loss=cross_entropy)
        bytes_of_tied = 8 + 500 * 16 if len(pipe.stages) - 1 in pipe.stages_here else 8 + 3 * (8 + 16)
        self.assertEqual(events[-2:], [("tied", bytes_of_tied), ("end", 0)])
        alone(model, x, x, cross_entropy, 4)
        self.assertAsAlone(pipe, model, 1e-6)

    def test_clipping_counts_each_tied_gradient_once(self) -> None:
        model = Drawn(7)
        model.last.weight = model.first.weight
        self.assertSameState(*self.trained(model, sgd, clip=0.05))
        pipe, _ = self.trained(model, sgd)
        for parameter in pipe.parameters():
            parameter.grad = torch.full_like(parameter, 3.0)
        largest = pipe.clip_grad_norm_(1.5, norm_type=float("inf"))
        self.assertEqual(float(largest), 3.0)
        for parameter in pipe.parameters():
            torch.testing.assert_close(parameter.grad, torch.full_like(parameter, 1.5), rtol=1e-6, atol=0)

    def test_inputs_outputs_and_buffers(self) -> None:
        """Outputs by name, in structures; a mask, batch statistics, a recurrent layer, and what is frozen."""
        model = Several()
        made = copy.deepcopy(model)
        x, y = several_batch(0)
        before = set(vars(made))
        pipe, _ = dear.pipeline(made, sgd(made), sample=x, micro_batches=4)
        self.assertEqual(set(vars(made)), before)
        plans = {schedule: drawn_plan(pipe.plan, seed, 4, schedule) for seed, schedule in ((2, "1f1b"), (3, "zb-h1"))}
        for schedule, given in (("as planned", None), *plans.items()):
            with self.subTest(schedule):
                expected, made = copy.deepcopy(model), copy.deepcopy(model)
                pipe, _ = dear.pipeline(made, sgd(made), sample=x, plan=given, micro_batches=None if given else 4)
                for seed in range(2):
                    x, y = several_batch(seed)
                    loss = alone(expected, x, y, of_several, 4)
                    torch.testing.assert_close(pipe.step(x, y, loss=of_several), loss, rtol=1e-12, atol=0)
                self.assertAsAlone(pipe, expected)
                self.assertSameState(pipe, expected, 1e-12)

    def test_each_rank_needs_what_it_reads(self) -> None:
        model = nn.Sequential(*(nn.Linear(3, 3, dtype=DOUBLE) for _ in range(4)))
        x = torch.randn(4, 3, dtype=DOUBLE, generator=torch.Generator().manual_seed(1))
        made = copy.deepcopy(model)
        pipe, _ = dear.pipeline(made, sgd(made), sample=x, micro_batches=2)
        first, last = 0 in pipe.stages_here, len(pipe.stages) - 1 in pipe.stages_here
        loss = pipe.step(x if first else None, x if last else None, loss=functional.mse_loss)
        expected = alone(model, x, x, functional.mse_loss, 2)
        torch.testing.assert_close(loss, expected)
        self.assertEqual({one.device.type for one in made.parameters()}, {"cpu", "meta"})

    def test_a_rank_keeps_nothing_of_other_stages(self) -> None:
        model = Drawn(8)
        before = {name: weakref.ref(parameter) for name, parameter in model.named_parameters()}
        optimizer = torch.optim.Adam(model.parameters())
        pipe, optimizer = dear.pipeline(model, optimizer, sample=ids(0)[0], micro_batches=4)
        gc.collect()
        own = {name for name, _ in pipe.named_parameters()}
        self.assertLess(len(own), len(before))
        self.assertEqual({name for name, parameter in before.items() if parameter() is not None}, own)
        self.assertEqual(sum(len(group["params"]) for group in optimizer.param_groups), len(own))

    def test_memory_that_a_plan_expects(self) -> None:
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        pipe, _ = dear.pipeline(
            model,
            sgd(model),
            sample=torch.ones(4, 4),
            micro_batches=2,
            method="equal-number",
            process_group=groups.pair,
        )
        self.assertEqual(pipe.stages, [["0"], ["1", "2"]])
        # Bytes with a pencil: three copies of parameters; the first stage holds what it sent of two micro-batches, which no
        # backward reads, with room for their gradients.
        first = 3 * 160 + 2 * 64 + 2 * 64
        # Two micro-batches come or are there; of one what the ReLU gave and three times the output, for the loss, and a
        # gradient on its way back. Later it is one micro-batch and two gradients.
        last = 3 * 108 + 2 * 64 + 64 + 3 * 24 + 64
        self.assertEqual(pipe.estimated_peak_bytes, [first, last][pipe.rank])

    def test_a_state_goes_onto_another_plan(self) -> None:
        model = Drawn(8)
        pipe, expected = self.trained(model, sgd)
        state = pipe.state_dict()
        plan = drawn_plan(pipe.plan, 1, 4, "gpipe")
        other = Drawn(8)
        resumed, _ = dear.pipeline(other, sgd(other), sample=ids(0)[0], plan=plan)
        resumed.load_state_dict(state)
        self.assertSameState(resumed, expected)
        x, y = ids(50)
        expected.zero_grad()
        alone(expected, x, y, cross_entropy, 4)
        resumed.step(x, y, loss=cross_entropy)
        self.assertAsAlone(resumed, expected, 1e-10)
        whole = Drawn(8)
        whole.load_state_dict(state)
        self.assertTrue(all(torch.equal(value, state[name]) for name, value in whole.state_dict().items()))

    def test_ranks_begin_as_rank_0(self) -> None:
        model = Drawn(10)
        made = copy.deepcopy(model) if self.rank == 0 else Drawn(10)
        if self.rank:
            with torch.no_grad():
                for parameter in made.parameters():
                    parameter.add_(self.rank)
        pipe, _ = dear.pipeline(made, sgd(made), sample=ids(0)[0], micro_batches=2)
        self.assertSameState(pipe, model, 0)

    def test_random_numbers_and_modes(self) -> None:
        model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Linear(3, 3), nn.Dropout(0.5), nn.Linear(3, 3))
        drawn = torch.get_rng_state()
        pipe, _ = dear.pipeline(model, sgd(model), sample=torch.ones(4, 3), micro_batches=2)
        self.assertTrue(torch.equal(torch.get_rng_state(), drawn))
        losses = {float(pipe.step(torch.ones(4, 3), torch.ones(4, 3), loss=functional.mse_loss)) for _ in range(4)}
        self.assertGreater(len(losses), 1)


class Compression(Case):
    def model(self) -> nn.Module:
        torch.manual_seed(2)
        return nn.Sequential(*(nn.Linear(16, 16) for _ in range(4)))

    def gradients(self, ratios: tuple[float, float] | None, **options: Any) -> tuple[dear.Pipeline, dict[str, Tensor]]:
        model = self.model()
        x = torch.randn(8, 16, generator=torch.Generator().manual_seed(3))
        pipe, _ = dear.pipeline(model, sgd(model), sample=x, micro_batches=2, process_group=groups.pair, **options)
        if ratios is not None:
            document = json.loads(pipe.plan)
            output = document["stages"][0]["operators"][-1]
            document["compressed"] = [
                {"from_stage": 0, "output": output, "activation_ratio": ratios[0], "gradient_ratio": ratios[1]}
            ]
            model = self.model()
            pipe, _ = dear.pipeline(model, sgd(model), sample=x, plan=json.dumps(document), process_group=groups.pair)
        pipe.step(x, x, loss=functional.mse_loss)
        return pipe, {name: one.grad for name, one in pipe.named_parameters()}  # type: ignore[misc]

    def test_a_ratio_of_1_is_off(self) -> None:
        _, expected = self.gradients(None)
        for found in (self.gradients((1, 1))[1], self.gradients(None, compress="top-k:1")[1]):
            for name, one in expected.items():
                self.assertTrue(torch.equal(found[name], one), name)

    def test_as_the_largest_of_one_process(self) -> None:
        """A gradient passes the selection whole, and is one of the tensor that came."""

        class Largest(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Tensor) -> Tensor:
                return sparse(x, 4)

            @staticmethod
            def backward(ctx: Any, gradient: Tensor) -> Tensor:
                return sparse(gradient, 8)

        def sparse(x: Tensor, ratio: int) -> Tensor:
            flat = x.reshape(-1)
            chosen = flat.abs().topk(flat.numel() // ratio).indices
            return torch.zeros_like(flat).index_copy(0, chosen, flat[chosen]).view_as(x)

        pipe, found = self.gradients((4, 8))
        first = len(pipe.stages[0])
        layers = self.model()
        model = nn.Sequential(*layers[:first], Between(Largest), *layers[first:])
        x = torch.randn(8, 16, generator=torch.Generator().manual_seed(3))
        alone(model, x, x, functional.mse_loss, 2)
        for number, layer in enumerate(layers):
            for name, parameter in layer.named_parameters():
                if f"{number}.{name}" in found:
                    torch.testing.assert_close(found[f"{number}.{name}"], parameter.grad, rtol=1e-6, atol=1e-7)

    def test_fewer_bytes_travel(self) -> None:
        dense, _ = self.gradients(None)
        thin, _ = self.gradients(None, compress="ada-top-k:8")
        if self.rank in (0, 1):
            self.assertGreater(dense.bytes_sent, 3 * thin.bytes_sent)

    def test_of_equal_ones_the_first(self) -> None:
        tensor = torch.tensor([1.0, -2, 2, 0, -2, 1])
        one = _pipeline_wire.Crossing("x", "x", 0, 0, (6,), torch.float32, True)
        for ratio, expected in ((3.0, [0, -2, 2, 0, 0, 0]), (6.0, [0, -2, 0, 0, 0, 0]), (1e9, [0, -2, 0, 0, 0, 0])):
            found = _pipeline_wire.decompressed(_pipeline_wire.compressed(tensor, ratio), one)
            self.assertEqual(found.tolist(), expected)

    def test_integers_travel_as_they_are(self) -> None:
        model = Drawn(4, dtype=torch.float32)
        x, y = ids(4)
        pipe, _ = dear.pipeline(model, sgd(model), sample=x, micro_batches=2, compress="top-k:4")
        named = {one["output"] for one in json.loads(pipe.plan)["compressed"]}
        self.assertTrue(named)
        self.assertNotIn("eq", named)
        self.assertTrue(pipe.step(x, y, loss=cross_entropy).isfinite())


class Between(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.function.apply(x)
        return result
