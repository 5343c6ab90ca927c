"""Names that both a user's model and a DataParallel have: the model's win."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

from ._streams import say

# What a program may not hide: what unwraps it, and the mode that both are in.
_KEPT = frozenset({"module", "training"})


class Own:
    """What dear.own() returns."""

    def __init__(self, parallel: Any, cls: type) -> None:
        self.__dict__.update(_parallel=parallel, _cls=cls)

    def __getattr__(self, name: str) -> Any:
        parallel, cls = self.__dict__["_parallel"], self.__dict__["_cls"]
        if name not in names_of(cls):
            raise AttributeError(f"a DataParallel has no '{name}' of its own")
        if name in parallel.__dict__:
            return parallel.__dict__[name]
        return inspect.getattr_static(cls, name).__get__(parallel, cls)

    def __dir__(self) -> list[str]:
        return sorted(names_of(self.__dict__["_cls"]))


def names_of(cls: type) -> frozenset[str]:
    """Those of a DataParallel that a torch.nn.Module has not."""
    names = {*dir(cls), *cls.__annotations__}
    return frozenset(name for name in names if not name.startswith("_") and not hasattr(nn.Module, name))


def hidden_by(module: nn.Module, cls: type) -> list[str]:
    """The names of a DataParallel that the module has too."""
    own = {*module.__dict__, *module._parameters, *module._buffers, *module._modules}
    for base in type(module).__mro__:
        if base is not nn.Module and base is not object:
            own.update(vars(base))
    return sorted(own & (names_of(cls) - _KEPT))


def give_way(parallel: Any, cls: type, names: list[str], rank: int) -> None:
    """The model's own under these names from now on; rank 0 says so once."""
    already = vars(type(parallel)).get("_given_way", ())
    names = [name for name in names if name not in already]
    if not names:
        return
    every = [*already, *names]
    forwarding = {name: _forwarded(name) for name in every}
    derived = type(cls.__name__, (cls,), {"__module__": cls.__module__, "_given_way": every, **forwarding})
    object.__setattr__(parallel, "__class__", derived)
    if rank == 0:
        listed = ", ".join(f"'{name}'" for name in names)
        say(f"the model has {listed} of its own, which the DataParallel shows; DeAR's is dear.own(model).{names[0]}")


def _forwarded(name: str) -> property:
    return property(
        lambda self: getattr(self.module, name),
        lambda self, value: setattr(self.module, name, value),
        lambda self: delattr(self.module, name),
    )
