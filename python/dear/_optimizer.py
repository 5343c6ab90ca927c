"""The user's torch.optim.Optimizer becomes the optimiser of a DataParallel.

The user's object keeps its options, hooks and schedulers; its class becomes a subclass of its own class (`adopt`), whose
step() goes to the DataParallel. Where updates are of shards (`Sharded`), what it remembers of parameters (momentum, ...)
lies in shards: in a `FlatOptimizer`, an object of the user's class whose parameters are flat parts of buckets. Where the program
makes the updates (`Whole`), the engine calls step() of the user's class when gradients are whole. `Source` is the user's
object as the engine asks for it.
"""

from __future__ import annotations

import copyreg
import functools
import weakref
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim import optimizer as optimizers

from . import _gradients, _state
from ._C import ConfigError
from ._source import Source
from ._state import StateElsewhere, join_state, split_state

__all__ = ["Distributed", "Source", "adopt", "leave"]


class Distributed(_gradients.Changes, Optimizer):
    """The methods of a torch.optim.Optimizer that trains with a DataParallel."""

    _dear: Any  # dear.DataParallel, by a weak reference
    _dear_class: type[Optimizer]

    def _dear_training(self) -> Any:
        """The engine; ConfigError when the DataParallel was closed."""
        parallel = self._dear()
        if parallel is None:
            raise ConfigError("the DataParallel of this optimiser is gone: keep the model that distribute() returned")
        return parallel._training

    def _dear_on_streams(self) -> bool:
        return bool(self._dear()._on_streams)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Nothing to do between step() and backward: step() has zeroed the gradients. After a backward, their
        loss means that the step is given up. Before the first step it drops those from before distribute()."""
        training = self._dear_training()
        some = training.gradients_arrived() or not training.has_stepped()
        if not self._dear()._turns.has_stepped(self):
            self._dear()._experts.zero()
        if some and not self._dear()._turns.has_stepped(self):
            self._dear()._turns.give_up()
            super().zero_grad(set_to_none)


class Sharded(Distributed):
    """Whose updates are of shards. A mixin: see adopt()."""

    @property
    def state(self) -> Any:
        return self.__dict__["state"]

    @state.setter
    def state(self, value: Any) -> None:
        if isinstance(self.__dict__.get("state"), StateElsewhere):
            _state.refuse()
        self.__dict__["state"] = value

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Ends the iteration on all ranks: see DataParallel. A closure is called first, once. What a GradScaler has
        found decides, on all ranks alike, whether the step is given up. Hooks before the step see whole gradients."""
        self._dear_training()
        self._dear()._require_same_model()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._dear()._group.size > 1 and (self._optimizer_step_pre_hooks or optimizers._global_optimizer_pre_hooks):
            try:
                self.reduce_gradients()
            except ConfigError as error:
                raise ConfigError(
                    f"a hook before step() of the optimiser must see whole gradients, and {error}"
                ) from None
        self._dear_step()
        return loss

    step.hooked = True  # type: ignore[attr-defined]

    @Optimizer.profile_hook_step
    def _dear_step(self) -> None:
        if self._dear()._turns.take(self):
            parallel = self._dear()
            with self._without_scaling() as (scale, found):
                if _gradients.take_step(self._dear_training(), scale, found, self._dear_on_streams()):
                    if parallel._experts and scale is not None and float(scale) != 1:
                        parallel._experts.scale(1 / float(scale))
                    parallel._experts.step(parallel._optimizers)
            parallel._experts.zero()

    def state_dict(self) -> dict[str, Any]:
        """The state whole, as one process has it; every rank calls it after the same step."""
        training = self._dear_training()
        kept = self.__dict__["state"]
        self.__dict__["state"] = defaultdict(dict)
        try:
            mine = self._own()
            for parameter, state in training.optimizer_state():
                if state is not None and id(parameter) in mine:
                    self.state[parameter] = join_state(state)
            self.state.update(self._dear()._experts.states(self) or self._dear_source().state_apart)
            return super().state_dict()
        finally:
            self.__dict__["state"] = kept

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Replaces options and state, on every rank by the same."""
        training = self._dear_training()
        super().load_state_dict(state_dict)
        parallel = self._dear()
        _state.load_wide(
            self, state_dict, parallel._fp32_masters, parallel._fp32_masters or parallel._stochastic_rounding
        )
        if not training.has_state():
            return
        try:
            apart = self._dear()._experts.ids
            self._dear()._experts.set_states(self, self.state)
            mine = self._own()
            others = [] if self._dear()._turns.count == 1 else training.optimizer_state()
            training.load_optimizer_state(
                [
                    (parameter, split_state(state, parameter, whole=True))
                    for parameter, state in self.state.items()
                    if id(parameter) not in apart
                ]
                + [(parameter, state) for parameter, state in others if id(parameter) not in mine]
            )
        finally:
            self.__dict__["state"] = StateElsewhere()

    def _own(self) -> set[int]:
        return {id(parameter) for group in self.param_groups for parameter in group["params"]}

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise ConfigError(
            "an optimiser whose state lies in shards cannot be pickled: save optimizer.state_dict(), which "
            "gathers it (every rank calls it)"
        )


class Whole(Distributed):
    """Whose updates the program's object makes, which has its state. A mixin: see adopt()."""

    _dear_source: Any  # by a weak reference

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """Ends the iteration on all ranks, with step() of the object's own class, or of itself, on whole gradients. A closure
        goes to it, and may be called several times: gradients are whole when it returns, and the loss is the mean of ranks."""
        self._dear_training()
        self._dear()._require_same_model()
        source, result = self._dear_source(), None
        arguments = [*args, *kwargs.values()]
        closure = next((one for one in arguments if callable(one)), None)
        given = any(one is not None for one in arguments)
        if given:
            if closure is None:
                self._dear_make_whole()
            result = source.step_now(
                *(self._dear_reducing(one) if one is closure else one for one in args),
                **{name: self._dear_reducing(one) if one is closure else one for name, one in kwargs.items()},
            )
        if not self._dear()._turns.take(self):
            return result
        source.result = None
        with self._without_scaling() as (scale, found):
            if self._dear()._experts and scale is not None and float(scale) != 1:
                self._dear()._experts.scale(1 / float(scale))
            _gradients.take_step(self._dear_training(), scale, found, False)
        self._dear()._experts.zero()
        return result if given else source.result

    step.hooked = True  # type: ignore[attr-defined]

    def _dear_make_whole(self) -> None:
        if self._dear()._group.size > 1:
            self._dear_training().reduce_gradients()

    def _dear_reducing(self, closure: Any) -> Any:
        if closure is None:
            return None

        def reduce() -> Any:
            loss = closure()
            self._dear_make_whole()
            return self._dear_mean(loss)

        return reduce

    def _dear_mean(self, loss: Any) -> Any:
        """The loss as one process has it, by which an optimiser may choose its step. What is no number stays as it is."""
        if self._dear()._group.size == 1 or loss is None:
            return loss
        if isinstance(loss, torch.Tensor) and loss.numel() == 1:
            return torch.full_like(loss.detach(), self._dear_training().mean_over_ranks(loss.item()))
        return self._dear_training().mean_over_ranks(loss) if isinstance(loss, (int, float)) else loss

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A copy is an optimiser of its own class, which trains alone."""
        return copyreg.__newobj__, (self._dear_class,), self._dear_class.__getstate__(self)  # type: ignore[attr-defined]


_subclasses: dict[tuple[type[Distributed], type[Optimizer]], Any] = {}


def _subclass(mixin: type[Distributed], cls: type[Optimizer]) -> Any:
    """A class whose methods are those of the mixin, then those of `cls`. Its one base is `cls`, which alone decides how objects
    lie in memory: an object of any class of optimisers, also of one that has ABC or slots among its bases, can become one."""
    if (mixin, cls) not in _subclasses:
        before = [one for one in mixin.__mro__ if not issubclass(Optimizer, one)]

        class First(type(cls)):  # type: ignore[misc]
            def mro(self) -> list[type]:
                order = super().mro()
                place = order.index(cls)  # a class that a framework derives has them by inheritance
                return order[:place] + [one for one in before if one not in order] + order[place:]

        own = {"__module__": cls.__module__, "__doc__": cls.__doc__}
        _subclasses[mixin, cls] = First(cls.__name__, (cls,), own)
    return _subclasses[mixin, cls]


def adopt(optimizer: Optimizer, parallel: Any, source: Source, by_program: bool) -> None:
    """Makes the optimiser's class a subclass of its own, whose steps are those of `parallel`."""
    cls = type(optimizer)
    scheduled = optimizer.__dict__.pop("step", None) is not None and source.own_step is None
    optimizer.__dict__.update(_dear=weakref.ref(parallel), _dear_class=cls, _dear_source=weakref.ref(source))
    optimizer.__class__ = _subclass(Whole if by_program else Sharded, cls)
    if parallel._group.size > 1:
        _gradients.install(optimizer)
    if scheduled:  # a scheduler wraps the step of the class it found
        _count_calls(optimizer)


def leave(optimizer: Optimizer) -> None:
    """Undoes adopt(): the optimiser is one of its own class again; without state, where that was in shards."""
    scheduled = getattr(optimizer.__dict__.pop("step", None), "_wrapped_by_lr_sched", False)
    source = optimizer.__dict__.pop("_dear_source")()
    optimizer.__class__ = optimizer.__dict__.pop("_dear_class")
    _gradients.forget(optimizer)
    del optimizer.__dict__["_dear"]
    if isinstance(optimizer.__dict__.get("state"), StateElsewhere):
        optimizer.__dict__["state"] = defaultdict(dict)
    if source is not None and source.own_step is not None:
        optimizer.__dict__["step"] = source.own_step
    elif scheduled:
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
