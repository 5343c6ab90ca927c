"""The user's optimiser as the engine asks for it."""

from __future__ import annotations

import pickle
from typing import Any, Optional

import torch
from torch.optim import Optimizer

from . import _ownership
from ._flat_optimizer import FlatOptimizer, options_of
from ._state import State, StateElsewhere, join_state, placed, split_state
from ._tensor_norms import TensorNormOptimizer


class Source:
    """own_step: the step() that the program has put on the object. Where the program's object makes the updates, `stepping`
    while its step() runs, and what that returned is the `result`."""

    def __init__(self, original: Optimizer, cls: type[Optimizer]) -> None:
        self.original = original
        self._cls = cls
        self.own_step = _ownership.own_step(original, cls)
        self.known = not _ownership.why_unknown(original, cls)
        self._choice = _ownership.Choice("", [False] * len(original.param_groups))
        self._stepped = False  # in this iteration, by step_now()
        self.stepping = False
        self.of_program = False  # as all ranks have agreed
        self.apart: frozenset[int] = (
            frozenset()
        )  # ids of parameters that lie on one rank, which the engine does not see
        self.state_apart: dict[torch.Tensor, Any] = {}  # of these, from before the first step on shards
        self.result: Any = None

    def name(self) -> str:
        return f"{self._cls.__module__}.{self._cls.__qualname__}"

    def choose_updates(self, update: str, ownership: str) -> Optional[str]:
        self._choice = _ownership.choose(
            self.original, self._cls, ownership, update, lambda optimizer: FlatOptimizer(optimizer, self._cls)
        )
        if self._choice.of_program:
            return self._choice.of_program
        shared = _shared(self.original)
        if shared and update != "sharded":
            return shared
        return None

    def parameter_groups(self) -> list[list[torch.Tensor]]:
        groups = self.original.param_groups
        return [[one for one in group["params"] if id(one) not in self.apart] for group in groups]

    def vectors(self, group: int) -> tuple[int, bool, bool]:
        """How the tensors of a parameter group are given: vectors of at most so many elements, tensors joined in them; or
        each tensor whole."""
        groups = self.original.param_groups
        whole = self._choice.whole[group]
        if self.norms():
            return 128 * 1024, False, whole
        if any(group.get("fused") for group in groups):
            return 1 << 40, False, whole  # each vector is a call, and its last elements may be rounded otherwise
        # Operator by operator, over all vectors or one by one: they should stay in a core's cache meanwhile. SGD has so
        # few operators, and no results in between, that its calls cost more than the cache saves.
        few = issubclass(self._cls, torch.optim.SGD) or any(group.get("foreach") for group in groups)
        return (512 if few else 128) * 1024, True, whole

    def norms(self) -> int:
        return self._cls.norms if issubclass(self._cls, TensorNormOptimizer) else 0

    def options(self) -> bytes:
        """For the object of another rank. Those that cannot be pickled stay with each."""
        return pickle.dumps([_picklable(options_of(group)) for group in self.original.param_groups])

    def set_options(self, options: bytes) -> None:
        for group, values in zip(self.original.param_groups, pickle.loads(options)):
            for key, value in values.items():
                if isinstance(value, torch.Tensor) and isinstance(group.get(key), torch.Tensor):
                    group[key].copy_(value)  # whoever holds it sees the value
                else:
                    group[key] = value

    def step(self) -> None:
        """Steps the program's object, with its hooks; does nothing where step_now() was called in this iteration."""
        if self._stepped:
            self._stepped = False
        else:
            self.result = self._call()

    def step_now(self, *args: Any, **kwargs: Any) -> Any:
        """Steps with arguments, before the engine asks for it."""
        result = self._call(*args, **kwargs)
        self._stepped = True
        return result

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        self.stepping = True
        try:
            if self.own_step is not None:
                return self.own_step(*args, **kwargs)
            return self._cls.step(self.original, *args, **kwargs)
        finally:
            self.stepping = False

    def make_flat(self) -> FlatOptimizer:
        return FlatOptimizer(self.original, self._cls, self._choice.whole)

    def state(self, tensor: torch.Tensor) -> State:
        if not self.known and self.of_program:
            return None  # its state_dict() has all that it remembers
        return split_state(self.original.state.get(tensor, {}), tensor, whole=any(self._choice.whole))

    def set_state(self, tensor: torch.Tensor, state: State) -> None:
        if state is None:
            self.original.state.pop(tensor, None)
        else:
            group: dict[str, Any] = next(
                (group for group in self.original.param_groups if any(one is tensor for one in group["params"])), {}
            )
            self.original.state[tensor] = placed(join_state(state), tensor, group)

    def state_leaves(self) -> None:
        self.state_apart = {one: state for one, state in self.original.state.items() if id(one) in self.apart}
        self.original.__dict__["state"] = StateElsewhere()

    def state_is_away(self) -> bool:
        return isinstance(self.original.__dict__["state"], StateElsewhere)


def _picklable(options: dict[str, Any]) -> dict[str, Any]:
    kept = {}
    for name, value in options.items():
        try:
            pickle.dumps(value)
        except Exception:  # a function of the program's, ...
            continue
        kept[name] = value
    return kept


def _shared(optimizer: Optimizer) -> str:
    """Where processes share the memory of a parameter, as of a model after share_memory(), a sentence about it."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.device.type == "cpu" and parameter.layout == torch.strided and parameter.is_shared():
                return f"a parameter of shape {list(parameter.shape)} lies in memory that processes share, or in a file"
    return ""
