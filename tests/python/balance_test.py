"""Ranks that take unequal parts of a batch, and of updates, beside one process on all samples:  balance_test.py DEAR

Under `DEAR launch` this file is the program of each rank.
"""

from __future__ import annotations

import faulthandler
import json
import os
import subprocess
import sys
import unittest
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

import dear

RANKS = 2
SAMPLES = 43


def net() -> nn.Module:
    made = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).double()
    with torch.no_grad():
        for number, one in enumerate(made.parameters()):
            one.copy_(0.4 * torch.sin(number + torch.arange(one.numel(), dtype=one.dtype)).view_as(one))
    return made


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


INPUTS = torch.sin(0.37 * torch.arange(6 * SAMPLES, dtype=torch.float64) ** 1.1).view(SAMPLES, 6)


def loss_of(model: Any, of: Tensor) -> Tensor:
    return (model(INPUTS[of]) - torch.cos(INPUTS[of][:, :3])).square().mean()


class Case(unittest.TestCase):
    group: dear.Group

    @classmethod
    def setUpClass(cls) -> None:
        torch.set_num_threads(1)
        cls.group = dear.init(timeout=60)

    def distribute(self, **options: Any) -> tuple[Any, Any]:
        made = net()
        return dear.distribute(made, sgd(made), process_group=self.group, **options)

    def gathered(self, mine: list[list[int]]) -> list[list[list[int]]]:
        """The batches of all ranks, by step and rank; between steps."""
        every = [json.loads(text) for text in dear._C.gather_bytes(self.group, json.dumps(mine).encode())]
        return [list(step) for step in zip(*every)]

    def assert_trained_on(
        self, model: Any, batches: list[list[list[int]]], change: Callable[[Any], None] | None = None
    ) -> None:
        """As one process is on what all ranks had in each step."""
        model.synchronize()
        alone = net()
        optimizer = sgd(alone)
        for batch in batches:
            optimizer.zero_grad()
            loss_of(alone, torch.tensor(sum(batch, []))).backward()
            if change is not None:
                change(alone)
            optimizer.step()
        for one, other in zip(model.parameters(), alone.parameters()):
            self.assertLessEqual((one - other).abs().max().item(), 1e-12)


