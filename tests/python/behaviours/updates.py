"""Optimisers that nobody knows, and what programs do with any: the program's object updates the parameters."""

from __future__ import annotations

import abc
import copy
import os
import tempfile
from typing import Any

import torch
from torch import nn

import dear

from .registry import RANK, batch, behaviour, mlp, plain, refuses, same, sgd, square, together

NEAR = 2e-6  # gradients are averaged in another order in the first iteration


class Base(abc.ABC, torch.optim.Optimizer):
    """Whose objects lie in memory otherwise than those of classes that have Optimizer first."""


class StepInGroup(Base):
    """Adam, with its count of steps in the parameter group, as fused implementations have it."""

    def __init__(self, params: Any, lr: float = 1e-2) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
                state["m"].lerp_(p.grad, 0.1)
                state["v"].mul_(0.99).addcmul_(p.grad, p.grad, value=0.01)
                c1, c2 = 1 - 0.9 ** group["step"], 1 - 0.99 ** group["step"]
                p.addcdiv_(state["m"] / c1, (state["v"] / c2).sqrt().add_(1e-8), value=-group["lr"])
        return loss


class Lookahead(torch.optim.Optimizer):
    """Shares the groups of the optimiser inside, counts in itself, keeps weights by the identity of parameters."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner, self.count = inner, 0
        self.param_groups, self.defaults, self.state = inner.param_groups, inner.defaults, inner.state
        self.slow = {p: p.detach().clone() for g in self.param_groups for p in g["params"]}

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.inner.zero_grad(set_to_none)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.inner.step()
        self.count += 1
        if self.count % 2 == 0:
            for p, slow in self.slow.items():
                p.copy_(slow.lerp_(p, 0.5))


class Clipping(torch.optim.SGD):
    """Clips by the norm over all parameters, by PyTorch's own function, within step()."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        nn.utils.clip_grad_norm_([p for group in self.param_groups for p in group["params"]], 0.1)
        super().step()


class Sam(torch.optim.Optimizer):
    """Sharpness-aware minimisation: two backward passes a step, in halves or by a closure."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"rho": 0.05, "lr": 0.1})

    @torch.no_grad()
    def first_step(self) -> None:
        norm = sum((p.grad**2).sum() for group in self.param_groups for p in group["params"]).sqrt()
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["old"] = p.clone()
                p.add_(p.grad, alpha=float(group["rho"] / norm))
        self.zero_grad()

    @torch.no_grad()
    def second_step(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                p.copy_(self.state[p]["old"])
                p.add_(p.grad, alpha=-group["lr"])

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        if closure is None:
            return self.second_step()
        with torch.enable_grad():
            closure()
        self.first_step()
        with torch.enable_grad():
            closure()
        self.second_step()


def clamping(model: nn.Module) -> torch.optim.Optimizer:
    """Whose step() the program has replaced on the object."""
    optimizer = sgd(model)
    old = optimizer.step

    def step(*args: Any) -> Any:
        result = old(*args)
        with torch.no_grad():
            for p in model.parameters():
                p.clamp_(-0.1, 0.1)
        return result

    optimizer.step = step  # type: ignore[method-assign]
    return optimizer


UNKNOWN = {
    "a count in the group": lambda model: StepInGroup(model.parameters()),
    "Lookahead": lambda model: Lookahead(sgd(model)),
    "clips within step()": lambda model: Clipping(model.parameters(), 0.1, momentum=0.9),
    "a replaced step()": clamping,
}


@behaviour(
    "(users) optimisers that nobody knows",
    "a count in the group, wrappers, clipping within step(), a replaced step(): each trains as on one process",
)
def unknown_optimisers() -> None:
    for name, optimizer in UNKNOWN.items():
        reference = plain(mlp, optimizer=optimizer, steps=5)
        for policy in ("dear", "dear-eager"):
            parallel = together(mlp, optimizer=optimizer, steps=5, policy=policy, fusion="all")
            same(parallel, reference, NEAR)
            assert parallel.schedule()["policy"] == "wfbp", name
            parallel.close()


@behaviour(
    "(users) optimisers that nobody knows",
    "their state is real: read, reset, saved, resumed; the object can be copied; it goes on alone after close()",
)
def state_of_unknown() -> None:
    whole = plain(mlp, optimizer=UNKNOWN["a count in the group"], steps=6)
    parallel = together(mlp, optimizer=UNKNOWN["a count in the group"], steps=3)
    optimizer = parallel.optimizer
    first = next(parallel.parameters())
    assert optimizer.state_dict()["param_groups"][0]["step"] == 3 and optimizer.state[first]["m"].shape == first.shape
    assert type(copy.deepcopy(optimizer)) is StepInGroup
    with tempfile.TemporaryDirectory() as mine:
        folder = [mine]
        torch.distributed.broadcast_object_list(folder, 0)
        path = os.path.join(folder[0], "last.pt")
        dear.save(path, parallel, 3)
        parallel.close()
        assert type(optimizer) is StepInGroup and optimizer.state[first]
        again, stepping = dear.distribute(made := mlp(), StepInGroup(made.parameters()), fusion="layer")
        dear.load(path, again, say=lambda sentence: None)
        for step in range(3, 6):
            square(again, step, RANK).backward()
            stepping.step()
        same(again, whole, NEAR)
        again.close()
        torch.distributed.barrier()


@behaviour(
    "(users) sharpness-aware minimisation",
    "two backward passes a step: in halves, or by a closure that step() calls twice",
)
def two_passes_a_step() -> None:
    def by_halves(model: Any, optimizer: Any, losses: Any) -> None:
        losses().backward()
        optimizer.first_step()
        losses().backward()
        optimizer.step()

    def by_closure(model: Any, optimizer: Any, losses: Any) -> None:
        def closure() -> Any:
            optimizer.zero_grad()
            loss = losses()
            loss.backward()
            return loss

        optimizer.step(closure)

    for how in (by_halves, by_closure):
        reference = mlp()
        optimizer = Sam(reference.parameters())
        for step in range(4):
            optimizer.zero_grad()
            how(reference, optimizer, lambda: (square(reference, step, 0) + square(reference, step, 1)) / 2)
        parallel, ours = dear.distribute(made := mlp(), Sam(made.parameters()), fusion="layer")
        for step in range(4):
            ours.zero_grad()
            how(parallel, ours, lambda: square(parallel, step, RANK))
        same(parallel, reference, NEAR)
        parallel.close()


class ByLoss(torch.optim.Optimizer):
    """Steps as far as the loss says that its closure returns."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: Any) -> Any:
        with torch.enable_grad():
            loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(p.grad * (group["lr"] * float(loss)))
        return loss


