"""Lightning on process groups of DeAR's backend, and an error of one rank."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from dear.lightning import DearStrategy
from lightning.pytorch.strategies import DDPStrategy, FSDPStrategy, ModelParallelStrategy, StrategyRegistry
from torch.distributed.fsdp import fully_shard

import dear

from .registry import RANK, Net, as_ddp, behaviour, close, fit, loader, refuses, same_parameters, trainer

ON_DEAR = {"group": "cpu:dear"}


@behaviour(
    "test_ddp_process_group_backend",
    "Lightning's own DDP on a process group of DeAR's, metrics of an epoch among them",
    **ON_DEAR,
)
def ddp_on_dear() -> None:
    assert "dear" in dist.get_backend()
    mine, theirs = as_ddp(
        Net,
        dear_strategy=DearStrategy(process_group_backend="cpu:dear"),
        ddp_strategy=DDPStrategy(process_group_backend="cpu:dear"),
        validate=True,
    )
    assert mine.trainer.callback_metrics == theirs.trainer.callback_metrics


@behaviour(
    "test_model_parallel (FSDP2)",
    "Lightning's ModelParallelStrategy with fully_shard() on a process group of DeAR's",
    "works: the losses of DDP to 1e-6",
    **ON_DEAR,
)
def fsdp_on_dear() -> None:
    class Sharded(Net):
        def configure_model(self) -> None:
            mesh = self.device_mesh["data_parallel"]
            for layer in (self.net[0], self.net[2]):
                if not isinstance(layer.weight, torch.distributed.tensor.DTensor):
                    fully_shard(layer, mesh=mesh)
            fully_shard(self.net, mesh=mesh)

    whole = fit("ddp", Net())
    sharded = fit(
        ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1, process_group_backend="cpu:dear"), Sharded()
    )
    close(sharded.losses, whole.losses)


@behaviour(
    "test_fsdp_strategy (FSDP1)",
    "Lightning's FSDPStrategy on a process group of DeAR's",
    "refused by Lightning, which wants a GPU",
    **ON_DEAR,
)
def fsdp_strategy_on_dear() -> None:
    refuses(ValueError, lambda: trainer(FSDPStrategy(process_group_backend="cpu:dear")), "requires a GPU accelerator")


@behaviour("(users) inference_mode in test()", "test() in inference_mode after a fit, with BatchNorm", **ON_DEAR)
def inference_mode() -> None:
    class Looks(Net):
        def test_step(self, batch: Any, index: int) -> None:
            assert torch.is_inference_mode_enabled()
            super().test_step(batch, index)

    mine, theirs = as_ddp(lambda: Looks(norm=True), exactly=False, validate=True, max_epochs=2)
    found = [one.trainer.test(one.module, loader(16), verbose=False)[0]["test_loss"] for one in (mine, theirs)]
    close(found[:1], found[1:])


@behaviour(
    "test_ddp_kwargs_from_registry, test_registry", "names of strategies: dear, dear_spawn, dear_fork, dear_notebook"
)
def names() -> None:
    for name, start in (("dear", "popen"), ("dear_spawn", "spawn"), ("dear_fork", "fork"), ("dear_notebook", "fork")):
        assert name in StrategyRegistry.available_strategies()
        strategy = trainer(name).strategy
        assert isinstance(strategy, DearStrategy) and strategy._start_method == start


@behaviour(
    "(users) an error of one rank",
    "an error that one rank raises: the others are told within DeAR's timeout",
    "an error of DeAR that names the rank where the step waits for it, else Lightning's broadcast ends with its process",
)
def one_raises() -> None:
    # In this policy the step waits for the gradients of all ranks. In others the next wait may be Lightning's own broadcast
    # between two steps, which ends only as the process of rank 1 does: here that lives on.
    strategy = DearStrategy(policy="serial")

    class Raises(Net):
        def training_step(self, batch: Any, index: int) -> Any:
            if index == 2 and RANK == 1:
                raise ValueError("this batch")
            return super().training_step(batch, index)

    module = Raises()
    if RANK == 1:
        refuses(ValueError, lambda: fit(strategy, module), "this batch")
    else:
        try:
            fit(strategy, module)
        except (dear.Error, RuntimeError) as error:
            assert "rank 1" in str(error), error
        else:
            raise AssertionError("no error")
    same_parameters(module, module)
