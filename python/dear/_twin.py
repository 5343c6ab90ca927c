"""The twin of an optimiser: of its class and options, on parts of buckets."""

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


class Twin:
    """An optimiser of the user's class and options, whose parameters are parts of buckets: flat vectors, or tensors whole."""

    def __init__(self, original: Optimizer, cls: type[Optimizer], whole: list[bool] | None = None) -> None:
        self._original = weakref.ref(original)
        self._whole = whole or [False] * len(original.param_groups)  # by parameter group
        self._step = raw_step(cls)
        twin: Optimizer = object.__new__(cls)
        twin.__dict__.update(original.__dict__)
        for name in ("step", *SCALING):  # a scheduler's, and a scaler's
            twin.__dict__.pop(name, None)
        for name in [name for name in twin.__dict__ if name.startswith("_optimizer_")]:
            setattr(twin, name, OrderedDict())  # hooks are the user's object's
        twin.state = defaultdict(dict)
        twin.param_groups = []
        self._twin = twin
        self._begun: list[tuple[torch.Tensor, dict[str, Any], Any]] = []  # between the halves of a step
        self.capture_options()

    def _groups(self) -> list[dict[str, Any]]:
        original = self._original()
        if original is None:
            raise ConfigError("the optimiser of a DataParallel is gone: keep it as long as the model trains")
        return original.param_groups

    def capture_options(self) -> None:
        self._twin.param_groups = [{**options_of(group), "params": []} for group in self._groups()]

    def has_current_options(self) -> bool:
        mine, theirs = self._twin.param_groups, self._groups()
        return len(mine) == len(theirs) and all(same(options_of(a), options_of(b)) for a, b in zip(mine, theirs))

    def option_tensors(self) -> list[torch.Tensor]:
        """The tensors among the options of the last capture."""
        groups = self._twin.param_groups
        return [value for group in groups for value in group.values() if isinstance(value, torch.Tensor)]

    def step(self, by_group: list[list[torch.Tensor]]) -> None:
        for group, tensors in zip(self._twin.param_groups, by_group):
            group["params"] = tensors
        self._step(self._twin)
        for group in self._twin.param_groups:
            group["params"] = []

    def skips_on_device(self) -> bool:
        """Whether step() takes `found_inf` as PyTorch's fused implementations do, which PyTorch says by this attribute."""
        return (
            getattr(self._twin, "_step_supports_amp_scaling", False)
            and all(group.get("fused", True) for group in self._twin.param_groups)
            and "grad_scaler" not in inspect.signature(self._step).parameters
        )

    def step_unless(self, by_group: list[list[torch.Tensor]], found: torch.Tensor) -> None:
        """step(), which changes nothing where `found` is 1, on its device; the host does not read it."""
        twin: Any = self._twin
        twin.grad_scale, twin.found_inf = None, found
        try:
            self.step(by_group)
        finally:
            del twin.grad_scale, twin.found_inf

    def begin_step(self, by_group: list[list[torch.Tensor]]) -> list[torch.Tensor]:
        """Of a TensorNormOptimizer: the tensors whose norms are to be taken, those of each given tensor in turn."""
        twin: Any = self._twin
        with torch.no_grad():
            for group, tensors in zip(twin.param_groups, by_group):
                for tensor in tensors:
                    self._begun.append((tensor, group, twin.propose(tensor, group, twin.state[tensor])))
        return [proposed for begun in self._begun for proposed in begun[2]]

    def end_step(self, norms: list[float]) -> None:
        twin: Any = self._twin
        begun, self._begun = self._begun, []
        following = iter(norms)
        with torch.no_grad():
            for tensor, group, proposed in begun:
                twin.apply(tensor, group, twin.state[tensor], proposed, [next(following) for _ in proposed])

    def state(self, group: int, tensor: torch.Tensor) -> State:
        return split_state(self._twin.state.get(tensor, {}), tensor, whole=self._whole[group])

    def set_state(self, group: int, tensor: torch.Tensor, state: State) -> None:
        if state is None:
            self._twin.state.pop(tensor, None)
        else:
            self._twin.state[tensor] = _state.placed(join_state(state), tensor, self._twin.param_groups[group])
