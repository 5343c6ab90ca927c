"""The models of pipeline_test.py, and one process that trains them: what a pipeline is held to."""

from __future__ import annotations

import json
import random
import types
import unittest
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

import dear

DOUBLE = torch.float64
groups: Any = types.SimpleNamespace()  # pair: this rank and its neighbour; all: all ranks
KINDS = ("linear", "norm", "add", "cat", "chunk", "mask", "tanh", "in place", "twice", "shape")


class Drawn(nn.Module):
    """A DAG that a seed draws: each operator reads one or two of those before, near or far."""

    def __init__(self, seed: int, width: int = 6, operators: int = 12, dtype: torch.dtype = DOUBLE) -> None:
        super().__init__()
        draw = random.Random(seed)
        torch.manual_seed(seed)
        self.first = nn.Embedding(9, width, dtype=dtype)
        self.layers = nn.ModuleList()
        self.recipe: list[tuple[str, int, int, int]] = []
        self.scale = nn.Parameter(torch.randn(width, dtype=dtype))
        for number in range(operators):
            kind = draw.choice(KINDS)
            made = {
                "linear": lambda: nn.Linear(width, width, dtype=dtype),
                "norm": lambda: nn.LayerNorm(width, dtype=dtype),
                "cat": lambda: nn.Linear(2 * width, width, dtype=dtype),
                "chunk": lambda: nn.Linear(width, 2 * width, dtype=dtype),
            }.get(kind, nn.Identity)()
            self.layers.append(made)
            self.recipe.append((kind, number, draw.randint(max(0, number - 3), number), draw.randint(0, number)))
        self.last = nn.Linear(width, 9, bias=False, dtype=dtype)
        if draw.random() < 0.5:
            self.last.weight = self.first.weight

    def forward(self, ids: Tensor) -> Tensor:
        values = [self.first(ids)]
        even = ids % 2 == 0
        for kind, number, near, far in self.recipe:
            x, y, layer = values[near], values[far], self.layers[number]
            if kind == "add":
                x = x + 0.5 * y
            elif kind == "cat":
                x = layer(torch.cat([x, y], -1))
            elif kind == "chunk":
                first, second = layer(x).chunk(2, -1)
                x = first * torch.sigmoid(second)
            elif kind == "mask":
                x = torch.where(even[..., None], x, y * self.scale)
            elif kind == "tanh":
                x = torch.tanh(x)
            elif kind == "in place":
                x = (x * 2).relu_() + y
            elif kind == "twice":
                x = self.layers[0](x) if self.recipe[0][0] == "linear" else x - y
            elif kind == "shape":
                batch, length, width = x.shape
                x = x.view(batch * length, width).view_as(y) + torch.arange(width, dtype=x.dtype)
            else:
                x = layer(x)
            values.append(x)
        return self.last(values[-1] + values[len(values) // 2])


def cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    return functional.cross_entropy(output.flatten(0, -2), target.flatten())


def ids(seed: int, samples: int = 8) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    both = torch.randint(0, 9, (2, samples, 5), generator=generator)
    return both[0], both[1]


def alone(model: nn.Module, x: Any, y: Any, loss: Callable[[Any, Any], Tensor], micro_batches: int) -> Tensor:
    """One process that accumulates gradients over the same micro-batches."""
    total: Any = 0
    cut = {name: value.chunk(micro_batches) for name, value in x.items()} if isinstance(x, dict) else None
    for number in range(micro_batches):
        target = y.chunk(micro_batches)[number]
        if cut is None:
            output = model(x.chunk(micro_batches)[number])
        else:
            output = model(**{name: value[number] for name, value in cut.items()})
        one = loss(output, target) / micro_batches
        one.backward()
        total = total + one.detach()
    return total


def drawn_plan(plan: str, seed: int, ranks: int, schedule: str) -> str:
    """The plan with other cuts, on other ranks."""
    draw = random.Random(seed)
    document = json.loads(plan)
    names = [name for stage in document["stages"] for name in stage["operators"]]
    cuts = [0, *sorted(draw.sample(range(1, len(names)), ranks - 1)), len(names)]
    devices = draw.sample(sorted(stage["device"] for stage in document["stages"]), ranks)
    depth = document["micro_batches"]
    document["stages"] = []
    for number in range(ranks):
        stage: dict[str, Any] = {"device": devices[number]}
        if schedule in ("1f1b", "zb-h1"):
            depth = stage["warm_up"] = draw.randint(1, depth)
        stage["operators"] = names[cuts[number] : cuts[number + 1]]
        document["stages"].append(stage)
    document["schedule"] = schedule
    return json.dumps(document)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


class Case(unittest.TestCase):
    def setUp(self) -> None:
        self.rank = dist.get_rank()

    def assertAsAlone(self, pipe: dear.Pipeline, model: nn.Module, tolerance: float = 1e-12) -> None:
        """Gradients of this rank's parameters are those of the model."""
        expected = {name: parameter.grad for name, parameter in model.named_parameters()}
        for name, parameter in pipe.named_parameters():
            found, one = parameter.grad, expected[name]
            if one is None:
                self.assertTrue(found is None or not found.any(), name)
                continue
            self.assertIsNotNone(found, name)
            torch.testing.assert_close(
                found, one, rtol=tolerance, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}"
            )
