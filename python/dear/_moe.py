"""dear.MoE: a mixture of experts that lie on the ranks of a process group."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import _C, _moe_cut, _moe_nodes, _moe_ranks, _moe_routing
from ._moe_linears import linear
from ._moe_travel import OVERLAPS, Products, Travelling

_CHOICES = {"switch": (1,), "top2": (2,), "batch-prioritized": (1, 2)}
_LATE_MODULES = (nn.modules.batchnorm._BatchNorm,)
_DRAWING_MODULES = (nn.modules.dropout._DropoutNd, nn.RReLU)


class MoE(Travelling):
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
        mine = self.share_out(experts, process_group)
        if not 0 < capacity_factor < math.inf:
            raise _C.ConfigError(f"a capacity factor of {capacity_factor} cannot be: give one above 0")
        self.width, self.hidden, self.top_k = width, hidden, top_k
        self.capacity_factor, self.parts, self.overlap = float(capacity_factor), parts, overlap
        self.balance_weight, self.z_weight, self.activation = balance_weight, z_weight, activation
        self.kind = gate
        self.gate = nn.Linear(width, experts, bias=False, device=device, dtype=dtype)
        if expert is None:
            self.inputs = nn.Parameter(torch.empty(len(mine), hidden, width, device=device, dtype=dtype))
            self.outputs = nn.Parameter(torch.empty(len(mine), width, hidden, device=device, dtype=dtype))
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
        self.scale = 1.0 if expert is None else 1 / self.ranks  # that of weight gradients is in products()
        self._losses: tuple[Tensor, Tensor] | None = None

    # ---- what a program asks

    def expert_parameters(self) -> list[nn.Parameter]:
        """Those that lie on this rank alone."""
        own = self._modules.get("own")
        return [self.inputs, self.outputs] if own is None else list(own.parameters())

    @property
    def balance_loss(self) -> Tensor:
        """Of this rank's whole batch in the last forward pass of evaluation, or that recorded for a backward pass: E times the sum over experts of the
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
        if _moe_cut.current() is not None:
            raise _moe_cut.NotCut("it takes the auxiliary loss of a mixture, which the whole batch has")
        if self._losses is None:
            raise _C.ConfigError(
                f"rank {self.rank}: a mixture of experts has an auxiliary loss after a forward pass that records for a "
                "backward pass, which none has; checkpoint() records it with use_reentrant=False"
            )
        return self._losses

    # ---- forward

    @_moe_cut.outside_of_graphs
    def forward(self, x: Tensor) -> Tensor:
        whole = self.batch_of_parts()
        refused: Optional[Exception] = None
        try:
            ranges = self._ranges(x, whole)
        except _C.ConfigError as error:  # the other ranks wait for this one
            refused = error
        if refused is not None:
            self.refuse_batch()
            raise refused
        flat, of_gate = _moe_nodes.Fork.apply(x.reshape(-1, self.width))
        device, late = x.device.type, self.overlap == "lancet"
        exact = torch.promote_types(flat.dtype, torch.float32)
        with torch.autocast(device, enabled=False):
            logits = linear(of_gate.to(exact), self.gate.weight.to(exact), None, late=late, key=id(self.gate))
        probabilities = logits.softmax(1)
        chosen = _moe_routing.choices_of(probabilities.detach(), self.top_k)
        scores = probabilities.gather(1, chosen)
        weights = scores if self.top_k == 1 else scores / scores.sum(1, keepdim=True)
        if not bool(logits.detach().isfinite().all()):
            self.refuse_batch(_moe_ranks.NOT_FINITE)
        if whole is not None:
            whole.of_gate.append((logits, probabilities, chosen, scores))
            if self.kind == "batch-prioritized":
                whole.cut.pause()  # the others come as far
        # checkpoint() with use_reentrant=True runs a first pass without autograd, whose loss would have no gradient.
        has_loss = torch.is_grad_enabled() or not self.training or self.compared
        if has_loss and (whole is None or len(whole.of_gate) == whole.cut.parts):
            if whole is not None:
                logits, probabilities, every_choice, _ = whole.all_of_gate()
            else:
                every_choice = chosen
            balance = _moe_routing.balance_of(probabilities, every_choice, self.experts)
            self._losses = balance, _moe_routing.z_of(logits)
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else flat.dtype
        # Without this the products, which get their types here, would be cast once more.
        with torch.autocast(device, enabled=False) if self._modules.get("own") is None else contextlib.nullcontext():
            result = self.through_experts(flat.to(dtype), weights.to(dtype), chosen, ranges, whole, scores)
        return result.reshape(x.shape).to(x.dtype)

    def products(self, dtype: Any, late: bool) -> Products:
        if self._modules.get("own") is not None:
            return self._own_experts
        first, second = (
            _moe_nodes.ExpertMatrix(weights.to(dtype), 1 / self.ranks, late) for weights in (self.inputs, self.outputs)
        )

        def of_part(part: int, arriving: _moe_routing.Arriving, rows: Tensor) -> Tensor:
            return second(part, arriving, self.activation(first(part, arriving, rows)))

        return of_part

    def _own_experts(self, part: int, arriving: _moe_routing.Arriving, rows: Tensor) -> Tensor:
        blocks = zip(self.own, zip(arriving.begins, arriving.begins[1:]))
        return torch.cat([expert(rows[begin:end]) for expert, (begin, end) in blocks])

    def arguments(self) -> dict[str, object]:
        return {
            "width": self.width,
            "hidden": self.hidden,
            "experts": self.experts,
            "gate": self.kind,
            "top_k": self.top_k,
            "capacity_factor": self.capacity_factor,
            "parts": self.parts,
            "type": str(self.gate.weight.dtype),
            "experts of its own": "own" in self._modules,
        }

    def capacity(self, tokens: int) -> int:
        return _C.moe_capacity(self.capacity_factor, tokens, self.experts)

    def _ranges(self, x: Tensor, whole: Optional[_moe_routing.Whole]) -> list[tuple[int, int]]:
        """The tokens of each part of this layer. ConfigError for a batch that cannot be."""
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
        if whole is not None and len(x) != whole.cut.samples:
            raise _C.ConfigError(
                f"rank {self.rank}: a mixture of experts was given {len(x)} samples, and a part of the batch has "
                f"{whole.cut.samples}: leave `parts` out of dear.distribute(), or keep the batch in the first dimension"
            )
        parts = self.parts if whole is None else whole.cut.parts
        own = self._modules.get("own")
        if own is not None and parts > 1 and self.training:
            _refuse_modules(
                own, _DRAWING_MODULES, "random numbers, which the parts of a batch would draw in another order"
            )
        tokens_of_sample = x[0].numel() // self.width if len(x) > 0 else 0
        try:
            self.capacity(len(x) * tokens_of_sample * (1 if whole is None else parts))
            return _C.moe_parts_of_batch(len(x), tokens_of_sample, self.parts if whole is None else 1)
        except _C.ConfigError as error:
            raise _C.ConfigError(f"rank {self.rank}: {error}") from None

    # ---- as a module

    def whole_names(self) -> tuple[str, ...]:
        return ("inputs", "outputs") if self._modules.get("own") is None else ()

    def whole_state_dict(self) -> dict[str, Tensor]:
        """The parameters of all experts, as a layer in one process has them, on every rank, which all call it:
        load_state_dict() takes them on any number of ranks."""
        if self._modules.get("own") is not None:
            raise _C.ConfigError("whole_state_dict() is of the layer's own experts: save yours on each rank")
        return {"gate.weight": self.gate.weight.detach().clone(), **self.whole_parameters()}

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_losses": None}

    def extra_repr(self) -> str:
        return (
            f"width={self.width}, hidden={self.hidden}, experts={self.experts}, gate={self.kind!r}, top_k={self.top_k}, "
            f"capacity_factor={self.capacity_factor}, parts={self.parts}, overlap={self.overlap!r}, ranks={self.ranks}"
        )


def _refuse_modules(experts: nn.Module, kinds: tuple[type, ...], why: str) -> None:
    for name, one in experts.named_modules():
        if isinstance(one, kinds) and getattr(one, "p", 1) != 0:
            raise _C.ConfigError(f"expert {name} is a {type(one).__name__}, which takes {why}: leave it out of experts")
