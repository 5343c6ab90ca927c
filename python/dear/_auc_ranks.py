"""Sums over ranks, and what ranks tell each other, for training and evaluation by AUC."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from . import _C
from ._process_group import ProcessGroup, group_of

# Of the ranks that a launcher started, which meet once.
_launched: dict[None, _C.Group] = {}


class Ranks:
    """The ranks of a process group of torch.distributed, of a dear.Group, or, by default, of torch.distributed's default group
    where that is initialised, else those that a launcher started. Making one is a call of every rank, as each method is."""

    def __init__(self, process_group: ProcessGroup, timeout: float) -> None:
        if process_group is None and dist.is_available() and dist.is_initialized():
            process_group = dist.group.WORLD
        self._torch: Any = None
        if dist.is_available() and isinstance(process_group, dist.ProcessGroup):
            self._torch = process_group
            self.rank, self.size = dist.get_rank(process_group), dist.get_world_size(process_group)
            return
        if process_group is None:
            group = _launched[None] = _launched.get(None) or group_of(None, timeout)
        else:
            group = group_of(process_group, timeout)
        self._group = group
        self._backend: Any = _C.DistributedBackend(group, None, "") if group.size > 1 else None
        self.rank, self.size = group.rank, group.size

    def add_up(self, tensor: torch.Tensor) -> None:
        """Puts the sum over ranks into the tensor, which has no gaps."""
        if self.size == 1:
            return
        if self._torch is not None:
            dist.all_reduce(tensor, group=self._torch)
            return
        here = tensor.cpu()  # a dear.Group carries memory of the host
        self._backend.allreduce([here]).wait()
        if here is not tensor:
            tensor.copy_(here)

    def gathered(self, mine: bytes) -> list[bytes]:
        """What all ranks give, in their order."""
        if self.size == 1:
            return [mine]
        if self._torch is None:
            return _C.gather_bytes(self._group, mine)
        everyone: list[Any] = [None] * self.size
        dist.all_gather_object(everyone, mine, group=self._torch)
        return everyone

    def told(self, tell: Callable[[], dict[str, Any]]) -> list[dict[str, Any]]:
        """What `tell` returns on each rank, as JSON has it. Where it throws on some, a ConfigError on all, which
        names the first of them."""
        cause: Exception | None = None
        try:
            mine = json.dumps(tell())
        except Exception as error:
            cause, mine = error, json.dumps({"error": str(error)})
        everyone = [json.loads(one) for one in self.gathered(mine.encode())]
        for rank, one in enumerate(everyone):
            if "error" in one:
                raise _C.ConfigError(f"rank {rank}: {one['error']}") from cause
        return everyone

    def agree(self, of: str, tell: Callable[[], dict[str, Any]]) -> None:
        """A MismatchError on all ranks that names the first thing which they tell otherwise."""
        everyone = self.told(tell)
        for name, first in everyone[0].items():
            for rank, one in enumerate(everyone):
                if one[name] != first:
                    raise _C.MismatchError(
                        f"rank {self.rank}: {of} has {name} {first} on rank 0 and {one[name]} on rank {rank}: give all ranks the same"
                    )
