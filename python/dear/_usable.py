"""What cannot be trained is refused before anything is sent."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from . import _C, _optimizer, _ownership

BUFFERS = ("synchronize", "average", "forward", "construction")


def require_usable(
    module: Any, wrapper: type, optimizers: list[Any], buffers: str, update: str, ownership: str
) -> None:
    if not isinstance(module, nn.Module):
        raise _C.ConfigError(f"the model is a {type(module).__name__}: pass a torch.nn.Module")
    if isinstance(module, wrapper):
        raise _C.ConfigError("the model is a DataParallel already: pass its `module`, after close()")
    for kind in (nn.DataParallel, nn.parallel.DistributedDataParallel):
        if isinstance(module, kind):
            raise _C.ConfigError(f"the model is a {kind.__name__}, which averages gradients itself: pass its `module`")
    for optimizer in optimizers:
        if not isinstance(optimizer, Optimizer):
            raise _C.ConfigError(f"the optimiser is a {type(optimizer).__name__}: pass a torch.optim.Optimizer")
        if isinstance(optimizer, _optimizer.Distributed):
            raise _C.ConfigError(
                "the optimiser trains with another DataParallel: close() that, or make a new optimiser"
            )
    if update not in _ownership.UPDATES:
        raise _C.ConfigError(f"update={update!r}: there are 'auto', 'sharded' and 'program'")
    if ownership not in _ownership.OWNERSHIPS:
        raise _C.ConfigError(f"ownership={ownership!r}: there are 'cut', 'auto' and 'whole'")
    if buffers not in BUFFERS:
        raise _C.ConfigError(f"buffers={buffers!r}: there are {', '.join(BUFFERS)}")
    require_plain_parameters(module)


def require_plain_parameters(module: nn.Module) -> None:
    for name, parameter in module.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedTensorMixin):
            raise _C.ConfigError(f"parameter '{name}' has no shape yet: run one forward pass before distribute()")
        if parameter.is_meta:
            raise _C.ConfigError(
                f"parameter '{name}' is on the meta device, and has no values: materialise the model by "
                f"to_empty(device=...), and initialise or load it, before distribute()"
            )
        if getattr(parameter, "_in_backward_optimizers", None):
            raise _C.ConfigError(
                f"parameter '{name}' has an optimiser that runs in its backward pass, before ranks have summed its "
                f"gradient: make the optimiser as usual, and choose policy='dear-eager', which updates in backward"
            )
        if type(parameter.data) is not torch.Tensor:
            raise _C.ConfigError(
                f"parameter '{name}' is a {type(parameter.data).__name__}, and its memory cannot be moved into "
                f"buckets: train plain tensors"
            )