@behaviour(
    "(users) an optimiser that reads the loss of its closure",
    "it gets the mean over ranks, so that it makes the same step on each",
)
def loss_of_a_closure() -> None:
    def steps(model: Any, optimizer: Any, losses: Any, as_number: bool) -> None:
        for step in range(4):

            def closure() -> Any:
                optimizer.zero_grad()
                loss = losses(step)
                loss.backward()
                return loss.item() if as_number else loss

            optimizer.step(closure)

    for as_number in (False, True):
        reference = mlp()
        union = lambda step: (square(reference, step, 0) + square(reference, step, 1)) / 2  # noqa: E731
        steps(reference, ByLoss(reference.parameters()), union, as_number)
        parallel, ours = dear.distribute(made := mlp(), ByLoss(made.parameters()), fusion="layer")
        steps(parallel, ours, lambda step: square(parallel, step, RANK), as_number)
        same(parallel, reference, NEAR)
        parallel.close()


@behaviour(
    "(users) gradients changed between backward() and step()",
    'with update="program" as under DDP; else after reduce_gradients(), and refused before',
)
def changed_gradients() -> None:
    def change(model: nn.Module, kind: str) -> None:
        with torch.no_grad():
            for p in list(model.parameters())[:3]:
                if kind == "clamped":
                    p.grad.clamp_(-0.01, 0.01)
                elif kind == "replaced":
                    p.grad = p.grad * 2
                elif kind == "by torch.nn.utils":
                    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                else:
                    p.grad = None

    for kind in ("clamped", "replaced", "by torch.nn.utils", "dropped"):
        reference = mlp()
        optimizer = sgd(reference)
        for step in range(3):
            optimizer.zero_grad()
            ((square(reference, step, 0) + square(reference, step, 1)) / 2).backward()
            change(reference, kind)
            optimizer.step()
        for options in ({"update": "program"}, {"policy": "dear"}, {"policy": "wfbp"}):
            if kind == "by torch.nn.utils" and "policy" in options:
                continue
            parallel, ours = dear.distribute(made := mlp(), sgd(made), fusion="layer", **options)
            for step in range(3):
                square(parallel, step, RANK).backward()
                if "policy" in options:
                    ours.reduce_gradients()
                change(made, kind)
                ours.step()
            same(parallel, reference, NEAR)
            parallel.close()
    parallel, ours = dear.distribute(made := mlp(), sgd(made), fusion="layer")
    square(parallel, 0, RANK).backward()
    change(made, "clamped")
    refuses(dear.ConfigError, ours.step, "reduce_gradients()", "rank")


@behaviour("(users) hooks of an optimiser before step()", "they see whole gradients, and what they write is applied")
def hooks_before_step() -> None:
    def clamp(optimizer: Any, *_: Any) -> None:
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.grad.clamp_(-0.01, 0.01)

    def hooked(model: nn.Module) -> torch.optim.Optimizer:
        optimizer = sgd(model)
        optimizer.register_step_pre_hook(clamp)
        return optimizer

    same(together(mlp, optimizer=hooked), plain(mlp, optimizer=hooked), NEAR)
    refuses(dear.ConfigError, lambda: together(mlp, optimizer=hooked, policy="dear-eager"), "hook", "dear-eager")


