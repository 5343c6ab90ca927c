"""A training that is saved, and put back."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn

import dear

from .registry import RANK, behaviour, mlp, plain, refuses, same, square


@contextmanager
def shared_folder() -> Iterator[pathlib.Path]:
    """Rank 0's, on every rank."""
    with tempfile.TemporaryDirectory() as mine:
        names = [mine]
        dist.broadcast_object_list(names, src=0)
        yield pathlib.Path(names[0])
        dist.barrier()


def adamw(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.05)


def begun(**options: object) -> tuple[dear.DataParallel, torch.optim.Optimizer]:
    model = mlp()
    return dear.distribute(model, adamw(model), fusion="layer", **options)


def train(model: dear.DataParallel, optimizer: torch.optim.Optimizer, first: int, last: int) -> None:
    for step in range(first, last):
        square(model, step, RANK).backward()
        optimizer.step()
    model.synchronize()


@behaviour(
    "(users) a checkpoint between the passes of an accumulation",
    "state_dict() of the optimiser after passes in no_sync(): that of the last step; after others an error",
)
def state_in_an_accumulation() -> None:
    def adam(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=0.01)

    model, optimizer = dear.distribute(made := mlp(), adam(made), fusion="layer")
    for step in range(4):
        with model.no_sync():
            square(model, step, RANK).backward()
        state = optimizer.state_dict()["state"]
        assert all(one["step"] == step for one in state.values()), state
        square(model, step, RANK).backward()
        if step:  # before the first step nothing is sent
            refuses(dear.ConfigError, optimizer.state_dict, "optimizer_state", "next backward")
        optimizer.step()
    same(model, plain(mlp, [square, square], adam))


@behaviour(
    "test_save_load_checkpoint, test_zero_redundancy_optimizer test_state_dict",
    "a training saved with its optimiser goes on where it was, under another policy too; torch.load() reads the file",
    "dear.save(), dear.load()",
)
def saved_and_put_back() -> None:
    with shared_folder() as folder:
        path = str(folder / "saved.pt")
        model, optimizer = begun()
        train(model, optimizer, 0, 2)
        dear.save(path, model, {"step": 2, "epoch": 1})
        model.close()
        saved = torch.load(path, weights_only=True)
        assert set(saved["model"]) == set(mlp().state_dict()) and len(saved["optimizer"]["state"]) == 6
        for policy in ("dear", "wfbp"):
            model, optimizer = begun(policy=policy)
            assert dear.load(path, model) == {"step": 2, "epoch": 1}
            train(model, optimizer, 2, 4)
            same(model, plain(mlp, optimizer=adamw))
            model.close()


@behaviour(
    "(users) torch.save() on rank 0 every N steps, and the newest file that is whole after a crash",
    "a folder of checkpoints, written while training goes on; the newest one that is whole is put back",
    "dear.Checkpoints",
)
def a_folder_of_checkpoints() -> None:
    with shared_folder() as folder:
        model, optimizer = begun()
        checkpoints = dear.Checkpoints(str(folder / "run"), model, asynchronous=True)
        for step in range(1, 4):
            train(model, optimizer, step - 1, step)
            checkpoints.save(step)
        checkpoints.wait()
        if RANK == 0:
            (folder / "run" / "step-00000003.pt").write_bytes(b"cut short")
        model.close()
        del checkpoints
        model, optimizer = begun()
        said: list[str] = []
        assert dear.Checkpoints(str(folder / "run"), model, say=said.append).resume() == {"step": 2}
        assert [("step-00000003" in sentence) for sentence in said] == [True] * (RANK == 0)
        train(model, optimizer, 2, 4)
        same(model, plain(mlp, optimizer=adamw))
        model.close()


@behaviour(
    "(users) checkpoints every N steps within an epoch of uneven inputs",
    "a checkpoint within join(), which a rank without data could not follow, is refused at once; the join goes on",
    "refused",
)
def a_checkpoint_in_a_join() -> None:
    with shared_folder() as folder:
        model, optimizer = begun()
        checkpoints = dear.Checkpoints(str(folder / "run"), model, asynchronous=True)
        sharded = dear.Checkpoints(str(folder / "shards"), model, sharded=True)
        checkpoints.save(0)
        path = str(folder / "saved.pt")
        with model.join() as join:
            for step in range(4 if RANK == 0 else 1):
                square(model, step, RANK).backward()
                optimizer.step()
                if step != 2:
                    continue
                for act in (
                    lambda: dear.save(path, model),
                    lambda: dear.load(path, model),
                    lambda: dear.Checkpoints(path, model),
                    lambda: checkpoints.save(1),
                    lambda: checkpoints.resume(),
                    lambda: checkpoints.wait(),
                    lambda: sharded.save(1),
                    lambda: sharded.resume(),
                ):
                    refuses(dear.ConfigError, act, "rank 0", "between two joins")
        assert join.shadowed == (0 if RANK == 0 else 3)
        checkpoints.wait()
        assert checkpoints.resume() == {"step": 0}
        model.close()
