"""Which backend of torch.distributed a job gets that names none: by the devices and hosts of its ranks."""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist

from . import _C

HOST = "cpu:dear"
# A process group of PyTorch keeps one backend that PyTorch does not know itself: ours, or that of a device.
KNOWN = ("gloo", "mpi", "nccl", "ucc", "xccl")


@dataclass(frozen=True)
class Place:
    """Where a rank runs."""

    host: str
    accelerator: str = ""  # the type, as "cuda"; "" where there is none
    devices: tuple[str, ...] = ()  # that the rank sees, by names that are the same in all processes of the host
    library: str = ""  # the backend of torch.distributed for these devices, as "nccl"; "" where there is none


def place_of_this_rank() -> Place:
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        return Place(_C.host_key())
    kind = accelerator.type
    library = dist.Backend.default_device_backend_map.get(kind, "")
    if library in ("nccl", "xccl") and not getattr(dist, f"is_{library}_available")():
        library = ""
    devices = [str(index) for index in range(torch.accelerator.device_count())]
    if kind == "cuda":  # where each rank sees one GPU, all are number 0
        devices = [str(torch.cuda.get_device_properties(int(index)).uuid) for index in devices]
    return Place(_C.host_key(), kind, tuple(devices), library)


def choose(places: Sequence[Place]) -> tuple[str, str]:
    """The backend for ranks at these places, as torch.distributed names it, and why, in a part of a sentence."""
    ranks = len(places)
    without = [rank for rank, place in enumerate(places) if not place.accelerator]
    if len(without) == ranks:
        return HOST, "no rank has a GPU" if ranks > 1 else "there is no GPU"
    if without:
        return HOST, f"rank {without[0]} has no GPU, and others have"
    kind = places[0].accelerator
    for rank, place in enumerate(places):
        if place.accelerator != kind:
            return HOST, f"rank 0 has {kind}, and rank {rank} has {place.accelerator}"
    by_hand = f"{HOST},{kind}:gloo"  # through the memory of the host
    for rank, place in enumerate(places):
        if not place.library:
            return by_hand, f"PyTorch has no library for collectives on {kind} on rank {rank}"
    hosts = list(dict.fromkeys(place.host for place in places))
    for host in hosts:
        here = [rank for rank, place in enumerate(places) if place.host == host]
        devices = {device for rank in here for device in places[rank].devices}
        if len(devices) < len(here):
            return by_hand, (
                f"the host of rank {here[0]} has {len(devices)} {kind} device{'s' * (len(devices) != 1)} for "
                f"{len(here)} ranks, and {places[here[0]].library} takes one rank for each"
            )
    every = "the rank has a device" if ranks == 1 else f"each of {ranks} ranks has a {kind} device of its own"
    library = places[0].library
    if library not in KNOWN:
        return f"cpu:gloo,{kind}:{library}", f"{every}, and a process group cannot have dear beside {library}"
    return f"{HOST},{kind}:{library}", every


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: datetime.timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: dist.Store | None = None,
    say: Callable[[str], object] | None = None,
    **options: Any,
) -> None:
    """torch.distributed.init_process_group(), with a backend that is chosen where none is named.

    The ranks tell each other what devices they have, and all choose alike: "cpu:dear" without GPUs; beside it the library
    of the GPUs, as in "cpu:dear,cuda:nccl", where every rank has one of its own; "cpu:dear,cuda:gloo" where ranks share
    one. "cpu:dear" in turn takes shared memory on one host, messages between several. Rank 0 says once what was chosen,
    and why.

    Args:
        backend: taken as it is; nothing is chosen then, nor said.
        init_method, timeout, world_size, rank, store, and `options`: as torch.distributed has them.
        say: receives the sentence, in place of standard error.
    """
    limit = {} if timeout is None else {"timeout": timeout}
    if backend is not None:
        dist.init_process_group(backend, init_method, world_size=world_size, rank=rank, store=store, **limit, **options)
        return
    if store is None:
        store, rank, world_size = next(dist.rendezvous(init_method or "env://", rank, world_size, **limit))
    # A meeting of its own: what the default group stores there must not meet these keys.
    meeting = dist.PrefixStore("dear/places", store)
    meeting.set(str(rank), json.dumps(asdict(place_of_this_rank())))
    places = [_read(meeting.get(str(other))) for other in range(world_size)]
    chosen, reason = choose(places)
    dist.init_process_group(
        chosen,
        world_size=world_size,
        rank=rank,
        store=dist.PrefixStore("default_pg", store),
        **limit,
        **options,
    )
    if rank == 0:
        hosts = len({place.host for place in places})
        where = f"{world_size} rank{'s' * (world_size != 1)} on {hosts} host{'s' * (hosts != 1)}"
        sentence = f"backend {chosen}: {reason}; {where}"
        if say is not None:
            say(sentence)
        else:
            print(f"dear: {sentence}", file=sys.stderr, flush=True)


def _read(text: bytes) -> Place:
    fields = json.loads(text)
    return Place(fields["host"], fields["accelerator"], tuple(fields["devices"]), fields["library"])
