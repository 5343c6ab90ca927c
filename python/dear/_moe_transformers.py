"""dear.share_out_experts(): mixtures of experts of the package transformers, whose experts go to the ranks of a process group."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from . import _C, _moe_cut, _moe_nodes, _moe_ranks, _moe_routing
from ._moe_travel import Products, Travelling

_NAMES = ("gate_up_proj", "up_proj", "down_proj", "gate_up_proj_bias", "up_proj_bias", "down_proj_bias")
# What transformers' decorator use_experts_implementation leaves on a layer of experts.
_MARKS = ("has_gate", "has_bias", "has_post_expert_norm", "is_transposed", "is_concatenated", "_is_expert_parallel")


class SharedOut(Travelling):
    """Goes before the class of such a layer: forward(hidden, top_k_index, top_k_weights), all of (tokens, ...), where no token is
    dropped."""

    has_gate: bool
    is_transposed: bool

    @_moe_cut.outside_of_graphs
    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        whole = self.batch_of_parts()
        self.top_k = top_k_index.shape[1]
        if not bool(top_k_weights.detach().isfinite().all()):
            self.refuse_batch(_moe_ranks.NOT_FINITE)
        reason = ""
        if len(hidden_states) == 0 or hidden_states.dim() != 2:
            reason = (
                f"its tokens are of shape {list(hidden_states.shape)}, and (tokens, width) with at least one is wanted"
            )
        elif int(top_k_index.min()) < 0 or int(top_k_index.max()) >= self.experts:
            reason = f"its router chose experts {int(top_k_index.min())} to {int(top_k_index.max())} of {self.experts}"
        elif whole is not None and len(hidden_states) % whole.cut.samples:
            reason = f"{len(hidden_states)} tokens are not those of {whole.cut.samples} samples, a part of the batch"
        if reason:
            self.refuse_batch()
            raise _C.ConfigError(f"rank {self.rank}: a mixture of experts cannot run: {reason}")
        device = hidden_states.device.type
        automatic = torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if automatic else self.expert_parameters()[0].dtype
        tokens, _ = _moe_nodes.Fork.apply(hidden_states)
        result = self.through_experts(
            tokens.to(dtype), top_k_weights.to(dtype), top_k_index, [(0, len(hidden_states))], whole
        )
        return result.to(hidden_states.dtype)

    def products(self, dtype: Any, late: bool) -> Products:
        matrices = []
        for name in ("gate_up_proj" if self.has_gate else "up_proj", "down_proj"):
            weights = getattr(self, name).to(dtype)
            weights = weights.transpose(1, 2) if self.is_transposed else weights
            bias = getattr(self, name + "_bias", None)
            matrices.append((_moe_nodes.ExpertMatrix(weights, 1.0, late), bias))

        def of_part(part: int, arriving: _moe_routing.Arriving, rows: Tensor) -> Tensor:
            for number, (matrix, bias) in enumerate(matrices):
                if number == 1:
                    rows = self._apply_gate(rows) if self.has_gate else self.act_fn(rows)
                rows = matrix(part, arriving, rows)
                if bias is not None:
                    rows = rows + bias.to(rows.dtype).repeat_interleave(arriving.padded.to(bias.device), 0)
            return rows

        return of_part

    def capacity(self, tokens: int) -> int:
        return tokens

    def arguments(self) -> dict[str, object]:
        return {"class": type(self).__mro__[3].__name__, "type": str(self.expert_parameters()[0].dtype)}

    def whole_names(self) -> tuple[str, ...]:
        return tuple(name for name in _NAMES if isinstance(self._parameters.get(name), nn.Parameter))

    def expert_parameters(self) -> list[nn.Parameter]:
        return [self._parameters[name] for name in self.whole_names()]  # type: ignore[misc]

    def whole_state_dict(self) -> dict[str, Tensor]:
        """The parameters of all experts, on every rank, which all call it: load_state_dict() takes them on any number of
        ranks."""
        return self.whole_parameters()


def share_out_experts(model: nn.Module, process_group: Any = None) -> list[str]:
    """Shares out the experts of a model of the package transformers (Mixtral, Qwen3-MoE, DeepSeek, GPT-OSS, ...) to the ranks of a
    process group, each of which keeps as many; tokens travel to them as to those of dear.MoE, and none is dropped.

        model = transformers.AutoModelForCausalLM.from_pretrained(name)    # all experts, alike on all ranks
        dear.share_out_experts(model)
        optimizer = torch.optim.AdamW(model.parameters())
        model, optimizer = dear.distribute(model, optimizer, overlap="lancet", parts=2)

    Layers are those whose class has transformers' decorator `use_experts_implementation`. Their parameters stay the same objects
    and keep this rank's experts; an optimiser must not have stepped before. Layers get `whole_state_dict()` and
    `statistics()`, and load_state_dict() takes the experts of one rank or of all. Results are those of the whole model to
    rounding. Twice is an error.

    Returns the names of the layers. Every rank calls it. ConfigError where there is none, where it cannot be shared out, and
    where the ranks do not divide the experts.
    """
    if not isinstance(model, nn.Module):
        raise _C.ConfigError(f"share_out_experts() takes a torch.nn.Module, and this is a {type(model).__name__}")
    found = {name: one for name, one in model.named_modules() if all(hasattr(one, mark) for mark in _MARKS)}
    if not found:
        raise _C.ConfigError(
            "share_out_experts() knows layers of experts by transformers' decorator use_experts_implementation, and the model "
            "has none: use dear.MoE"
        )
    for name, layer in found.items():
        if isinstance(layer, SharedOut) or layer._is_expert_parallel or "forward" in layer.__dict__:
            raise _C.ConfigError(f"the experts of '{name}' are shared out already, or their forward was replaced")
        if layer.has_post_expert_norm:
            raise _C.ConfigError(f"the experts of '{name}' have a norm behind them, which is not known here")
        names = [key for key, one in layer.named_parameters() if key not in _NAMES or len(one) != layer.num_experts]
        if names or list(layer.children()) and any(True for child in layer.children() for _ in child.parameters()):
            raise _C.ConfigError(f"the experts of '{name}' have parameters that are not known here: {', '.join(names)}")
    base = _moe_ranks.process_group_of(process_group)
    for name, layer in found.items():
        try:
            _C.moe_experts_of_rank(layer.num_experts, 1 if base is None else dist.get_world_size(base))
        except _C.ConfigError as error:
            raise _C.ConfigError(f"'{name}': {error}") from None
    for layer in found.values():
        layer.__class__ = _class_for(type(layer))
        assert isinstance(layer, SharedOut)
        layer.kind, layer.parts, layer.overlap, layer.top_k = "in order", 1, "none", 1
        mine = layer.share_out(layer.num_experts, process_group)
        layer.scale = 1 / layer.ranks
        with torch.no_grad():
            for parameter in layer.expert_parameters():
                parameter.data = parameter.data[mine.start : mine.stop].clone()
                parameter.grad = None
    return list(found)


_classes: dict[type, type] = {}


def _class_for(cls: type) -> type:
    if cls not in _classes:
        _classes[cls] = type(cls.__name__, (SharedOut, cls), {"__module__": __name__})
    return _classes[cls]
