"""DearStrategy: how a Lightning Trainer trains with DeAR."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Optional, Union

import torch
from lightning.pytorch.core.optimizer import LightningOptimizer, _MockOptimizer
from lightning.pytorch.plugins.precision import Precision
from lightning.pytorch.strategies import DDPStrategy, StrategyRegistry

import dear
from dear._C import ConfigError

from . import _layers, _precision
from ._options import options_of, timeout_of_group

Handle = Union[dear.DataParallel, dear.Parts]


class DearStrategy(DDPStrategy):
    """Trains a LightningModule by dear.distribute(), on the processes that Lightning starts for DDP.

        trainer = Trainer(strategy="dear", accelerator="cpu", devices=2)
        trainer = Trainer(strategy=DearStrategy(policy="dear", fusion="25MB", compression="bf16"))

    options: policy, fusion, compression, ownership, ... as dear.distribute() takes them. The optimisers that
        configure_optimizers() returns train the parameters; several, which needs manual optimisation, each train a part of the
        model, by dear.distribute_parts().
    process_group_backend: of torch.distributed; None for Lightning's choice ("gloo" on the CPU, "nccl" on a GPU). "cpu:dear" has
        DeAR carry Lightning's own collectives, too.
    timeout: for every wait for other ranks; None for 120 seconds in DeAR, and Lightning's own in the process group.
    start_method: "popen", "fork", "spawn" or "forkserver", as DDPStrategy has it. The names "dear", "dear_fork", "dear_spawn"
        and "dear_notebook" stand for such strategies.

    Files are those of DDPStrategy, and either resumes from the other's, also on another number of ranks. ConfigError for an
    argument that neither has, and for what dear.distribute() refuses.
    """

    # Lightning's, of which the checker of types knows nothing.
    _precision_plugin: Any
    _layer_sync: Any
    optimizers: Any

    def __init__(
        self,
        accelerator: Optional[Any] = None,
        parallel_devices: Optional[list[torch.device]] = None,
        cluster_environment: Optional[Any] = None,
        checkpoint_io: Optional[Any] = None,
        precision_plugin: Optional[Precision] = None,
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
            precision_plugin=precision_plugin,
            process_group_backend=process_group_backend,
            timeout=timeout_of_group(timeout),
            start_method=start_method,
        )
        self._handle: Optional[Handle] = None
        self._gave_up = ""

    @property
    def distributed(self) -> Optional[Handle]:
        """While a fit runs: what dear.distribute() returned, or of several optimisers dear.distribute_parts(), for its reports."""
        return self._handle

    # ---- before training

    def setup_environment(self) -> None:
        # Here, and not where Lightning sets the plugin: what a launcher sends to its processes can be pickled.
        super().setup_environment()
        if self._precision_plugin is None:
            self._precision_plugin = Precision()
        _precision.mix_in(self._precision_plugin)

    def setup(self, trainer: Any) -> None:
        self._gave_up = ""
        if self._layer_sync and self.root_device.type == "cpu":
            self._layer_sync = _layers.SyncBatchNormOnHost(self._dear_options.get("timeout", 120.0))
        super().setup(trainer)

    def configure_ddp(self) -> None:
        """Nothing wraps the module here: DeAR needs the optimiser, which comes after."""

    def setup_optimizers(self, trainer: Any) -> None:
        super().setup_optimizers(trainer)
        raw = [getattr(one, "_optimizer", one) for one in self.optimizers]
        module = self.lightning_module
        if not raw or isinstance(raw[0], _MockOptimizer):
            return
        if len(raw) == 1:
            self._handle, _ = dear.distribute(module, raw[0], **self._dear_options)
            self.model = self._handle
        else:
            self._handle, _ = dear.distribute_parts(module, raw, **self._dear_options)
        # A LightningOptimizer is of the class that the optimiser had when it was made.
        self.optimizers = raw

    # ---- in training

    def _each(self) -> list[Any]:
        """The methods of each DataParallel, whatever names the module has."""
        if self._handle is None:
            return []
        return [dear.own(one) for one in (self._handle if isinstance(self._handle, dear.Parts) else [self._handle])]

    @contextlib.contextmanager
    def block_backward_sync(self) -> Iterator[None]:  # type: ignore[override]
        with contextlib.ExitStack() as stack:
            for one in self._each():
                stack.enter_context(one.no_sync())
            yield

    def on_validation_start(self) -> None:
        for one in self._each():  # buffers become rank 0's, as DDP's forward passes make them
            one.synchronize()

    # ---- files

    def lightning_module_state_dict(self) -> dict[str, Any]:
        self._wait()
        return super().lightning_module_state_dict()

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        raw = optimizer._optimizer if isinstance(optimizer, LightningOptimizer) else optimizer
        try:
            return super().optimizer_state(raw)
        except ConfigError as error:
            if isinstance(self._handle, dear.Parts):
                raise ConfigError(
                    f"{type(raw).__name__} has gradients that it has not stepped by, so a checkpoint cannot have its state ({error}): "
                    "call toggle_optimizer() around the passes of the others, or its zero_grad() before the training step ends"
                ) from None
            raise

    def _wait(self) -> None:
        for one in (
            [] if self._handle is None else self._handle if isinstance(self._handle, dear.Parts) else [self._handle]
        ):
            one._wait_if_open()

    # ---- after training

    def on_exception(self, exception: BaseException) -> None:
        self._gave_up = f"{type(exception).__name__}: {exception}"
        super().on_exception(exception)

    def teardown(self) -> None:
        if self._handle is not None:
            self.model = self.lightning_module
            self._leave()
        super().teardown()

    def _leave(self) -> None:
        """After an error other ranks may not come, so nothing is said to them then."""
        handle, self._handle = self._handle, None
        for one in handle if isinstance(handle, dear.Parts) else [handle]:
            mine: Any = dear.own(one)  # type: ignore[arg-type]
            if self._gave_up:
                mine.abandon(self._gave_up)
                continue
            if one._training.gradients_arrived():  # type: ignore[union-attr]
                mine.discard_step()
            mine.close()

    @classmethod
    def register_strategies(cls, strategy_registry: Any) -> None:
        for name, start in (
            ("dear", "popen"),
            ("dear_spawn", "spawn"),
            ("dear_fork", "fork"),
            ("dear_notebook", "fork"),
        ):
            about = f"DeAR, with `start_method` '{start}'"
            strategy_registry.register(name, cls, description=about, override=True, start_method=start)


DearStrategy.register_strategies(StrategyRegistry)
