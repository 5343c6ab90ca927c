"""Checkpoints to and from torch.distributed.checkpoint, whose folders were also the shards of former versions."""

from __future__ import annotations

import io
import json
import os
import pathlib
import shutil
import zlib
from typing import Any

import torch

from . import _C, _checkpoint_file

SUMS = "checksums.json"
MOST_BYTES = 64 << 20  # of that file, which has a line for each of all ranks


def export_checkpoint(path: str, folder: str) -> None:
    """Writes a checkpoint of ours, a file or a folder of shards, as a folder of torch.distributed.checkpoint.

        dear.export_checkpoint("run1/step-00001000", "exported")
        state = {"model": module.state_dict()}
        torch.distributed.checkpoint.load(state, checkpoint_id="exported")

    One process calls it, and has room for all of the checkpoint. ConfigError for a checkpoint that cannot be read, a folder
    that is there, and one that cannot be written, of which nothing is left then.
    """
    from torch.distributed import checkpoint as dcp

    from ._sharded import Sharded

    if os.path.isdir(path):
        sharded = Sharded(None, path)
        saved = sharded.materialise(sharded.load(weights_only=False))
    else:
        saved = _checkpoint_file.load(path, weights_only=False)
    unfinished = f"{folder}.tmp"
    try:
        if os.path.exists(folder):
            raise FileExistsError(f"there is a '{folder}'")
        dcp.save(saved, storage_writer=dcp.FileSystemWriter(unfinished), no_dist=True)
        os.rename(unfinished, folder)
    except (Exception, dcp.CheckpointException) as error:  # the latter is no Exception
        shutil.rmtree(unfinished, ignore_errors=True)
        raise _C.ConfigError(
            f"cannot export '{path}' to '{folder}': {error} (name a folder that can be made)"
        ) from error


def import_checkpoint(folder: str, path: str) -> None:
    """Writes a folder of torch.distributed.checkpoint, which holds {"model": ..., "optimizer": ...}, as a file that
    dear.load() reads.

        dear.import_checkpoint("exported", "last.pt")

    The optimiser's state may be by numbers or by names of parameters. One process calls it, and has room for all of the
    checkpoint; the folder may hold pickled objects: trust it. ConfigError where that cannot be read, or the file not
    written.
    """
    saved = read(folder)
    _C.write_checkpoint(path, lambda add, *_: _checkpoint_file.dumps(_checkpoint_file.required(saved, folder), add))


def _last_line(error: BaseException) -> str:
    """The sentence in what torch.distributed.checkpoint says, which begins with where it happened."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1].strip()


def is_folder(path: str) -> bool:
    """Whether a former version wrote its shards there."""
    return os.path.exists(os.path.join(path, SUMS))


def read(path: str) -> dict[str, Any]:
    """All of it, on this rank, in the form of a file's. ConfigError where it cannot be read."""
    from torch.distributed import checkpoint as dcp
    from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
    from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

    saved: dict[str, Any] = {}
    try:
        os.stat(os.path.join(path, ".metadata"))
        _load_state_dict(
            saved, storage_reader=dcp.FileSystemReader(path), planner=_EmptyStateDictLoadPlanner(), no_dist=True
        )
    except (Exception, dcp.CheckpointException) as error:  # the latter is no Exception
        raise _C.ConfigError(
            f"cannot read '{path}' as a folder of torch.distributed.checkpoint: {_last_line(error)} (name one that is whole)"
        ) from error
    # By the numbers that a state_dict() gives, in place of names.
    optimizer = saved.setdefault("optimizer", {"param_groups": []})
    count, numbers = 0, {}
    for group in optimizer.get("param_groups", []):
        for name in group["params"]:
            numbers[str(name)] = count  # a number became its text
            count += 1
        group["params"] = list(range(count - len(group["params"]), count))
    optimizer["state"] = {numbers[str(name)]: value for name, value in optimizer.get("state", {}).items()}
    of_program = saved.pop("program", None)
    saved["optimizer"] = (of_program and torch.load(io.BytesIO(of_program), weights_only=False)) or optimizer
    return saved


# ---- what former versions wrote beside it


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


def _opened(file: pathlib.Path) -> io.BufferedReader:
    """A regular file, to read. ConfigError for anything else, of which there may be no end."""
    return open(_C.open_file(str(file)), "rb")


def _sum_of(file: pathlib.Path) -> int:
    total = 0
    with _opened(file) as opened:
        while block := opened.read(1 << 20):
            total = zlib.crc32(block, total)
    return total


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
