"""The flat optimiser: an object of the class of the program's optimiser that updates parts of buckets."""

from __future__ import annotations

import inspect
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

from . import _state
from ._C import ConfigError
from ._gradients import SCALING
from ._state import State, join_state, split_state


def raw_step(cls: type[Optimizer]) -> Callable[[Optimizer], Any]:
    """The step() of the class without the hooks that Optimizer puts around it."""
    step = cls.step
    return step.__wrapped__ if getattr(step, "hooked", False) else step  # type: ignore[attr-defined]


def options_of(group: dict[str, Any]) -> dict[str, Any]:
    """The group without its tensors. A learning rate that is a tensor is copied, as it may change in place."""
    return {
        key: value.clone() if isinstance(value, torch.Tensor) else value
        for key, value in group.items()
        if key not in ("params", "param_names")
    }


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    def equal(x: Any, y: Any) -> bool:
        if isinstance(x, torch.Tensor) or isinstance(y, torch.Tensor):
            return isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor) and torch.equal(x, y)
        return bool(x == y)

    return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)


class FlatOptimizer:
    """An optimiser of the user's class and options, whose parameters are parts of buckets: flat vectors, or tensors whole."""

    def __init__(self, original: Optimizer, cls: type[Optimizer], whole: list[bool] | None = None) -> None:
        self._original = weakref.ref(original)
        self._whole = whole or [False] * len(original.param_groups)  # by parameter group
        self._step = raw_step(cls)
        flat: Optimizer = object.__new__(cls)
        flat.__dict__.update(original.__dict__)
        for name in ("step", *SCALING):  # a scheduler's, and a scaler's
            flat.__dict__.pop(name, None)
        for name in [name for name in flat.__dict__ if name.startswith("_optimizer_")]:
            setattr(flat, name, OrderedDict())  # hooks are the user's object's
        flat.state = defaultdict(dict)
        flat.param_groups = []
        self._flat = flat
        self._begun: list[tuple[torch.Tensor, dict[str, Any], Any]] = []  # between the halves of a step
        self.capture_options()

    def _groups(self) -> list[dict[str, Any]]:
        original = self._original()
        if original is None:
            raise ConfigError("the optimiser of a DataParallel is gone: keep it as long as the model trains")
        return original.param_groups

    def capture_options(self) -> None:
        self._flat.param_groups = [{**options_of(group), "params": []} for group in self._groups()]

    def has_current_options(self) -> bool:
        mine, theirs = self._flat.param_groups, self._groups()
        return len(mine) == len(theirs) and all(same(options_of(a), options_of(b)) for a, b in zip(mine, theirs))

    def option_tensors(self) -> list[torch.Tensor]:
        """The tensors among the options of the last capture."""
        groups = self._flat.param_groups
        return [value for group in groups for value in group.values() if isinstance(value, torch.Tensor)]

    def step(self, by_group: list[list[torch.Tensor]]) -> None:
        for group, tensors in zip(self._flat.param_groups, by_group):
            group["params"] = tensors
        self._step(self._flat)
        for group in self._flat.param_groups:
            group["params"] = []

    def skips_on_device(self) -> bool:
        """Whether step() takes `found_inf` as PyTorch's fused implementations do, which PyTorch says by this attribute."""
        return (
            getattr(self._flat, "_step_supports_amp_scaling", False)
            and all(group.get("fused", True) for group in self._flat.param_groups)
            and "grad_scaler" not in inspect.signature(self._step).parameters
        )

    def step_unless(self, by_group: list[list[torch.Tensor]], found: torch.Tensor) -> None:
        """step(), which changes nothing where `found` is 1, on its device; the host does not read it."""
        flat: Any = self._flat
        flat.grad_scale, flat.found_inf = None, found
        try:
            self.step(by_group)
        finally:
            del flat.grad_scale, flat.found_inf

    def begin_step(self, by_group: list[list[torch.Tensor]]) -> list[torch.Tensor]:
        """Of a TensorNormOptimizer: the tensors whose norms are to be taken, those of each given tensor in turn."""
        flat: Any = self._flat
        with torch.no_grad():
            for group, tensors in zip(flat.param_groups, by_group):
                for tensor in tensors:
                    self._begun.append((tensor, group, flat.propose(tensor, group, flat.state[tensor])))
        return [proposed for begun in self._begun for proposed in begun[2]]

    def end_step(self, norms: list[float]) -> None:
        flat: Any = self._flat
        begun, self._begun = self._begun, []
        following = iter(norms)
        with torch.no_grad():
            for tensor, group, proposed in begun:
                flat.apply(tensor, group, flat.state[tensor], proposed, [next(following) for _ in proposed])

    def state(self, group: int, tensor: torch.Tensor) -> State:
        return split_state(self._flat.state.get(tensor, {}), tensor, whole=self._whole[group])

    def set_state(self, group: int, tensor: torch.Tensor, state: State) -> None:
        if state is None:
            self._flat.state.pop(tensor, None)
        else:
            self._flat.state[tensor] = _state.placed(join_state(state), tensor, self._flat.param_groups[group])
