"""Linear layers whose weight gradients are nodes of autograd of their own: dear.defer_weight_gradients().

The backward of a layer is cut in two. One node computes the gradient of the input, for which layers below wait, and leaves
input and output gradient beside a token. The token was made from the weight by the other node, which computes the gradient of
the weight when autograd comes to it: an ordinary gradient, which is late. Hooks, tied weights, several passes and
retain_graph therefore work as always.
"""

from __future__ import annotations

import sys
from typing import Any, Optional

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import _C, _moe_cut, _moe_order


class _WeightNode(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, left: _moe_order.Left, transposed: bool, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
        ctx.left, ctx.transposed = left, transposed
        return weight.new_zeros(1)

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> Any:
        of_weight = of_bias = None
        with ctx.left.taken() as parts:
            if parts:
                x, dy = (rows[0] if len(parts) == 1 else torch.cat(rows) for rows in zip(*parts))
                if ctx.needs_input_grad[2]:
                    of_weight = x.t().mm(dy) if ctx.transposed else dy.t().mm(x)
                if ctx.needs_input_grad[3]:
                    of_bias = dy.sum(0)
        return None, None, of_weight, of_bias


class _InputNode(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, left: Any, given: Tensor, x: Tensor, token: Tensor, weight: Tensor, bias: Optional[Tensor]
    ) -> Tensor:
        # `left`: a _moe_order.Left and the part of the batch that x is.
        # `weight` is `given` without its gradient; its version says whether it was changed before the backward pass.
        ctx.left, ctx.given = left, given
        ctx.save_for_backward(x, weight)
        return functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        if torch.is_grad_enabled():  # this backward pass is itself recorded
            weight = ctx.given
        rows = dy.reshape(-1, dy.shape[-1])
        left, part = ctx.left
        left.add(part, (x.reshape(-1, x.shape[-1]), rows))
        of_x = rows.mm(weight).reshape(x.shape) if ctx.needs_input_grad[2] else None
        return None, None, of_x, dy.new_zeros(1), None, None


class _TransposedInputNode(torch.autograd.Function):
    """Of a layer whose weight lies as (inputs, outputs)."""

    @staticmethod
    def forward(
        ctx: Any, left: Any, given: Tensor, x: Tensor, token: Tensor, weight: Tensor, bias: Optional[Tensor]
    ) -> Tensor:
        ctx.left, ctx.given = left, given
        ctx.save_for_backward(x, weight)
        rows = x.reshape(-1, x.shape[-1])
        result = rows.mm(weight) if bias is None else torch.addmm(bias, rows, weight)
        return result.reshape(*x.shape[:-1], weight.shape[1])

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        if torch.is_grad_enabled():
            weight = ctx.given
        rows = dy.reshape(-1, dy.shape[-1])
        left, part = ctx.left
        left.add(part, (x.reshape(-1, x.shape[-1]), rows))
        of_x = rows.mm(weight.t()).reshape(x.shape) if ctx.needs_input_grad[2] else None
        return None, None, of_x, dy.new_zeros(1), None, None


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    *,
    transposed: bool = False,
    late: bool = True,
    key: Optional[int] = None,
) -> Tensor:
    """functional.linear(), whose weight gradient is a node of its own; `late`: behind what launches all-to-alls. Parts of a batch
    have one node for all calls with the same key, by default that of the weight."""
    key = id(weight) if key is None else key
    if torch.is_autocast_enabled(x.device.type):
        dtype = torch.get_autocast_dtype(x.device.type)
        x, weight, bias = x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
    _moe_order.reserve()

    cut = _moe_cut.current()

    def weight_node() -> tuple[_moe_order.Left, Tensor]:
        left = _moe_order.Left()
        token: Tensor = _WeightNode.apply(left, transposed, weight, bias)
        if late:
            _moe_order.compute_late(token, left)
        elif cut is not None:
            _moe_order.compute_at_once(token)
        return left, token

    left, token = weight_node() if cut is None else cut.shared(key, weight_node)
    node = _TransposedInputNode if transposed else _InputNode
    result: Tensor = node.apply(
        (left, 0 if cut is None else cut.part),
        weight,
        x,
        token,
        weight.detach(),
        None if bias is None else bias.detach(),
    )
    return result


