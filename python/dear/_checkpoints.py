"""dear.Checkpoints: a folder of checkpoints."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, Optional, Union

import torch

from . import _C, _checkpoint_exchange
from ._checkpoint import (
    Extra,
    contents_of,
    describing,
    from_rank_0,
    load_own,
    load_shards,
    on_every_rank,
    restore,
    with_rounds,
)
from ._distribute import DataParallel
from ._failures import reason_of
from ._sharded import Sharded


class Checkpoints:
    """A folder with a checkpoint for each step at which training was saved, the newest `keep` of them.

        checkpoints = dear.Checkpoints("run1", model, extra={"scheduler": scheduler})
        position = checkpoints.resume() or {"step": 0}
        for step in range(position["step"], steps):
            train(step)
            if (step + 1) % 1000 == 0:
                checkpoints.save({"step": step + 1})

    Every rank makes it and makes the same calls, each between a step and the next backward. It serves one model: several
    have a folder each. With rounds each replica has a folder within it, and may have a disk of its own: resume() takes the newest
    checkpoint that all replicas have whole. ConfigError, on every rank, where the folder cannot be written, or another run, or other
    Checkpoints that live in this program, write into it, and in a join.

    keep: how many checkpoints stay; at least 1.
    asynchronous: save() copies the state, and a thread writes it while training goes on. One save is under way at a time: the
        next save() waits for it. What goes wrong is thrown by the next save() or wait(). The copy takes room for all of it on
        rank 0 or, sharded, for each rank's shard.
    sharded: each rank writes what it updates of the optimiser's state, and a part of the model, and reads as much. All ranks
        must see the folder. export_checkpoint() makes a folder of torch.distributed.checkpoint of one.
    mirrored: with sharded: each host has a folder of its own, on a disk or in memory, and each shard lies on the next host, too, so
        that it is there when a host is lost. resume() copies to each host what it lacks. Asynchronous ones are copied by the next
        save() or wait().
    extra, random, weights_only, say: as of save() and load().
    """

    def __init__(
        self,
        directory: str,
        model: DataParallel,
        *,
        keep: int = 2,
        sharded: bool = False,
        mirrored: bool = False,
        asynchronous: bool = False,
        extra: Extra = None,
        random: bool = True,
        weights_only: bool = True,
        say: Callable[[str], None] = print,
    ) -> None:
        if keep < 1:
            raise _C.ConfigError(f"keep={keep}: at least 1 checkpoint must stay")
        if mirrored and (not sharded or model._rounds is not None):
            raise _C.ConfigError(
                "mirrored=True is for sharded=True, and not for rounds, whose replicas have folders of their own"
            )
        model._training.settle()
        self._model, self._group = model, model._group
        if model._rounds is not None:
            directory = os.path.join(directory, f"replica-{model._rounds.number}")
        self._folder = _C.StepFolder(directory)
        self._keep, self._asynchronous = keep, asynchronous
        self._extra, self._random = with_rounds(model, extra), random
        self._weights_only, self._say = weights_only, say
        self._sharded = sharded
        self._writing: Optional[_Writing] = None
        self._written: Optional[tuple[str, str]] = None  # folder and file of this rank's newest shard
        self._step = 0  # of the newest save
        self._hosts = _C.HostFolders(self._group, os.path.abspath(directory)) if mirrored else None
        self._in_each_folder(self._folder.open_for_writing)

    def save(self, position: Mapping[str, Any] | int) -> None:
        """Saves the training at this position: the number of steps taken, or a dict with that number as "step". ConfigError
        on every rank where it, or the one before it that was still being written, cannot be written; then nothing is saved,
        and training can go on."""
        self._model._training.settle()
        self.wait()
        self._step = position["step"] if isinstance(position, Mapping) else position
        path = self._folder.path_of(self._step, self._sharded)
        describe = describing(self._model, position, self._extra, sharded=self._sharded)
        if self._sharded:
            self._in_each_folder(lambda: _make_folder(path))
            unwritten, file = self._model._training.copy_shard(self._random, describe)
            self._written = path, file
            path = os.path.join(path, file)
        else:
            unwritten = self._model._training.save(path, self._asynchronous, self._random, describe)
        if unwritten is not None:
            self._writing = _Writing(unwritten, path, self._folder)
            if self._asynchronous:
                self._writing.start()
        if self._sharded and not self._asynchronous:
            self._end()
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
        self._throw_first(_C.patiently(self._group, lambda: None if writing is None else writing.join()))
        on_several = self._hosts is not None and self._hosts.several
        if self._hosts is not None and on_several and self._written is not None and writing is not None:
            folder, file = self._written
            self._hosts.mirror(os.path.join(os.path.basename(folder), file))

        def end() -> None:
            if writing is not None:
                if self._written is not None:
                    _C.remove_other_shards(*self._written)
                self._folder.keep_newest(self._keep, self._step if on_several else None)

        self._in_each_folder(end)

    def _throw_first(self, error: Optional[BaseException]) -> None:
        """On every rank the error of the first rank that has one. All ranks together."""
        for rank, theirs in enumerate(_C.gather_bytes(self._group, reason_of(error).encode())):
            if theirs:
                raise _C.ConfigError(
                    theirs.decode() if theirs.startswith(b"rank ") else f"rank {rank}: {theirs.decode()}"
                )

    def _in_each_folder(self, act: Callable[[], None]) -> None:
        """On rank 0, or on a rank of each host that has a folder of its own. All ranks together."""
        if self._hosts is None:
            from_rank_0(self._group, act)
            return
        error: Optional[BaseException] = None
        try:
            _C.patiently(self._group, act if self._hosts.leads else lambda: None)
        except (_C.TransportError, _C.TimeoutError):
            raise
        except Exception as failure:
            error = failure
        self._throw_first(error)

    def resume(self) -> Optional[dict[str, Any]]:
        """Puts the newest checkpoint back that is whole, and returns its position; None where there is none. One that is
        damaged is passed over, which is said: ConfigError where no other can be read, unless its save was cut short."""
        self._model._training.settle()
        self.wait()
        rounds = self._model._rounds
        if self._hosts is not None:
            self._hosts.gather()
        saved = from_rank_0(self._group, self._folder.saved)
        if self._hosts is not None:  # each under its own name
            saved = [(step, self._folder.path_of(step, sharded), sharded, cut) for step, _, sharded, cut in saved]
        everyone_has = [one[0] for one in saved] if rounds is None else rounds.everyone_has([one[0] for one in saved])
        damaged, incomplete = "", 0
        for step, path, sharded, cut_short in saved:
            if step not in everyone_has:
                continue
            put_back = self._opened(path, sharded)
            whole = not isinstance(put_back, str)
            if rounds is not None:
                whole = bool(rounds.everyone_has([step] if whole else []))
            if not isinstance(put_back, str):
                if whole:
                    _C.note_first_step(step)
                    return put_back()
            else:
                incomplete += cut_short
                # One may have been cut short; of several the shards lay on hosts that are lost.
                if not cut_short or (self._hosts is not None and incomplete > 1):
                    damaged = put_back
        if rounds is not None:  # another replica may have found damage alone
            rounds.together(lambda: self._folder.refuse_all(damaged) if damaged else None)
        elif damaged:
            self._folder.refuse_all(damaged)
        return None

    def _opened(self, path: str, sharded: bool) -> Union[Callable[[], dict[str, Any]], str]:
        """What puts the checkpoint back; for one that is damaged the reason, which is said."""
        options: dict[str, Any] = {
            "extra": self._extra,
            "random": self._random,
            "weights_only": self._weights_only,
            "say": self._say,
        }
        old = from_rank_0(self._group, lambda: sharded and _checkpoint_exchange.is_folder(path))
        try:
            if not sharded:
                from_rank_0(self._group, lambda: _C.verify_checkpoint(path))
                return lambda: load_own(path, self._model, **options)
            try:
                shards = Sharded(self._group, path)
                return lambda: load_shards(path, self._model, shards=shards, **options)
            except _C.ConfigError:
                if not old:
                    raise
            from_rank_0(self._group, lambda: _checkpoint_exchange.verify(path))
            return lambda: self._load_old(path)
        except _C.ConfigError as error:
            if self._group.rank == 0:
                self._say(f"{error}; the checkpoint before it is taken")
            return str(error)

    def _load_old(self, path: str) -> dict[str, Any]:
        """Shards of a former version, of which every rank reads all."""
        model = self._model
        saved, contents = on_every_rank(self._group, lambda: self._read_old(path), path)
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

    def _read_old(self, path: str) -> tuple[dict[str, Any], Any]:
        saved = _checkpoint_exchange.read(path)
        return saved, contents_of(self._model, saved, self._extra, path)


def _make_folder(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise _C.ConfigError(f"cannot make the folder '{path}': {error} (check where it lies)") from error


class _Writing:
    """What is written into a folder, which is this program's as long as it writes: by join(), or behind the training by a thread
    that takes the time that training leaves, and meanwhile holds no lock of the interpreter."""

    def __init__(self, unwritten: _C.UnwrittenCheckpoint, path: str, folder: _C.StepFolder) -> None:
        self._unwritten, self._path, self._folder = unwritten, path, folder
        self._error: Optional[BaseException] = None
        self._thread: Optional[threading.Thread] = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="dear-checkpoint")
        self._thread.start()

    def _run(self) -> None:
        try:
            if self._thread is not None:
                with contextlib.suppress(OSError):
                    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
            self._unwritten.write(self._path)
        except BaseException as error:
            self._error = error

    def join(self) -> Optional[BaseException]:
        if self._thread is not None:
            self._thread.join()
        else:
            self._run()
        return self._error
