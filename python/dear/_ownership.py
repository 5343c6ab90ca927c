"""Who updates parameters: shards, which cut tensors or have them whole, or the program's own optimiser."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.optim import Optimizer

from . import _trial
from ._C import ConfigError
from ._tensor_norms import TensorNormOptimizer

OWNERSHIPS = ("cut", "auto", "whole")
UPDATES = ("auto", "sharded", "program")

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

# Those that update each tensor by itself, and why not each element. Looked up by name: not every PyTorch has them.
_WHOLE: dict[type, str] = {
    getattr(torch.optim, name): why
    for name, why in {
        "Adafactor": "keeps sums over rows and columns of a matrix",
        "Muon": "orthogonalises whole matrices",
    }.items()
    if hasattr(torch.optim, name)
}

# Those that cannot train on several ranks, whoever updates.
_REFUSED: dict[str, str] = {
    "LBFGS": "it evaluates its closure, which is a whole step for a DataParallel, many times in one step, and its "
    "direction comes from dot products over all parameters",
    "SparseAdam": "it works on sparse gradients, and those of buckets are dense",
}


class Choice(NamedTuple):
    """of_program: why the program's optimiser itself updates the parameters; "" where updates are of shards. whole: by
    parameter group, whether one rank updates each of its tensors whole."""

    of_program: str
    whole: list[bool]


def choose(
    optimizer: Optimizer, cls: type[Optimizer], ownership: str, update: str, make_flat: Callable[[Optimizer], Any]
) -> Choice:
    """Classes of torch.optim, by exact class, are known, and TensorNormOptimizer is. Of another class nobody knows what it
    keeps, and where: it is stepped by the program, unless `update` is "sharded". Then it is tried (_trial.py), with what
    `make_flat` makes of an optimiser. ConfigError for one that cannot train so.
    """
    name = cls.__name__
    if name in _REFUSED:
        raise ConfigError(
            f"the optimiser {name} cannot train on several ranks: {_REFUSED[name]}; use an elementwise one "
            f"such as torch.optim.AdamW"
        )
    groups = len(optimizer.param_groups)
    if update == "program":
        return Choice('update="program" was asked for', [True] * groups)
    unknown = why_unknown(optimizer, cls)
    if not unknown and (cls in _ELEMENTWISE or issubclass(cls, TensorNormOptimizer)):
        return Choice("", [ownership == "whole"] * groups)
    if not unknown:
        if ownership != "cut":
            return Choice("", [True] * groups)
        why = f'{name} {_WHOLE[cls]} (ownership="auto" lets one rank update each tensor whole)'
        if update == "sharded":
            raise ConfigError(f"the optimiser {name} cannot train on shards that cut tensors: {why}")
        return Choice(why, [True] * groups)
    if update == "sharded":
        return Choice("", _trial.whole_groups(optimizer, cls, ownership, make_flat))
    return Choice(f'{unknown} (update="sharded" lets shards be tried)', [True] * groups)


def why_unknown(optimizer: Optimizer, cls: type[Optimizer]) -> str:
    """Why it is not known what step() does; "" where it is."""
    replaced = own_step(optimizer, cls)
    if replaced is not None:
        return f"step() of this {cls.__name__} was replaced"
    if issubclass(cls, TensorNormOptimizer) and _plain(cls.step) is _plain(TensorNormOptimizer.step):
        return ""
    if cls not in _ELEMENTWISE and cls not in _WHOLE:
        return f"{cls.__module__}.{cls.__qualname__} is not an optimiser whose update is known to be elementwise"
    if not _plain(cls.step).__module__.startswith("torch.optim"):
        return f"step() of the class {cls.__name__} was replaced"
    return ""


def own_step(optimizer: Optimizer, cls: type[Optimizer]) -> Callable[..., Any] | None:
    """The step() that the program has put on the object; None where that is its class's, also as a scheduler of
    torch.optim wraps it."""
    step = optimizer.__dict__.get("step")
    if step is None:
        return None
    scheduled = getattr(step, "_wrapped_by_lr_sched", False) or getattr(step, "_with_counter", False)
    return None if scheduled and _plain(step) is _plain(cls.step) else step


def _plain(function: Any) -> Any:
    """Without the wrappers of PyTorch, of which Adam's and the like say nothing of what they wrap."""
    return inspect.unwrap(function)
