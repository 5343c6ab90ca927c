"""The mixtures of experts and the networks of moe_test.py, and their batches."""

from __future__ import annotations

import types
import unittest
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import dear

WIDTH, HIDDEN, EXPERTS = 12, 20, 8
GATES: list[dict[str, Any]] = [
    {"gate": "switch", "capacity_factor": 1.25},
    {"gate": "switch", "capacity_factor": 0.5},
    {"gate": "top2", "capacity_factor": 1.25},
    {"gate": "batch-prioritized", "top_k": 2, "capacity_factor": 0.75},
]
DOUBLE = torch.float64

groups: Any = types.SimpleNamespace()  # pair: this rank and its neighbour; gloo: all ranks


def layer(group: Any = None, dtype: Any = None, **options: Any) -> dear.MoE:
    torch.manual_seed(7)
    return dear.MoE(WIDTH, HIDDEN, experts=EXPERTS, process_group=group, dtype=dtype, **options)


def batch(rank: int, samples: int = 8, step: int = 0, dtype: Any = None) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(samples, 5, WIDTH, generator=generator, dtype=dtype)
    return x + 0.8 * torch.arange(WIDTH).remainder(3)  # some experts get more than others


class Case(unittest.TestCase):
    def setUp(self) -> None:
        self.rank = dist.get_rank()

    def assertSameBits(self, found: list[Any], expected: list[Any]) -> None:
        self.assertEqual(len(found), len(expected))
        for number, (one, other) in enumerate(zip(found, expected)):
            self.assertTrue(torch.equal(one, other), f"tensor {number}")


class Net(nn.Module):
    """Two blocks of a Linear layer and a mixture."""

    def __init__(self, group: Any = None, dtype: Any = None, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first = nn.Linear(WIDTH, WIDTH, dtype=dtype)
        self.mixtures = nn.ModuleList(layer(group, dtype, **options) for _ in range(2))
        self.between = nn.Linear(WIDTH, WIDTH, dtype=dtype)
        self.last = nn.Linear(WIDTH, 2, dtype=dtype)
        self.checkpointed = ""

    def block(self, number: int, x: Tensor) -> Tensor:
        return x + self.mixtures[number]((self.first, self.between)[number](x))

    def forward(self, x: Tensor) -> Tensor:
        for number in range(2):
            if self.checkpointed and torch.is_grad_enabled():
                x = checkpoint(self.block, number, x, use_reentrant=self.checkpointed == "reentrant")
            else:
                x = self.block(number, x)
        return self.last(x)


def gradients(net: nn.Module) -> list[Tensor]:
    return [parameter.grad.clone() for parameter in net.parameters() if parameter.grad is not None]
