"""The group of ranks that a DataParallel trains with."""

from __future__ import annotations

import datetime
import os
import uuid
from typing import Any, Optional, Union

import torch.distributed as dist

from . import _C
from ._distributed import NAME, network_under

ProcessGroup = Optional[Union["dist.ProcessGroup", _C.Group]]


def group_of(process_group: ProcessGroup, timeout: float, reproducible: bool = False) -> _C.Group:
    """The group to use for `process_group`, which every rank of it passes at the same time.

    A dear.Group is taken as it is. For a process group of torch.distributed, or its default group where that is
    initialised, ranks of one host meet in shared memory; those of several hosts make a Gloo process group of their own. Without either, the launcher's environment says which ranks there are (see dear.init).
    """
    if isinstance(process_group, _C.Group):
        return process_group
    if process_group is None:
        if not (dist.is_available() and dist.is_initialized()):
            return _C.init(timeout=timeout, reproducible=reproducible)
        process_group = dist.group.WORLD
    if not isinstance(process_group, dist.ProcessGroup):
        raise _C.ConfigError(
            f"process_group is a {type(process_group).__name__}: pass a process group of torch.distributed that this "
            f"rank belongs to, a dear.Group, or None"
        )
    return _on_process_group(process_group, timeout, reproducible)


def new_group_like(
    base: Any,
    backend: str,
    timeout: Optional[datetime.timedelta] = None,
    part: slice = slice(None),
) -> Any:
    """A process group of the ranks of `base`, which make it together, and no other rank takes part; of a part of them, to which
    this rank belongs, while each makes that of its own part. On the backend "dear" it has the modelled network of `base`.

    PyTorch names it by how many groups a rank has: ranks that have different numbers would wait for each other under
    different names, so that is a MismatchError on all of them.
    """
    ranks = dist.get_process_group_ranks(base)
    some = len(ranks[part]) != dist.get_world_size()
    world = dist.distributed_c10d._world
    everyone: list[Any] = [None] * len(ranks)
    dist.all_gather_object(everyone, len(world.pg_names) if some else world.group_count, group=base)
    for rank, count in zip(ranks, everyone):
        if count != everyone[0]:
            raise _C.MismatchError(
                f"rank {ranks[0]} has {everyone[0]} process groups of torch.distributed and rank {rank} has {count}, so they cannot "
                "make another one together: call dist.new_group() alike on all ranks, also for groups that a rank does not belong to"
            )
    network = network_under(base, part) if NAME in backend else None
    return dist.new_group(
        ranks[part], timeout=timeout, backend=backend, pg_options=network, use_local_synchronization=some
    )


def _on_process_group(process_group: Any, timeout: float, reproducible: bool) -> _C.Group:
    rank, size = dist.get_rank(process_group), dist.get_world_size(process_group)
    # One exchange says who is where, and names the meeting in shared memory.
    mine = (_C.host_key(), f"dear-{uuid.uuid4().hex}-{os.getpid()}")
    everyone: list[Any] = [None] * size
    dist.all_gather_object(everyone, mine, group=process_group)
    if all(host == everyone[0][0] for host, _ in everyone):
        return _C.meet_in_shared_memory(everyone[0][1], rank, size, timeout)
    # A Gloo of our own, since the program's process group carries what the program sends.
    own = new_group_like(process_group, "gloo", datetime.timedelta(seconds=timeout))
    return _C.group_on(own, timeout=timeout, reproducible=reproducible)
