"""What the ranks of a mixture of experts tell each other beside its tokens."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Optional

import torch
import torch.distributed as dist

from . import _C
from ._process_group import new_group_like

# What a rank says in place of its number of tokens.
NOT_FINITE, REFUSED = -1, -2

# By the process group that shares out experts: one of all mixtures on it, whose all-to-alls queue behind nothing else.
_groups: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def process_group_of(given: Any) -> Any:
    """The process group whose ranks share out experts; None where there is one rank."""
    initialised = dist.is_available() and dist.is_initialized()
    group = given if given is not None else dist.group.WORLD if initialised else None
    if group is None:
        return None
    if not isinstance(group, dist.ProcessGroup):
        raise _C.ConfigError(
            f"process_group is a {type(group).__name__}: experts are shared out to the ranks of a process group of "
            "torch.distributed that this rank belongs to, or of None, the default one"
        )
    return group if dist.get_world_size(group) > 1 else None


def own_group(base: Any) -> Any:
    """A process group of the same ranks for all-to-alls of mixtures. Every rank makes it together, once."""
    if base not in _groups:
        _groups[base] = new_group_like(base, dist.get_backend_config(base))
    return _groups[base]


def gathered(value: Any, group: Any) -> list[Any]:
    """What all ranks give, in their order, on every rank; they all call it."""
    if group is None:
        return [value]
    everyone: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyone, value, group=group)
    return everyone


def require_same(arguments: dict[str, object], rank: int, group: Any) -> None:
    """MismatchError, on every rank, that names the first one that differs."""
    everyone = gathered(arguments, group)
    for name, first in everyone[0].items():
        for other, theirs in enumerate(everyone):
            if theirs.get(name) != first:
                raise _C.MismatchError(
                    f"rank {rank}: the mixture of experts has {name} {first!r} on rank 0 and {theirs.get(name)!r} on rank "
                    f"{other}: give all ranks the same arguments"
                )


def exchange_counts(
    tokens: int,
    sent: list[list[int]],
    *,
    parts: int,
    experts: int,
    capacity_of: Callable[[int], int],
    rank: int,
    ranks: int,
    group: Any,
    device: torch.device,
    received: Optional[list[list[int]]] = None,
) -> list[list[list[int]]]:
    """By part, rank and expert of this rank: how many rows come. `tokens`: of this rank's batch, or why there are none.
    `received`: what came of the same batch before, by rank and expert, and then this. Errors of a rank are errors of all."""
    here = experts // ranks
    message = torch.zeros(ranks, 1 + parts * here, dtype=torch.int64)
    message[:, 0] = tokens
    if sent:
        message[:, 1:] = torch.tensor(sent).view(parts, ranks, here).transpose(0, 1).flatten(1)
    if group is not None:
        taken = torch.empty_like(message, device=device)
        dist.all_to_all_single(taken, message.to(device), group=group)
        message = taken.cpu()
    if tokens == REFUSED:
        return []
    for other, (of_rank, *counts) in enumerate(message.tolist()):
        if of_rank == NOT_FINITE:
            raise _C.ConfigError(
                f"rank {other}: the gate of a mixture of experts gave what is not a finite number, so no expert can be "
                "chosen: look for the first input or parameter that is not finite"
            )
        if of_rank == REFUSED:
            raise _C.ConfigError(f"rank {other} refused its batch for a mixture of experts: see what it says")
        everyone = [0] * experts
        totals = [sum(counts[expert::here]) for expert in range(here)]
        if received is not None:
            received[other] = totals = [before + one for before, one in zip(received[other], totals)]
        everyone[other * here : (other + 1) * here] = totals
        if any(count < 0 for count in counts):
            everyone[other * here] = min(counts)
        _C.moe_check_counts(everyone, capacity_of(of_rank), ranks, rank)
    by_part: list[list[list[int]]] = message[:, 1:].view(ranks, parts, here).transpose(0, 1).tolist()
    return by_part
