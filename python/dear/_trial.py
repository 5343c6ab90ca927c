"""A trial of an optimiser that nobody knows, for update="sharded": whether its flat optimisers may update parts of tensors."""

from __future__ import annotations

import copy
import logging
import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.optim import Optimizer

from ._C import ConfigError
from ._flat_optimizer import options_of, same

_log = logging.getLogger("dear")

# Elements of the tensors that are tried: some optimisers keep the state of more than 4096 in another form.
_SIZES = (64, 8192)

MakeFlat = Callable[[Optimizer], Any]


def whole_groups(optimizer: Optimizer, cls: type[Optimizer], ownership: str, make_flat: MakeFlat) -> list[bool]:
    """By parameter group: whether one rank updates each of its tensors whole. What cannot be seen here, such as an option
    that matters after a thousand steps, the program answers for by update="sharded".

    ConfigError for an optimiser whose step() writes into its parameter groups or into itself, that knows parameters by
    anything but their memory, or that updates several tensors together.
    """
    name = cls.__name__
    knows = _knows_parameters(optimizer)
    if knows:
        raise _refusal(name, knows)
    groups = optimizer.param_groups
    trial = _Trial(optimizer, make_flat)
    whole = []
    for index in range(len(groups)):
        why = "" if ownership == "whole" else trial.not_elementwise(index)
        if why and ownership == "cut":
            raise ConfigError(
                f"the optimiser {name} cannot train on shards, for its update is not elementwise: {why}; let one rank "
                f'update each tensor whole, with ownership="auto", or leave out update="sharded"'
            )
        coupled = trial.coupled(index)
        if coupled:
            raise _refusal(name, coupled)
        whole.append(ownership == "whole" or bool(why))
    if any(whole):
        _log.info(
            "one rank updates each tensor of %s whole: parameter groups %s", name, [i for i, w in enumerate(whole) if w]
        )
    return whole


def _refusal(name: str, why: str) -> ConfigError:
    return ConfigError(f'the optimiser {name} cannot train on shards: {why}; leave out update="sharded"')


def _knows_parameters(optimizer: Optimizer) -> str:
    """How it, or the program, knows parameters otherwise than by the groups: parts of buckets are none of them."""
    parameters = {id(parameter): parameter for group in optimizer.param_groups for parameter in group["params"]}
    for parameter in parameters.values():
        for name in parameter.__dict__:
            if not name.startswith("_"):
                return f"a parameter has the attribute '{name}', which a part of a bucket has not"
    for group in optimizer.param_groups:
        if "param_names" in group:
            return "its parameters have names, which parts of buckets have not"
    for name, value in optimizer.__dict__.items():
        if name not in ("param_groups", "state") and any(
            id(one) in parameters or one in parameters for one in _inside(value)
        ):
            return f"its attribute '{name}' holds parameters, and parts of buckets are none of them"
    return ""


def _inside(value: Any, depth: int = 4) -> Iterable[Any]:
    """The tensors and numbers in containers and objects, as far as they are nested in a few."""
    if isinstance(value, torch.Tensor):
        yield _Held(value)
    elif isinstance(value, int):
        yield value
    elif depth == 0:
        return
    elif isinstance(value, dict):
        for key, one in list(value.items()):
            yield from _inside(key, depth - 1)
            yield from _inside(one, depth - 1)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for one in value:
            yield from _inside(one, depth - 1)
    elif isinstance(value, Optimizer):
        for group in value.param_groups:
            yield from _inside(group["params"], depth - 1)


