"""The whole state of an optimiser whose parameters lie on several ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch import Tensor

from . import _C
from ._moe_ranks import gathered


class OptimizerState:
    """As state_dict() of torch.optim has it in one process: parameters have numbers, in the order of their groups. It is made
    of an optimiser of the whole model, before release(). `first_rank`: of those that hold a parameter of the model."""

    def __init__(self, optimizer: torch.optim.Optimizer, first_rank: Mapping[Tensor, int]) -> None:
        self._optimizer = optimizer
        self._sizes = [len(group["params"]) for group in optimizer.param_groups]
        self._names = [group.get("param_names") for group in optimizer.param_groups]
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        self._ranks = [first_rank.get(parameter) for parameter in parameters]
        self._own: dict[int, Tensor] = dict(enumerate(parameters))  # by number

    def release(self, own: set[Tensor]) -> None:
        """Leaves the optimiser these parameters. Its groups and their options stay."""
        for parameter in self._own.values():
            if parameter not in own:
                self._optimizer.state.pop(parameter, None)
        self._own = {number: parameter for number, parameter in self._own.items() if parameter in own}
        for group, numbers, names in zip(self._optimizer.param_groups, self._numbers(), self._names):
            here = [number for number in numbers if number in self._own]
            group["params"] = [self._own[number] for number in here]
            if names is not None:
                group["param_names"] = [names[number - numbers[0]] for number in here]

    def state(self, rank: int, group: Any) -> dict[str, Any]:
        """Whole, on every rank, in the host's memory; all ranks call it."""
        mine = {
            number: dict(self._optimizer.state[parameter])
            for number, parameter in self._own.items()
            if self._ranks[number] == rank and self._optimizer.state.get(parameter)
        }
        outlines = {number: {key: _outline(value) for key, value in values.items()} for number, values in mine.items()}
        state: dict[int, dict[str, Any]] = {}
        for source, theirs in enumerate(gathered(outlines, group)):
            for number, outline in theirs.items():
                state[number] = {}
                for key, (shape, dtype, value) in outline.items():
                    if shape is not None:
                        there = mine[number][key].detach().cpu() if source == rank else torch.empty(shape, dtype=dtype)
                        value = there.clone(memory_format=torch.contiguous_format)
                        if group is not None:
                            dist.broadcast(value, group=group, group_src=source)
                    state[number][key] = value
        groups = []
        for options, numbers, names in zip(self._optimizer.state_dict()["param_groups"], self._numbers(), self._names):
            groups.append({**options, "params": numbers} | ({} if names is None else {"param_names": list(names)}))
        return {"state": {number: state[number] for number in sorted(state)}, "param_groups": groups}

    def load(self, state: Mapping[str, Any]) -> None:
        """Takes this rank's part of a whole state, and copies it."""
        groups = state.get("param_groups") if isinstance(state, Mapping) else None
        sizes = None if groups is None else [len(group["params"]) for group in groups]
        if sizes != self._sizes:
            raise _C.ConfigError(
                f"the state of the optimiser has groups of {sizes} parameters, and the optimiser groups of {self._sizes}: give "
                "a whole state of the same model and the same groups"
            )
        assert groups is not None
        # Numbers of the state may be others than those of this optimiser, as torch allows.
        theirs = [number for group in groups for number in group["params"]]
        local, numbered, here = {}, 0, []
        for options, numbers in zip(groups, self._numbers()):
            own = [number for number in numbers if number in self._own]
            for place, number in enumerate(own, numbered):
                if theirs[number] in state["state"]:
                    values = state["state"][theirs[number]]
                    local[place] = {key: one.clone() if isinstance(one, Tensor) else one for key, one in values.items()}
            here.append({**options, "params": list(range(numbered, numbered + len(own)))})
            if "param_names" in options:
                here[-1]["param_names"] = [options["param_names"][number - numbers[0]] for number in own]
            numbered += len(own)
        self._optimizer.load_state_dict({"state": local, "param_groups": here})

    def _numbers(self) -> list[list[int]]:
        """By group."""
        listed, begin = [], 0
        for size in self._sizes:
            listed.append(list(range(begin, begin + size)))
            begin += size
        return listed


def _outline(value: Any) -> tuple[Optional[torch.Size], Optional[torch.dtype], Any]:
    return (value.shape, value.dtype, None) if isinstance(value, Tensor) else (None, None, value)