@behaviour("(users) state of an optimiser", "it is read or edited while it lies in shards", "refused, with the remedy")
def state_in_shards() -> None:
    parallel = together(mlp, steps=2)
    optimizer, first = parallel.optimizer, next(parallel.parameters())
    for use in (
        lambda: optimizer.state[first],
        lambda: optimizer.state.clear(),
        lambda: list(optimizer.state.values()),
        lambda: first in optimizer.state,
        lambda: setattr(optimizer, "state", {}),
    ):
        refuses(dear.ConfigError, use, "state_dict()", 'update="program"')
    assert optimizer.state_dict()["state"][0]["momentum_buffer"].shape == first.shape
    parallel.close()
    assert optimizer.state[first]["momentum_buffer"].shape == first.shape


@behaviour(
    "(users) memory of parameters that others hold",
    "a view, an array, a frozen parameter on a trained weight: parameters stay where they are",
)
def memory_of_others() -> None:
    class Held(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp()
            self.other = nn.Parameter(self.net[2].weight.data, requires_grad=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = torch.tanh(self.net[2](torch.tanh(self.net[0](x))))
            return self.net[4](hidden + 0.3 * hidden @ self.other.t())

    same(together(Held), plain(Held), NEAR)
    made = mlp()
    array = made[0].weight.detach().numpy()
    refuses(dear.ConfigError, lambda: dear.distribute(made, sgd(made), update="sharded"), "'0.weight'")
    parallel, optimizer = dear.distribute(made, sgd(made))
    parallel(batch(0, RANK)).square().mean().backward()
    optimizer.step()
    assert torch.equal(torch.from_numpy(array), made[0].weight)


@behaviour(
    "(users) names of the user's model that are DeAR's, too",
    "the model's own attributes and methods, also those that are set later; dear.own(model) has DeAR's",
    "as DDP, and more: attributes of the model show",
)
def names_of_the_model() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp()
            self.rank, self.statistics = "mine", nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x) + self.statistics(x)

        def trace(self) -> str:
            return "the model's"

    parallel = together(Named, steps=2)
    assert (
        parallel.rank == "mine"
        and parallel.trace() == "the model's"
        and parallel.statistics is parallel.module.statistics
    )
    assert parallel.world_size == 2 and isinstance(parallel, dear.DataParallel)
    assert dear.own(parallel).rank == RANK and dear.own(parallel).statistics()["iterations"] == 2
    parallel.schedule = "set later"
    assert parallel.module.schedule == parallel.schedule == "set later" and "policy" in dear.own(parallel).schedule()
    square(parallel, 2, RANK).backward()
    parallel.optimizer.step()
    same(parallel, plain(Named, steps=3))
    dear.own(parallel).close()


@behaviour(
    "(users) gradients from before distribute()",
    "zero_grad() before the first step drops them; without it they count, as in plain PyTorch",
)
def old_gradients() -> None:
    def begun() -> nn.Module:
        model = mlp()
        square(model, 7, 0).backward()
        return model

    for update in ("auto", "program"):
        parallel = together(begun, update=update)
        same(parallel, plain(mlp), NEAR)
        parallel.close()


@behaviour(
    "(users) close() after a step that was given up",
    "zero_grad() after the backward pass gives the step up, then close() ends the training",
)
def closed_after_zero_grad() -> None:
    for update in ("auto", "program"):
        parallel = together(mlp, update=update)
        square(parallel, 3, RANK).backward()
        parallel.optimizer.zero_grad()
        parallel.close()
        same(parallel, plain(mlp), NEAR)


@behaviour("(users) models without values", "a model on the meta device", "refused, with the remedy")
def meta_models() -> None:
    with torch.device("meta"):
        model = mlp()
    refuses(dear.ConfigError, lambda: dear.distribute(model, sgd(model)), "'0.weight'", "meta", "to_empty")


@behaviour("(users) a report of steps that raises", "the reports after it have their turn, so that ranks stay in step")
def report_that_raises() -> None:
    parallel, optimizer = dear.distribute(made := mlp(), sgd(made), fusion="layer")
    seen = []

    def fail(metrics: Any) -> None:
        if RANK == 0 and metrics.iteration == 1:
            raise ValueError("no room")

    parallel.on_step(fail)
    parallel.on_step(seen.append, ranks="reduced")
    for step in range(4):
        square(parallel, step, RANK).backward()
        try:
            optimizer.step()
        except ValueError:
            assert RANK == 0 and step == 1
    same(parallel, plain(mlp))
    assert len(seen) == (4 if RANK == 0 else 0)
