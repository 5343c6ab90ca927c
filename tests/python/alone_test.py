"""One rank that trains alone: its optimiser steps as it is."""

import unittest

import torch
from torch import nn

import dear


def job() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def backward(model: nn.Module, step: int) -> None:
    samples = torch.randn(4, 8, generator=torch.Generator().manual_seed(step))
    model(samples).square().mean().backward()


class Alone(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)

    def train(self, distributed: bool) -> torch.Tensor:
        model, optimizer = job()
        if distributed:
            model, optimizer = dear.distribute(model, optimizer)
        for step in range(4):
            optimizer.zero_grad()
            backward(model, 10 + step)
            optimizer.zero_grad()  # gives that pass up
            backward(model, 20 + step)
            backward(model, 30 + step)  # accumulates
            optimizer.step()
        return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

    def test_trains_to_the_same_bits_as_without(self):
        self.assertTrue(torch.equal(self.train(distributed=True), self.train(distributed=False)))

    def test_a_mistyped_fusion_is_told_of_all_that_there_are(self):
        model = nn.Linear(2, 2)
        for fusion in ("autoo", "auto=", "auto=7", ""):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            with self.assertRaisesRegex(dear.ConfigError, "such as 25MiB.*planned, auto or auto=SIZE"):
                dear.distribute(model, optimizer, fusion=fusion)

    def test_a_parameter_that_the_optimiser_no_longer_holds_is_refused(self):
        def another_tensor(groups):
            groups[0]["params"][1] = nn.Parameter(torch.zeros(16))

        def one_tensor_less(groups):
            groups[0]["params"] = groups[0]["params"][:-1]

        for change in (another_tensor, one_tensor_less):
            with self.subTest(change.__name__):
                model, optimizer = dear.distribute(*job())
                backward(model, 1)
                optimizer.step()
                change(optimizer.param_groups)
                backward(model, 2)
                with self.assertRaisesRegex(dear.ConfigError, "optimiser does not hold it"):
                    optimizer.step()


if __name__ == "__main__":
    unittest.main()