class _Held:
    """A tensor among numbers: equal to its identity."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._id = id(tensor)

    def __hash__(self) -> int:
        return hash(self._id)

    def __eq__(self, other: object) -> bool:
        return other == self._id


class _Trial:
    def __init__(self, optimizer: Optimizer, make_flat: MakeFlat) -> None:
        self._optimizer = optimizer
        self._make_flat = make_flat
        self._groups = optimizer.param_groups

    def not_elementwise(self, index: int) -> str:
        """Why updates of the group are not elementwise; empty where they are."""
        try:
            for elements in _SIZES:
                shape = self._shape(index, elements)
                (vector,) = _values(1, (elements,))
                cut = elements // 4
                pieces = [vector.detach()[:cut].clone(), vector.detach()[cut:].clone()]
                whole = self._train(index, [_values(1, shape)], states=True)
                flat = self._train(index, [[vector]], states=True)
                parts = self._train(index, [[piece.requires_grad_() for piece in pieces]], states=True)
                if not (torch.equal(flat, parts) and torch.equal(flat, whole)):
                    return "an update of a tensor differs from the updates of its parts"
            return ""
        except ConfigError as error:
            return str(error)
        except Exception as error:  # whatever a class that was not made for it may raise
            return f"it failed on a vector ({type(error).__name__}: {error})"

    def coupled(self, index: int) -> str:
        """Why tensors of the group cannot be updated one by one, as buckets come; empty where they can."""
        for elements in _SIZES:
            shape = self._shape(index, elements)
            try:
                together = self._train(index, [_values(3, shape)])
                by_itself = self._train(index, [[one] for one in _values(3, shape)])
            except ConfigError as error:
                return str(error)
            except Exception as error:
                return f"it failed on a tensor of shape {list(shape)} ({type(error).__name__}: {error})"
            if not torch.equal(together, by_itself):
                return "an update of several tensors differs from the updates of each"
        return ""

    def _shape(self, index: int, elements: int) -> tuple[int, ...]:
        """The shape of tensors to try the group with, which has as many dimensions as its largest."""
        dimensions = max((parameter.dim() for parameter in self._groups[index]["params"]), default=1)
        return (elements,) if dimensions < 2 else (8, elements // 8) + (1,) * (dimensions - 2)

    def _train(self, index: int, steps: Sequence[Sequence[torch.Tensor]], states: bool = False) -> torch.Tensor:
        """Four iterations, in each of which a flat optimiser steps for these lists of tensors one after another; their
        values then. The second and the fourth have larger gradients. ConfigError where step() changes more than tensors
        and state."""
        original = _alone(self._optimizer)  # which a flat optimiser holds by a weak reference
        flat = self._make_flat(original)
        for iteration, scale in enumerate((1.0, 300.0, 0.01, 30.0)):
            tensors_in_order = [tensor for tensors in steps for tensor in tensors]
            elements = [tensor.numel() for tensor in tensors_in_order]
            values = torch.randn(sum(elements), generator=torch.Generator().manual_seed(11 + iteration)) * scale
            for tensor, gradient in zip(tensors_in_order, values.split(elements)):
                tensor.grad = gradient.view(tensor.shape).clone()
            flat.capture_options()
            before = _beside(flat)
            for tensors in steps:
                flat.step([list(tensors) if i == index else [] for i in range(len(self._groups))])
                changed = _changed(before, _beside(flat))
                if changed:
                    raise ConfigError(
                        f"its step() changes {changed}, of which each part of a bucket would have its own"
                    )
        if states:
            for tensors in steps:
                for tensor in tensors:
                    flat.state(index, tensor)  # ConfigError where it is not of the tensor's shape
        return torch.cat([tensor.detach().flatten() for tensors in steps for tensor in tensors])


def _values(count: int, shape: tuple[int, ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(shape, generator=generator).requires_grad_() for _ in range(count)]


def _alone(optimizer: Optimizer) -> Optimizer:
    """An object with copies of its attributes and options, so that a trial changes nothing of the program's."""
    other: Optimizer = object.__new__(type(optimizer))
    for name, value in optimizer.__dict__.items():
        if name in ("state", "param_groups"):
            continue
        try:
            other.__dict__[name] = copy.deepcopy(value)
        except Exception:  # a lock, a file, ...
            other.__dict__[name] = value
    other.__dict__["state"] = {}
    other.__dict__["param_groups"] = [{**options_of(group), "params": []} for group in optimizer.param_groups]
    return other


def _beside(flat: Any) -> list[dict[str, Any]]:
    """What an optimiser has beside tensors and their state: options of its groups, and attributes."""
    inner = flat._flat
    attributes = {
        name: value for name, value in inner.__dict__.items() if name not in ("state", "param_groups", "step")
    }
    return [*({**options_of(group)} for group in inner.param_groups), _frozen(attributes)]


def _frozen(values: dict[str, Any]) -> dict[str, Any]:
    frozen = {}
    for name, value in values.items():
        try:
            frozen[name] = value.clone() if isinstance(value, torch.Tensor) else pickle.dumps(value)
        except Exception:
            frozen[name] = id(value)
    return frozen


def _changed(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> str:
    for index, (old, new) in enumerate(zip(before, after)):
        for name in sorted({*old, *new}, key=str):
            if name in old and name in new and same({name: old[name]}, {name: new[name]}):
                continue
            return f"its attribute '{name}'" if index + 1 == len(before) else f"'{name}' of its parameter group {index}"
    return ""
