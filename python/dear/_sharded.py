"""Checkpoints of a shard a rank, through torch.distributed.checkpoint."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import shutil
import zlib
from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

from . import _C, _checkpoint, _state
from ._distribute import DataParallel
from ._pieces import Pieces

SUMS = "checksums.json"
MOST_BYTES = 64 << 20  # of that file, which has a line for each of all ranks
T = TypeVar("T")


def copy(model: DataParallel, random: bool) -> dict[str, Any]:
    """What this rank saves of the model and its optimiser, in memory: tensors whole where every rank has them, of which one
    writes each; pieces of vectors of the optimiser."""
    training = model._training
    trained = training.trained()
    outlines = training.state_outlines()
    runs: dict[tuple[int, str], list[tuple[int, torch.Tensor]]] = {}
    for index, vector, begin, values in training.own_state():
        runs.setdefault((index, vector), []).append((begin, values.clone()))
    state: dict[str, Any] = {}
    for index, outline in enumerate(outlines):
        if outline is None:
            continue
        name, tensor = trained[index]
        of_parameter = _state.join_state(({}, outline[1]))
        for vector in outline[0]:
            own = runs.get((index, vector), [])
            wide = tensor.dtype.itemsize == 2 and (model._fp32_masters or vector == _state.MASTER)
            dtype = own[0][1].dtype if own else torch.float32 if wide else tensor.dtype
            of_parameter[vector] = Pieces(tensor, dtype, own)
        state[name] = of_parameter
    index_of = {id(tensor): name for name, tensor in trained}
    unknown = _checkpoint.keeps_own_state(model)
    groups = [
        {
            **({} if unknown else {key: value for key, value in group.items() if key not in ("params", "param_names")}),
            "params": [index_of.get(id(parameter), "") for parameter in group["params"]],
        }
        for optimizer in model._optimizers
        for group in optimizer.param_groups
    ]
    # Every rank adds one entry of its own, under its number.
    own_state: dict[str, Any] = {}
    if random:
        own_state["random"] = torch.get_rng_state()
    with contextlib.suppress(_C.ScheduleError):  # without compression
        own_state["compression"] = DataParallel.compression_state_dict(model)
    tensors = {
        name: value.clone() if torch.is_tensor(value) else value for name, value in model.module.state_dict().items()
    }
    in_modules = {id(parameter) for parameter in model.module.parameters()}
    return {
        "model": tensors,
        "optimizer": {"state": state, "param_groups": groups},
        "program": _packed(_checkpoint.state_of_program(model)),
        "optimizer_only": {name: tensor.detach().clone() for name, tensor in trained if id(tensor) not in in_modules},
        "ranks": {str(model._group.rank): own_state},
        "dear": {
            "version": 1,
            "optimizer": " and ".join(type(one).__name__ for one in model._optimizers),
            "ranks": model._group.size,
        },
    }


def _packed(state: dict[str, Any]) -> bytes:
    packed = io.BytesIO()
    torch.save(state, packed)
    return packed.getvalue()


def write(copied: dict[str, Any], path: str, group: dist.ProcessGroup) -> None:
    """Writes the checkpoint into a folder of another name, which takes its place when it is whole and on the disk. All ranks
    together, on a process group that nothing else uses meanwhile."""
    folder = pathlib.Path(path)
    unfinished = folder.with_name(f".{folder.name}.tmp")
    rank = dist.get_rank(group)

    def begin() -> None:
        if rank == 0:
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()

    def save() -> dict[str, int]:
        dcp.save(copied, storage_writer=dcp.FileSystemWriter(str(unfinished)), process_group=group)
        return {file.name: _sum_of(file) for file in unfinished.glob(f"__{rank}_*")}

    def finish(sums: dict[str, int]) -> None:
        if rank == 0:
            _finish(unfinished, folder, sums)

    try:
        _on_every_rank(begin, path, group)
        saved = _on_every_rank(save, path, group)
        _on_every_rank(lambda: finish({name: value for sums in saved for name, value in sums.items()}), path, group)
    except _C.ConfigError:
        if rank == 0:
            shutil.rmtree(unfinished, ignore_errors=True)
        raise


def _on_every_rank(act: Callable[[], T], path: str, group: dist.ProcessGroup) -> list[T]:
    """What `act` returns, by rank; where it throws on one of them, a ConfigError on every rank, which names that one."""
    rank = dist.get_rank(group)
    mine: Any
    try:
        mine = None, act()
    except (Exception, dcp.CheckpointException) as failure:  # the latter is no Exception
        mine = _sentence(failure, path, rank), None
    everyone: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyone, mine, group=group)
    for error, _ in everyone:
        if error is not None:
            raise _C.ConfigError(error)
    return [result for _, result in everyone]


def _sentence(failure: BaseException, path: str, rank: int) -> str:
    """Of what torch.distributed.checkpoint throws, which wraps what went wrong on each rank."""
    inner = getattr(failure, "failures", None)
    if inner:
        rank, (failure, *_) = next(iter(inner.items()))
    reason = (str(failure).strip().splitlines() or [type(failure).__name__])[-1]
    if "unexpected pos" in reason:  # what PyTorch's writer makes of a write that was cut short
        free = shutil.disk_usage(pathlib.Path(path).parent).free
        reason = f"not all of it could be written, and {free} bytes of its disk are free"
    return f"rank {rank}: cannot write the checkpoint '{path}': {reason} (free some space, or check the folder)"


def _finish(unfinished: pathlib.Path, folder: pathlib.Path, sums: dict[str, int]) -> None:
    sums[".metadata"] = _sum_of(unfinished / ".metadata")
    _C.write_file(str(unfinished / SUMS), json.dumps(sums))
    _sync(unfinished)
    _replace(unfinished, folder)
    _sync(folder.parent)


def _replace(made: pathlib.Path, folder: pathlib.Path) -> None:
    """`made` takes the name of the folder; what had it goes once that is done, so that one of the two is always there."""
    if not folder.exists():
        os.rename(made, folder)
    elif _C.exchange_names(str(made), str(folder)):
        shutil.rmtree(made)
    else:
        aside = folder.with_name(f".{folder.name}.old")
        shutil.rmtree(aside, ignore_errors=True)
        os.rename(folder, aside)
        os.rename(made, folder)
        shutil.rmtree(aside)


def _sync(folder: pathlib.Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _opened(file: pathlib.Path) -> io.BufferedReader:
    """A regular file, to read. ConfigError for anything else, of which there may be no end."""
    return open(_C.open_file(str(file)), "rb")


def _sum_of(file: pathlib.Path) -> int:
    total = 0
    with _opened(file) as opened:
        while block := opened.read(1 << 20):
            total = zlib.crc32(block, total)
    return total


def verify(path: str) -> None:
    """ConfigError where a file of it is missing or damaged."""
    folder = pathlib.Path(path)
    try:
        for name, value in _sums_in(folder).items():
            if _sum_of(folder / name) != value:
                raise _C.ConfigError(f"the checkpoint '{path}' is damaged: '{name}' is not what was written")
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, _C.ConfigError) and path in str(error):
            raise
        raise _C.ConfigError(f"the checkpoint '{path}' is not whole: {error}") from error


def _sums_in(folder: pathlib.Path) -> dict[str, int]:
    """What checksums.json says of each file beside it. ValueError where it is no list of such files."""
    with _opened(folder / SUMS) as file:
        text = file.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise ValueError(f"{SUMS} has more than {MOST_BYTES} bytes")
    sums = json.loads(text)
    if not isinstance(sums, dict) or ".metadata" not in sums:
        raise ValueError(f"{SUMS} does not name the files of a checkpoint")
    for name in sums:
        if pathlib.PurePath(name).name != name:
            raise ValueError(f"{SUMS} names '{name}', which is no file beside it")
    return sums


def read(path: str) -> dict[str, Any]:
    """All of it, on this rank, in the form of a file's."""
    saved: dict[str, Any] = {}
    _load_state_dict(
        saved, storage_reader=dcp.FileSystemReader(path), planner=_EmptyStateDictLoadPlanner(), no_dist=True
    )
    # By the numbers that a state_dict() gives, in place of names.
    optimizer = saved["optimizer"]
    count, numbers = 0, {}
    for group in optimizer["param_groups"]:
        for name in group["params"]:
            numbers[name] = count
            count += 1
        group["params"] = list(range(count - len(group["params"]), count))
    optimizer["state"] = {numbers[name]: value for name, value in optimizer.get("state", {}).items()}
    of_program = saved.pop("program", None)
    saved["optimizer"] = (of_program and torch.load(io.BytesIO(of_program), weights_only=False)) or optimizer
    return saved
