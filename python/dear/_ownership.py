"""Which optimisers update each element by itself, so that shards may cut tensors, and which must see tensors whole."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.optim import Optimizer

from ._C import ConfigError
from ._tensor_norms import TensorNormOptimizer

OWNERSHIPS = ("cut", "auto", "whole")

_log = logging.getLogger("dear")

# The classes of torch.optim that update each element by itself.
_ELEMENTWISE: frozenset[type] = frozenset(
    {
        torch.optim.SGD,
        torch.optim.Adam,
        torch.optim.AdamW,
        torch.optim.Adamax,
        torch.optim.NAdam,
        torch.optim.RAdam,
        torch.optim.Adadelta,
        torch.optim.Adagrad,
        torch.optim.RMSprop,
        torch.optim.Rprop,
        torch.optim.ASGD,
    }
)

# Those that do not, and why.
_NOT_ELEMENTWISE: dict[type, str] = {
    torch.optim.Adafactor: "it keeps sums over rows and columns of a matrix",
    torch.optim.Muon: "it orthogonalises whole matrices",
}

# Those that cannot train on several ranks, however tensors are owned.
_REFUSED: dict[str, str] = {
    "LBFGS": "it evaluates its closure, which is a whole step for a DataParallel, many times in one step, and its "
    "direction comes from dot products over all parameters",
    "SparseAdam": "it works on sparse gradients, and those of buckets are dense",
}

Trial = Callable[[], Any]
"""Makes a twin of the optimiser: dear._optimizer.Twin."""


def whole_groups(optimizer: Optimizer, cls: type[Optimizer], ownership: str, twin: Trial) -> list[bool]:
    """By parameter group: whether one rank updates each of its tensors whole.

    Classes of torch.optim are known. Another class is tried: on a small tensor, whole and cut in two, and on two tensors,
    together and one by one. ConfigError for an optimiser that cannot train with this ownership.
    """
    name = cls.__name__
    if name in _REFUSED:
        raise ConfigError(
            f"the optimiser {name} cannot train on several ranks: {_REFUSED[name]}; use an elementwise one "
            f"such as torch.optim.AdamW"
        )
    groups = optimizer.param_groups
    if cls in _ELEMENTWISE or issubclass(cls, TensorNormOptimizer):
        return [ownership == "whole"] * len(groups)
    why = [_not_elementwise(cls, groups, index, twin) for index in range(len(groups))]
    if ownership == "cut":
        for reason in filter(None, why):
            raise ConfigError(
                f"the optimiser {name} cannot train on shards, for its update is not elementwise: {reason}; let one rank "
                f'update each tensor whole, with ownership="auto", or use an elementwise one such as torch.optim.AdamW'
            )
    whole = [ownership == "whole" or bool(reason) for reason in why]
    for index in (index for index, is_whole in enumerate(whole) if is_whole):
        coupled = _coupled(groups, index, twin)
        if coupled:
            raise ConfigError(
                f"the optimiser {name} cannot train on several ranks, not even on whole tensors: {coupled}; use an optimiser "
                f"that updates each tensor by itself"
            )
    if any(whole):
        _log.info(
            "one rank updates each tensor of %s whole: parameter groups %s", name, [i for i, w in enumerate(whole) if w]
        )
    return whole


def _shape(group: dict[str, Any]) -> tuple[int, ...]:
    """Of tensors to try the group with: as many dimensions as its largest has."""
    dimensions = max((parameter.dim() for parameter in group["params"]), default=1)
    return (64,) if dimensions < 2 else (8, 8) + (1,) * (dimensions - 2)


def _train(twin: Any, groups: int, index: int, steps: Sequence[Sequence[torch.Tensor]]) -> list[torch.Tensor]:
    """Three iterations in each of which the twin steps for these lists of tensors one after another."""
    generator = torch.Generator().manual_seed(11)
    gradients = [torch.randn(3, 64, generator=generator) for _ in range(4)]
    for iteration in range(3):
        twin.capture_options()
        offsets = [0, 0]
        for tensors in steps:
            for tensor in tensors:
                # Pieces of 64 elements take what comes next of a gradient of 64.
                which, begin = offsets
                tensor.grad = gradients[which][iteration, begin : begin + tensor.numel()].view(tensor.shape).clone()
                offsets = [which, begin + tensor.numel()] if begin + tensor.numel() < 64 else [which + 1, 0]
            twin.step([list(tensors) if i == index else [] for i in range(groups)])
    return [tensor.detach().flatten() for tensors in steps for tensor in tensors]


def _values(count: int, shape: tuple[int, ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(64, generator=generator).view(shape).requires_grad_() for _ in range(count)]


def _not_elementwise(cls: type[Optimizer], groups: list[dict[str, Any]], index: int, twin: Trial) -> str:
    """Why the group's updates are not elementwise; empty where they are."""
    if cls in _NOT_ELEMENTWISE:
        return _NOT_ELEMENTWISE[cls]

    def train(pieces: list[torch.Tensor]) -> torch.Tensor:
        trained = twin()
        values = torch.cat(_train(trained, len(groups), index, [pieces]))
        for piece in pieces:
            trained.state(index, piece)  # ConfigError where it is not of the piece's shape
        return values

    try:
        (vector,) = _values(1, (64,))
        halves = [vector.detach()[:16].clone().requires_grad_(), vector.detach()[16:].clone().requires_grad_()]
        whole = train(_values(1, _shape(groups[index])))
        if torch.equal(train([vector]), train(halves)) and torch.equal(train(_values(1, (64,))), whole):
            return ""
        return "an update of a tensor differs from the updates of its parts"
    except ConfigError as error:
        return str(error)
    except Exception as error:  # whatever a class that was not made for it may raise
        return f"it failed on a vector of 64 elements ({type(error).__name__}: {error})"


def _coupled(groups: list[dict[str, Any]], index: int, twin: Trial) -> str:
    """Why the group's tensors cannot be updated one by one, as buckets come; empty where they can."""
    shape = _shape(groups[index])
    try:
        together = _train(twin(), len(groups), index, [_values(2, shape)])
        first, second = _values(2, shape)
        by_itself = _train(twin(), len(groups), index, [[first], [second]])
    except Exception as error:  # whatever a class may raise
        return f"it failed on a tensor of shape {list(shape)} ({type(error).__name__}: {error})"
    if all(torch.equal(a, b) for a, b in zip(together, by_itself)):
        return ""
    return "an update of two tensors differs from the updates of each"
