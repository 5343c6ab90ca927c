"""Training on a device with streams, such as a GPU."""

from __future__ import annotations

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
