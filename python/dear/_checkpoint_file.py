"""Checkpoint files: a pickle whose tensors are records of the same file, as torch.save() writes it."""

from __future__ import annotations

import contextlib
import io
import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import torch

from . import _C

Add = Callable[[torch.Tensor], _C.StoredTensor]


class _Storage:
    """The storage of a tensor that is a record."""

    def __init__(self, stored: _C.StoredTensor) -> None:
        self.stored = stored


class _Pickler(pickle.Pickler):
    """Writes tensors by `add`, each once, and names their records."""

    def __init__(self, file: io.BytesIO, add: Add) -> None:
        super().__init__(file, protocol=2)
        self._add = add
        self._known: dict[Any, tuple[torch.Tensor, _C.StoredTensor]] = {}

    def persistent_id(self, value: Any) -> Any:
        if not isinstance(value, _Storage):
            return None
        stored = value.stored
        return "storage", getattr(torch, stored.storage), stored.key, "cpu", stored.elements

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            value = self._stored(value)
        if isinstance(value, _C.StoredTensor):
            arguments: Any = (_Storage(value), 0, tuple(value.sizes), tuple(value.strides), False, OrderedDict())
            return torch._utils._rebuild_tensor_v2, arguments
        return NotImplemented

    def _stored(self, tensor: torch.Tensor) -> _C.StoredTensor:
        plain = tensor.detach()
        if plain.device.type != "cpu":
            plain = plain.cpu()
        if type(plain) is not torch.Tensor and not isinstance(plain, torch.nn.Parameter):
            raise _C.ConfigError(f"a {type(plain).__name__} cannot be saved in a checkpoint: save plain tensors")
        # Two names of one parameter share a record, also where state_dict() made a tensor of its own for each.
        place = (plain.data_ptr(), plain.shape, plain.stride(), plain.dtype)
        if place not in self._known:
            self._known[place] = (plain, self._add(plain))
        return self._known[place][1]


def dumps(value: Any, add: Add) -> bytes:
    """The pickle of `value`, whose tensors `add` has written."""
    file = io.BytesIO()
    _Pickler(file, add).dump(value)
    return file.getvalue()


def load(path: str, weights_only: bool) -> dict[str, Any]:
    """What the file holds, its tensors on memory that is mapped. ConfigError for one that is damaged, or no checkpoint."""
    _C.verify_checkpoint(path)
    with as_checkpoint(path):
        return required(torch.load(path, map_location="cpu", mmap=True, weights_only=weights_only), path)


@contextlib.contextmanager
def as_checkpoint(path: str) -> Iterator[None]:
    """ConfigError for what weights_only=True does not read."""
    try:
        yield
    except pickle.UnpicklingError as error:
        raise _C.ConfigError(
            f"'{path}' holds objects that plain tensors and numbers are not, and reading them may run code: load it with "
            f"weights_only=False if you trust the file ({str(error).splitlines()[0]})"
        ) from error


def required(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not isinstance(value.get("model"), dict):
        raise _C.ConfigError(f"'{path}' is no checkpoint of a training: it has no 'model'; save it with dear.save()")
    return value


def packed(value: Any) -> bytes:
    """For the other ranks."""
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def unpacked(data: bytes) -> Any:
    """What another rank of this job packed."""
    return torch.load(io.BytesIO(data), weights_only=False)
