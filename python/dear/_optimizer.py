"""How a torch.optim.Optimizer becomes the optimiser of a DataParallel.

The user's object keeps its options, hooks and schedulers; its class becomes a subclass of its own class
(`adopt`), whose step(), zero_grad(), state_dict() and load_state_dict() go to the DataParallel. What it remembers
of parameters (momentum, ...) lies in shards: in a `Twin`, an object of the user's class whose parameters are flat
parts of buckets. `Source` is the user's object as the engine asks for it.
"""

from __future__ import annotations

import functools
import inspect
import pickle
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

from . import _gradients, _ownership, _state
from ._C import ConfigError
from ._state import State, join_state, split_state
from ._tensor_norms import TensorNormOptimizer


def _raw_step(cls: type[Optimizer]) -> Callable[[Optimizer], Any]:
    """The step() of the class without the hooks that Optimizer puts around it."""
    step = cls.step
    return step.__wrapped__ if getattr(step, "hooked", False) else step  # type: ignore[attr-defined]


def _options(group: dict[str, Any]) -> dict[str, Any]:
    """The group without its tensors. A learning rate that is a tensor is copied, as it may change in place."""
    return {
        key: value.clone() if isinstance(value, torch.Tensor) else value
        for key, value in group.items()
        if key not in ("params", "param_names")
    }


def _same(a: dict[str, Any], b: dict[str, Any]) -> bool:
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
        self._step = _raw_step(cls)
        twin: Optimizer = object.__new__(cls)
        twin.__dict__.update(original.__dict__)
        for name in ("step", *_gradients.SCALING):  # a scheduler's, and a scaler's
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
        self._twin.param_groups = [{**_options(group), "params": []} for group in self._groups()]

    def has_current_options(self) -> bool:
        mine, theirs = self._twin.param_groups, self._groups()
        return len(mine) == len(theirs) and all(_same(_options(a), _options(b)) for a, b in zip(mine, theirs))

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


class Source:
    """The user's optimiser as the engine asks for it."""

    def __init__(self, original: Optimizer, cls: type[Optimizer]) -> None:
        self.original = original
        self._cls = cls
        self._step = _raw_step(cls)
        self._whole = [False] * len(original.param_groups)

    def name(self) -> str:
        return f"{self._cls.__module__}.{self._cls.__qualname__}"

    def set_ownership(self, ownership: str) -> None:
        self._whole = _ownership.whole_groups(
            self.original, self._cls, ownership, lambda: Twin(self.original, self._cls)
        )

    def parameter_groups(self) -> list[list[torch.Tensor]]:
        return [list(group["params"]) for group in self.original.param_groups]

    def vectors(self, group: int) -> tuple[int, bool, bool]:
        """How the tensors of a parameter group are given: vectors of at most so many elements, tensors joined in them; or
        each tensor whole."""
        groups = self.original.param_groups
        whole = self._whole[group]
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
        return pickle.dumps([_options(group) for group in self.original.param_groups])

    def set_options(self, options: bytes) -> None:
        for group, values in zip(self.original.param_groups, pickle.loads(options)):
            for key, value in values.items():
                if isinstance(value, torch.Tensor) and isinstance(group.get(key), torch.Tensor):
                    group[key].copy_(value)  # whoever holds it sees the value
                else:
                    group[key] = value

    def step(self) -> None:
        self._step(self.original)

    def make_flat(self) -> Twin:
        return Twin(self.original, self._cls, self._whole)

    def state(self, tensor: torch.Tensor) -> State:
        return split_state(self.original.state.get(tensor, {}), tensor, whole=any(self._whole))

    def set_state(self, tensor: torch.Tensor, state: State) -> None:
        if state is None:
            self.original.state.pop(tensor, None)
        else:
            self.original.state[tensor] = join_state(state)

    def state_leaves(self) -> None:
        self.original.state.clear()

    def state_is_away(self) -> bool:
        return not any(self.original.state.values())


