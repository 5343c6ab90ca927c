"""A stage in parts, and what a micro-batch leaves in them between its forward pass and its gradients."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.utils import _pytree

from ._pipeline_operators import Operator
from ._pipeline_trace import Traced

# Modules of torch.nn whose backward computes the gradients of weights by themselves.
_ONE_PRODUCT = ("linear", "conv", "normalization", "batchnorm", "instancenorm", "sparse")
_LOSS = ""  # in place of the name of a node


@dataclasses.dataclass
class Part:
    """Operators that are computed, forward and backward, in one go."""

    module: nn.Module
    reads: list[str]  # names of nodes: what `module` takes
    makes: list[str]  # what it gives, behind which the last part gives the model's output
    late: list[nn.Parameter]  # whose gradients are computed apart from those of what it reads


def parts_of(operators: list[Operator], reads: list[str], makes: list[str], traced: Traced, apart: bool) -> list[Part]:
    """The operators of a stage, which reads and makes such: one part or, where gradients of weights are computed `apart`,
    one for each operator that computes them by themselves."""
    if not apart:
        return [_part(operators, reads, makes, [], traced)]
    lots: list[tuple[list[Operator], list[nn.Parameter]]] = []
    for operator in operators:
        late = _late_of(operator)
        if late or not lots or lots[-1][1]:
            lots.append(([], late))
        lots[-1][0].append(operator)
    parts = []
    for lot, late in lots:
        inside = {node for operator in lot for node in operator.nodes}
        of_lot = list(dict.fromkeys(node.name for operator in lot for node in operator.reads if node not in inside))
        gives = [node for operator in lot for node in operator.gives]
        of_others = [node.name for node in gives if any(user not in inside for user in node.users)]
        parts.append(_part(lot, of_lot, of_others, late, traced))
    return parts


def _late_of(operator: Operator) -> list[nn.Parameter]:
    trained = [parameter for parameter in operator.parameters if parameter.requires_grad]
    for node in operator.nodes:
        if node.op == "call_module" and any(one.requires_grad for one in node.meta["leaf"].parameters()):
            *folder, kind = type(node.meta["leaf"]).__module__.rsplit(".", 1)
            if folder != ["torch.nn.modules"] or kind not in _ONE_PRODUCT:
                return []
    return trained


def _part(
    operators: list[Operator], reads: list[str], makes: list[str], late: list[nn.Parameter], traced: Traced
) -> Part:
    """Made of the model's own modules and parameters."""
    graph = fx.Graph()
    nodes = {node.name: node for node in traced.nodes}
    copies = {nodes[name]: graph.placeholder(name) for name in reads}

    def copied(node: fx.Node) -> fx.Node:
        if node not in copies:  # an attribute of the model
            copies[node] = graph.get_attr(node.target)
        return copies[node]

    output: Any = None
    for node in (node for operator in operators for node in operator.nodes):
        if node.op == "output":
            output = fx.map_arg(node.args[0], copied)
        else:
            copies[node] = graph.node_copy(node, copied)
            copies[node].meta.clear()  # which refers to the whole model
    graph.output((tuple(copies[nodes[name]] for name in makes), output))
    return Part(fx.GraphModule(traced.model, graph, class_name="Part"), reads, makes, late)


@dataclasses.dataclass
class _Done:
    """A part that was computed. Of what it made only the nodes of autograd are kept."""

    late: list[nn.Parameter]
    leaves: dict[str, Tensor]  # what it read, cut off from the parts that made it
    ends: dict[str, GradientEdge]  # of what it made


class Pass:
    """A micro-batch in a stage. forward(), input_gradients() and weight_gradients() are called in turn, each once. Gradients
    of weights are added to those that are there; weight_gradients() computes those that are late."""

    def __init__(self, parts: list[Part]) -> None:
        self._parts = parts
        self._done: list[_Done] = []
        self._left: list[tuple[list[GradientEdge], list[Tensor], list[nn.Parameter]]] = []
        self._loss: Tensor | None = None

    def forward(self, values: dict[str, Tensor], loss_of: Callable[[Any], Tensor]) -> Tensor | None:
        """Adds to `values` what the stage makes. Those that require gradients are leaves. Returns the loss, on the last
        stage."""
        loss = None
        for part in self._parts:
            leaves = {name: _leaf(values[name]) for name in part.reads if values[name].requires_grad}
            made, output = part.module(*(leaves.get(name, values[name]) for name in part.reads))
            values.update(zip(part.makes, made))
            ends = _edges({name: values[name] for name in part.makes})
            self._done.append(_Done(part.late, leaves, ends))
            if output is None:
                continue
            if part.late:  # the loss is a part by itself
                tensors, structure = _pytree.tree_flatten(output)
                made = {f"output {index}": one for index, one in enumerate(tensors) if isinstance(one, Tensor)}
                ends.update(_edges(made))
                cut = {name: _leaf(one) for name, one in made.items() if one.requires_grad}
                output = _pytree.tree_unflatten(
                    [cut.get(f"output {index}", one) for index, one in enumerate(tensors)], structure
                )
                self._done.append(_Done([], cut, {}))
            loss = loss_of(output)
            if loss.requires_grad:
                self._done[-1].ends[_LOSS] = get_gradient_edge(loss)
                self._loss = loss.detach()
        return loss

    def input_gradients(self, gradients: dict[str, Tensor]) -> None:
        """Takes the gradients of what the stage made, by name, and leaves those of what it reads."""
        if self._loss is not None:
            gradients[_LOSS] = torch.ones_like(self._loss)
        while self._done:
            done = self._done.pop()
            known = [name for name in done.ends if name in gradients]
            ends, given = [done.ends[name] for name in known], [gradients.pop(name) for name in known]
            if not ends:
                continue
            if done.late:
                self._left.append((ends, given, done.late))
                leaves = list(done.leaves.values())
                found = torch.autograd.grad(ends, leaves, given, True, allow_unused=True) if leaves else ()
            else:
                torch.autograd.backward(ends, given)
                found = [leaf.grad for leaf in done.leaves.values()]
            for name, gradient in zip(done.leaves, found):
                if gradient is not None:
                    gradients[name] = gradients[name] + gradient if name in gradients else gradient

    def weight_gradients(self) -> None:
        for ends, given, late in self._left:
            torch.autograd.backward(ends, given, inputs=late)
        self._left.clear()


def _leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_()


def _edges(made: dict[str, Tensor]) -> dict[str, GradientEdge]:
    return {name: get_gradient_edge(one) for name, one in made.items() if one.requires_grad}
