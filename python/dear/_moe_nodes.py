"""The nodes of autograd of a mixture of experts: its all-to-alls, each cut where it is launched and where it is waited for,
and the products of its experts."""

from __future__ import annotations

import time
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import _C, _moe_order
from ._moe_routing import Arriving, Sending, gathered


def all_to_all(taken: Tensor, sent: Tensor, takes: list[int], sends: list[int], group: Any) -> Any:
    """Starts it; what it returns has wait()."""
    return dist.all_to_all_single(taken, sent, takes, sends, group=group, async_op=True)


class Exchange:
    """The two all-to-alls of one part, and in the backward pass the two the other way. Rows travel from their ranks to
    experts ("there") and back; buffers have one more row, of zeros, which stands for tokens that were dropped and rows that are filled up."""

    def __init__(
        self, sending: Sending, arriving: Arriving, choices: int, group: Any, at_once: bool, scale: float
    ) -> None:
        ranks = len(arriving.counts)
        experts = len(sending.counts) // ranks
        self.sending, self.arriving, self.choices = sending, arriving, choices
        self.rows = len(sending.choice_of_row)
        self.scale = scale  # of gradients within the experts
        self._group, self._at_once = group, at_once
        self._sends = [sum(sending.counts[rank * experts : (rank + 1) * experts]) for rank in range(ranks)]
        self._takes = [sum(of_rank) for of_rank in arriving.counts]
        self._under_way: dict[str, tuple[Any, Tensor, Tensor]] = {}
        self.measured: dict[str, Optional[_moe_order.Measured]] = {}

    def launch(self, key: str, rows: Tensor, *, there: bool) -> None:
        sends, takes = (self._sends, self._takes) if there else (self._takes, self._sends)
        rows = rows.contiguous()
        taken = rows.new_empty(sum(takes) + 1, rows.shape[1])
        taken[-1] = 0
        if self._group is None:
            taken[:-1] = rows
            work = None
        else:
            measured = self.measured.get(key)
            if measured is not None:
                measured.happens("launch")
            begun = time.perf_counter()
            work = all_to_all(taken[:-1], rows, takes, sends, self._group)
            if self._at_once or measured is not None:
                self._wait_for(work)
            if measured is not None:
                measured.travels(time.perf_counter() - begun)
                work = None
        self._under_way[key] = work, taken, rows

    def _wait_for(self, work: Any) -> None:
        try:
            work.wait()
        except RuntimeError as error:
            if "dear" in dist.get_backend(self._group):  # which says who has died
                raise
            rank, reason = dist.get_rank(self._group), str(error).splitlines()[0]
            raise _C.TransportError(
                f"rank {rank}: an all-to-all of a mixture of experts failed, so another rank has left or died; the process "
                f"group does not say which one (the backend dear does): {reason}"
            ) from None

    def wait(self, key: str) -> Tensor:
        """What was taken, with the row of zeros."""
        work, taken, _ = self._under_way.pop(key)
        measured = self.measured.get(key)
        if measured is not None:
            measured.happens("wait")
        if work is not None and not self._at_once:
            self._wait_for(work)
        return taken


class Fork(torch.autograd.Function):
    """A tensor for two, whose gradients are added in one order, whichever comes first."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        ctx.set_materialize_grads(False)
        return x.view_as(x), x.view_as(x)

    @staticmethod
    def backward(ctx: Any, first: Optional[Tensor], second: Optional[Tensor]) -> Any:
        if first is None or second is None:
            return second if first is None else first
        return first + second


class SendTokens(torch.autograd.Function):
    """Launches the all-to-all to the experts; backward waits for the gradients of what was sent."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, exchange: Exchange) -> Tensor:
        ctx.exchange = exchange
        token_of_row = exchange.sending.choice_of_row // exchange.choices
        exchange.launch("tokens", x.index_select(0, token_of_row), there=True)
        return x.new_zeros(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor) -> Any:
        _moe_order.note("wait")
        taken = ctx.exchange.wait("gradients of tokens")
        row_of_choice = ctx.exchange.sending.row_of_choice
        found = taken.index_select(0, row_of_choice.reshape(-1)).view(*row_of_choice.shape, -1)
        return _added_up(found), None


class TakeTokens(torch.autograd.Function):
    """Waits for it, and sorts what came by expert; backward launches the gradients."""

    @staticmethod
    def forward(ctx: Any, token: Tensor, exchange: Exchange) -> Tensor:
        ctx.exchange = exchange
        return exchange.wait("tokens").index_select(0, exchange.arriving.received_of_place)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Any:
        _moe_order.note("launch")
        rows = dy.index_select(0, ctx.exchange.arriving.place_of_received)
        if ctx.exchange.scale != 1:
            rows /= ctx.exchange.scale
        ctx.exchange.launch("gradients of tokens", rows, there=False)
        return dy.new_zeros(1), None


