"""The backend "dear" of torch.distributed: `import dear`, then init_process_group("cpu:dear") or "cpu:dear,cuda:nccl"."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import uuid
from typing import Any, Optional

import torch
import torch.distributed as dist

from . import _C

NAME = "dear"


@dataclasses.dataclass(frozen=True)
class ModelledNetwork:
    """Links that the ranks of one host seem to have, one for each ordered pair of them:

        dist.init_process_group("cpu:dear", pg_options=dear.ModelledNetwork("two-sites"))

    cluster: a file of devices and links (docs/formats.md), its text or the name of a preset; device r is rank r. That of
        rank 0 counts. Messages between two ranks take the time of their link, and collectives are made of such messages.
    """

    cluster: str | os.PathLike[str]


def network_under(process_group: Any, part: slice = slice(None)) -> Optional[ModelledNetwork]:
    """That of a process group of this backend, between a part of its ranks; None where it has none."""
    try:
        backend = process_group._get_backend(torch.device("cpu"))
    except RuntimeError:  # it carries no memory of the host
        return None
    text = backend.network if isinstance(backend, _C.DistributedBackend) else ""
    if not text:
        return None
    cluster = json.loads(text)
    cluster["devices"] = cluster["devices"][part]
    for matrix in ("bytes_per_second", "latency_seconds"):
        cluster[matrix] = [row[part] for row in cluster[matrix][part]]
    return ModelledNetwork(json.dumps(cluster))


def _make(options: Any, given: Any = None) -> Any:
    """The backend of one process group, which every rank of it makes at the same time."""
    rank, size, store = options.group_rank, options.group_size, options.store
    timeout: datetime.timedelta = options.timeout
    network = _told(rank, dist.PrefixStore("dear/network", store), given)
    others = dist.ProcessGroupGloo(dist.PrefixStore("dear/others", store), rank, size, timeout)
    # Who is where, and the name of the meeting in shared memory.
    mine = f"{_C.host_key()}\n{uuid.uuid4().hex}-{os.getpid()}"
    where = dist.PrefixStore("dear/where", store)
    where.set(str(rank), mine)
    everyone = [where.get(str(other)).decode().split("\n") for other in range(size)]
    seconds = timeout.total_seconds()
    one_host = all(host == everyone[0][0] for host, _ in everyone)
    if network and not one_host:
        raise _C.ConfigError(
            f"rank {rank}: ranks of a modelled network are on one host: leave the network out, or start them there"
        )
    if one_host and not network:
        group = _C.meet_in_shared_memory(f"dear-{everyone[0][1]}", rank, size, seconds)
    else:
        messages = dist.ProcessGroupGloo(dist.PrefixStore("dear/messages", store), rank, size, timeout)
        group = _C.group_on_backend(messages, seconds, network)
    return _C.DistributedBackend(group, others, network)


def _told(rank: int, store: Any, given: Any) -> str:
    """The text of rank 0's modelled network, on all ranks; nothing where it has none."""
    if rank == 0:
        text = ""
        try:
            if isinstance(given, ModelledNetwork):
                text, _ = _C.pipeline_cluster(os.fspath(given.cluster))
        except _C.ConfigError as error:
            text = f"!{error}"
        store.set("text", text)
    text = store.get("text").decode()
    if text.startswith("!"):
        raise _C.ConfigError(text[1:])
    return text


def register() -> None:
    """Makes torch.distributed know the backend, once in a process."""
    if dist.is_available() and NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, _make, extended_api=True, devices=["cpu"])
