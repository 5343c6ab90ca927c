"""What becomes of the gradients of a step once a rank has added up its own: means over replicas, sums of tied parameters."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch import Tensor

from ._pipeline_stages import Stage
from ._pipeline_wire import waiting

# By task of an order: kind, stage, micro-batch.
Order = list[tuple[str, int, int]]


@dataclasses.dataclass(frozen=True)
class Tied:
    """A parameter that several ranks hold, `ranks` of which are one of each place."""

    number: int  # among those of all ranks
    name: str
    parameter: Tensor
    ranks: list[int]


class Gradients:
    """Each rank sends its own gradient of a tied parameter to the others that hold it as soon as it is whole, and adds up all
    of them in the order of ranks. Of replicas, which have the same stages, the first one does so with means, and tells the
    others.

    begin(), computed() after each task and end() are called once a step."""

    def __init__(
        self,
        stages: list[Stage],
        order: Order,
        tied: list[Tied],
        *,
        rank: int,
        group: Any,
        replicas: Any,
        first_tag: int,
    ) -> None:
        self._tied, self._rank, self.group, self.replicas, self._first_tag = tied, rank, group, replicas, first_tag
        self._tells, self._beside = True, ""
        if replicas is not None:
            first = rank - dist.get_rank(replicas)
            self._tells = first == rank
            self._beside = f"ranks {first} to {first + dist.get_world_size(replicas) - 1}, which have the same stages"
        last = {stage: index for index, (kind, stage, _) in enumerate(order) if kind != "forward"}
        whole: dict[Tensor, int] = {}
        for stage in stages:
            for parameter in (one for operator in stage.operators for one in operator.parameters if one.requires_grad):
                whole[parameter] = max(whole.get(parameter, 0), last[stage.number])
        self._whole_after: dict[int, list[Tensor]] = {}
        for parameter, index in whole.items():
            self._whole_after.setdefault(index, []).append(parameter)
        self._earlier: list[Optional[Tensor]] = []
        self._means: list[tuple[Any, Tensor, list[Tensor]]] = []
        self._awaited: dict[tuple[int, int], tuple[Any, Tensor]] = {}  # by number of the tied parameter and rank
        self._sent: list[tuple[Any, Tensor]] = []
        self.bytes_sent = 0

    def begin(self) -> None:
        """Puts tied gradients of earlier steps aside, which are whole already, and makes room for those of other ranks."""
        self._earlier = [one.parameter.grad for one in self._tied]
        for one in self._tied:
            one.parameter.grad = None
            for rank in self._others(one):
                room = torch.empty(_HEAD + one.parameter.nbytes, dtype=torch.uint8)
                with self._waiting(one, rank):
                    work = dist.irecv(room, group=self.group, group_src=rank, tag=self._first_tag + one.number)
                self._awaited[one.number, rank] = work, room

    def computed(self, index: int) -> None:
        """Of the task with this index in the order of this rank."""
        lot = self._whole_after.get(index, ())
        if not lot:
            return
        if self.replicas is not None:
            self._begin_means(lot)
        for one in self._tied:
            if any(one.parameter is parameter for parameter in lot):
                self._end_means()
                message = encoded(_gradient(one.parameter))
                for rank in self._others(one):
                    with self._waiting(one, rank):
                        work = dist.isend(message, group=self.group, group_dst=rank, tag=self._first_tag + one.number)
                    self._sent.append((work, message))
                    self.bytes_sent += message.nbytes

    def end(self) -> None:
        self._end_means()
        for one, earlier in zip(self._tied, self._earlier):
            own = _gradient(one.parameter)
            summed = torch.zeros_like(own)
            for rank in one.ranks if self._tells else ():
                if rank == self._rank:
                    summed += own
                    continue
                work, room = self._awaited.pop((one.number, rank))
                with self._waiting(one, rank):
                    work.wait()
                add_encoded(summed, room)
            if self.replicas is not None:
                with waiting(self._rank, f"the gradient of '{one.name}' of {self._beside}"):
                    dist.broadcast(summed, group=self.replicas, group_src=0)
            gradient = summed.to(one.parameter.device)
            one.parameter.grad = gradient if earlier is None else earlier + gradient
        for work, _ in self._sent:
            with waiting(self._rank, "gradients of tied parameters to be taken"):
                work.wait()
        self._sent.clear()

    def break_off(self) -> None:
        """Lets go of all connections."""
        self._means.clear()
        self._awaited.clear()
        self._sent.clear()
        if self.replicas is not None:
            self.replicas.abort()  # its name, which a new group might get, stays taken
        self.group = self.replicas = None

    # ---- means over replicas

    def _begin_means(self, lot: list[Tensor]) -> None:
        for dtype in dict.fromkeys(parameter.dtype for parameter in lot):
            alike = [parameter for parameter in lot if parameter.dtype == dtype]
            # Behind the gradients is for each whether it is there, so that one that no replica has stays so.
            there = torch.tensor([parameter.grad is not None for parameter in alike], dtype=dtype)
            flat = torch.cat([*(_gradient(parameter).reshape(-1) for parameter in alike), there])
            with waiting(self._rank, self._beside):
                self._means.append((dist.all_reduce(flat, group=self.replicas, async_op=True), flat, alike))

    def _end_means(self) -> None:
        for work, flat, alike in self._means:
            with waiting(self._rank, f"gradients of {self._beside}"):
                work.wait()
            there = flat[-len(alike) :].tolist()
            flat /= dist.get_world_size(self.replicas)
            for parameter, found, mean in zip(alike, there, flat.split([one.numel() for one in alike] + [len(alike)])):
                if found:
                    parameter.grad = mean.view(parameter.shape).to(parameter.device)
        self._means.clear()

    def _others(self, one: Tied) -> list[int]:
        """Those that this rank tells its gradient."""
        return [rank for rank in one.ranks if rank != self._rank] if self._tells else []

    def _waiting(self, one: Tied, rank: int) -> Any:
        return waiting(self._rank, f"the gradient of the tied parameter '{one.name}' and rank {rank}")


# A message is a number of rows, their indices and the rows; or -1 and all of them.
_HEAD = 8


def encoded(gradient: Tensor) -> Tensor:
    """Only the rows that are not zero, where that is less: those of an embedding are few."""
    rows = _rows(gradient)
    used = (rows != 0).any(1).nonzero().flatten()
    some = rows[used]
    if used.nbytes + some.nbytes >= rows.nbytes:
        return _bytes([torch.tensor([-1]), rows])
    return _bytes([torch.tensor([len(used)]), used, some])


def add_encoded(summed: Tensor, message: Tensor) -> None:
    """`message` may be longer than what was sent."""
    rows = _rows(summed)
    count = int(message[:_HEAD].view(torch.int64))
    if count < 0:
        rows += message[_HEAD : _HEAD + rows.nbytes].view(rows.dtype).view_as(rows)
        return
    begin = _HEAD + 8 * count
    end = begin + count * rows.shape[1] * rows.element_size()
    rows[message[_HEAD:begin].view(torch.int64)] += message[begin:end].view(rows.dtype).view(count, rows.shape[1])


def _rows(tensor: Tensor) -> Tensor:
    return tensor.view(tensor.shape[0] if tensor.dim() and tensor.numel() else 1, -1)


def _bytes(parts: list[Tensor]) -> Tensor:
    return torch.cat([part.contiguous().view(-1).view(torch.uint8) for part in parts])


def _gradient(parameter: Tensor) -> Tensor:
    """In the host's memory."""
    gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    return gradient.detach().cpu().contiguous()