class Batches(Case):
    def epochs(self, model: Any, sampler: Any, count: int) -> Iterator[list[int]]:
        for epoch in range(count):
            sampler.set_epoch(epoch)
            yield from sampler

    def test_are_shared_by_weights_and_by_speeds(self) -> None:
        for balance in ([3, 1], "measured"):
            for policy in ("dear", "wfbp"):
                with self.subTest(balance=balance, policy=policy):
                    model, optimizer = self.distribute(balance=balance, policy=policy)
                    sampler = dear.BalancedSampler(SAMPLES, model, batch_size=6)
                    batches = []
                    for mine in self.epochs(model, sampler, 4):
                        self.assertAlmostEqual(sum(model.batch_share(rank) for rank in range(RANKS)), 1, 12)
                        loss_of(model, torch.tensor(mine)).backward()
                        optimizer.step()
                        batches.append(mine)
                    model.synchronize()
                    batches = self.gathered(batches)
                    self.assertEqual(len(batches), 4 * len(sampler))
                    for epoch in range(4):
                        seen = sum(
                            (sum(one, []) for one in batches[epoch * len(sampler) : (epoch + 1) * len(sampler)]), []
                        )
                        self.assertEqual(sorted(seen), list(range(SAMPLES)))
                    self.assertNotEqual(batches[0], batches[len(sampler)], "another order in the next epoch")
                    self.assert_trained_on(model, batches)
                    model.close()

    def test_by_weights_are_in_proportion(self) -> None:
        model, _ = self.distribute(balance=[3, 1])
        self.assertEqual([model.batch_share(rank) for rank in range(RANKS)], [0.75, 0.25])
        self.assertEqual([model.batch_share(rank, 8) for rank in range(RANKS)], [6, 2])
        self.assertEqual(model.batch_share(), 0.75 if self.group.rank == 0 else 0.25)
        sampler = dear.BalancedSampler(range(SAMPLES), model, batch_size=8, shuffle=False)
        sizes = [len(one) for one in sampler]
        # 5 batches of 8, and 3 samples that are left.
        self.assertEqual(sizes, [6] * 5 + [2] if self.group.rank == 0 else [2] * 5 + [1])
        self.assertEqual(len(dear.BalancedSampler(SAMPLES, model, batch_size=8, drop_last=True)), 5)
        one_left = dear.BalancedSampler(SAMPLES, model, batch_size=6, shuffle=False)
        left = self.gathered(list(one_left))
        self.assertEqual(sorted(sum((sum(one, []) for one in left), [])), list(range(SAMPLES)))
        self.assertEqual(len(one_left), 7, "a sample that is left goes with the last batch")
        model.close()

    def test_a_loader_with_workers_reads_ahead(self) -> None:
        model, optimizer = self.distribute(balance="measured")
        sampler = dear.BalancedSampler(SAMPLES, model, batch_size=4)
        loader = torch.utils.data.DataLoader(torch.arange(SAMPLES), batch_sampler=sampler, num_workers=1)
        batches = []
        for mine in loader:
            loss_of(model, mine).backward()
            optimizer.step()
            batches.append(mine.tolist())
        model.synchronize()
        batches = self.gathered(batches)
        self.assertEqual(sorted(sum((sum(one, []) for one in batches), [])), list(range(SAMPLES)))
        self.assert_trained_on(model, batches)
        with self.assertRaisesRegex(dear.ConfigError, "read fewer batches ahead"):
            list(dear.BalancedSampler(SAMPLES, model, batch_size=2))
        model.close()

    def test_accumulated_clipped_and_said(self) -> None:
        """Two passes a step; and batches that follow no share count as they come."""
        model, optimizer = self.distribute(balance=[3, 1])
        batches = []
        for step in range(4):
            count = 2 + 3 * self.group.rank + step  # of both passes
            mine = list(range(10 * self.group.rank, 10 * self.group.rank + 2 * count))
            for half in (mine[:count], mine[count:]):
                (loss_of(model, torch.tensor(half)) / 2).backward()
            optimizer.clip_grad_norm_(0.1)
            optimizer.step()
            batches.append(mine)
        model.synchronize()
        self.assert_trained_on(
            model, self.gathered(batches), lambda alone: nn.utils.clip_grad_norm_(alone.parameters(), 0.1)
        )
        batches = []
        model.close()
        model, optimizer = self.distribute(balance=[3, 1])
        for _ in range(3):
            mine = list(range(7)) if self.group.rank == 0 else []
            model.samples(len(mine))
            if mine:
                (
                    loss_of(model, torch.tensor(mine[:2])) * 2 / 7 + loss_of(model, torch.tensor(mine[2:])) * 5 / 7
                ).backward()
            optimizer.step()
            batches.append(mine)
        model.synchronize()
        self.assert_trained_on(model, self.gathered(batches))
        with torch.no_grad():
            model(INPUTS[:1])
        model(INPUTS[:4])
        with self.assertRaisesRegex(dear.ConfigError, "4 and 5 samples: call model.samples"):
            model(INPUTS[:5])
        model.discard_step()
        model.close()


