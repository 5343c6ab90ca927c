"""Optimisers that look at more than one element at a time."""

from __future__ import annotations

import torch
from torch import nn

import dear

from .registry import RANK, behaviour, mlp, plain, refuses, same, square, together


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
