"""Reads of parameters past the operators.

Operators of PyTorch wait by themselves for parameters that are still on the wire. What reads a tensor's memory
without one (numpy(), DLPack, pickling, a raw pointer) is made to wait here, once the first DataParallel of more than
one rank is there.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import torch

from . import _C

# Methods of a tensor that hand out its memory, or read it, without an operator.
_METHODS = (
    "__array__",
    "__deepcopy__",
    "__dlpack__",
    "__reduce_ex__",
    "data_ptr",
    "numpy",
    "share_memory_",
    "storage",
    "_typed_storage",
    "tolist",
    "untyped_storage",
)

_installed = False


def _waiting(method: Any) -> Any:
    @functools.wraps(method)
    def wait_and_call(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        _C.await_whole(self)
        return method(self, *args, **kwargs)

    return wait_and_call


def install() -> None:
    """Once for the process. The methods cost about a microsecond more afterwards."""
    global _installed
    if _installed:
        return
    _installed = True
    for name in _METHODS:
        setattr(torch.Tensor, name, _waiting(getattr(torch.Tensor, name)))
    # Parameter has methods of its own for some.
    for name in ("__deepcopy__", "__reduce_ex__"):
        setattr(torch.nn.Parameter, name, _waiting(getattr(torch.nn.Parameter, name)))
    # The threads that a wait counts on do not exist in a child that was forked, as workers of a DataLoader are.
    os.register_at_fork(after_in_child=_C.stop_observing_after_fork)