class SendBack(torch.autograd.Function):
    """Launches the all-to-all of what experts made of the tokens; backward waits for its gradients."""

    @staticmethod
    def forward(ctx: Any, made: Tensor, exchange: Exchange) -> Tensor:
        ctx.exchange = exchange
        exchange.launch("results", made.index_select(0, exchange.arriving.place_of_received), there=False)
        return made.new_zeros(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor) -> Any:
        _moe_order.note("wait")
        taken = ctx.exchange.wait("gradients of results")
        rows = taken.index_select(0, ctx.exchange.arriving.received_of_place)
        if ctx.exchange.scale != 1:
            rows *= ctx.exchange.scale
        return rows, None


class TakeBack(torch.autograd.Function):
    """Waits for it, and adds up what came back of each token, by weight; backward launches the gradients."""

    @staticmethod
    def forward(ctx: Any, token: Tensor, weights: Tensor, exchange: Exchange) -> Tensor:
        taken = exchange.wait("results")
        ctx.exchange = exchange
        ctx.save_for_backward(taken, weights)
        return _weighted(_by_choice(taken, exchange), weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Any:
        _moe_order.note("launch")
        taken, weights = ctx.saved_tensors
        sending, choices = ctx.exchange.sending, ctx.exchange.choices
        of_rows = weights.reshape(-1).index_select(0, sending.choice_of_row)[:, None]
        rows = dy.index_select(0, sending.choice_of_row // choices) * of_rows
        ctx.exchange.launch("gradients of results", rows.to(taken.dtype), there=True)
        of_weights = None
        if ctx.needs_input_grad[1]:
            of_weights = (_by_choice(taken, ctx.exchange) * dy[:, None]).sum(2).to(weights.dtype)
        return dy.new_zeros(1), of_weights, None


def _by_choice(rows: Tensor, exchange: Exchange) -> Tensor:
    """(tokens, choices, width), zeros where a choice was dropped."""
    index = exchange.sending.row_of_choice
    return rows.index_select(0, index.reshape(-1)).view(*index.shape, -1)


def _weighted(rows: Tensor, weights: Tensor) -> Tensor:
    return _added_up(rows * weights[:, :, None])


def _added_up(rows: Tensor) -> Tensor:
    """Of (tokens, choices, width), choice by choice: in one order, whatever a kernel does."""
    result = rows[:, 0]
    for choice in range(1, rows.shape[1]):
        result = result + rows[:, choice]
    return result


class ExpertMatrix:
    """The product of rows with a matrix of each expert of this rank, for all parts of a forward pass: they have one node for
    weight gradients, which are multiplied by `scale`. weights: (experts, outputs, inputs), in any layout."""

    def __init__(self, weights: Tensor, scale: float, late: bool) -> None:
        self._left = _moe_order.Left()
        self._token: Tensor = ExpertWeightNode.apply(self._left, scale, weights)
        if late:
            _moe_order.compute_late(self._token, self._left)
        else:
            _moe_order.compute_at_once(self._token)
        self._weights = weights.detach()

    def __call__(self, part: int, arriving: Arriving, rows: Tensor) -> Tensor:
        result: Tensor = ExpertProduct.apply(self._left, part, arriving, rows, self._token, self._weights)
        return result


class ExpertWeightNode(torch.autograd.Function):
    """Makes the token of a product with the weights of all experts of this rank. Backward computes their gradients, each
    in one product over the rows of all parts, in the order of the uncut batch."""

    @staticmethod
    def forward(ctx: Any, left: _moe_order.Left, scale: float, weights: Tensor) -> Tensor:
        ctx.left, ctx.scale, ctx.like = left, scale, weights.detach()
        return weights.new_zeros(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor) -> Any:
        result = torch.empty_like(ctx.like, memory_format=torch.contiguous_format)
        with ctx.left.taken() as parts:
            for expert, of_expert in enumerate(result):
                x = gathered([(arriving, x) for arriving, x, _ in parts], expert)
                dy = gathered([(arriving, dy) for arriving, _, dy in parts], expert)
                torch.mm(dy.t(), x, out=of_expert)
            if ctx.scale != 1:
                result.mul_(ctx.scale)
        return None, None, result


class ExpertProduct(torch.autograd.Function):
    """Rows by expert, each expert's times its (outputs, inputs) weights."""

    @staticmethod
    def forward(
        ctx: Any, left: _moe_order.Left, part: int, arriving: Arriving, x: Tensor, token: Tensor, weights: Tensor
    ) -> Tensor:
        ctx.left, ctx.part, ctx.arriving = left, part, arriving
        ctx.save_for_backward(x, weights)
        return _by_expert(x, weights.transpose(1, 2), arriving)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Any:
        x, weights = ctx.saved_tensors
        dy = dy.contiguous()
        of_token = None
        if ctx.needs_input_grad[4]:
            ctx.left.add(ctx.part, (ctx.arriving, x, dy))
            of_token = dy.new_zeros(1)
        of_x = _by_expert(dy, weights, ctx.arriving) if ctx.needs_input_grad[3] else None
        return None, None, None, of_x, of_token, None


def _by_expert(rows: Tensor, matrices: Tensor, arriving: Arriving) -> Tensor:
    result = rows.new_empty(rows.shape[0], matrices.shape[2])
    for expert, matrix in enumerate(matrices):
        block = slice(arriving.begins[expert], arriving.begins[expert + 1])
        torch.mm(rows[block], matrix, out=result[block])
    return result