class Shards(Case):
    def test_change_no_bit(self) -> None:
        found = []
        for shards in ((), (3, 1), (0, 1)):
            model, optimizer = self.distribute(shards=shards, fusion="all")
            for step in range(6):
                loss_of(model, torch.arange(step, step + 4) + self.group.rank).backward()
                optimizer.step()
                if step == 3:
                    model.reshard((1, 5) if shards else ())
            model.synchronize()
            found.append([one.detach().clone() for one in model.parameters()])
            model.close()
        for other in found[1:]:
            self.assertTrue(all(torch.equal(a, b) for a, b in zip(found[0], other)))

    def test_measured_stay_equal_where_links_carry_the_same(self) -> None:
        found = []
        for shards in ((), "measured"):
            model, optimizer = self.distribute(policy="wfbp", shards=shards, fusion="all")
            for step in range(24):
                loss_of(model, torch.arange(step, step + 4) % SAMPLES + self.group.rank).backward()
                optimizer.step()
            model.synchronize()
            found.append([one.detach().clone() for one in model.parameters()])
            model.close()
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(*found)))

    def test_weights_are_planned(self) -> None:
        weights = dear.shard_weights([3, 3, 1], policy="wfbp")
        self.assertAlmostEqual(weights[2], 0, 6)
        self.assertAlmostEqual(weights.gain, 4 / 3, 6)
        self.assertEqual(list(dear.shard_weights([3, 3, 1])), [1 / 3] * 3)
        self.assertAlmostEqual(dear.shard_weights([9e9] * 2, update=[3, 1])[0], 0.75, 4)
        with self.assertRaisesRegex(dear.ConfigError, "one of each for each rank"):
            dear.shard_weights([1, 2], receive=[1])
        with self.assertRaisesRegex(dear.ConfigError, "above 0"):
            dear.shard_weights([1, 0])


class Refusals(Case):
    def test_are_one_sentence_on_every_rank(self) -> None:
        refused: list[tuple[dict[str, Any], str]] = [
            ({"balance": "guessed"}, "guessed"),
            ({"balance": [1, 2, 3]}, "3 weights for 2 ranks"),
            ({"balance": [1, -1]}, "-1 for rank 1"),
            ({"balance": [0, 0]}, "0 for rank 0"),
            ({"balance": [float("nan"), 1]}, "nan for rank 0"),
            ({"balance": []}, "empty list"),
            ({"balance": "measured", "rounds": dear.LocalSGD(every=2)}, "leave one out"),
            ({"shards": "guessed"}, "guessed"),
            ({"shards": "measured", "ownership": "whole"}, "equal shards"),
            ({"shards": [1, 2, 3]}, "3 weights of shards for 2 ranks"),
            ({"shards": [1, -1]}, "-1 for rank 1"),
            ({"shards": [0, 0]}, "all 0"),
            ({"shards": [1, 2], "ownership": "whole"}, "equal shards"),
        ]
        for options, text in refused:
            with self.subTest(options), self.assertRaisesRegex(dear.ConfigError, text):
                self.distribute(**options)
        with self.assertRaisesRegex(dear.MismatchError, "balance"):
            self.distribute(balance=[1, 1 + self.group.rank])

    def test_of_samplers(self) -> None:
        model, _ = self.distribute()
        with self.assertRaisesRegex(dear.ConfigError, "give the training a balance"):
            dear.BalancedSampler(SAMPLES, model, batch_size=4)
        with self.assertRaisesRegex(dear.ConfigError, "give the training a balance"):
            model.batch_share()
        model.close()
        model, _ = self.distribute(balance=[1, 1])
        for length, batch in ((SAMPLES, 1), (1, 2)):
            with self.assertRaises(dear.ConfigError):
                dear.BalancedSampler(length, model, batch_size=batch)
        with self.assertRaisesRegex(dear.ConfigError, "there is no rank 2"):
            model.batch_share(2)
        model.close()


class Launched(unittest.TestCase):
    def test_on_two_ranks(self) -> None:
        command = [DEAR, "launch", "-n", str(RANKS), "--", sys.executable, "-B", __file__, "RANK", *PARTS]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110)
        self.assertEqual(ended.returncode, 0, ended.stdout[-6000:] + ended.stderr[-6000:])


if __name__ == "__main__":
    if sys.argv[1] == "RANK":
        faulthandler.dump_traceback_later(100, exit=True)
        unittest.main(argv=[sys.argv[0], *(sys.argv[2:] or ["Batches", "Shards", "Refusals"])])
    else:
        DEAR, PARTS = sys.argv[1], sys.argv[2:]
        unittest.main(argv=[sys.argv[0], "Launched"])
