"""Ways in which programs use an optimiser. Each trains a model: as one process on all samples, or under DeAR on this rank's.

A way has the same lines for both; `Side` says which it is.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

STEPS, ROWS = 6, 4

Make = Callable[[Any], Any]  # an optimiser of parameters, or of parameter groups


class NotForIt(Exception):
    """The way does not fit the optimiser, in PyTorch alone: a sentence that says why."""


@dataclass
class Side:
    make: Make
    rank: int
    ranks: int
    wrap: Callable[[nn.Module, Any], tuple[nn.Module, Any]] | None  # DeAR's; none in one process
    in_parts: bool = False  # one process that averages the ranks' losses: the gradients of ranks, added in their order

    def model(self) -> nn.Module:
        torch.manual_seed(5)
        return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))

    def distribute(self, model: nn.Module, optimizer: Any) -> tuple[nn.Module, Any]:
        torch.manual_seed(9)  # some optimisers draw numbers
        return self.wrap(model, optimizer) if self.wrap else (model, optimizer)

    def loss(self, model: nn.Module, step: int, rank: int | None = None) -> torch.Tensor:
        generator = torch.Generator().manual_seed(100 + step)
        rows = torch.randn(ROWS * self.ranks, 11, generator=generator)
        if self.in_parts and rank is None:
            return sum((self.loss(model, step, one) for one in range(self.ranks)), torch.zeros(())) / self.ranks
        if self.wrap or rank is not None:
            rows = rows.chunk(self.ranks)[self.rank if rank is None else rank]
        return (model(rows[:, :8]) - rows[:, 8:]).square().mean()

    def closure(self, model: nn.Module, optimizer: Any, step: int) -> Callable[[], torch.Tensor]:
        def run() -> torch.Tensor:
            optimizer.zero_grad()
            loss = self.loss(model, step)
            loss.backward()
            return loss

        return run


def in_mode(optimizer: Any, mode: str) -> None:
    """Schedule-free optimisers are told which parameters are wanted."""
    if callable(getattr(optimizer, mode, None)):
        getattr(optimizer, mode)()


Each = Callable[[nn.Module, Any, int], None]


def train(
    side: Side, model: nn.Module, optimizer: Any, steps: range = range(STEPS), between: Each | None = None
) -> None:
    """`between`: what comes between backward and step()."""
    in_mode(optimizer, "train")
    for step in steps:
        optimizer.zero_grad()
        side.loss(model, step).backward()
        if between:
            between(model, optimizer, step)
        optimizer.step()


def values(model: nn.Module, optimizer: Any) -> list[torch.Tensor]:
    in_mode(optimizer, "eval")
    return [parameter.detach().clone() for parameter in getattr(model, "module", model).parameters()]


def begin(side: Side, make: Make | None = None) -> tuple[nn.Module, Any]:
    model = side.model()
    return side.distribute(model, (make or side.make)(model.parameters()))


def plainly(side: Side) -> list[torch.Tensor]:
    model, optimizer = begin(side)
    train(side, model, optimizer)
    return values(model, optimizer)


def in_groups(side: Side) -> list[torch.Tensor]:
    """Two parameter groups of different rates, which a loop changes by hand."""
    model = side.model()
    groups = [{"params": list(model[0].parameters())}, {"params": list(model[2:].parameters())}]
    optimizer = side.make(groups)
    optimizer.param_groups[1]["lr"] = optimizer.param_groups[0]["lr"] * 0.5
    model, optimizer = side.distribute(model, optimizer)

    def rates(_: nn.Module, used: Any, step: int) -> None:
        if step == 3:
            for group in used.param_groups:
                group["lr"] *= 0.5

    train(side, model, optimizer, between=rates)
    return values(model, optimizer)


def scheduled(side: Side) -> list[torch.Tensor]:
    model = side.model()
    optimizer = side.make(model.parameters())
    try:
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 / (1 + epoch))
    except TypeError as error:
        raise NotForIt(str(error)) from None
    model, optimizer = side.distribute(model, optimizer)
    in_mode(optimizer, "train")
    for step in range(STEPS):
        train(side, model, optimizer, range(step, step + 1))
        scheduler.step()
    return values(model, optimizer)


def clipped(side: Side) -> list[torch.Tensor]:
    def clip(model: nn.Module, optimizer: Any, step: int) -> None:
        reduce = getattr(model, "reduce_gradients", None)
        if reduce:
            reduce()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)

    model, optimizer = begin(side)
    train(side, model, optimizer, between=clip)
    return values(model, optimizer)


def accumulated(side: Side) -> list[torch.Tensor]:
    model, optimizer = begin(side)
    in_mode(optimizer, "train")
    for step in range(STEPS):
        sums: list[list[torch.Tensor]] = []  # by rank, where one process has the parts of all
        by_rank = side.in_parts and step > 0  # in the first iteration DeAR averages pass by pass
        for rank in range(side.ranks) if by_rank else [None]:
            optimizer.zero_grad()
            for part in range(2):
                (side.loss(model, 2 * step + part, rank) / 2).backward()
            if by_rank:
                sums.append([parameter.grad.clone() for parameter in model.parameters()])
        for parameter, *of_ranks in zip(model.parameters(), *sums) if by_rank else ():
            parameter.grad = sum(of_ranks[1:], of_ranks[0]) / side.ranks
        optimizer.step()
    return values(model, optimizer)


def resumed(side: Side) -> list[torch.Tensor]:
    """Saved after three steps, and loaded into new objects."""
    model, optimizer = begin(side)
    train(side, model, optimizer, range(3))
    saved = io.BytesIO()
    torch.save((model.state_dict(), optimizer.state_dict()), saved)
    if side.wrap:
        model.close()
    weights, state = torch.load(io.BytesIO(saved.getvalue()), weights_only=False)
    new = side.model()
    new.load_state_dict(weights)
    optimizer = side.make(new.parameters())
    optimizer.load_state_dict(state)
    model, optimizer = side.distribute(new, optimizer)
    train(side, model, optimizer, range(3, STEPS))
    return values(model, optimizer)


def with_closure(side: Side) -> list[torch.Tensor]:
    model, optimizer = begin(side)
    in_mode(optimizer, "train")
    for step in range(STEPS):
        optimizer.step(side.closure(model, optimizer, step))
    return values(model, optimizer)


def replaced(side: Side) -> list[torch.Tensor]:
    """A `step` of the object itself, as libraries set one, which steps twice at half the gradient."""
    model = side.model()
    optimizer = side.make(model.parameters())
    original = optimizer.step

    def twice(*arguments: Any, **named: Any) -> Any:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.mul_(0.5)
        original(*arguments, **named)
        return original(*arguments, **named)

    optimizer.step = twice
    model, optimizer = side.distribute(model, optimizer)
    train(side, model, optimizer)
    return values(model, optimizer)


class Lookahead(torch.optim.Optimizer):
    """Slow weights of a wrapped optimiser (Zhang et al. 2019, arXiv 1907.08610), whose groups and state are its own."""

    def __init__(self, base: Any) -> None:
        self.base = base
        self.param_groups, self.state, self.defaults = base.param_groups, base.state, base.defaults
        self.taken, self.slow = 0, [[p.detach().clone() for p in g["params"]] for g in base.param_groups]

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.base.zero_grad(set_to_none)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = self.base.step(closure) if closure else self.base.step()
        self.taken += 1
        if self.taken % 2 == 0:
            for group, slow in zip(self.param_groups, self.slow):
                for parameter, old in zip(group["params"], slow):
                    old.lerp_(parameter, 0.5)
                    parameter.copy_(old)
        return loss


def wrapped(side: Side) -> list[torch.Tensor]:
    model, optimizer = begin(side, lambda parameters: Lookahead(side.make(parameters)))
    train(side, model, optimizer)
    return values(model, optimizer)


def scaled(side: Side) -> list[torch.Tensor]:
    scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
    model, optimizer = begin(side)
    in_mode(optimizer, "train")
    for step in range(STEPS):
        optimizer.zero_grad()
        scaler.scale(side.loss(model, step)).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    return values(model, optimizer)


def grown(side: Side) -> list[torch.Tensor]:
    """The first layer is frozen for three steps, and joins as a group of its own."""
    model = side.model()
    model[0].requires_grad_(False)
    optimizer = side.make([parameter for parameter in model.parameters() if parameter.requires_grad])
    inner = model
    model, optimizer = side.distribute(model, optimizer)
    train(side, model, optimizer, range(3))
    inner[0].requires_grad_(True)
    optimizer.add_param_group({"params": list(inner[0].parameters())})
    train(side, model, optimizer, range(3, STEPS))
    return values(model, optimizer)


WAYS: dict[str, Callable[[Side], list[torch.Tensor]]] = {
    "plain loop": plainly,
    "groups": in_groups,
    "scheduler": scheduled,
    "clip_grad_norm_": clipped,
    "two passes": accumulated,
    "state_dict": resumed,
    "closure": with_closure,
    "step replaced": replaced,
    "Lookahead": wrapped,
    "GradScaler": scaled,
    "add_param_group": grown,
}

warnings.filterwarnings("ignore")
