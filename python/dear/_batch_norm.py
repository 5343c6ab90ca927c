"""dear.SyncBatchNorm: batch normalisation over the samples of all ranks."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from . import _C
from ._process_group import ProcessGroup, group_of


class _Ranks:
    """A group of ranks that copies of a module share, and pickles leave out."""

    def __init__(self, group: Optional[_C.NormGroup]) -> None:
        self.group = group

    def __deepcopy__(self, memo: Any) -> _Ranks:
        return self

    def __reduce__(self) -> Any:
        return _Ranks, (None,)


class SyncBatchNorm(_BatchNorm):
    """torch.nn.SyncBatchNorm for models on the CPU: in training the statistics of each channel are those of the samples
    of all ranks, of which each may have any number, also none.

        model = dear.SyncBatchNorm.convert_sync_batchnorm(model)
        model, optimizer = dear.distribute(model, optimizer)

    In evaluation, and on one rank, it is plain batch normalisation. Making one, and convert_sync_batchnorm(), is a call of
    every rank; `process_group` is that of distribute(). Every rank runs forward and backward of the same layers in the
    same order. ConfigError where all ranks together have one value for each channel, for a second derivative, and in
    training after unpickling: convert again.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: ProcessGroup = None,
        timeout: float = 120.0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device=device, dtype=dtype)
        self._ranks = _Ranks(_C.NormGroup(group_of(process_group, timeout)))

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(input)
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1.0 / self.num_batches_tracked.item()
        by_batch = self.training or (self.running_mean is None and self.running_var is None)
        mean = self.running_mean if not self.training or self.track_running_stats else None
        variance = self.running_var if not self.training or self.track_running_stats else None
        group = self._ranks.group
        if self.training and group is None:
            raise _C.ConfigError(
                "a SyncBatchNorm that was unpickled has no ranks to train with: call "
                "dear.SyncBatchNorm.convert_sync_batchnorm(model) again, on every rank"
            )
        if not self.training or group is None or group.size == 1:
            return functional.batch_norm(input, mean, variance, self.weight, self.bias, by_batch, momentum, self.eps)
        return _C.sync_batch_norm(input, self.weight, self.bias, mean, variance, momentum, self.eps, group)

    @classmethod
    def convert_sync_batchnorm(
        cls, module: nn.Module, process_group: ProcessGroup = None, timeout: float = 120.0
    ) -> nn.Module:
        """Replaces the BatchNorm layers of the module, also torch.nn.SyncBatchNorm, by layers of this class with the same
        parameters and buffers, in place; returns the module, or the layer that takes its place where it is one itself.
        Every rank calls it, before the optimiser is made or after it, and before distribute(). The layers share one group.
        """
        return cls._convert(module, _Ranks(_C.NormGroup(group_of(process_group, timeout))))

    @classmethod
    def _convert(cls, module: nn.Module, ranks: _Ranks) -> nn.Module:
        if not isinstance(module, _BatchNorm):
            for name, child in module.named_children():
                setattr(module, name, cls._convert(child, ranks))
            return module
        made: SyncBatchNorm = cls.__new__(cls)
        _BatchNorm.__init__(
            made, module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats
        )
        for name, parameter in module._parameters.items():
            made._parameters[name] = parameter
        for name, buffer in module._buffers.items():
            made._buffers[name] = buffer
        made.training = module.training
        made._ranks = ranks
        return made
