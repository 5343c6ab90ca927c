"""Messages between the stages of a pipeline, over a process group of torch.distributed of their own."""

from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Iterator
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch import Tensor

from . import _C
from ._pipeline_stages import Crossing, Stage

# A key: the stage that the message comes from, the index of what crosses, whether it is a gradient, and the micro-batch.
Key = tuple[int, int, bool, int]

_NOTICES = datetime.timedelta(seconds=1)  # by then all have noticed that a rank died
_FAREWELL = datetime.timedelta(seconds=0.2)


class Wire:
    """Sends and receives without waiting, so that messages travel while stages compute. All messages of a step are
    received in it. A wait ends with an error after `timeout`. Not safe for several threads."""

    def __init__(
        self,
        group: Any,
        stages: list[Stage],
        micro_batches: int,
        device: torch.device,
        timeout: datetime.timedelta,
        replicas: int = 1,
    ) -> None:
        self._group, self._stages, self._micro_batches, self.device = group, stages, micro_batches, device
        self.timeout = timeout
        self._rank = 0 if group is None else dist.get_rank(group)
        self._most = max((len(stage.leaves) for stage in stages), default=0) + 1
        self._tags = len(stages) * self._most * 2 * micro_batches  # of messages of stages; others are above
        last = stages[-1].rank // replicas * replicas if stages else 0
        self._last_ranks = list(range(last, last + replicas))
        self._tells: list[tuple[Any, Tensor, int]] = []
        self._losses: list[tuple[Any, Tensor, int]] = []
        self.failed: Optional[int] = None  # the rank whose connection ended first
        self._here: dict[Key, Tensor] = {}  # to a stage of the same rank
        self._sent: dict[Key, tuple[Any, Tensor]] = {}
        self._awaited: dict[Key, tuple[Any, Tensor]] = {}
        self.tags = self._tags + 2  # that messages have, from 0 on
        self.bytes_sent = 0

    def send(self, one: Crossing, gradient: bool, micro_batch: int, tensor: Tensor) -> None:
        """`tensor` must not change until finish(). A message to a stage of this rank is given as it is."""
        key = self._key(one, gradient, micro_batch)
        to = self._stages[one.cut + (0 if gradient else 1)].rank
        if to == self._rank:
            self._here[key] = tensor
            return
        ratio = one.gradient_ratio if gradient else one.activation_ratio
        message = (compressed(tensor, ratio) if ratio > 1 else tensor).cpu().contiguous()
        self.bytes_sent += message.nbytes
        try:
            work = dist.isend(message, group=self._group, group_dst=to, tag=self._tag(key))
        except RuntimeError as error:
            raise self._failure(one, gradient, micro_batch, error, True) from error
        self._sent[key] = (work, message)

    def expect(self, one: Crossing, gradient: bool, micro_batch: int) -> None:
        """Makes room for a message, which may be on its way from then on."""
        source = self._stages[one.cut + (1 if gradient else 0)].rank
        if source == self._rank:
            return
        ratio = one.gradient_ratio if gradient else one.activation_ratio
        if ratio > 1:
            room = torch.empty(2 * kept(torch.Size(one.shape).numel(), ratio), dtype=torch.int32)
        else:
            room = torch.empty(one.shape, dtype=one.dtype)
        key = self._key(one, gradient, micro_batch)
        try:
            work = dist.irecv(room, group=self._group, group_src=source, tag=self._tag(key))
        except RuntimeError as error:
            raise self._failure(one, gradient, micro_batch, error, False) from error
        self._awaited[key] = (work, room)

    def take(self, one: Crossing, gradient: bool, micro_batch: int) -> Tensor:
        """Waits for a message that is expected."""
        key = self._key(one, gradient, micro_batch)
        if key in self._here:
            return self._here.pop(key)
        room = self._awaited[key][1]
        self._wait(self._awaited.pop(key)[0], one, gradient, micro_batch, sends=False)
        if (one.gradient_ratio if gradient else one.activation_ratio) > 1:
            return decompressed(room, one).to(self.device)
        return room.to(self.device)

    def finish(self, one: Crossing, gradient: bool, micro_batch: int) -> None:
        """Waits until a message, if one was sent, no longer needs its tensor."""
        key = self._key(one, gradient, micro_batch)
        if key in self._sent:
            self._wait(self._sent.pop(key)[0], one, gradient, micro_batch, sends=True)

    def finish_all(self) -> None:
        for cut, index, gradient, micro_batch in list(self._sent):
            self.finish(self._stages[cut].leaves[index], gradient, micro_batch)

    def agree(self, fine: bool) -> bool:
        """Whether all ranks are fine. Each tells each, which takes one latency; a reduction takes several."""
        mine = torch.tensor(int(fine))
        rooms: dict[int, tuple[Any, Tensor]] = {}
        sends: list[tuple[Any, int]] = []
        lost: dict[int, RuntimeError] = {}
        for rank in self._others():
            try:
                room = torch.empty_like(mine)
                rooms[rank] = dist.irecv(room, group=self._group, group_src=rank, tag=self._tags), room
                sends.append((dist.isend(mine, group=self._group, group_dst=rank, tag=self._tags), rank))
            except RuntimeError as error:
                lost[rank] = error
        for rank, (work, _) in rooms.items():
            self._settle(work, rank, lost)
        while sends:
            self._settle(*sends.pop(), lost)
        told = {rank: int(room) for rank, (_, room) in rooms.items() if rank not in lost}
        rooms.clear()  # which an error would keep, and the connections with them
        if lost or any(value > 1 for value in told.values()):
            raise self._left("the other ranks to begin the next step", lost, told)
        return fine and all(value == 1 for value in told.values())

    def _others(self) -> list[int]:
        return [] if self._group is None else [r for r in range(dist.get_world_size(self._group)) if r != self._rank]

    def _settle(self, work: Any, rank: int, lost: dict[int, RuntimeError]) -> None:
        """Waits, once a rank is lost no longer than others take to notice it, too."""
        try:
            work.wait(min(self.timeout, _NOTICES) if lost else self.timeout)
        except RuntimeError as error:
            if not (lost and is_late(error)):
                lost.setdefault(rank, error)
        finally:
            del work

    def _left(self, what: str, lost: dict[int, RuntimeError], told: dict[int, int]) -> Exception:
        """For a rank that has done its part of a step: `told`, by rank, is 2 more than the rank that failed."""
        found = {value - 2: rank for rank, value in told.items() if value > 1}
        late = not found and all(is_late(error) for error in lost.values())
        failed = next(iter(found or lost))
        if found:
            end = f"rank {failed} " + ("failed" if found[failed] == failed else "died")
            end += f", as rank {found[failed]} says"
        elif late:
            end = f"nothing came from rank {failed} before the deadline"
        else:
            end = f"the connection to rank {' and rank '.join(map(str, lost))} ended, as when a process dies"
        self.failed = None if late else failed
        return (_C.TimeoutError if late else _C.TransportError)(
            f"rank {self._rank} had done its part of the step and waited for no operator, but for {what}, and {end}: see what "
            "that rank says, and start the job again"
        )

    def tell_loss(self, loss: Tensor) -> None:
        """To all other ranks, from one of the last stage, which has it before the backwards of others are done."""
        told = loss.reshape(()).cpu().double()
        for rank in self._others():
            self._tells.append((dist.isend(told, group=self._group, group_dst=rank, tag=self._tags + 1), told, rank))

    def expect_loss(self) -> None:
        for last in self._last_ranks:
            if last != self._rank:
                room = torch.empty((), dtype=torch.float64)
                work = dist.irecv(room, group=self._group, group_src=last, tag=self._tags + 1)
                self._losses.append((work, room, last))

    def take_loss(self, mine: Optional[Tensor]) -> Tensor:
        """Waits until it is told; the mean over the ranks of the last stage. `mine` is that of this rank, if it has that stage."""
        losses = [loss for _, loss, _ in self._losses]
        works = [(work, rank) for work, _, rank in (*self._tells, *self._losses)]
        self._tells.clear()
        self._losses.clear()
        lost: dict[int, RuntimeError] = {}
        while works and not lost:
            self._settle(*works.pop(), lost)
        works.clear()
        if lost:
            raise self._left("the loss" if mine is None else "the loss to be taken by others", lost, {})
        if mine is None:
            return torch.stack(losses).mean()
        if not losses:
            return mine
        losses.insert(self._last_ranks.index(self._rank), mine.reshape(()).cpu().double())
        return torch.stack(losses).mean().to(mine.dtype).to(mine.device)

    def say_farewell(self) -> None:
        """Tells those who wait for all to begin a step which rank failed: this one, or the one that it lost."""
        token = torch.tensor(2 + (self._rank if self.failed is None else self.failed))
        farewells: list[Any] = []
        with contextlib.suppress(RuntimeError):
            for rank in self._others():
                if rank != self.failed:
                    farewells.append(dist.isend(token, group=self._group, group_dst=rank, tag=self._tags))
        until = time.monotonic() + _FAREWELL.total_seconds()
        while farewells:
            with contextlib.suppress(RuntimeError):
                farewells.pop().wait(datetime.timedelta(seconds=max(0.01, until - time.monotonic())))

    def break_off(self) -> None:
        """Lets go of the connections."""
        self._sent.clear()
        self._awaited.clear()
        self._tells.clear()
        self._losses.clear()
        self._group = None

    def _wait(self, work: Any, one: Crossing, gradient: bool, micro_batch: int, *, sends: bool) -> None:
        try:
            work.wait(self.timeout)
        except RuntimeError as error:
            raise self._failure(one, gradient, micro_batch, error, sends) from None
        finally:
            del work  # which an error would keep, and the connection with it

    def _key(self, one: Crossing, gradient: bool, micro_batch: int) -> Key:
        return one.cut, one.index, gradient, micro_batch

    def _tag(self, key: Key) -> int:
        cut, index, gradient, micro_batch = key
        return ((cut * self._most + index) * 2 + gradient) * self._micro_batches + micro_batch

    def _failure(self, one: Crossing, gradient: bool, micro_batch: int, error: RuntimeError, sends: bool) -> Exception:
        front, behind = self._stages[one.cut], self._stages[one.cut + 1]
        here, there = (front, behind) if gradient != sends else (behind, front)
        what = f"the {'gradient of the ' if gradient else ''}output of operator '{one.operator}' of micro-batch {micro_batch}"
        asks = f"could not send {what} to" if sends else f"waited for {what} from"
        late = is_late(error)
        if not late and self.failed is None:
            self.failed = there.rank
        end = "none came before the deadline" if late else "the connection ended, as when a process dies"
        sentence = (
            f"rank {self._rank}: {here.what} {asks} {there.what} on rank {there.rank}, and {end}: see what that rank says, "
            "and start the job again"
        )
        return (_C.TimeoutError if late else _C.TransportError)(sentence)


