"""dear.Elastic: a training whose ranks come and go."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Optional

import torch
from torch import nn

from . import _C
from ._checkpoints import Checkpoints
from ._distribute import DataParallel
from ._several import Optimizers

_OF_THE_GROUP = (_C.TransportError, _C.TimeoutError, _C.MismatchError)
_MEETING = 20.0  # seconds for ranks that have all said that they are there
_NOTICE = 10.0  # seconds in which the launcher notices that a process has ended
_TRIES = 5  # meetings that fail although nobody has ended


class Elastic:
    """Trains on the ranks that there are: where one fails, the others give the step up and go on with it, in the same processes;
    a process that takes its place joins them between two steps. Started by `dear launch --elastic MIN:MAX --restarts N`.

        run = dear.Elastic(net, optimizer, samples=len(x), batch=240, epochs=3)
        for step in run:
            with step as indices:
                criterion(run.model(x[indices]), y[indices]).backward()
                optimizer.step()

    Every step trains with the same `batch` samples, however many ranks share them, and each sample counts once an epoch: a step
    that was given up is made again. The mean is that over all samples. A commit puts the state into memory of the launcher,
    once for all ranks: each writes what it updates, as into sharded Checkpoints. It survives any number of ranks.

    samples: the number of samples; `indices` is a tensor of some of 0 to samples - 1. Their order is drawn anew each epoch, by
        `seed`. What is left of them at the end, less than a batch, goes with the last one.
    commit: steps between two commits: what is lost where a rank fails. A commit waits for the parameters, so policies gain nothing
        under the next forward pass of the steps that are committed.
    extra: other objects with state_dict() and load_state_dict(), by name: schedulers, a GradScaler.
    checkpoints: a folder for a dear.Checkpoints that saves every `every` steps, from which a job that is started again goes on, by
        any launcher; "" for none.
    timeout: seconds, for every wait for other ranks; also for one that is still in a step when the others have given it up.
    options: those of dear.distribute(), but for process_group, balance and rounds.

    Without `dear launch --elastic` it trains all the same, and an error of the group ends the program. ConfigError where the
    batch has fewer samples than there are ranks, or for arguments of distribute() that do not go with it. TransportError and
    TimeoutError where ranks fail that the launcher does not see end.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizers,
        *,
        samples: int,
        batch: int,
        epochs: int = 1,
        seed: int = 0,
        commit: int = 1,
        extra: Optional[Mapping[str, Any]] = None,
        checkpoints: str = "",
        every: int = 100,
        timeout: float = 120.0,
        **options: Any,
    ) -> None:
        for name in ("process_group", "balance", "rounds"):
            if options.get(name) is not None:
                raise _C.ConfigError(
                    f"{name}= is not for dear.Elastic, which makes its own group and shares batches: leave it out"
                )
        if samples < 1 or batch < 1 or epochs < 1 or commit < 1 or every < 1:
            raise _C.ConfigError(
                f"samples={samples}, batch={batch}, epochs={epochs}, commit={commit}, every={every}: each must be at least 1"
            )
        options.setdefault("policy", "wfbp")
        self.optimizer, self._module, self._options = optimizer, model, options
        self._samples, self._batch, self._epochs, self._seed = samples, min(batch, samples * epochs), epochs, seed
        self._commit_every, self._save_every, self._timeout = commit, every, timeout
        self._extra, self._folder = dict(extra or {}), checkpoints
        self._checkpoints: Optional[Checkpoints] = None
        self._memory = os.environ.get("DEAR_ELASTIC_FOLDER", "")  # a folder of the launcher's
        self._committed: Optional[Checkpoints] = None  # there
        self._model: Optional[DataParallel] = None
        self._steps = self._used = 0  # of which the current state is
        self._given_up = False
        self._orders: dict[int, torch.Tensor] = {}
        place = os.environ.get("DEAR_MEMBERSHIP", "")
        number = os.environ.get("DEAR_MEMBER", "")
        if place and not number.isdecimal():
            raise _C.ConfigError(
                f"DEAR_MEMBER is '{number}': `dear launch --elastic` sets it to a whole number, 0 or more"
            )
        self._member = _C.Member(place, int(number)) if place else None
        self._run_id = os.environ.get("TORCHELASTIC_RUN_ID", "")
        self._epoch = -1  # of the roster
        self._begin()

    # ---- what a program uses

    @property
    def model(self) -> DataParallel:
        """The model on the ranks of now: the same object all the time."""
        assert self._model is not None
        return self._model

    @property
    def steps(self) -> int:
        """Steps that were taken; those given up do not count."""
        return self._steps

    @property
    def used(self) -> int:
        """Samples that were trained with, of samples * epochs."""
        return self._used

    def __iter__(self) -> Iterator[Step]:
        while self._used < self._samples * self._epochs:
            if self._given_up or (self._member is not None and self._member.epoch() != self._epoch):
                self._begin()
                continue  # the others may have been further
            yield Step(self)

    # ---- steps

    def _batch_of_step(self) -> int:
        """How many samples the next step has."""
        left = self._samples * self._epochs - self._used
        return left if left < 2 * self._batch else self._batch

    def _indices(self) -> torch.Tensor:
        count, rank, size = self._batch_of_step(), self.model.rank, self.model.world_size
        first, last = self._used + count * rank // size, self._used + count * (rank + 1) // size
        found = []
        while first < last:
            epoch, place = divmod(first, self._samples)
            here = min(last - first, self._samples - place)
            found.append(self._order(epoch)[place : place + here])
            first += here
        return torch.cat(found)

    def _order(self, epoch: int) -> torch.Tensor:
        if epoch not in self._orders:
            self._orders = {one: order for one, order in self._orders.items() if one >= epoch - 1}
            generator = torch.Generator().manual_seed((self._seed << 20) + epoch)
            self._orders[epoch] = torch.randperm(self._samples, generator=generator)
        return self._orders[epoch]

    def _end_step(self) -> None:
        count = self._batch_of_step()
        steps, used = self._steps + 1, self._used + count
        ends = used >= self._samples * self._epochs
        if steps % self._commit_every == 0 or ends:
            self._commit(steps, used)
        self._steps, self._used = steps, used
        if self._checkpoints is not None and (steps % self._save_every == 0 or ends):
            self._checkpoints.save({"step": steps, "used": used})

    def _lost(self) -> bool:
        """After an error of the group: whether the launcher has seen a process end, so that the others can go on."""
        if self._member is None:
            return False
        deadline = time.monotonic() + _NOTICE
        while self._member.epoch() == self._epoch:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        self._given_up = True
        return True

    # ---- state

    def _commit(self, steps: int, used: int) -> None:
        if self._committed is not None:
            self._committed.save({"step": steps, "used": used})
        _C.note_progress(steps)

    # ---- ranks

    def _begin(self) -> None:
        """Meets the ranks of now, and takes the state of the last commit."""
        tries = 0
        while True:
            self._leave()
            self._join()
            try:
                # All have said that they are there: a rank that does not come has just ended.
                self._train_on(_C.init(timeout=self._timeout, meeting=min(self._timeout, _MEETING)))
                self._given_up = False
                return
            except _OF_THE_GROUP as error:
                tries += 1
                if self._member is None or tries > _TRIES or (isinstance(error, _C.MismatchError) and not self._lost()):
                    raise
                if not self._lost():
                    self._member.ask_again()

    def _leave(self) -> None:
        self._checkpoints = self._committed = None
        if self._model is not None and self._model.__dict__.get("_open") is not None:
            self._model.abandon("its ranks have changed")
        for parameter in self._module.parameters():
            parameter.grad = None

    def _join(self) -> None:
        """Waits until all ranks of now are ready to meet. Everybody in this process who asks which they are learns it from the
        environment."""
        if self._member is None:
            return
        self._epoch, place = self._member.join(self._timeout)
        os.environ.update(place)
        _C.begin_record_again(int(place["RANK"]), int(place["WORLD_SIZE"]))
        os.environ["TORCHELASTIC_RUN_ID"] = f"{self._run_id} epoch {self._epoch}"

    def _train_on(self, group: _C.Group) -> None:
        if self._batch < group.size:
            raise _C.ConfigError(
                f"a batch of {self._batch} samples for {group.size} ranks: each takes at least one of every batch"
            )
        arguments = {**self._options, "process_group": group, "balance": [1.0] * group.size, "timeout": self._timeout}
        if self._model is None:
            self._model = DataParallel(self._module, self.optimizer, **arguments)
        else:
            DataParallel.__init__(self._model, self._module, self.optimizer, **arguments)
        if self._folder:
            self._checkpoints = Checkpoints(self._folder, self._model, extra=self._extra)
        position = self._resume(group)
        if position is not None:
            self._steps, self._used = position["step"], position["used"]
        self._commit(self._steps, self._used)

    def _resume(self, group: _C.Group) -> Optional[dict[str, Any]]:
        """From the last commit of ranks of this job, else from a checkpoint."""
        if self._memory:
            self._committed = Checkpoints(
                self._memory,
                self.model,
                keep=1,
                sharded=True,
                mirrored=True,
                extra=self._extra,
                random=False,
                weights_only=False,
                say=lambda _: None,  # the launcher tells of ranks that come and go
            )
            position = self._committed.resume()
            if position is not None:
                return position
            most = max(int(one) for one in _C.gather_bytes(group, str(self._steps).encode()))
            if most > 0:
                raise _C.ConfigError(
                    f"rank {group.rank}: the state of step {most} is not in '{self._memory}', where ranks committed it: let nobody "
                    "remove it"
                )
        return self._checkpoints.resume() if self._checkpoints is not None else None


class Step:
    """One step, as a context: see Elastic."""

    def __init__(self, run: Elastic) -> None:
        self._run = run

    def __enter__(self) -> torch.Tensor:
        return self._run._indices()

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]
    ) -> bool:
        if error is None:
            try:
                self._run._end_step()
                return False
            except _OF_THE_GROUP:
                if not self._run._lost():
                    raise
                return True
        return isinstance(error, _OF_THE_GROUP) and self._run._lost()
