"""States of optimisers, on other plans and numbers of ranks, and evaluation. Cases of pipeline_test.py."""

from __future__ import annotations

import copy
import unittest
from collections.abc import Callable
from typing import Any

import torch
from nets import DOUBLE, Case, Drawn, alone, cross_entropy, drawn_plan, groups, ids, sgd
from torch import Tensor, nn
from torch.nn import functional

import dear


def assertSameOptimizer(case: unittest.TestCase, found: dict[str, Any], expected: dict[str, Any]) -> None:
    case.assertEqual(found["param_groups"], expected["param_groups"])
    case.assertEqual(list(found["state"]), sorted(expected["state"]))
    for number, values in expected["state"].items():
        case.assertEqual(list(found["state"][number]), list(values))
        for key, value in values.items():
            torch.testing.assert_close(found["state"][number][key], value, rtol=1e-9, atol=1e-9)


def in_groups(model: Any) -> torch.optim.Optimizer:
    """The tied weight, which is the model's first and last, comes last."""
    tied = model.last.weight
    rest = [one for one in model.parameters() if one is not tied]
    return torch.optim.AdamW([{"params": rest, "lr": 0.02}, {"params": [tied], "weight_decay": 0.1}], eps=1e-3)


def named(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.named_parameters(), lr=0.1, momentum=0.9)


class States(Case):
    def train(self, pipe: dear.Pipeline, optimizer: Any, model: nn.Module, other: Any, steps: range) -> None:
        for step in steps:
            x, y = ids(step)
            optimizer.zero_grad()
            other.zero_grad()
            pipe.step(x, y, loss=cross_entropy)
            alone(model, x, y, cross_entropy, 4)
            optimizer.step()
            other.step()

    def assertSame(self, pipe: dear.Pipeline, model: nn.Module, other: Any) -> None:
        assertSameOptimizer(self, pipe.optimizer_state_dict(), other.state_dict())
        for name, value in pipe.state_dict().items():
            torch.testing.assert_close(value, model.state_dict()[name], rtol=1e-9, atol=1e-9)

    def made(self, make: Callable[[Any], Any], **options: Any) -> tuple[dear.Pipeline, Any]:
        model = Drawn(5)
        model.last.weight = model.first.weight
        options = {"micro_batches": None if "plan" in options else 4, **options}
        return dear.pipeline(model, make(model), sample=ids(0)[0], **options)

    def test_of_an_optimiser(self) -> None:
        """To another plan, to other ranks, and to and from one process."""
        for make in (in_groups, named):
            with self.subTest(make.__name__):
                model = Drawn(5)
                model.last.weight = model.first.weight
                other = make(model)
                pipe, optimizer = self.made(make)
                self.train(pipe, optimizer, model, other, range(2))
                self.assertSame(pipe, model, other)
                state, weights = pipe.optimizer_state_dict(), pipe.state_dict()
                plan = drawn_plan(pipe.plan, 3, 4, "gpipe")
                one = copy.deepcopy(model)
                alone_again = make(one)
                alone_again.load_state_dict(copy.deepcopy(state))
                others = (
                    (state, {"plan": plan}),
                    (alone_again.state_dict(), {"replicas": 2}),
                    (state, {"process_group": groups.pair, "schedule": "zb-h1"}),
                )
                for of_pipeline, options in others if make is in_groups else others[:1]:
                    pipe, optimizer = self.made(make, **options)
                    pipe.load_state_dict(weights)
                    pipe.load_optimizer_state_dict(of_pipeline)
                    expected = copy.deepcopy(model)
                    continued = make(expected)
                    continued.load_state_dict(copy.deepcopy(other.state_dict()))
                    self.train(pipe, optimizer, expected, continued, range(2, 4))
                    self.assertSame(pipe, expected, continued)

    def test_of_another_optimiser_are_refused(self) -> None:
        pipe, _ = self.made(in_groups)
        for bad in (sgd(nn.Linear(2, 2)).state_dict(), {"state": {}}, []):
            with self.assertRaisesRegex(dear.ConfigError, "groups of .* give a whole state") as caught:
                pipe.load_optimizer_state_dict(bad)  # type: ignore[arg-type]
            self.assertNotIn("\n", str(caught.exception))


class Moody(nn.Module):
    """Drops by module and by function, and has statistics of batches."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(9)
        self.layers = nn.ModuleList(nn.Linear(4, 4, dtype=DOUBLE) for _ in range(4))
        self.drop, self.norm = nn.Dropout(0.5), nn.BatchNorm1d(4, dtype=DOUBLE)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(self.layers[0](x))
        x = functional.dropout(self.layers[1](x), 0.5, self.training)
        return self.layers[3](self.norm(self.layers[2](x)))


class Branches(Moody):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x if self.training else x + 1)


class Evaluation(Case):
    def test_is_that_of_one_process(self) -> None:
        model = Moody()
        x = torch.randn(8, 4, dtype=DOUBLE, generator=torch.Generator().manual_seed(6))
        for options in ({}, {"schedule": "zb-h1"}, {"stages": 4, "process_group": groups.pair}, {"replicas": 2}):
            with self.subTest(**options):
                made = copy.deepcopy(model)
                pipe, _ = dear.pipeline(made, sgd(made), sample=x, micro_batches=4, **options)
                pipe.step(x, x, loss=functional.mse_loss)
                before = [parameter.grad.clone() for parameter in pipe.parameters() if parameter.grad is not None]
                if "replicas" in options:
                    x = x + self.rank % 2
                found = pipe.evaluate(x, x, loss=functional.mse_loss)
                expected = copy.deepcopy(model)
                expected.load_state_dict(pipe.state_dict())
                expected.eval()
                of_rank = functional.mse_loss(expected(x), x)
                if "replicas" in options:
                    torch.distributed.all_reduce(of_rank)
                    of_rank /= 4
                torch.testing.assert_close(found, of_rank, rtol=1e-12, atol=0)
                self.assertFalse(found.requires_grad)
                self.assertTrue(made.norm.training)
                after = [parameter.grad for parameter in pipe.parameters() if parameter.grad is not None]
                self.assertTrue(all(torch.equal(*both) for both in zip(before, after)))
                self.assertTrue(pipe.step(x, x, loss=functional.mse_loss).isfinite())

    def test_of_other_operators_is_refused(self) -> None:
        model = Branches()
        x = torch.ones(8, 4, dtype=DOUBLE)
        pipe, _ = dear.pipeline(model, sgd(model), sample=x, micro_batches=4)
        with self.assertRaisesRegex(
            dear.ConfigError, "cannot evaluate: in evaluation mode the model has other operators"
        ):
            pipe.evaluate(x, x, loss=functional.mse_loss)
        self.assertTrue(pipe.step(x, x, loss=functional.mse_loss).isfinite())
