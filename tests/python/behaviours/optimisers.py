"""Optimisers that look at more than one element at a time."""

from __future__ import annotations

import torch
from torch import nn

import dear

from .registry import RANK, WORLD, batch, behaviour, mlp, plain, refuses, same, square, together


def in_groups(kind, **options):
    """Matrices adapt, and decay; the rest does not."""

    def make(model: nn.Module) -> torch.optim.Optimizer:
        matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
        rest = [parameter for parameter in model.parameters() if parameter.dim() < 2]
        return kind(
            [{"params": matrices}, {"params": rest, "adapt": False, "weight_decay": 0.0}], weight_decay=0.1, **options
        )

    return make


lamb = in_groups(dear.LAMB, lr=0.02)
lars = in_groups(dear.LARS, lr=0.5, trust_coefficient=0.05, nesterov=True)


@behaviour(
    "test_zero_redundancy_optimizer test_sharding (classes)",
    "dear.LAMB and dear.LARS: norms of whole tensors over shards, the bits of one process",
)
def norms_of_tensors() -> None:
    for optimizer in (lamb, lars):
        reference = plain(mlp, optimizer=optimizer)
        for policy in ("serial", "wfbp", "dear-replicated", "dear"):
            same(together(mlp, optimizer=optimizer, policy=policy, fusion="all"), reference)
    model = mlp()
    refuses(dear.ConfigError, lambda: dear.distribute(model, lamb(model), policy="dear-eager"), "LAMB", "dear-eager")


@behaviour(
    "test_zero_redundancy_optimizer test_state_dict, test_collect_shards",
    "LAMB's state_dict() is whole, and goes on in plain PyTorch",
)
def state_of_lamb() -> None:
    parallel = together(mlp, optimizer=lamb, steps=2)
    parallel.regroup("all")
    state = parallel.optimizer.state_dict()
    assert state["state"][0]["step"] == 2 and state["state"][0]["exp_avg"].shape == (16, 8)
    for step in (2, 3):
        square(parallel, step, RANK).backward()
        parallel.optimizer.step()
    parallel.close()
    model = plain(mlp, optimizer=lamb, steps=2)
    model.zero_grad()
    alone = lamb(model)
    alone.load_state_dict(state)
    parallel, optimizer = dear.distribute(model, alone, fusion="layer")
    for step in (2, 3):
        square(parallel, step, RANK).backward()
        optimizer.step()
    same(parallel, plain(mlp, optimizer=lamb))


class Clipped(dear.TensorNormOptimizer):
    """Scales each tensor's gradient to a norm of at most 1."""

    norms = 1

    def __init__(self, params, lr: float) -> None:
        super().__init__(params, {"lr": lr})

    def propose(self, part, group, state):
        return (part.grad,)

    def apply(self, part, group, state, proposed, norms):
        part.add_(proposed[0], alpha=-group["lr"] / max(1.0, norms[0]))


@behaviour("(users) LAMB-like optimisers", "a user's optimiser that takes norms of tensors: dear.TensorNormOptimizer")
def own_optimizer_of_norms() -> None:
    def clipped(model: nn.Module) -> torch.optim.Optimizer:
        return Clipped(model.parameters(), lr=0.1)

    def loud(model, step, rank):
        return 100 * square(model, step, rank)

    same(together(mlp, loud, clipped, fusion="all"), plain(mlp, loud, clipped))


class Orthogonal(torch.optim.Optimizer):
    """A Muon of a few lines, which keeps a tensor of another shape, too. Parameter groups with use_muon=False are SGD's."""

    def __init__(self, params, lr: float) -> None:
        super().__init__(params, {"lr": lr, "use_muon": True})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                if not group["use_muon"]:
                    parameter.add_(parameter.grad, alpha=-group["lr"])
                    continue
                state = self.state[parameter]
                if not state:
                    state["momentum"], state["rows"] = torch.zeros_like(parameter), torch.zeros(len(parameter))
                x = state["momentum"].mul_(0.9).add_(parameter.grad)
                x = x / (x.norm() + 1e-7)
                for _ in range(3):
                    x = 1.5 * x - 0.5 * x @ x.T @ x
                state["rows"] += x.square().sum(1)
                parameter.sub_(group["lr"] * x / (1 + 0.1 * state["rows"][:, None]))


