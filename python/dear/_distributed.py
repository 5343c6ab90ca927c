"""The backend "dear" of torch.distributed: `import dear`, then init_process_group("cpu:dear") or "cpu:dear,cuda:nccl"."""

from __future__ import annotations

import datetime
import os
import uuid
from typing import Any

import torch.distributed as dist

from . import _C

NAME = "dear"


def _make(options: Any, _: Any = None) -> Any:
    """The backend of one process group, which every rank of it makes at the same time."""
    rank, size, store = options.group_rank, options.group_size, options.store
    timeout: datetime.timedelta = options.timeout
    others = dist.ProcessGroupGloo(dist.PrefixStore("dear/others", store), rank, size, timeout)
    # Who is where, and the name of the meeting in shared memory.
    mine = f"{_C.host_key()}\n{uuid.uuid4().hex}-{os.getpid()}"
    where = dist.PrefixStore("dear/where", store)
    where.set(str(rank), mine)
    everyone = [where.get(str(other)).decode().split("\n") for other in range(size)]
    seconds = timeout.total_seconds()
    if all(host == everyone[0][0] for host, _ in everyone):
        group = _C.meet_in_shared_memory(f"dear-{everyone[0][1]}", rank, size, seconds)
    else:
        messages = dist.ProcessGroupGloo(dist.PrefixStore("dear/messages", store), rank, size, timeout)
        group = _C.group_on_backend(messages, seconds)
    return _C.DistributedBackend(group, others)


def register() -> None:
    """Makes torch.distributed know the backend, once in a process."""
    if dist.is_available() and NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, _make, extended_api=True, devices=["cpu"])
