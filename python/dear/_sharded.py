"""Checkpoints of a shard a rank, in the form that C++ writes and reads: of each rank a file, of which the first has a
pickle of all of the checkpoint, whose tensors lie in pieces in the files of all ranks."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import _weights_only_unpickler as weights_only_unpickler

from . import _C, _checkpoint_file


class Sharded:
    """A checkpoint in shards: `saved` has the form of a file's. Small tensors are real. Others are on the meta device until
    materialise() or Training.set_..._of_shards() gets them; all ranks together."""

    def __init__(self, group: Optional[_C.Group], path: str) -> None:
        self.shards = _C.Shards(group, path)
        self._path = path
        self._storages: dict[str, torch.storage.TypedStorage] = {}
        self._keys: dict[int, str] = {}

    def load(self, weights_only: bool) -> dict[str, Any]:
        manifest = io.BytesIO(self.shards.manifest())
        unpickler: Any = weights_only_unpickler.Unpickler(manifest) if weights_only else _Unpickler(manifest)
        unpickler.persistent_load = self._storage_of
        with _checkpoint_file.as_checkpoint(self._path):
            return _checkpoint_file.required(unpickler.load(), self._path)

    def _storage_of(self, named: Any) -> torch.storage.TypedStorage:
        _, kind, key, _, elements = named
        if key not in self._storages:
            record = _C.StoredTensor(key, torch.empty(elements, dtype=kind._dtype, device="meta"))
            if self.shards.is_small(record):
                storage = self.shards.whole(record).untyped_storage()
            else:
                storage = torch.UntypedStorage(elements * kind._dtype.itemsize, device="meta")
            self._storages[key] = torch.storage.TypedStorage(wrap_storage=storage, dtype=kind._dtype, _internal=True)
            self._keys[storage._cdata] = key
        return self._storages[key]

    def record(self, tensor: torch.Tensor) -> _C.StoredTensor:
        """Where the shards have a tensor of what load() returned."""
        return _C.StoredTensor(self._keys[tensor.untyped_storage()._cdata], tensor)

    def materialise(self, value: Any, keep: Callable[[torch.Tensor], bool] = lambda tensor: False) -> Any:
        """`value` with real tensors, but for those to `keep`. All ranks together."""
        if isinstance(value, torch.Tensor):
            return value if value.device.type != "meta" or keep(value) else self.shards.whole(self.record(value))
        if isinstance(value, dict):
            for key, item in value.items():  # in place: it may be of a class of its own
                value[key] = self.materialise(item, keep)
        if type(value) in (list, tuple):
            return type(value)(self.materialise(item, keep) for item in value)
        return value


class _Unpickler(pickle.Unpickler):
    persistent_load: Any
