"""What a case of the behaviours needs: its row in docs/ddp_behaviours.md, data by rank, and plain PyTorch beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import dear

RANK = int(os.environ.get("RANK", "0"))
WORLD = int(os.environ.get("WORLD_SIZE", "1"))


@dataclass(frozen=True)
class Row:
    """A behaviour that the tests of torch.nn.parallel.DistributedDataParallel check."""

    theirs: str  # the names of their tests
    what: str
    verdict: str  # "as DDP", "refused", or what differs
    case: Callable[[], None]


ROWS: list[Row] = []


def behaviour(theirs: str, what: str, verdict: str = "as DDP") -> Callable[[Callable[[], None]], Callable[[], None]]:
    def register(case: Callable[[], None]) -> Callable[[], None]:
        ROWS.append(Row(theirs, what, verdict, case))
        return case

    return register


def batch(step: int, rank: int, rows: int = 4, features: int = 8) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(rows, features, generator=generator)


def mlp() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


Loss = Callable[[nn.Module, int, int], torch.Tensor]


def square(model: nn.Module, step: int, rank: int) -> torch.Tensor:
    return model(batch(step, rank)).square().mean()


def plain(
    make: Callable[[], nn.Module],
    loss: Loss | Sequence[Loss] = square,
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] = sgd,
    steps: int = 4,
) -> nn.Module:
    """One process, the gradients of all ranks added in their order and averaged. Several losses are accumulated."""
    losses = loss if isinstance(loss, Sequence) else [loss]
    model = make()
    chosen = optimizer(model)
    for step in range(steps):
        totals: dict[torch.Tensor, torch.Tensor] = {}
        for rank in range(WORLD):
            model.zero_grad()
            for one in losses:
                one(model, step, rank).backward()
            for parameter in model.parameters():
                if parameter.grad is not None:
                    gradient = parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad
                    before = totals.get(parameter)
                    totals[parameter] = gradient.clone() if before is None else before + gradient
        model.zero_grad()
        for parameter, total in totals.items():
            parameter.grad = total / WORLD
        chosen.step()
    return model


def together(
    make: Callable[[], nn.Module],
    loss: Loss = square,
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] = sgd,
    steps: int = 4,
    **options: Any,
) -> dear.DataParallel:
    model = make()
    parallel, chosen = dear.distribute(model, optimizer(model), **{"fusion": "layer", **options})
    for step in range(steps):
        chosen.zero_grad()
        loss(parallel, step, RANK).backward()
        chosen.step()
    parallel.synchronize()
    return parallel


def same(parallel: nn.Module, reference: nn.Module, tolerance: float = 0.0) -> None:
    mine = dict(parallel.named_parameters())
    theirs = dict(reference.named_parameters())
    assert mine.keys() == theirs.keys(), (mine.keys(), theirs.keys())
    for name, tensor in theirs.items():
        if tolerance == 0:
            assert torch.equal(mine[name], tensor), f"{name} differs by {(mine[name] - tensor).abs().max().item()}"
        else:
            torch.testing.assert_close(mine[name], tensor, rtol=tolerance, atol=tolerance)


def refuses(kind: type[BaseException], act: Callable[[], Any], *words: str) -> None:
    try:
        act()
    except kind as error:
        missing = [word for word in words if word not in str(error)]
        assert not missing, f"{error} does not say {missing}"
        return
    raise AssertionError(f"no {kind.__name__}")