def _deferrable(layer: Any, x: Any) -> bool:
    """Whether there is a weight gradient to compute apart, of plain tensors that autograd sees."""
    plain, weight, bias = (torch.Tensor, nn.Parameter), layer.weight, layer.bias
    if not layer._late and _moe_cut.current() is None:
        return False
    trained = weight.requires_grad or (bias is not None and bias.requires_grad)
    if not torch.is_grad_enabled() or not trained or torch.compiler.is_compiling():
        return False
    return type(x) in plain and type(weight) in plain and x.dim() > 1 and x.numel() > 0 and x.is_floating_point()


class Linear(nn.Linear):
    """What a Linear layer becomes: its class alone changes, and in `_late` it has whether weight gradients are late. Parts of a
    batch share them in any case."""

    def forward(self, x: Tensor) -> Tensor:
        if _deferrable(self, x):
            return linear(x, self.weight, self.bias, late=self._late)
        return functional.linear(x, self.weight, self.bias)


_swapped: dict[type, type] = {nn.Linear: Linear}


def _class_for(layer: nn.Module) -> Optional[type]:
    """The class that takes the place of the layer's, which must be the very class whose forward is known."""
    transformers = sys.modules.get("transformers.pytorch_utils")
    conv = getattr(transformers, "Conv1D", None)
    if conv is not None and conv not in _swapped:

        def forward(self: Any, x: Tensor) -> Tensor:
            if _deferrable(self, x):
                return linear(x, self.weight, self.bias, transposed=True, late=self._late)
            return conv.forward(self, x)

        _swapped[conv] = type("Conv1D", (conv,), {"forward": forward, "__module__": __name__, "__qualname__": "Conv1D"})
        globals()["Conv1D"] = _swapped[conv]  # where pickle looks for it
    return _swapped.get(type(layer))


def defer_weight_gradients(module: nn.Module) -> dict[str, Any]:
    """Lets the weight gradients of the module's Linear layers be computed late in each backward pass, when nothing else can
    run: under the all-to-alls of mixtures of experts (see dear.MoE). Gradients keep their bits.

    Layers of the class torch.nn.Linear, and of Conv1D of the package transformers, whose forward nobody has replaced, get a
    class of ours, derived from their own; restore_weight_gradients() undoes it. Each backward then keeps inputs and output
    gradients of layers until the next all-to-all. Twice is as once.

    Returns {"deferred": names, "left_out": a reason by name}. Of all modules with a weight matrix of their own the latter
    has those that keep their backward as it is.
    """
    return take_weight_gradients(module, late=True)


def take_weight_gradients(module: nn.Module, *, late: bool) -> dict[str, Any]:
    """Likewise; where they are not late, parts of a batch share a node for those of each layer, and nothing else changes."""
    if not isinstance(module, nn.Module):
        raise _C.ConfigError(f"defer_weight_gradients() takes a torch.nn.Module, and this is a {type(module).__name__}")
    from ._moe import MoE

    deferred: list[str] = []
    left_out: dict[str, str] = {}
    gates = {id(one.gate) for one in module.modules() if isinstance(one, MoE)}  # whose products a mixture calls itself
    for name, layer in module.named_modules():
        weight = layer._parameters.get("weight")
        if id(layer) in gates or weight is None or weight.dim() != 2:
            continue
        if type(layer) in _swapped.values():
            layer._late = layer._late or late
            deferred.append(name)
            continue
        cls = _class_for(layer)
        if cls is None:
            left_out[name] = f"the backward of a {type(layer).__name__} is not known"
        elif "forward" in layer.__dict__:
            left_out[name] = "its forward was replaced"
        elif getattr(layer, "parametrizations", None):
            left_out[name] = "its weight is parametrised"
        else:
            layer.__class__, layer._late = cls, late
            deferred.append(name)
    return {"deferred": deferred, "left_out": left_out}


def restore_weight_gradients(module: nn.Module) -> None:
    """Undoes defer_weight_gradients()."""
    before = {swapped: cls for cls, swapped in _swapped.items()}
    for layer in module.modules():
        if type(layer) in before:
            layer.__class__ = before[type(layer)]
            del layer._late