@contextlib.contextmanager
def waiting(rank: int, what: str) -> Iterator[None]:
    """Says what this rank waited for where ranks that are in no message of a stage fail."""
    try:
        yield
    except _C.Error:
        raise
    except RuntimeError as error:
        late = is_late(error)
        end = "it did not come before the deadline" if late else "the connection ended, as when a process dies"
        raise (_C.TimeoutError if late else _C.TransportError)(
            f"rank {rank} waited for {what}, and {end} ({' '.join(str(error).split())[:300]}): see what other ranks say, and start the job again"
        ) from None


def is_late(error: RuntimeError) -> bool:
    return "timed out" in str(error).lower() or "timeout" in str(error).lower()


def kept(elements: int, ratio: float) -> int:
    return max(1, int(elements / ratio))


def compressed(tensor: Tensor, ratio: float) -> Tensor:
    """The elements of largest magnitude, in fp32: their indices, then their values' bits."""
    flat = tensor.detach().reshape(-1).to("cpu", torch.float32).contiguous()
    return _C.pipeline_largest(flat, kept(flat.numel(), ratio))


def decompressed(message: Tensor, one: Crossing) -> Tensor:
    """As the other side sees it: 0 where nothing came."""
    indices, values = message.chunk(2)
    flat = torch.zeros(torch.Size(one.shape).numel())
    flat[indices.long()] = values.view(torch.float32)
    return flat.to(one.dtype).view(one.shape)
