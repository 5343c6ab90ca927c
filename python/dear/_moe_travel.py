"""Experts that lie on the ranks of a process group, and the way of tokens to them and back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch import Tensor, nn

from . import _C, _moe_cut, _moe_nodes, _moe_order, _moe_ranks, _moe_routing

OVERLAPS = ("none", "experts", "lancet")
Products = Callable[[int, _moe_routing.Arriving, Tensor], Tensor]


class Travelling(nn.Module):
    """A layer that chooses `top_k` of `experts` experts for each token. Each rank has as many of them, those of rank 0 first."""

    experts: int
    top_k: int
    ranks: int
    rank: int
    parts: int  # of this layer's batch, where the forward pass of the model is not cut
    overlap: str
    kind: str  # of the gate
    scale: float  # of gradients between an expert's result and its input
    compared = False  # whether a forward pass runs whose results are only compared
    _base: Any
    _counted: dict[str, Any]
    _agreed: bool

    def share_out(self, experts: int, process_group: Any) -> range:
        """Returns the experts of this rank. ConfigError where the ranks do not divide them."""
        self._base = _moe_ranks.process_group_of(process_group)
        self.ranks = 1 if self._base is None else dist.get_world_size(self._base)
        self.rank = 0 if self._base is None else dist.get_rank(self._base)
        self._agreed = False
        here = _C.moe_experts_of_rank(experts, self.ranks)
        self.experts = experts
        self.reset_statistics()
        return range(self.rank * here, (self.rank + 1) * here)

    def expert_parameters(self) -> list[nn.Parameter]:
        """Those that lie on this rank alone."""
        raise NotImplementedError

    def arguments(self) -> dict[str, object]:
        """Those that all ranks must have alike."""
        raise NotImplementedError

    def capacity(self, tokens: int) -> int:
        """The places of each expert for a rank's batch of so many tokens. ConfigError for what cannot be."""
        raise NotImplementedError

    def products(self, dtype: Any, late: bool) -> Products:
        """The experts as a function of a part of the batch: its number, the rows of each expert, the rows. All parts of a
        forward pass have one such function."""
        raise NotImplementedError

    def whole_names(self) -> tuple[str, ...]:
        """The names of parameters whose first dimension is the experts."""
        raise NotImplementedError

    @property
    def device(self) -> torch.device:
        return self.expert_parameters()[0].device

    def statistics(self) -> dict[str, Any]:
        """Of this rank's tokens in forward passes of training since reset_statistics(): passes, tokens, by_expert (choices, before
        any are dropped), dropped (choices), balance (the largest of by_expert over their mean), sent_rows (to other
        ranks, one way)."""
        by_expert: list[int] = self._counted["by_expert"].tolist()
        balance = max(by_expert) * self.experts / max(1, sum(by_expert))
        return {**self._counted, "by_expert": by_expert, "balance": balance}

    def reset_statistics(self) -> None:
        self._counted: dict[str, Any] = {
            "passes": 0,
            "tokens": 0,
            "by_expert": torch.zeros(self.experts, dtype=torch.int64),
            "dropped": 0,
            "sent_rows": 0,
        }

    # ---- a forward pass

    def batch_of_parts(self) -> Optional[_moe_routing.Whole]:
        """What parts of the batch tell each other here, where a part of a forward pass runs. First of all in forward()."""
        _moe_order.reserve()
        cut = _moe_cut.current()
        if cut is not None:
            cut.require_recording()
        if not self._agreed and self._base is not None:
            shapes = [tuple(parameter.shape) for parameter in self.expert_parameters()]
            arguments = {**self.arguments(), "shapes of experts": shapes}
            _moe_ranks.require_same(arguments, self.rank, self.own_group())
            self._agreed = True
        return None if cut is None else cut.shared(id(self), lambda: _moe_routing.Whole(self.experts, self.ranks, cut))

    def through_experts(
        self,
        x: Tensor,
        weights: Tensor,
        chosen: Tensor,
        ranges: list[tuple[int, int]],
        whole: Optional[_moe_routing.Whole],
        scores: Optional[Tensor] = None,
    ) -> Tensor:
        """The sum of what its chosen experts make of each token, by weight. x: (tokens, width); weights, chosen and scores, which
        say who comes first where a gate needs it: (tokens, top_k). ranges: the tokens of each part. Every rank
        comes here with as many parts, or calls refuse_batch()."""
        tokens = len(x) * (1 if whole is None else whole.cut.parts)
        parts = self._placed(chosen, weights if scores is None else scores, ranges, self.capacity(tokens), whole)
        arriving = self._counts_of_all(tokens, [one.counts for one in parts], whole)
        self._count(chosen, parts, whole is None or whole.cut.part == 0)
        late = self.overlap == "lancet"
        products = self.products(x.dtype, late) if whole is None or whole.products is None else whole.products
        if whole is not None:
            whole.products = products
        size, first = len(x) // len(parts), 0 if whole is None else whole.cut.part
        ways = [
            self._way_of_part(rows, of_rows, sending, counts, products, late, first + number)
            for number, (rows, of_rows, sending, counts) in enumerate(
                zip(x.split(size), weights.split(size), parts, arriving)
            )
        ]
        for _ in range(2):  # all-to-alls of all parts are launched before the first is waited for
            for way in ways:
                next(way)
            if whole is not None:
                whole.cut.pause()
        results = [next(way) for way in ways]
        return results[0] if len(results) == 1 else torch.cat(results)

    def _placed(
        self,
        chosen: Tensor,
        scores: Tensor,
        ranges: list[tuple[int, int]],
        capacity: int,
        whole: Optional[_moe_routing.Whole],
    ) -> list[_moe_routing.Sending]:
        """By part of this layer; the part that runs alone where a whole forward pass is cut."""
        by_importance = self.kind == "batch-prioritized"
        if whole is None or not by_importance:
            used = None if whole is None else whole.used
            return _moe_routing.place(chosen, scores, ranges, capacity, self.experts, whole=by_importance, used=used)
        if whole.placed is None:
            size = ranges[0][1]
            ranges = [(part * size, (part + 1) * size) for part in range(whole.cut.parts)]
            _, _, chosen, scores = whole.all_of_gate()
            whole.placed = _moe_routing.place(chosen, scores, ranges, capacity, self.experts, whole=True)
        return whole.placed[whole.cut.part : whole.cut.part + 1]

    def _way_of_part(
        self,
        x: Tensor,
        weights: Tensor,
        sending: _moe_routing.Sending,
        counts: list[list[int]],
        products: Products,
        late: bool,
        part: int,
    ) -> Iterator[Any]:
        """To the experts and back, with an end where an all-to-all travels; at last the result."""
        exchange = _moe_nodes.Exchange(
            sending,
            _moe_routing.Arriving(counts, x.device),
            self.top_k,
            self.own_group(),
            at_once=self.overlap == "none",
            scale=self.scale,
        )
        if late:
            for key in ("tokens", "results"):
                exchange.measured[key] = _moe_order.forward_exchange()
        token = _moe_nodes.SendTokens.apply(x, exchange)
        if late:
            exchange.measured["gradients of tokens"] = _moe_order.wait_late(token)
        yield
        rows = products(part, exchange.arriving, _moe_nodes.TakeTokens.apply(token, exchange))
        token = _moe_nodes.SendBack.apply(rows, exchange)
        if late:
            exchange.measured["gradients of results"] = _moe_order.wait_late(token)
        yield
        yield _moe_nodes.TakeBack.apply(token, weights, exchange)

    # ---- what ranks tell each other

    def own_group(self) -> Any:
        """The process group of its all-to-alls; None where there is one rank."""
        return None if self._base is None else _moe_ranks.own_group(self._base)

    def refuse_batch(self, why: int = _moe_ranks.REFUSED) -> None:
        """Tells the other ranks, which wait for this one, that it refuses its batch. ConfigError if it is because of its gate."""
        self._counts_of_all(why, [], None)

    def _counts_of_all(
        self, tokens: int, sent: list[list[int]], whole: Optional[_moe_routing.Whole]
    ) -> list[list[list[int]]]:
        return _moe_ranks.exchange_counts(
            tokens,
            sent,
            parts=self.parts if _moe_cut.current() is None else 1,
            experts=self.experts,
            capacity_of=self.capacity,
            rank=self.rank,
            ranks=self.ranks,
            group=self.own_group(),
            device=self.device,
            received=None if whole is None else whole.received,
        )

    def _count(self, chosen: Tensor, parts: list[_moe_routing.Sending], first: bool) -> None:
        # A forward pass within a backward pass is one that checkpoint() runs again.
        if not self.training or torch._C._current_graph_task_id() != -1:
            return
        here = self.experts // self.ranks
        rows = sum(len(part.choice_of_row) for part in parts)
        local = sum(sum(part.counts[self.rank * here : (self.rank + 1) * here]) for part in parts)
        self._counted["passes"] += 1 if first else 0
        self._counted["tokens"] += len(chosen)
        self._counted["by_expert"] += torch.bincount(chosen.reshape(-1).cpu(), minlength=self.experts)
        self._counted["dropped"] += chosen.numel() - rows
        self._counted["sent_rows"] += rows - local

    # ---- as a module

    def whole_parameters(self) -> dict[str, Tensor]:
        """Those of all experts, as one process has them, on every rank, which all call it."""
        self.batch_of_parts()
        state = {}
        for name in self.whole_names():
            mine = getattr(self, name).detach()
            blocks = [mine]
            if self._base is not None:
                blocks = [torch.empty_like(mine, memory_format=torch.contiguous_format) for _ in range(self.ranks)]
                dist.all_gather(blocks, mine.contiguous(), group=self.own_group())
            state[name] = torch.cat(blocks)
        return state

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        here = self.experts // self.ranks
        for name in self.whole_names():
            given = state_dict.get(prefix + name)
            if isinstance(given, Tensor) and len(given) == self.experts and here < self.experts:
                state_dict = {**state_dict, prefix + name: given[self.rank * here : (self.rank + 1) * here]}
        super()._load_from_state_dict(state_dict, prefix, *args)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_base": None, "_agreed": False}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if self.ranks > 1 and self._base is None:
            self._base = _moe_ranks.process_group_of(None)

    def __deepcopy__(self, memo: Any) -> Any:
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        state = {name: copy.deepcopy(value, memo) for name, value in self.__getstate__().items()}
        new.__dict__.update({**state, "_base": self._base, "_agreed": self._agreed})
        return new
