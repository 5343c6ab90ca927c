"""Lightning's sync_batchnorm=True for models on the CPU."""

from __future__ import annotations

from lightning.pytorch.plugins.layer_sync import LayerSync
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

import dear


class SyncBatchNormOnHost(LayerSync):
    """Makes each BatchNorm layer a dear.SyncBatchNorm for the time of a fit."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._classes: dict[str, type[nn.Module]] = {}

    def apply(self, model: nn.Module) -> nn.Module:
        self._classes = {name: type(one) for name, one in model.named_modules() if isinstance(one, _BatchNorm)}
        if not self._classes:
            return model
        return dear.SyncBatchNorm.convert_sync_batchnorm(model, timeout=self._timeout)

    def revert(self, model: nn.Module) -> nn.Module:
        for name, cls in self._classes.items():
            layer = model.get_submodule(name)
            if cls is dear.SyncBatchNorm or not isinstance(layer, dear.SyncBatchNorm):
                continue
            made = cls(layer.num_features, layer.eps, layer.momentum, layer.affine, layer.track_running_stats)
            made._parameters.update(layer._parameters)
            made._buffers.update(layer._buffers)
            made.train(layer.training)
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, made)
        return model