def split(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    return [p for p in model.parameters() if p.dim() > 1], [p for p in model.parameters() if p.dim() < 2]


def orthogonal(model: nn.Module) -> torch.optim.Optimizer:
    matrices, rest = split(model)
    return Orthogonal([{"params": matrices}, {"params": rest, "use_muon": False}], lr=0.05)


@behaviour(
    "test_zero_redundancy_optimizer test_sharding, test_multiple_param_groups",
    "a user's optimiser of whole matrices (Muon), with a group for the rest: one rank owns each matrix",
    'update="sharded", ownership="auto"',
)
def whole_matrices() -> None:
    reference = plain(mlp, optimizer=orthogonal)
    for policy in ("serial", "wfbp", "dear-replicated", "dear"):
        options = {"policy": policy, "fusion": "all", "update": "sharded", "ownership": "auto"}
        same(together(mlp, optimizer=orthogonal, **options), reference)
    same(together(mlp, fusion="all", ownership="whole", update_cost=lambda name, p: p.numel()), plain(mlp))
    model = mlp()
    refuses(
        dear.ConfigError,
        lambda: dear.distribute(model, orthogonal(model), update="sharded"),
        "Orthogonal",
        'ownership="auto"',
    )
    parallel = together(mlp, optimizer=orthogonal, steps=2, update="sharded", ownership="auto")
    state = parallel.optimizer.state_dict()
    assert state["state"][0]["rows"].shape == (16,) and state["state"][0]["momentum"].shape == (16, 8)
    assert len(state["state"]) == 3
    parallel.regroup("all")
    for step in (2, 3):
        square(parallel, step, RANK).backward()
        parallel.optimizer.step()
    same(parallel, reference)


@behaviour(
    "test_zero_redundancy_optimizer test_sharding (classes)",
    "torch.optim.Muon and torch.optim.Adafactor; several optimisers on one model",
    'ownership="auto", a list of optimisers',
)
def several_optimizers() -> None:
    def muon(model):
        return torch.optim.Muon(split(model)[0], lr=0.02)

    def adafactor(model):
        return torch.optim.Adafactor(split(model)[0], lr=0.02)

    def adamw(model):
        return torch.optim.AdamW(split(model)[1], lr=0.01)

    for first in (muon, adafactor):
        model = mlp()
        one, two = first(model), adamw(model)
        for step in range(3):
            model.zero_grad()
            totals = {}
            for rank in range(WORLD):
                for parameter, gradient in zip(
                    model.parameters(), torch.autograd.grad(square(model, step, rank), list(model.parameters()))
                ):
                    totals[parameter] = gradient if parameter not in totals else totals[parameter] + gradient
            for parameter, total in totals.items():
                parameter.grad = total / WORLD
            one.step()
            two.step()
        made = mlp()
        parallel, (left, right) = dear.distribute(made, [first(made), adamw(made)], ownership="auto", fusion="all")
        for step in range(3):
            square(parallel, step, RANK).backward()
            left.step()
            left.zero_grad()
            right.step()
        same(parallel, model)
        state = left.state_dict()
        assert len(state["state"]) == 3 and len(right.state_dict()["state"]) == 3
        left.load_state_dict(state)
        square(parallel, 9, RANK).backward()
        right.step()
        refuses(dear.ConfigError, right.step, "twice")
        parallel.discard_step()
        parallel.close()
        assert type(left) is type(one) and left.state[made[0].weight]


class Coupled(torch.optim.Optimizer):
    """Steps as far as all gradients together allow."""

    def __init__(self, params) -> None:
        super().__init__(params, {})

    @torch.no_grad()
    def step(self, closure=None):
        parameters = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        norm = sum(float(p.grad.square().sum()) for p in parameters) ** 0.5
        for parameter in parameters:
            parameter.sub_(parameter.grad / (1 + norm))


@behaviour(
    "(users) optimisers of all parameters",
    "an optimiser whose update of one tensor depends on others",
    'your optimiser steps itself; refused with update="sharded"',
)
def coupled_optimizer() -> None:
    model = mlp()
    refuses(
        dear.ConfigError,
        lambda: dear.distribute(model, Coupled(model.parameters()), update="sharded", ownership="auto"),
        "Coupled",
        "several tensors",
    )
    same(
        together(mlp, optimizer=lambda m: Coupled(m.parameters())),
        plain(mlp, optimizer=lambda m: Coupled(m.parameters())),
    )
    lbfgs = torch.optim.LBFGS(model.parameters())
    refuses(dear.ConfigError, lambda: dear.distribute(model, lbfgs, ownership="auto"), "LBFGS", "closure")


@behaviour(
    "test_ddp_mixed_precision_* (keep_low_precision_grads)",
    "parameters in bfloat16, rounded stochastically: the same for all policies",
    "stochastic_rounding=True",
)
def stochastic_rounding() -> None:
    def half() -> nn.Module:
        return mlp().to(torch.bfloat16)

    def loss(model, step, rank):
        return model(batch(step, rank).to(torch.bfloat16)).square().mean()

    def adamw(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=1e-3)

    found = {}
    for policy in ("wfbp", "dear"):
        for masters in (False, True):
            torch.manual_seed(5)
            parallel = together(
                half, loss, adamw, policy=policy, fusion="all", stochastic_rounding=True, fp32_masters=masters
            )
            state = parallel.optimizer.state_dict()["state"][0]
            assert state["exp_avg"].dtype == torch.float32 and ("master_parameter" in state) == masters
            same(parallel, found.setdefault(masters, parallel))
