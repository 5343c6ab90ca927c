"""Fits, their loops and what callbacks see."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from dear.lightning import DearStrategy
from lightning.pytorch.callbacks import (
    BaseFinetuning,
    Callback,
    EarlyStopping,
    EMAWeightAveraging,
    GradientAccumulationScheduler,
    StochasticWeightAveraging,
)
from torch import nn
from torch.utils.data import DistributedSampler

import dear

from .registry import RANK, WORLD, Net, as_ddp, behaviour, close, data, fit, loader, refuses, same_parameters, trainer


@behaviour(
    "test_multi_gpu_model_ddp_fit_only, test_ddp_with_2_gpus", "a fit: the same losses and parameters, to the bit"
)
def fit_only() -> None:
    as_ddp(Net, max_epochs=2)


@behaviour("test_ddp_cpu, test_multi_gpu_model_ddp_spawn", "AdamW with a scheduler that steps by batch")
def scheduled() -> None:
    mine, theirs = as_ddp(lambda: Net("adamw", schedule=True), max_epochs=2)
    rates = [one.trainer.optimizers[0].param_groups[0]["lr"] for one in (mine, theirs)]
    assert rates[0] == rates[1] < 0.01, rates


@behaviour("test_multi_gpu_model_ddp_fit_test", "test() and predict() after fit(), on the module itself")
def fit_then_test() -> None:
    results = []
    for strategy in ("ddp", "dear"):
        done = fit(strategy, Net())
        results.append(done.trainer.test(done.module, loader(16), verbose=False)[0]["test_loss"])
        assert done.trainer.strategy.model is done.module
    assert results[0] == results[1], results


@behaviour("test_multi_gpu_model_ddp_test_only", "test() without a fit: nothing is distributed")
def test_only() -> None:
    results = [trainer(one).test(Net(), loader(16), verbose=False)[0]["test_loss"] for one in ("ddp", "dear")]
    assert results[0] == results[1], results


@behaviour("test_ddp_torch_dist_is_available_in_setup", "torch.distributed is there in setup()")
def available_in_setup() -> None:
    class Asks(Net):
        def setup(self, stage: str) -> None:
            assert dist.is_initialized() and dist.get_world_size() == WORLD

    fit("dear", Asks(), max_steps=1)


@behaviour(
    "test_ddp_wrapper",
    "the module is wrapped in a fit, and itself again after it; trainer.strategy.distributed is DeAR's",
)
def wrapped() -> None:
    class Looks(Net):
        def on_train_start(self) -> None:
            assert isinstance(self.trainer.strategy.model, dear.DataParallel)
            assert self.trainer.strategy.distributed.module is self

    done = fit(DearStrategy(policy="wfbp", fusion="layer"), Looks(), max_steps=2)
    assert done.trainer.strategy.model is done.module and done.trainer.strategy.distributed is None


@behaviour(
    "test_multi_gpu_early_stop_ddp_spawn", "early stopping by a metric that all ranks share, and the metric itself"
)
def early_stop() -> None:
    def stop() -> dict[str, Any]:
        return {"callbacks": [EarlyStopping("val_loss", min_delta=10.0, patience=1)], "max_epochs": 8}

    mine, theirs = as_ddp(Net, options=stop, validate=True)
    assert mine.trainer.current_epoch == theirs.trainer.current_epoch == 2
    assert mine.trainer.callback_metrics["val_loss"] == theirs.trainer.callback_metrics["val_loss"]


@behaviour("test_ddp_all_dataloaders_passed_to_fit", "loaders given to fit() are shared out by a DistributedSampler")
def loaders() -> None:
    done = fit("dear", Net(), max_epochs=1)
    assert len(done.losses) == 32 // 4 // WORLD
    assert done.trainer.train_dataloader.sampler.rank == RANK


@behaviour(
    "test_find_unused_parameters_exception_ddp, _ddp_spawn",
    "parameters that the loss does not use",
    "no error, and none is updated; DDP raises unless told",
)
def unused() -> None:
    class WithUnused(Net):
        def __init__(self) -> None:
            super().__init__()
            self.unused = nn.Linear(4, 4)

    before = WithUnused().unused.weight.detach().clone()
    mine, _ = as_ddp(WithUnused, ddp_strategy="ddp_find_unused_parameters_true")
    assert torch.equal(mine.module.unused.weight, before)


@behaviour(
    "test_configure_launcher_create_processes_externally", "processes that a launcher started are taken as they are"
)
def processes() -> None:
    made = trainer("dear")
    assert made.world_size == WORLD and made.global_rank == RANK and made.strategy.launcher is not None


@behaviour(
    "test_model_parameters_on_device_for_optimizer", "the optimiser is made of parameters that are on their device"
)
def on_device() -> None:
    class Asks(Net):
        def configure_optimizers(self) -> Any:
            assert all(one.device == self.trainer.strategy.root_device for one in self.parameters())
            return super().configure_optimizers()

    fit("dear", Asks(), max_steps=1)


@behaviour("(loops) test_gradient_accumulation", "accumulate_grad_batches, also with a shorter last step")
def accumulation() -> None:
    as_ddp(Net, accumulate_grad_batches=3, max_epochs=2)  # 4 batches: 3 and 1


@behaviour("test_gradient_accumulation_scheduling", "an accumulation that changes by epoch")
def accumulation_by_epoch() -> None:
    def schedule() -> dict[str, Any]:
        return {"callbacks": [GradientAccumulationScheduler({0: 1, 1: 2, 2: 4})], "max_epochs": 3}

    as_ddp(Net, options=schedule)


@behaviour(
    "test_skip_training_step_not_allowed",
    "a training_step that returns None",
    "refused by Lightning, as with DDP; the module is usable",
)
def skipped() -> None:
    class Skips(Net):
        def training_step(self, batch: Any, index: int) -> Any:
            loss = super().training_step(batch, index)
            return None if index == 1 else loss

    for strategy in ("ddp", "dear"):
        refuses(RuntimeError, lambda strategy=strategy: fit(strategy, Skips()), "returning None")
    as_ddp(Net)


@behaviour(
    "(users) grad_norm() in on_before_optimizer_step",
    "gradients in on_before_optimizer_step are whole, and clipped after it",
)
def gradients_in_a_hook() -> None:
    class Norms(Net):
        norms: list[float]

        def on_before_optimizer_step(self, optimizer: Any) -> None:
            self.norms = [
                *getattr(self, "norms", []),
                nn.utils.get_total_norm([p.grad for p in self.parameters()]).item(),
            ]

    mine, theirs = as_ddp(Norms, exactly=False, gradient_clip_val=0.2)
    close(mine.module.norms, theirs.module.norms)


@behaviour("test_swa_callback_ddp", "StochasticWeightAveraging")
def swa() -> None:
    as_ddp(Net, exactly=False, max_epochs=4, options=lambda: {"callbacks": [StochasticWeightAveraging(0.05, 0.5)]})


@behaviour("test_ema_weight_averaging", "EMAWeightAveraging")
def ema() -> None:
    as_ddp(Net, exactly=False, max_epochs=2, options=lambda: {"callbacks": [EMAWeightAveraging(decay=0.7)]})


@behaviour(
    "test_base_finetuning (parameters that join in mid-training)",
    "layers frozen at first: ranks stay equal",
    "under DDP they drift apart",
)
def finetuning() -> None:
    class Unfreeze(BaseFinetuning):
        def freeze_before_training(self, module: Any) -> None:
            self.freeze(module.net[0])

        def finetune_function(self, module: Any, epoch: int, optimizer: Any) -> None:
            if epoch == 1:
                self.unfreeze_and_add_param_group(module.net[0], optimizer)

    before = Net().net[0].weight.detach().clone()
    done = fit("dear", Net(), max_epochs=3, callbacks=[Unfreeze()])
    everyone = [torch.empty_like(before) for _ in range(WORLD)]
    dist.all_gather(everyone, done.module.net[0].weight.detach())
    assert torch.equal(everyone[0], everyone[1]) and not torch.equal(everyone[0], before)


@behaviour("test_fit_twice (trainer)", "a second fit() of one Trainer goes on")
def second_fit() -> None:
    after = []
    for strategy in ("ddp", "dear"):
        done = fit(strategy, Net(), max_epochs=1)
        done.trainer.fit_loop.max_epochs = 2
        done.trainer.fit(done.module, loader())
        after.append(done)
    close(after[1].losses, after[0].losses)
    same_parameters(after[1].module, after[0].module)


@behaviour(
    "test_sync_dist, test_logger_sync_dist",
    "log(..., sync_dist=True) of a step and of an epoch, all_gather(), broadcast()",
)
def logged() -> None:
    class Logs(Net):
        def training_step(self, batch: Any, index: int) -> Any:
            loss = super().training_step(batch, index)
            self.log("step_mean", loss.detach(), sync_dist=True, on_step=True, on_epoch=True)
            self.log("count", torch.tensor(float(RANK)), sync_dist=True, reduce_fx="sum")
            return loss

        def on_train_end(self) -> None:
            gathered = self.all_gather(torch.tensor([RANK]))
            assert gathered.flatten().tolist() == list(range(WORLD))
            assert self.trainer.strategy.broadcast(f"rank {RANK}") == "rank 0"

    mine, theirs = as_ddp(Logs)
    assert mine.trainer.callback_metrics == theirs.trainer.callback_metrics


@behaviour(
    "test_sync_batchnorm_set",
    "sync_batchnorm=True",
    "dear.SyncBatchNorm on the CPU, which PyTorch's refuses; DDP refuses, too",
)
def sync_batch_norm() -> None:
    done = fit("dear", Net(norm=True), sync_batchnorm=True)
    assert type(done.module.net[1]) is nn.BatchNorm1d
    alone = Net(norm=True)
    optimizer = alone.configure_optimizers()
    order = list(DistributedSampler(data(), 1, 0))  # Lightning's
    for batch in data().tensors[0][order].split(4 * WORLD):  # the union of the ranks' batches
        optimizer.zero_grad()
        alone.loss([batch]).backward()
        optimizer.step()
    same_parameters(done.module, alone, 1e-5)


@behaviour(
    "(users) BatchNorm in validation", "buffers are rank 0's when validation begins, as DDP's forward passes make them"
)
def batch_norm_in_validation() -> None:
    mine, theirs = as_ddp(lambda: Net(norm=True), validate=True, exactly=False, max_epochs=2)
    close([mine.trainer.callback_metrics["val_loss"].item()], [theirs.trainer.callback_metrics["val_loss"].item()])


@behaviour("(callbacks) hooks of a fit", "the order in which hooks of callbacks are called")
def order_of_hooks() -> None:
    class Records(Callback):
        def __init__(self) -> None:
            self.calls: list[str] = []

    def record(name: str) -> Any:
        return lambda self, *args, **kwargs: self.calls.append(name)

    names = (
        "setup on_fit_start on_train_start on_before_backward on_after_backward on_before_zero_grad on_train_batch_end"
    )
    for name in [*names.split(), "on_validation_start", "on_train_end", "on_fit_end", "teardown"]:
        setattr(Records, name, record(name))
    calls = []
    for strategy in ("ddp", "dear"):
        recorder = Records()
        fit(strategy, Net(), validate=True, callbacks=[recorder])
        calls.append(recorder.calls)
    assert calls[0] == calls[1]
