"""Experts in a checkpoint: whole tensors of all ranks' experts, as one process has them, under the names of the module's
state_dict(). So a checkpoint goes on on any number of ranks that divides the experts."""

from __future__ import annotations

from typing import Any, Optional

import torch
import torch.distributed as dist
from torch import Tensor

from ._moe_training import Experts
from ._moe_travel import Travelling

# By layer, name, optimiser, and number of the parameter among its own.
Places = list[tuple[Travelling, str, Any, int]]


class Gathered:
    """On rank 0 all experts; elsewhere nothing."""

    def __init__(self) -> None:
        self.model: dict[str, Tensor] = {}
        self.states: dict[int, dict[str, Any]] = {}  # by number of the parameter, see places_of()


def shapes(experts: Experts) -> dict[str, tuple[int, ...]]:
    """Of whole tensors, by their names in the module's state_dict()."""
    return {
        f"{name}.{key}": (layer.experts, *getattr(layer, key).shape[1:])
        for name, layer in experts.layers.items()
        for key in layer.whole_names()
    }


def require_whole(model: Any, sharded: bool) -> None:
    """ConfigError for experts that cannot be saved."""
    experts = model._experts
    if sharded:
        experts.refuse("shards have what is alike on all", "give Checkpoints() sharded=False")
    for name, layer in experts.layers.items():
        if not layer.whole_names():
            experts.refuse(
                f"the experts of '{name}' are of the program's own class",
                "let each rank save its model.state_dict() and optimizer.state_dict()",
            )
    if any(source.of_program for source in model._sources):
        experts.refuse(
            "their optimiser makes its updates itself (update='program')",
            "let each rank save its model.state_dict() and optimizer.state_dict()",
        )


def places_of(model: Any) -> Places:
    """Every expert parameter that an optimiser holds. Numbers count the parameters of all optimisers, as _checkpoint does."""
    names = {
        id(getattr(layer, key)): (layer, f"{name}.{key}")
        for name, layer in model._experts.layers.items()
        for key in layer.whole_names()
    }
    found, number = [], 0
    for optimizer in model._optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) in names:
                    found.append((*names[id(parameter)], optimizer, number))
                number += 1
    return found


def gather(model: Any) -> Gathered:
    """Every rank calls it; tensor by tensor."""
    whole = Gathered()
    experts = model._experts
    for name, layer in experts.layers.items():
        for key in layer.whole_names():
            tensor = _whole(layer, getattr(layer, key).detach())
            if tensor is not None:
                whole.model[f"{name}.{key}"] = tensor
    for layer, name, optimizer, number in places_of(model):
        parameter = getattr(layer, name.rsplit(".", 1)[1])
        state = dict(experts.states(optimizer).get(parameter, {}))
        for key, value in state.items():
            if torch.is_tensor(value) and value.shape == parameter.shape:
                state[key] = _whole(layer, value)
        if state:
            whole.states[number] = state
    return whole


def scatter(model: Any, saved: Optional[dict[str, Any]]) -> None:
    """Puts back what rank 0 has of a checkpoint; every rank calls it."""
    experts = model._experts
    for name, layer in experts.layers.items():
        for key in layer.whole_names():
            mine = getattr(layer, key)
            with torch.no_grad():
                mine.copy_(_part(layer, None if saved is None else saved["model"][f"{name}.{key}"], mine))
    states: dict[int, dict[Tensor, Any]] = {}
    for layer, name, optimizer, number in places_of(model):
        parameter = getattr(layer, name.rsplit(".", 1)[1])
        state = {} if saved is None else saved["optimizer"]["state"].get(number, {})
        whole_shape = (layer.experts, *parameter.shape[1:])
        vectors = [key for key, value in state.items() if torch.is_tensor(value) and value.shape == whole_shape]
        rest = {key: value for key, value in state.items() if key not in vectors}
        mine = _from_rank_0(layer, (vectors, rest))
        taken = {key: _part(layer, state.get(key), parameter.detach()) for key in mine[0]}
        states.setdefault(id(optimizer), {})
        if taken or mine[1]:
            states[id(optimizer)][parameter] = {**taken, **mine[1]}
    for optimizer in model._optimizers:
        if id(optimizer) in states:
            experts.set_states(optimizer, states[id(optimizer)])


def _whole(layer: Travelling, mine: Tensor) -> Optional[Tensor]:
    group = layer.own_group()
    if group is None:
        return mine.clone()
    blocks = [torch.empty_like(mine, memory_format=torch.contiguous_format) for _ in range(layer.ranks)]
    dist.all_gather(blocks, mine.contiguous(), group=group)
    return torch.cat(blocks) if layer.rank == 0 else None


def _part(layer: Travelling, whole: Optional[Tensor], like: Tensor) -> Tensor:
    """This rank's experts of a tensor that rank 0 has."""
    here = layer.experts // layer.ranks
    group = layer.own_group()
    mine = torch.empty_like(like, memory_format=torch.contiguous_format)
    if group is None:
        assert whole is not None
        return mine.copy_(whole)
    for rank in range(layer.ranks):  # one rank's at a time, since a broadcast needs room on every rank
        block = torch.empty_like(mine)
        if layer.rank == 0:
            assert whole is not None
            block.copy_(whole[rank * here : (rank + 1) * here])
        dist.broadcast(block, dist.get_global_rank(group, 0), group=group)
        if rank == layer.rank:
            mine = block
    return mine


def _from_rank_0(layer: Travelling, value: Any) -> Any:
    group = layer.own_group()
    if group is None:
        return value
    given = [value if layer.rank == 0 else None]
    dist.broadcast_object_list(given, dist.get_global_rank(group, 0), group=group)
    return given[0]
