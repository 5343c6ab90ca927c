"""Training on a device with streams, such as a GPU."""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch.distributed as dist
from torch import nn

from . import _C


def device_of(module: nn.Module) -> Any:
    """The device of the parameters; that of the CPU for a module without any."""
    return next((parameter.device for parameter in module.parameters()), None)


def collectives_of(module: nn.Module, process_group: Any, group: _C.Group) -> _C.StreamCollectives | None:
    """What carries memory of the module's device, for a module that is on one: the process group of torch.distributed
    that was given, or its default group. None for one on the CPU, or for one rank, which trains alone."""
    device = device_of(module)
    if device is None or device.type == "cpu" or group.size == 1:
        return None
    if process_group is None and dist.is_available() and dist.is_initialized():
        process_group = dist.group.WORLD
    if not isinstance(process_group, dist.ProcessGroup):
        raise _C.ConfigError(
            f"the model is on {device}, whose memory a process group of torch.distributed carries: call "
            f"torch.distributed.init_process_group('cpu:gloo,cuda:nccl', device_id=...) before, or move the model to the CPU"
        )
    return _C.stream_collectives(process_group, device.type)


def say_what_carries(
    module: nn.Module, process_group: Any, group: _C.Group, streams: _C.StreamCollectives | None
) -> None:
    """Says on rank 0, once in a process, what carries the memory of a model that trains on a process group of
    torch.distributed, and why."""
    if isinstance(process_group, _C.Group) or not (dist.is_available() and dist.is_initialized()):
        return
    if group.rank != 0 or group.size == 1:
        return
    if streams is not None:
        where = device_of(module)
        carrier = f"{streams.description}, the backend that the process group has for {where.type}"
        say(f"a model on {where} trains over {carrier}; what the hosts tell each other goes over {group.backend}")
    elif group.backend == "shm":
        say(f"a model on the CPU trains over shm: the {group.size} ranks are on one host, and share its memory")
    else:
        say(f"a model on the CPU trains over {group.backend}: the {group.size} ranks are on several hosts")


@functools.lru_cache(maxsize=None)
def say(sentence: str) -> None:
    print(f"dear: {sentence}", file=sys.stderr, flush=True)
