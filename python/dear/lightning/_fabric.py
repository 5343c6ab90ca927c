"""DearFabricStrategy: how a loop of Lightning Fabric trains with DeAR."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import Any, Optional

import torch
from lightning.fabric.plugins.precision import Precision
from lightning.fabric.strategies import STRATEGY_REGISTRY
from lightning.fabric.strategies.ddp import DDPStrategy
from lightning.fabric.strategies.strategy import _BackwardSyncControl
from torch import nn

import dear
from dear._C import ConfigError

from ._options import options_of, timeout_of_group


class DearFabricStrategy(DDPStrategy):
    """Trains what fabric.setup(model, optimizer) is given by dear.distribute(); several optimisers by dear.distribute_parts().

        fabric = Fabric(strategy="dear", accelerator="cpu", devices=2)
        fabric = Fabric(strategy=DearFabricStrategy(policy="dear", fusion="25MB"))

    The arguments are those of DearStrategy. Every rank calls fabric.save(), whose file has the optimiser's state whole, as
    DDPStrategy's has. ConfigError for an argument that neither has, for a model that is to train and is set up without its
    optimiser, and for what dear.distribute() refuses.
    """

    def __init__(
        self,
        accelerator: Optional[Any] = None,
        parallel_devices: Optional[list[torch.device]] = None,
        cluster_environment: Optional[Any] = None,
        checkpoint_io: Optional[Any] = None,
        precision: Optional[Precision] = None,
        process_group_backend: Optional[str] = None,
        timeout: Optional[timedelta] = None,
        start_method: Any = "popen",
        **options: Any,
    ) -> None:
        self._dear_options = options_of(options, timeout, type(self).__name__)
        super().__init__(
            accelerator=accelerator,
            parallel_devices=parallel_devices,
            cluster_environment=cluster_environment,
            checkpoint_io=checkpoint_io,
            precision=precision,
            process_group_backend=process_group_backend,
            timeout=timeout_of_group(timeout),
            start_method=start_method,
        )
        self._parts: dict[int, dear.Parts] = {}  # by id() of a module that several optimisers train
        self._backward_sync_control = _NoSync(self._parts)

    def setup_module_and_optimizers(self, module: nn.Module, optimizers: list[Any], scheduler: Any = None) -> Any:
        if len(optimizers) == 1:
            parallel, _ = dear.distribute(module, optimizers[0], **self._dear_options)
            return parallel, optimizers, scheduler
        self._parts[id(module)], _ = dear.distribute_parts(module, optimizers, **self._dear_options)
        return module, optimizers, scheduler

    def setup_module(self, module: nn.Module) -> nn.Module:
        if any(parameter.requires_grad for parameter in module.parameters()):
            raise ConfigError(
                "the model has parameters that need gradients, and DeAR trains it together with its optimiser: call "
                "fabric.setup(model, optimizer), or freeze a model that is only to be evaluated"
            )
        return module

    def get_module_state_dict(self, module: nn.Module) -> dict[str, Any]:
        for part in self._parts.get(id(module), ()):
            part._wait_if_open()
        return super().get_module_state_dict(module)

    def clip_gradients_norm(
        self,
        module: nn.Module,
        optimizer: Any,
        max_norm: float,
        norm_type: float = 2.0,
        error_if_nonfinite: bool = True,
    ) -> torch.Tensor:
        self._unscale(optimizer)
        return optimizer.clip_grad_norm_(max_norm, norm_type, error_if_nonfinite)

    def clip_gradients_value(self, module: nn.Module, optimizer: Any, clip_val: float) -> None:
        self._unscale(optimizer)
        optimizer.clip_grad_value_(clip_val)

    def _unscale(self, optimizer: Any) -> None:
        scaler = getattr(self.precision, "scaler", None)
        if scaler is not None:
            scaler.unscale_(optimizer)

    @classmethod
    def register_strategies(cls, strategy_registry: Any) -> None:
        for name, start in (
            ("dear", "popen"),
            ("dear_spawn", "spawn"),
            ("dear_fork", "fork"),
            ("dear_notebook", "fork"),
        ):
            about = f"DeAR, with `start_method={start!r}`"
            strategy_registry.register(name, cls, description=about, override=True, start_method=start)


class _NoSync(_BackwardSyncControl):
    def __init__(self, parts: dict[int, dear.Parts]) -> None:
        self._parts = parts

    def no_backward_sync(self, module: nn.Module, enabled: bool) -> Any:
        if not enabled:
            return contextlib.nullcontext()
        if id(module) in self._parts:
            return self._parts[id(module)].no_sync()
        if isinstance(module, dear.DataParallel):
            return dear.own(module).no_sync()
        raise ConfigError("the model was not set up with its optimiser: call fabric.setup(model, optimizer)")


DearFabricStrategy.register_strategies(STRATEGY_REGISTRY)
