"""What a DataParallel does with the experts of dear.MoE layers: their parameters lie on one rank each and their gradients
are whole there, so the engine, whose parameters are alike on all ranks, does not see them."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Iterator
from typing import Any, Optional, Union

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from . import _C, _moe_order, _moe_parts, _moe_ranks
from ._flat_optimizer import FlatOptimizer
from ._moe_linears import restore_weight_gradients, take_weight_gradients
from ._moe_travel import OVERLAPS, Travelling
from ._tensor_norms import TensorNormOptimizer


class Experts:
    """Those of a model, and the state that its optimisers on shards keep of them, which are objects of the same classes. Without experts
    there is nothing to do. Where the program's optimiser makes the updates, it has experts among its parameters."""

    def __init__(self, module: nn.Module, optimizers: list[Optimizer], group: _C.Group) -> None:
        self.rank = group.rank
        self.layers = {name: one for name, one in module.named_modules() if isinstance(one, Travelling)}
        self._layer_of: dict[int, str] = {}
        self.parameters: list[nn.Parameter] = []
        for name, layer in self.layers.items():
            if layer.ranks != group.size:
                raise _C.ConfigError(
                    f"rank {group.rank}: the experts of '{name}' are shared out to {layer.ranks} ranks, and {group.size} "
                    "train: make the layer after torch.distributed.init_process_group(), on the same process group"
                )
            for parameter in layer.expert_parameters():
                if id(parameter) in self._layer_of:
                    raise _C.ConfigError(
                        f"rank {group.rank}: experts of '{name}' and '{self._layer_of[id(parameter)]}' share a parameter, whose "
                        "gradient would be that of two mixtures: give each layer experts of its own"
                    )
                self._layer_of[id(parameter)] = name
                self.parameters.append(parameter)
        self.ids = frozenset(self._layer_of)
        self._flat: dict[int, tuple[Optimizer, FlatOptimizer]] = {}
        self._require_held(optimizers)

    def _require_held(self, optimizers: list[Optimizer]) -> None:
        held = set()
        for optimizer in optimizers:
            mine = [id(one) for group in optimizer.param_groups for one in group["params"] if id(one) in self.ids]
            if mine and isinstance(optimizer, TensorNormOptimizer):
                raise _C.ConfigError(
                    f"rank {self.rank}: {type(optimizer).__name__} takes norms of whole tensors, and those of experts in "
                    f"'{self._layer_of[mine[0]]}' lie on several ranks: give experts to an elementwise optimiser"
                )
            held.update(mine)
        for parameter in self.parameters:
            if parameter.requires_grad and id(parameter) not in held:
                raise _C.ConfigError(
                    f"rank {self.rank}: the optimiser does not hold the experts of '{self._layer_of[id(parameter)]}': make it "
                    "from the parameters of the whole model, or freeze them"
                )

    def __bool__(self) -> bool:
        return bool(self.parameters)

    def refuse(self, what: str, remedy: str) -> None:
        """ConfigError where there are experts."""
        if self.parameters:
            raise _C.ConfigError(
                f"rank {self.rank}: the model has experts on each rank ('{next(iter(self.layers))}'), and {what}: {remedy}"
            )

    # ---- gradients, which are means over ranks

    def _gradients(self) -> list[torch.Tensor]:
        return [parameter.grad for parameter in self.parameters if parameter.grad is not None]

    def zero(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def scale(self, factor: float) -> None:
        for gradient in self._gradients():
            gradient.mul_(factor)

    def _over_ranks(self, value: float, operation: Any) -> float:
        layer = next(iter(self.layers.values()))
        result = torch.tensor([value], dtype=torch.float64, device=layer.device)
        if layer.ranks > 1:
            dist.all_reduce(result, operation, group=layer.own_group())
        return result.item()

    def unscale(self, inverse: float) -> bool:
        """Returns whether all are finite, on every rank."""
        finite = all(bool(gradient.isfinite().all()) for gradient in self._gradients())
        self.scale(inverse)
        return self._over_ranks(0.0 if finite else 1.0, dist.ReduceOp.MAX) == 0

    def clip_by_norm(self, training: Any, max_norm: float, norm_type: float, error_if_nonfinite: bool) -> float:
        """Over all parameters of the model: those of experts count once, on their rank."""
        if not max_norm >= 0:
            training.clip_gradients_by_norm(max_norm, norm_type, False)  # which says why not
        dense: float = training.clip_gradients_by_norm(math.inf, norm_type, False)
        norms = [torch.linalg.vector_norm(one.double(), norm_type) for one in self._gradients()]
        if math.isinf(norm_type):
            mine = max((norm.item() for norm in norms), default=0.0)
            total = max(dense, self._over_ranks(mine, dist.ReduceOp.MAX))
        else:
            mine = sum(norm.item() ** norm_type for norm in norms)
            total = (dense**norm_type + self._over_ranks(mine, dist.ReduceOp.SUM)) ** (1 / norm_type)
        if not math.isfinite(total) and (error_if_nonfinite or math.isnan(total) or math.isinf(dense)):
            raise _C.ConfigError(
                f"rank {self.rank}: the norm of the gradients is {total}, so they cannot be clipped: give up the step with "
                "zero_grad()"
            )
        factor = max_norm / (total + 1e-6)
        if factor < 1:
            training.clip_gradients_by_norm(factor * (dense + 1e-6), norm_type, False)
            self.scale(factor)
        return total

    @torch.no_grad()
    def clamp(self, limit: float) -> None:
        for gradient in self._gradients():
            gradient.clamp_(-limit, limit)

    # ---- updates, where those of dense parameters are of shards

    def step(self, optimizers: list[Any]) -> None:
        """After the engine's step of optimisers on shards."""
        for optimizer in optimizers if self.parameters else []:
            mine = [self._of(group) for group in optimizer.param_groups]
            if any(mine):
                flat = self._flat_of(optimizer)
                if not flat.has_current_options():
                    flat.capture_options()
                flat.step(mine)
        self.zero()

    def _of(self, group: dict[str, Any]) -> list[torch.Tensor]:
        return [one for one in group["params"] if id(one) in self.ids]

    def _flat_of(self, optimizer: Any) -> FlatOptimizer:
        if id(optimizer) not in self._flat:
            flat = FlatOptimizer(optimizer, optimizer._dear_class)
            flat._flat.state.update(optimizer._dear_source().state_apart)
            self._flat[id(optimizer)] = optimizer, flat
        return self._flat[id(optimizer)][1]

    def states(self, optimizer: Any) -> dict[torch.Tensor, Any]:
        """What the optimiser remembers of experts on this rank; nothing before the first step."""
        if id(optimizer) not in self._flat:
            return {}
        return {one: state for one, state in self._flat_of(optimizer)._flat.state.items() if state}

    def set_states(self, optimizer: Any, states: dict[torch.Tensor, Any]) -> None:
        if self.parameters:
            kept = self._flat_of(optimizer)._flat.state
            kept.clear()
            # Copies: steps write into them, and the program may load its dict once more.
            kept.update({one: copy.deepcopy(state) for one, state in states.items() if id(one) in self.ids})

    def leave(self) -> None:
        """The program's optimisers get the state back."""
        for optimizer, flat in self._flat.values():
            optimizer.state.update(flat._flat.state)
        self._flat.clear()


class Overlap:
    """What dear.distribute(overlap=...) changes of a model, from apply() to restore()."""

    def __init__(self, overlap: str, parts: Union[int, str], experts: Experts, model: nn.Module) -> None:
        self._overlap, self._layers = overlap, list(experts.layers.values())
        self.report: dict[str, Any] = {
            "overlap": overlap,
            "mixtures": list(experts.layers),
            "deferred": [],
            "left_out": {},
        }
        self._restore: Optional[Callable[[nn.Module], None]] = None
        self._planners: dict[int, _moe_order.Planner] = {}  # by number of parts
        self._planned: Optional[_moe_order.Planner] = None  # of the last forward pass
        self._parts: Optional[_moe_parts.Parts] = None
        if overlap and overlap not in OVERLAPS:
            raise _C.ConfigError(f"overlap={overlap!r}: there are {', '.join(OVERLAPS)}")
        if overlap and not experts.layers:
            raise _C.ConfigError(f"overlap={overlap!r} hides all-to-alls of dear.MoE layers, and the model has none")
        if parts != "auto" and (not isinstance(parts, int) or isinstance(parts, bool) or parts < 1):
            raise _C.ConfigError(f"parts={parts!r}: give a number of parts of the batch, or 'auto'")
        if parts != 1:
            if overlap not in ("experts", "lancet"):
                raise _C.ConfigError(
                    f"parts={parts!r} of a batch take turns while tokens travel: give overlap='lancet', too, or 'experts'"
                )
            self._parts = _moe_parts.Parts(parts, model, experts.layers, experts.rank)

    def apply(self, module: nn.Module) -> None:
        for layer in self._layers if self._overlap else []:
            layer.overlap = self._overlap
        late = self._overlap == "lancet"
        if late or self._parts is not None:
            taken = take_weight_gradients(module, late=late)
            self._restore = restore_weight_gradients
            if late:
                self.report.update(taken)
        if self._parts is not None:
            self._parts.install()

    @contextlib.contextmanager
    def forward(self) -> Iterator[None]:
        """A forward pass of the model."""
        parts = 1 if self._parts is None or not torch.is_grad_enabled() else self._parts.begin()
        plans = self._overlap == "lancet" and torch.is_grad_enabled() and any(layer.ranks > 1 for layer in self._layers)
        if not plans:
            yield
            return
        self._planned = self._planners.setdefault(parts, _moe_order.Planner(self._gather))
        with self._planned.forward():
            yield

    def _gather(self, value: Any) -> list[Any]:
        return _moe_ranks.gathered(value, self._layers[0].own_group())

    def told(self) -> dict[str, Any]:
        planner = self._planned
        planned = planner is not None and planner.plan is not None
        names = ("all_to_all_seconds", "waited_seconds", "hidden_seconds", "iteration_seconds")
        seconds = {name: getattr(planner, name) if planned else 0.0 for name in names}
        cut = {} if self._parts is None else self._parts.told()
        return {
            **self.report,
            **{"parts": 1, "cut": "", "uncut_because": "", "choosing_parts": False, **cut},
            "planned": planned,
            **seconds,
        }

    def restore(self, module: nn.Module) -> None:
        if self._restore is not None:
            self._restore(module)
        if self._parts is not None:
            self._parts.remove()
