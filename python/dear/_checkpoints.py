"""dear.Checkpoints: a folder of checkpoints."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Optional

import torch
import torch.distributed as dist

from . import _C
from ._checkpoint import Extra, contents_of, from_rank_0, load, restore, write
from ._distribute import DataParallel


class Checkpoints:
    """A folder with a checkpoint for each step at which training was saved, the newest `keep` of them.

        checkpoints = dear.Checkpoints("run1", model, extra={"scheduler": scheduler})
        position = checkpoints.resume() or {"step": 0}
        for step in range(position["step"], steps):
            train(step)
            if (step + 1) % 1000 == 0:
                checkpoints.save({"step": step + 1})

    Every rank makes it and makes the same calls, each between a step and the next backward. It serves one model: several
    have a folder each. ConfigError, on every rank, where the folder cannot be written, or another run, or other
    Checkpoints that live in this program, write into it, and in a join.

    keep: how many checkpoints stay; at least 1.
    asynchronous: save() copies the state, and a thread writes it while training goes on. One save is under way at a time: the
        next save() waits for it. What goes wrong is thrown by the next save() or wait(). The copy takes room for all of it on
        rank 0 or, sharded, for each rank's shard and the model.
    sharded: each rank writes what it updates of the optimiser's state, and a part of the model, through
        torch.distributed.checkpoint, for which torch.distributed must be initialised; the position and extra objects are
        pickled. All ranks must see the folder. torch.distributed.checkpoint.format_utils.dcp_to_torch_save() makes a file
        of one.
    extra, random, weights_only, say: as of save() and load().
    """

    def __init__(
        self,
        directory: str,
        model: DataParallel,
        *,
        keep: int = 2,
        sharded: bool = False,
        asynchronous: bool = False,
        extra: Extra = None,
        random: bool = True,
        weights_only: bool = True,
        say: Callable[[str], None] = print,
    ) -> None:
        if keep < 1:
            raise _C.ConfigError(f"keep={keep}: at least 1 checkpoint must stay")
        model._training.settle()
        self._model, self._group = model, model._group
        self._folder = _C.StepFolder(directory)
        self._keep, self._asynchronous = keep, asynchronous
        self._extra, self._random, self._weights_only, self._say = extra, random, weights_only, say
        self._sharded = sharded
        self._writing: Optional[_Writing] = None
        # Of a thread that writes shards while training goes on.
        self._own_group = _sharded_group(self._group) if sharded else None
        from_rank_0(self._group, self._folder.open_for_writing)

    def save(self, position: Mapping[str, Any] | int) -> None:
        """Saves the training at this position: the number of steps taken, or a dict with that number as "step". ConfigError
        on every rank where it, or the one before it that was still being written, cannot be written; then nothing is saved,
        and training can go on."""
        self._model._training.settle()
        self.wait()
        step = position["step"] if isinstance(position, Mapping) else position
        path = self._folder.path_of(step, self._sharded)
        if self._sharded:
            sharded = _sharded_module()
            shard = sharded.copy(self._model, self._random)
            shard["position"] = dict(position) if isinstance(position, Mapping) else {"step": position}
            shard["extra"] = {name: value.state_dict() for name, value in (self._extra or {}).items()}
            own_group = self._own_group
            assert own_group is not None
            self._writing = _Writing(lambda: sharded.write(shard, path, own_group), self._folder)
            if not self._asynchronous:
                self._end()
            return
        unwritten = write(self._model, path, position, self._extra, self._random, later=self._asynchronous)
        if unwritten is not None:
            self._writing = _Writing(lambda: _write_behind(unwritten, path), self._folder)
        elif not self._asynchronous:
            from_rank_0(self._group, lambda: self._folder.keep_newest(self._keep))

    def wait(self) -> None:
        """Returns when what is being written is on the disk. Every rank calls it, after the last save(), between a step and
        the next backward."""
        if self._asynchronous:
            self._model._training.settle()
            self._end()

    def _end(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None and self._group.rank != 0:
            with contextlib.suppress(Exception):  # what rank 0 throws, too
                writing.join()

        def end() -> None:
            if writing is not None:
                writing.join()
                self._folder.keep_newest(self._keep)

        from_rank_0(self._group, end)

    def resume(self) -> Optional[dict[str, Any]]:
        """Puts the newest checkpoint back that is whole, and returns its position; None where there is none. One that is
        damaged is passed over, which is said."""
        self._model._training.settle()
        self.wait()
        path, sharded = from_rank_0(self._group, self._newest)
        if path is None:
            return None
        if not sharded:
            return load(
                path,
                self._model,
                extra=self._extra,
                random=self._random,
                weights_only=self._weights_only,
                say=self._say,
            )
        return self._load_shards(path)

    def _newest(self) -> tuple[Optional[str], bool]:
        for _, path, sharded in self._folder.saved():
            try:
                (_sharded_module().verify if sharded else _C.verify_checkpoint)(path)
                return path, sharded
            except _C.ConfigError as error:
                self._say(f"{error}; the checkpoint before it is taken")
        return None, False

    def _load_shards(self, path: str) -> dict[str, Any]:
        model, error, saved = self._model, None, {}
        try:
            saved = _sharded_module().read(path)
            contents = contents_of(model, saved, self._extra, path)
        except Exception as failure:
            error = failure
        everyone = _C.gather_bytes(self._group, str(error or "").encode())
        for rank, theirs in enumerate(everyone):
            if theirs:
                raise _C.ConfigError(f"rank {rank} cannot read the checkpoint '{path}': {theirs.decode()}") from error
        compression = None
        if saved["dear"]["ranks"] == model._group.size:
            own = saved["ranks"][str(model._group.rank)]
            if self._random and "random" in own:
                torch.set_rng_state(own["random"])
            if "compression" in own:
                compression = model._stored_compression(own["compression"])
        elif model._group.rank == 0:
            self._say(
                f"saved on {saved['dear']['ranks']} ranks and resumed on {model._group.size}: generators of random numbers, and "
                f"what compression remembers on each rank, begin anew"
            )
        return restore(model, saved, contents, self._extra, rank_0=False, compression=compression)


def _sharded_module() -> ModuleType:
    """It imports torch.distributed.checkpoint, which takes a third as long as PyTorch itself: a program without shards does
    not wait for that."""
    from . import _sharded

    return _sharded


def _sharded_group(group: _C.Group) -> dist.ProcessGroup:
    if not (dist.is_available() and dist.is_initialized()):
        raise _C.ConfigError(
            "shards are written through torch.distributed.checkpoint, and torch.distributed is not initialised: call "
            "torch.distributed.init_process_group(), or leave out sharded=True"
        )
    mine = str(dist.get_rank()).encode()
    ranks = [int(rank) for rank in _C.gather_bytes(group, mine)]
    # A name that only the group's ranks agree on depends on the groups that each has made before.
    some = len(ranks) < dist.get_world_size()
    made = dist.new_group(ranks, backend="gloo", use_local_synchronization=some)
    assert isinstance(made, dist.ProcessGroup)
    return made


def _write_behind(unwritten: _C.UnwrittenCheckpoint, path: str) -> None:
    """On a thread that takes the time that training leaves, and meanwhile holds no lock of the interpreter."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
    unwritten.write(path)


class _Writing:
    """What a thread writes into a folder, which is this program's as long as it writes."""

    def __init__(self, write: Callable[[], None], folder: _C.StepFolder) -> None:
        self._folder = folder
        self._error: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._run, args=(write,), name="dear-checkpoint")
        self._thread.start()

    def _run(self, write: Callable[[], None]) -> None:
        try:
            write()
        except BaseException as error:
            self._error = error

    def join(self) -> None:
        self._thread.join()
        if self._error is not None:
            raise self._error
