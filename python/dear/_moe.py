"""dear.MoE: a mixture of experts that lie on the ranks of a process group."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Iterator
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from . import _C, _moe_cut, _moe_nodes, _moe_order, _moe_ranks, _moe_routing
from ._moe_linears import linear

OVERLAPS = ("none", "experts", "lancet")
_CHOICES = {"switch": (1,), "top2": (2,), "batch-prioritized": (1, 2)}
_LATE_MODULES = (nn.modules.batchnorm._BatchNorm,)
_DRAWING_MODULES = (nn.modules.dropout._DropoutNd, nn.RReLU)


class MoE(nn.Module):
    """A layer of `experts` perceptrons, of which each token visits the one or two that a gate chooses. Each rank of the
    process group holds as many of them; tokens travel to their experts and back by all-to-alls of as many rows as there are.

        block.perceptron = dear.MoE(512, 2048, experts=8, gate="top2", overlap="lancet")
        loss = criterion(model(samples), labels) + block.perceptron.auxiliary_loss

    It takes and gives (batch, ..., width). Every rank makes it with the same arguments, once torch.distributed is
    initialised, and makes the same passes. Without torch.distributed all experts are here. The ranks' batches may differ in
    size.

    gate: "switch" (one expert, weighted by its probability: Fedus et al. 2022, arXiv 2101.03961), "top2" (two, whose weights
        add up to 1), or "batch-prioritized" (either, as top_k says; tokens whose probabilities are largest take their places
        first: Riquelme et al. 2021, arXiv 2106.05974). Of equal probabilities the first expert wins.
    capacity_factor: each expert takes int(capacity_factor * ceil(tokens / experts)) choices of the tokens of each rank's
        batch. Others are dropped: they add nothing to the result. The first two gates give places token by token: all choices of a token
        before those of the next one. (Other libraries give places for all first choices before all second ones.)
    process_group: of torch.distributed; None: the default one. All-to-alls go over a process group of their own on the same ranks,
        which the first forward pass makes, so that they do not queue behind gradients.
    parts: into so many parts the batch is cut, dimension 0 of the input, and while the tokens of one part travel, experts work on
        another. The output, which tokens are dropped, and all gradients are those of the uncut batch, to the bit: parts
        are told which places those before took, and batch-prioritized gates see the whole batch.
    overlap: "none": each all-to-all is waited for where it is launched. "experts": those of one part go under the experts of others.
        "lancet": in the backward pass they go under weight gradients, too, also those of other layers where
        dear.distribute(overlap="lancet") or dear.defer_weight_gradients() gave them nodes of their own (Lancet, Jiang et
        al. 2024, arXiv 2404.19429). Results have the same bits.
    balance_weight, z_weight: of the load-balancing and the z-loss in auxiliary_loss.
    activation: between the two products of an expert.
    expert: makes one expert of your own, called for each expert of all ranks in turn, so that a seed gives one process's; in
        place of the two products. Its weight gradients are those of the uncut batch to rounding only where `parts` is above 1.

    Gradients of experts are those of the mean of all ranks' losses, whole on their rank: nothing has to reduce them.
    dear.distribute() knows that; DistributedDataParallel must be told to leave `expert_parameters()` alone. Parameters:
    `gate.weight`, the same on all ranks; `inputs` (experts here, hidden, width) and `outputs` (experts here, width, hidden).
    load_state_dict() also takes those of all experts, as whole_state_dict() gives them.

    ConfigError for arguments that cannot be, at once; on every rank for a batch with fewer tokens than experts, one that
    `parts` does not divide, another type than the parameters', and for a gate that gives no numbers. MismatchError where ranks'
    arguments differ (at the first forward pass), and for counts of another rank beyond the capacity.
    """

    def __init__(
        self,
        width: int,
        hidden: int,
        *,
        experts: int,
        top_k: Optional[int] = None,
        gate: str = "switch",
        capacity_factor: float = 1.25,
        process_group: Any = None,
        parts: int = 1,
        overlap: str = "none",
        balance_weight: float = 0.01,
        z_weight: float = 0.0,
        activation: Callable[[Tensor], Tensor] = functional.gelu,
        expert: Optional[Callable[[], nn.Module]] = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if gate not in _CHOICES:
            raise _C.ConfigError(f"gate={gate!r}: there are {', '.join(_CHOICES)}")
        top_k = _CHOICES[gate][0] if top_k is None else top_k
        if top_k not in _CHOICES[gate] or top_k > experts:
            allowed = " or ".join(map(str, _CHOICES[gate]))
            raise _C.ConfigError(f"top_k={top_k} of {experts} experts: the gate {gate} chooses {allowed}")
        if overlap not in OVERLAPS:
            raise _C.ConfigError(f"overlap={overlap!r}: there are {', '.join(OVERLAPS)}")
        if width < 1 or hidden < 1 or parts < 1:
            raise _C.ConfigError(
                f"a mixture of width {width}, hidden {hidden} and {parts} parts: each must be at least 1"
            )
        self._base = _moe_ranks.process_group_of(process_group)
        self.ranks = 1 if self._base is None else dist.get_world_size(self._base)
        self.rank = 0 if self._base is None else dist.get_rank(self._base)
        here = _C.moe_experts_of_rank(experts, self.ranks)
        if not 0 < capacity_factor < math.inf:
            raise _C.ConfigError(f"a capacity factor of {capacity_factor} cannot be: give one above 0")
        self.width, self.hidden, self.experts, self.top_k = width, hidden, experts, top_k
        self.capacity_factor, self.parts, self.overlap = float(capacity_factor), parts, overlap
        self.balance_weight, self.z_weight, self.activation = balance_weight, z_weight, activation
        self.kind = gate
        self.gate = nn.Linear(width, experts, bias=False, device=device, dtype=dtype)
        mine = range(self.rank * here, (self.rank + 1) * here)
        if expert is None:
            self.inputs = nn.Parameter(torch.empty(here, hidden, width, device=device, dtype=dtype))
            self.outputs = nn.Parameter(torch.empty(here, width, hidden, device=device, dtype=dtype))
            with torch.no_grad():
                for number in range(experts):  # each rank draws all, and keeps its own
                    for kept in (self.inputs, self.outputs):
                        drawn = torch.empty_like(kept[0]).uniform_(-1, 1).mul_(kept.shape[2] ** -0.5)
                        if number in mine:
                            kept[number - mine.start].copy_(drawn)
        else:
            made = [expert() for _ in range(experts)]
            self.own = nn.ModuleList(made[mine.start : mine.stop])
            _refuse_modules(self.own, _LATE_MODULES, "statistics over a batch, and its rows are not one")
        self.reset_statistics()
        self._losses: tuple[Tensor, Tensor] | None = None
        self._agreed = False

    # ---- what a program asks

    def expert_parameters(self) -> list[nn.Parameter]:
        """Those that lie on this rank alone."""
        own = self._modules.get("own")
        return [self.inputs, self.outputs] if own is None else list(own.parameters())

    @property
    def balance_loss(self) -> Tensor:
        """Of this rank's whole batch in the last forward pass that recorded for a backward pass: E times the sum over experts of the
        share of choices times the mean probability; 1 where all are alike."""
        return self._lost()[0]

    @property
    def z_loss(self) -> Tensor:
        """Likewise the mean square of the logarithm of the gate's sum of exponentials."""
        return self._lost()[1]

    @property
    def auxiliary_loss(self) -> Tensor:
        """balance_weight * balance_loss + z_weight * z_loss, to be added to the loss."""
        balance, z = self._lost()
        return self.balance_weight * balance + self.z_weight * z

    def _lost(self) -> tuple[Tensor, Tensor]:
        if self._losses is None:
            raise _C.ConfigError(
                f"rank {self.rank}: a mixture of experts has an auxiliary loss after a forward pass that records for a "
                "backward pass, which none has; checkpoint() records it with use_reentrant=False"
            )
        return self._losses

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

    # ---- forward

    def forward(self, x: Tensor) -> Tensor:
        _moe_order.reserve()
        cut = _moe_cut.current()
        if cut is not None:
            cut.require_recording()
        self._agree()
        whole = None if cut is None else cut.shared(id(self), lambda: _moe_routing.Whole(self.experts, self.ranks))
        late = self.overlap == "lancet"
        refused: Optional[Exception] = None
        try:
            ranges, capacity = self._cut(x, cut)
        except _C.ConfigError as error:  # the other ranks wait for this one
            refused, ranges, capacity = error, [], 0
        if refused is not None:
            self.refuse_batch()
            raise refused
        flat, of_gate = _moe_nodes.Fork.apply(x.reshape(-1, self.width))
        device = x.device.type
        exact = torch.promote_types(flat.dtype, torch.float32)
        with torch.autocast(device, enabled=False):
            logits = linear(of_gate.to(exact), self.gate.weight.to(exact), None, late=late, key=id(self.gate))
        probabilities = logits.softmax(1)
        chosen = _moe_routing.choices_of(probabilities.detach(), self.top_k)
        scores = probabilities.gather(1, chosen)
        finite = bool(logits.detach().isfinite().all())
        if cut is not None and whole is not None:
            whole.of_gate.append((logits, probabilities, chosen, scores))
            if self.kind == "batch-prioritized":
                cut.pause()  # the others come as far
        parts = self._placed(chosen, scores, ranges, capacity, cut, whole) if finite else []
        tokens = len(flat) * (1 if cut is None else cut.parts) if finite else _moe_ranks.NOT_FINITE
        arriving = self._counts_of_all(tokens, [one.counts for one in parts], whole)
        weights = scores if self.top_k == 1 else scores / scores.sum(1, keepdim=True)
        self._count(chosen, parts, cut is None or cut.part == 0)
        if torch.is_grad_enabled() and (cut is None or cut.part == cut.parts - 1):
            if whole is not None:
                logits, probabilities, chosen, _ = whole.all_of_gate()
            self._losses = _moe_routing.balance_of(probabilities, chosen, self.experts), _moe_routing.z_of(logits)
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else flat.dtype
        # Without this the products, which get their types here, would be cast once more.
        with torch.autocast(device, enabled=False) if self._modules.get("own") is None else contextlib.nullcontext():
            result = self._through_experts(flat.to(dtype), weights.to(dtype), parts, arriving, late, cut, whole)
        return result.reshape(x.shape).to(x.dtype)

    def _placed(
        self,
        chosen: Tensor,
        scores: Tensor,
        ranges: list[tuple[int, int]],
        capacity: int,
        cut: Optional[_moe_cut.Cut],
        whole: Optional[_moe_routing.Whole],
    ) -> list[_moe_routing.Sending]:
        """By part of this layer; the part that runs alone where a whole forward pass is cut."""
        by_importance = self.kind == "batch-prioritized"
        if cut is None or whole is None or not by_importance:
            used = None if whole is None else whole.used
            return _moe_routing.place(chosen, scores, ranges, capacity, self.experts, whole=by_importance, used=used)
        if whole.placed is None:
            size = ranges[0][1]
            ranges = [(part * size, (part + 1) * size) for part in range(cut.parts)]
            _, _, chosen, scores = whole.all_of_gate()
            whole.placed = _moe_routing.place(chosen, scores, ranges, capacity, self.experts, whole=True)
        return whole.placed[cut.part : cut.part + 1]

    def _through_experts(
        self,
        x: Tensor,
        weights: Tensor,
        parts: list[_moe_routing.Sending],
        arriving: list[list[list[int]]],
        late: bool,
        cut: Optional[_moe_cut.Cut],
        whole: Optional[_moe_routing.Whole],
    ) -> Tensor:
        own = self._modules.get("own")
        products = self._own_experts if own is not None else None if whole is None else whole.products
        if products is None:
            products = self._products(x.dtype, late)
        if whole is not None:
            whole.products = products
        size = len(x) // len(parts)
        ways = [
            self._way_of_part(rows, of_rows, sending, counts, products, late, number if cut is None else cut.part)
            for number, (rows, of_rows, sending, counts) in enumerate(
                zip(x.split(size), weights.split(size), parts, arriving)
            )
        ]
        for _ in range(2):  # all-to-alls of all parts are launched before the first is waited for
            for way in ways:
                next(way)
            if cut is not None:
                cut.pause()
        results = [next(way) for way in ways]
        return results[0] if len(results) == 1 else torch.cat(results)

    def _way_of_part(
        self,
        x: Tensor,
        weights: Tensor,
        sending: _moe_routing.Sending,
        counts: list[list[int]],
        products: Callable[[int, _moe_routing.Arriving, Tensor], Tensor],
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
            scale=1.0 if self._modules.get("own") is None else 1 / self.ranks,
        )
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

    def _products(self, dtype: Any, late: bool) -> Callable[[int, _moe_routing.Arriving, Tensor], Tensor]:
        """The experts as a function of a part's rows. All parts share the nodes of the weights' gradients."""
        nodes = []
        for weights in (self.inputs.to(dtype), self.outputs.to(dtype)):
            left = _moe_order.Left()
            token = _moe_nodes.ExpertWeightNode.apply(left, 1 / self.ranks, weights)
            if late:
                _moe_order.compute_late(token, left)
            else:
                _moe_order.compute_at_once(token)
            nodes.append((left, token, weights.detach()))

        def products(part: int, arriving: _moe_routing.Arriving, rows: Tensor) -> Tensor:
            for number, (left, token, weights) in enumerate(nodes):
                rows = self.activation(rows) if number == 1 else rows
                rows = _moe_nodes.ExpertProduct.apply(left, part, arriving, rows, token, weights)
            return rows

        return products

    def _own_experts(self, part: int, arriving: _moe_routing.Arriving, rows: Tensor) -> Tensor:
        blocks = zip(self.own, zip(arriving.begins, arriving.begins[1:]))
        return torch.cat([expert(rows[begin:end]) for expert, (begin, end) in blocks])

    # ---- what ranks tell each other

    def own_group(self) -> Any:
        """The process group of its all-to-alls; None where there is one rank."""
        return None if self._base is None else _moe_ranks.own_group(self._base)

    def _agree(self) -> None:
        """Once: that all ranks have the same layer."""
        if self._agreed or self._base is None:
            return
        arguments: dict[str, object] = {
            "width": self.width,
            "hidden": self.hidden,
            "experts": self.experts,
            "gate": self.kind,
            "top_k": self.top_k,
            "capacity_factor": self.capacity_factor,
            "parts": self.parts,
            "type": str(self.gate.weight.dtype),
            "experts of its own": "own" in self._modules,
            "shapes of experts": [tuple(parameter.shape) for parameter in self.expert_parameters()],
        }
        _moe_ranks.require_same(arguments, self.rank, self.own_group())
        self._agreed = True

    def _cut(self, x: Tensor, cut: Optional[_moe_cut.Cut]) -> tuple[list[tuple[int, int]], int]:
        """The tokens of each part of this layer, and the places of an expert for this rank's whole batch."""
        if x.dim() < 2 or x.shape[-1] != self.width:
            raise _C.ConfigError(
                f"rank {self.rank}: a mixture of width {self.width} takes (batch, ..., {self.width}), and this is "
                f"{list(x.shape)}"
            )
        for parameter in (self.gate.weight, *self.expert_parameters()):
            if x.dtype != parameter.dtype and not torch.is_autocast_enabled(x.device.type):
                raise _C.ConfigError(
                    f"rank {self.rank}: a mixture of experts with parameters of {parameter.dtype} was given {x.dtype}: "
                    "convert one of them, or use torch.autocast()"
                )
        if cut is not None and len(x) != cut.samples:
            raise _C.ConfigError(
                f"rank {self.rank}: a mixture of experts was given {len(x)} samples, and a part of the batch has "
                f"{cut.samples}: leave `parts` out of dear.distribute(), or keep the batch in the first dimension"
            )
        parts = self.parts if cut is None else cut.parts
        own = self._modules.get("own")
        if own is not None and parts > 1 and self.training:
            _refuse_modules(
                own, _DRAWING_MODULES, "random numbers, which the parts of a batch would draw in another order"
            )
        tokens_of_sample = x[0].numel() // self.width if len(x) > 0 else 0
        try:
            tokens = len(x) * tokens_of_sample * (1 if cut is None else cut.parts)
            capacity = _C.moe_capacity(self.capacity_factor, tokens, self.experts)
            return _C.moe_parts_of_batch(len(x), tokens_of_sample, self.parts if cut is None else 1), capacity
        except _C.ConfigError as error:
            raise _C.ConfigError(f"rank {self.rank}: {error}") from None

    def refuse_batch(self) -> None:
        """Tells the other ranks, which wait for this one, that it refuses its batch."""
        self._counts_of_all(_moe_ranks.REFUSED, [], None)

    def _counts_of_all(
        self, tokens: int, sent: list[list[int]], whole: Optional[_moe_routing.Whole]
    ) -> list[list[list[int]]]:
        return _moe_ranks.exchange_counts(
            tokens,
            sent,
            parts=self.parts if _moe_cut.current() is None else 1,
            experts=self.experts,
            factor=self.capacity_factor,
            rank=self.rank,
            ranks=self.ranks,
            group=self.own_group(),
            device=self.gate.weight.device,
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

    def whole_state_dict(self) -> dict[str, Tensor]:
        """The parameters of all experts, as a layer in one process has them, on every rank, which all call it:
        load_state_dict() takes them on any number of ranks."""
        own = self._modules.get("own")
        if own is not None:
            raise _C.ConfigError("whole_state_dict() is of the layer's own experts: save yours on each rank")
        state = {"gate.weight": self.gate.weight.detach().clone()}
        self._agree()
        for name, mine in (("inputs", self.inputs), ("outputs", self.outputs)):
            blocks = [mine.detach()]
            if self._base is not None:
                blocks = [torch.empty_like(mine) for _ in range(self.ranks)]
                dist.all_gather(blocks, mine.detach(), group=self.own_group())
            state[name] = torch.cat(blocks)
        return state

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        here = self.experts // self.ranks
        for name in ("inputs", "outputs") if self._modules.get("own") is None else ():
            given = state_dict.get(prefix + name)
            if isinstance(given, Tensor) and len(given) == self.experts and here < self.experts:
                state_dict = {**state_dict, prefix + name: given[self.rank * here : (self.rank + 1) * here]}
        super()._load_from_state_dict(state_dict, prefix, *args)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_losses": None, "_base": None, "_agreed": False}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if self.ranks > 1 and self._base is None:
            self._base = _moe_ranks.process_group_of(None)

    def __deepcopy__(self, memo: Any) -> MoE:
        new = MoE.__new__(type(self))
        memo[id(self)] = new
        state = {name: copy.deepcopy(value, memo) for name, value in self.__getstate__().items()}
        new.__dict__.update({**state, "_base": self._base, "_agreed": self._agreed})
        return new

    def extra_repr(self) -> str:
        return (
            f"width={self.width}, hidden={self.hidden}, experts={self.experts}, gate={self.kind!r}, top_k={self.top_k}, "
            f"capacity_factor={self.capacity_factor}, parts={self.parts}, overlap={self.overlap!r}, ranks={self.ranks}"
        )


def _refuse_modules(experts: nn.Module, kinds: tuple[type, ...], why: str) -> None:
    for name, one in experts.named_modules():
        if isinstance(one, kinds) and getattr(one, "p", 1) != 0:
            raise _C.ConfigError(f"expert {name} is a {type(one).__name__}, which takes {why}: leave it out of experts")
