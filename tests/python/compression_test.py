"""Training from Python with gradients that travel compressed:  compression_test.py DEAR

Under `DEAR launch` this file is the program of each rank.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import unittest

import torch
from torch import nn

import dear

STEPS = 6


def job() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(16, 96), nn.ReLU(), nn.Linear(96, 96), nn.Linear(96, 2))
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, first: int, steps: int) -> None:
    for step in range(first, first + steps):
        optimizer.zero_grad()
        samples = torch.randn(4, 16, generator=torch.Generator().manual_seed(10 * step + rank))
        model(samples).square().mean().backward()
        optimizer.step()


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([value.flatten() for value in model.state_dict().values()])


class OnTwoRanks(unittest.TestCase):
    def setUp(self) -> None:
        torch.set_num_threads(1)
        self.group = dear.init()

    def trained(self, compression: str) -> torch.Tensor:
        model, optimizer = dear.distribute(*job(), process_group=self.group, compression=compression, fusion="layer")
        train(model, optimizer, self.group.rank, 0, STEPS)
        report = model.compression_report()
        self.assertEqual(report["steps"], STEPS if compression else 0)
        if compression:
            self.assertGreater(report["bytes"], 0)
            self.assertLessEqual(report["bytes"], report["dense_bytes"] * 2)  # indices take as much as values
        result = weights(model)
        model.close()
        return result

    def test_lossless_schemes_train_as_dense_gradients_do(self) -> None:
        dense = self.trained("")
        for compression in ("random-k:1", "top-k:1,ef", "sketch", "sketch,exact", "sketch,most-density=1"):
            self.assertTrue(torch.equal(self.trained(compression), dense), compression)

    def test_an_embedding_learns_as_with_dense_gradients_under_adam(self) -> None:
        def trained(compression: str) -> tuple[torch.Tensor, dict[str, float]]:
            torch.manual_seed(1)
            words = nn.Embedding(4000, 50)
            model, optimizer = dear.distribute(
                words,
                torch.optim.Adam(words.parameters(), 0.01),
                process_group=self.group,
                compression=compression,
                fusion="layer",
            )
            for step in range(30):
                seen = torch.randint(
                    0, 3000, (32,), generator=torch.Generator().manual_seed(10 * step + self.group.rank)
                )
                loss = (model(seen) - 1).square().mean()
                (loss * 1e6 if step % 10 == 5 else loss).backward()
                optimizer.step()
                optimizer.zero_grad()
            model.synchronize()
            report = model.compression_report() if compression else {}
            result = words.weight.detach().clone()
            model.close()
            return result, report

        dense, _ = trained("")
        torch.manual_seed(1)
        self.assertTrue(torch.equal(dense[3000:], nn.Embedding(4000, 50).weight[3000:]))
        for compression in ("sketch", "sketch,block=16", "sketch,block=16,index=bloom", "sketch,exact"):
            with self.subTest(compression):
                weights, report = trained(compression)
                self.assertTrue(torch.equal(weights, dense))
                self.assertLess(report["bytes"], report["dense_bytes"] / 3)
                self.assertEqual(report["not_finite"], 0)

    def test_what_comes_out_infinite_is_counted(self) -> None:
        weight = nn.Linear(64, 64, bias=False)
        model, optimizer = dear.distribute(
            weight, torch.optim.SGD(weight.parameters(), lr=0.1), process_group=self.group, compression="fp16"
        )
        for scale in (1.0, 1e5):
            (scale * model(torch.ones(1, 64))).sum().backward()
            optimizer.step()
        model.synchronize()
        self.assertEqual(model.compression_report()["not_finite"], 1)
        model.close()

    def test_a_saved_state_goes_on_bit_for_bit(self) -> None:
        for compression in ("top-k:0.05,ef", "random-block:0.1,ef,momentum=0.5", "low-rank:2,ef"):
            with self.subTest(compression):
                expected = self.trained(compression)
                file = io.BytesIO()
                model, optimizer = dear.distribute(
                    *job(), process_group=self.group, compression=compression, fusion="layer"
                )
                train(model, optimizer, self.group.rank, 0, 4)
                states = [model.state_dict(), optimizer.state_dict(), model.compression_state_dict()]
                torch.save(states, file)
                model.close()
                file.seek(0)
                model, optimizer = dear.distribute(
                    *job(), process_group=self.group, compression=compression, fusion="layer"
                )
                train(model, optimizer, self.group.rank, 100, 1)
                of_model, of_optimizer, of_compression = torch.load(file)
                model.load_state_dict(of_model)
                optimizer.load_state_dict(of_optimizer)
                model.load_compression_state_dict(of_compression)
                train(model, optimizer, self.group.rank, 4, STEPS - 4)
                self.assertTrue(torch.equal(weights(model), expected))
                model.close()

    def test_refuses_what_cannot_be(self) -> None:
        for compression, naming in (("top-j", "top-k"), ("top-k:2", "ratio"), ("sketch,ef", "ef")):
            with self.assertRaisesRegex(dear.ConfigError, naming):
                dear.distribute(*job(), process_group=self.group, compression=compression, fusion="layer")
        with self.assertRaisesRegex(dear.ConfigError, "dear-eager"):
            dear.distribute(*job(), process_group=self.group, compression="bf16", policy="dear-eager")
        model, optimizer = dear.distribute(*job(), process_group=self.group)
        with self.assertRaises(dear.ScheduleError):
            model.compression_state_dict()
        model.close()

    def test_a_state_of_another_model_is_refused(self) -> None:
        model, optimizer = dear.distribute(*job(), process_group=self.group, compression="top-k:0.05,ef")
        train(model, optimizer, self.group.rank, 0, 1)
        state = model.compression_state_dict()
        state["parameters"]["7.weight"] = next(iter(state["parameters"].values()))
        with self.assertRaisesRegex(dear.ConfigError, "7.weight"):
            model.load_compression_state_dict(state)
        model.close()


class Launched(unittest.TestCase):
    def test_on_two_ranks(self) -> None:
        command = [DEAR, "launch", "-n", "2", sys.executable, "-B", __file__, DEAR]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout.count("\n[0] OK") + done.stdout.count("\n[1] OK"), 2, done.stdout)


if __name__ == "__main__":
    DEAR = sys.argv.pop(1)
    launched = "DEAR_RANK" in os.environ or "RANK" in os.environ
    unittest.main(defaultTest="OnTwoRanks" if launched else "Launched")
