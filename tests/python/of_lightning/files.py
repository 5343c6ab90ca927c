"""Checkpoints and what comes after an error."""

from __future__ import annotations

import os
from typing import Any

import torch
from dear.lightning import DearStrategy
from lightning.pytorch.callbacks import Callback, ModelCheckpoint

import dear

from .registry import FOLDER, RANK, WORLD, Net, as_ddp, behaviour, close, fit, loader, refuses, same_parameters, trainer


def saved_by(strategy: str) -> tuple[str, Any]:
    """The last file of one epoch, and the whole run of two."""
    name = f"{strategy}.ckpt"
    first = fit(strategy, Net("adamw", schedule=True))
    first.trainer.save_checkpoint(FOLDER / name)
    return str(FOLDER / name), fit(strategy, Net("adamw", schedule=True), max_epochs=2)


@behaviour(
    "test_ddp_strategy_checkpoint_zero_redundancy_optimizer",
    "files have the optimiser's state whole, in the form of DDP's",
)
def whole_files() -> None:
    files = []
    for strategy in ("ddp", "dear"):
        done = fit(strategy, Net("adamw", schedule=True))
        path = FOLDER / f"whole-{strategy}.ckpt"
        done.trainer.save_checkpoint(path)
        files.append(torch.load(path, weights_only=True))
    theirs, mine = files
    assert mine.keys() == theirs.keys() and mine["state_dict"].keys() == theirs["state_dict"].keys()
    states = [one["optimizer_states"][0]["state"] for one in (mine, theirs)]
    assert states[0].keys() == states[1].keys() and len(states[0]) == 4
    for number in states[0]:
        for name in states[1][number]:
            assert torch.equal(states[0][number][name], states[1][number][name]), (number, name)


@behaviour("test_multi_gpu_model_ddp (resume), test_restore", "files of DDP and of DeAR, resumed by either")
def resumed_by_either() -> None:
    for writer in ("ddp", "dear"):
        path, whole = saved_by(writer)
        for reader in ("ddp", "dear"):
            resumed = fit(reader, Net("adamw", schedule=True), ckpt=path, max_epochs=2)
            close(resumed.losses, whole.losses[4:])
            same_parameters(resumed.module, whole.module)


@behaviour(
    "test_model_checkpoint_score_and_ckpt (best and last)",
    "ModelCheckpoint: the best and the last file, every n steps, and load_from_checkpoint()",
)
def model_checkpoint() -> None:
    def keep(folder: str) -> Any:
        return lambda: {
            "callbacks": [
                ModelCheckpoint(FOLDER / folder, monitor="val_loss", save_top_k=2, save_last=True),
                ModelCheckpoint(FOLDER / f"{folder}-steps", every_n_train_steps=3, save_top_k=-1),
            ],
            "enable_checkpointing": True,
            "max_epochs": 3,
        }

    found = []
    for strategy in ("ddp", "dear"):
        done = fit(strategy, Net(), validate=True, **keep(f"kept-{strategy}")())
        best = done.trainer.checkpoint_callback
        found.append((best.best_model_score.item(), sorted(os.listdir(FOLDER / f"kept-{strategy}-steps"))))
        same_parameters(Net.load_from_checkpoint(best.last_model_path), done.module)
    assert found[0] == found[1], found


@behaviour("(users) a file between the passes of an accumulation", "a checkpoint after a batch that does not step")
def in_mid_accumulation() -> None:
    class Saves(Callback):
        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if trainer.current_epoch == 1 and batch_idx == 0:
                trainer.save_checkpoint(FOLDER / f"mid-{type(trainer.strategy).__name__}.ckpt")

    as_ddp(lambda: Net("adamw"), max_epochs=2, accumulate_grad_batches=2, options=lambda: {"callbacks": [Saves()]})
    theirs, mine = (
        torch.load(FOLDER / f"mid-{one}.ckpt", weights_only=True) for one in ("DDPStrategy", "DearStrategy")
    )
    for number, state in theirs["optimizer_states"][0]["state"].items():
        assert torch.equal(mine["optimizer_states"][0]["state"][number]["exp_avg"], state["exp_avg"])
    for name, tensor in theirs["state_dict"].items():
        assert torch.equal(mine["state_dict"][name], tensor)


@behaviour(
    "test_exception_in_training (trainer)", "an error that every rank raises: it comes out, and the module is usable"
)
def everyone_raises() -> None:
    class Raises(Net):
        def training_step(self, batch: Any, index: int) -> Any:
            if index == 2:
                raise ValueError("this batch")
            return super().training_step(batch, index)

    module = Raises()
    refuses(ValueError, lambda: fit("dear", module), "this batch")
    assert torch.isfinite(module.net(torch.ones(1, 8))).all()
    as_ddp(Net)


@behaviour(
    "test_ddp_arguments (find_unused_parameters, static_graph, ...)",
    "arguments of DistributedDataParallel",
    "refused, with DeAR's word for it",
)
def arguments_of_ddp() -> None:
    for name, word in (("find_unused_parameters", "no error"), ("bucket_cap_mb", "fusion="), ("colour", "policy")):
        refuses(dear.ConfigError, lambda name=name: DearStrategy(**{name: 1}), name, word)


@behaviour(
    "(no counterpart) policy, fusion, buffers of a model",
    "options of dear.distribute() that it refuses",
    "refused on every rank, with its sentence",
)
def refused_options() -> None:
    refuses(dear.ConfigError, lambda: fit(DearStrategy(policy="nowhere"), Net()), "nowhere")
    refuses(
        dear.ConfigError, lambda: fit(DearStrategy(policy="dear-eager"), Net(), gradient_clip_val=1.0), "dear-eager"
    )


def alone() -> None:
    """A process of one rank: what two ranks have saved goes on, on batches as large as theirs together."""
    for writer in ("ddp", "dear"):
        whole = torch.load(FOLDER / f"losses-{writer}", weights_only=True)
        module = Net("adamw", schedule=True)
        trainer("dear", devices=1, max_epochs=2).fit(module, loader(batch=8), ckpt_path=str(FOLDER / f"{writer}.ckpt"))
        close(module.seen, whole, 1e-5)


def save_alone() -> None:
    """A process of one rank: what it has saved goes on on two ranks."""
    whole = Net("adamw", schedule=True)
    trainer("dear", devices=1, max_epochs=2).fit(whole, loader(batch=8))
    torch.save(whole.seen[4:], FOLDER / "losses-alone")
    made = trainer("dear", devices=1, max_epochs=1)
    made.fit(Net("adamw", schedule=True), loader(batch=8))
    made.save_checkpoint(FOLDER / "alone.ckpt")


@behaviour("(users) resume on more ranks", "a file of one rank, resumed by two", "as the one rank goes on, to 1e-5")
def of_one_rank_on_two() -> None:
    theirs = torch.load(FOLDER / "losses-alone", weights_only=True)
    for strategy in ("ddp", "dear"):
        mine = torch.tensor(fit(strategy, Net("adamw", schedule=True), ckpt=FOLDER / "alone.ckpt", max_epochs=2).losses)
        torch.distributed.all_reduce(mine)
        close((mine / WORLD).tolist(), theirs, 1e-5)


@behaviour("(users) resume on another number of ranks", "a file of two ranks, resumed by one", "as DDP, to 1e-5")
def on_another_number_of_ranks() -> None:
    for writer in ("ddp", "dear"):
        _, whole = saved_by(writer)
        mine = torch.tensor(whole.losses[4:])
        torch.distributed.all_reduce(mine)
        if RANK == 0:
            torch.save((mine / WORLD).tolist(), FOLDER / f"losses-{writer}")