class Distributed(_gradients.Changes, Optimizer):
    """The methods of a torch.optim.Optimizer that trains with a DataParallel. A mixin: see adopt()."""

    _dear: Any  # dear.DataParallel, by a weak reference
    _dear_class: type[Optimizer]
    state: defaultdict[Any, Any]

    def _dear_training(self) -> Any:
        """The engine; ConfigError when the DataParallel was closed."""
        parallel = self._dear()
        if parallel is None:
            raise ConfigError("the DataParallel of this optimiser is gone: keep the model that distribute() returned")
        return parallel._training

    def _dear_on_streams(self) -> bool:
        return bool(self._dear()._on_streams)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Ends the iteration on all ranks: see DataParallel. A closure is called first, once. What a GradScaler has
        found decides, on all ranks alike, whether the step is given up."""
        training = self._dear_training()
        self._dear()._require_same_model()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if not self._dear()._turns.take(self):
            return loss
        with self._without_scaling() as (scale, found):
            _gradients.take_step(training, scale, found, self._dear_on_streams())
        return loss

    step = Optimizer.profile_hook_step(step)
    step.hooked = True  # type: ignore[attr-defined]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Nothing to do between step() and backward: step() has zeroed the gradients. After a backward, their
        loss means that the step is given up."""
        if self._dear_training().gradients_arrived() and not self._dear()._turns.has_stepped(self):
            self._dear()._turns.give_up()
            super().zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """The state whole, as one process has it; every rank calls it after the same step."""
        training = self._dear_training()
        kept = self.state
        self.state = defaultdict(dict)
        try:
            mine = self._own()
            for parameter, state in training.optimizer_state():
                if state is not None and id(parameter) in mine:
                    self.state[parameter] = join_state(state)
            return super().state_dict()
        finally:
            self.state = kept

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Replaces options and state, on every rank by the same."""
        training = self._dear_training()
        super().load_state_dict(state_dict)
        parallel = self._dear()
        _state.load_wide(self, state_dict, parallel.fp32_masters, parallel.fp32_masters or parallel.stochastic_rounding)
        if not training.has_state():
            return
        try:
            mine = self._own()
            others = [] if self._dear()._turns.count == 1 else training.optimizer_state()
            training.load_optimizer_state(
                [(parameter, split_state(state, parameter, whole=True)) for parameter, state in self.state.items()]
                + [(parameter, state) for parameter, state in others if id(parameter) not in mine]
            )
        finally:
            self.state = defaultdict(dict)

    def _own(self) -> set[int]:
        return {id(parameter) for group in self.param_groups for parameter in group["params"]}

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise ConfigError(
            "an optimiser whose state lies in shards cannot be pickled: save optimizer.state_dict(), which "
            "gathers it (every rank calls it)"
        )


@functools.lru_cache(maxsize=None)
def _subclass(cls: type[Optimizer]) -> type[Optimizer]:
    return type(cls.__name__, (Distributed, cls), {"__module__": cls.__module__, "__doc__": cls.__doc__})


def adopt(optimizer: Optimizer, parallel: Any) -> None:
    """Makes the optimiser's class a subclass of its own, whose steps are those of `parallel`."""
    scheduled = optimizer.__dict__.pop("step", None)  # a scheduler wraps the step of the class it found
    optimizer._dear = weakref.ref(parallel)  # type: ignore[attr-defined]
    optimizer._dear_class = type(optimizer)  # type: ignore[attr-defined]
    optimizer.__class__ = _subclass(type(optimizer))  # type: ignore[arg-type]
    if parallel.world_size > 1:
        _gradients.install(optimizer)
    if scheduled is not None:
        _count_calls(optimizer)


def leave(optimizer: Optimizer) -> None:
    """Undoes adopt(): the optimiser is one of its own class again, without state."""
    scheduled = optimizer.__dict__.pop("step", None)
    optimizer.__class__ = optimizer._dear_class  # type: ignore[attr-defined]
    _gradients.forget(optimizer)
    del optimizer._dear, optimizer._dear_class  # type: ignore[attr-defined]
    if scheduled is not None:
        _count_calls(optimizer)


def _count_calls(optimizer: Optimizer) -> None:
    """What torch.optim.lr_scheduler does to step(), to warn of a wrong order of calls."""
    function = type(optimizer).step
    reference = weakref.ref(optimizer)

    @functools.wraps(function)
    def step(*args: Any, **kwargs: Any) -> Any:
        self = reference()
        self._opt_called = True  # type: ignore[union-attr]
        return function(self, *args, **kwargs)  # type: ignore[arg-type]

    step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    optimizer.step = step  # type: ignore[method-assign]
