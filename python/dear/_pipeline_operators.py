"""The operators of a traced model, as the planner of pipelines reads them."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import torch
from torch import Tensor, fx, nn

from . import _C
from ._pipeline_trace import Traced, tensors_in

_DTYPES = {
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.int32: "int32",
    torch.int64: "int64",
}


@dataclasses.dataclass
class Operator:
    """Nodes in a row that one stage computes: one of them, but where something is changed in place, or where a structure
    of tensors is taken apart."""

    name: str
    nodes: list[fx.Node]
    gives: list[fx.Node]  # those that others read
    reads: list[fx.Node]  # of other operators
    parameters: list[nn.Parameter]
    buffers: list[Tensor]
    changes_buffers: bool


def operators_of(traced: Traced) -> list[Operator]:
    """In order. ConfigError where a stage could not compute by itself."""
    computed = [node for node in traced.nodes if node.op not in ("placeholder", "get_attr")]
    place = {node: index for index, node in enumerate(computed)}
    ends = list(range(len(computed)))  # by node: the last one of its operator, at least
    first_of_storage: dict[int, int] = {}
    for index, node in enumerate(computed):
        for changed in node.meta.get("changes", ()):
            if changed not in place:
                what = "the batch" if changed.op == "placeholder" else f"'{changed.target}'"
                raise _C.ConfigError(
                    f"operator '{_name(node)}' changes {what} in place, which other stages or micro-batches may read: let "
                    "it make a new tensor"
                )
            for tensor in tensors_in(changed.meta["value"]):
                begin = first_of_storage[tensor.untyped_storage()._cdata]
                ends[begin] = max(ends[begin], index)
        value = node.meta.get("value")
        for tensor in tensors_in(value):
            first_of_storage.setdefault(tensor.untyped_storage()._cdata, index)
        if node.op != "output" and not isinstance(value, Tensor):
            ends[index] = max([ends[index], *(place[user] for user in node.users if user in place)])
    ends[-2:-1] = [len(computed) - 1] * len(ends[-2:-1])  # what it gives goes into the loss
    operators: list[Operator] = []
    begin = 0
    while begin < len(computed):
        end = begin
        index = begin
        while index <= end:
            end = max(end, ends[index])
            index += 1
        operators.append(_operator(computed[begin : end + 1], traced.model))
        begin = end + 1
    _make_unique(operators)
    _find_gradients(traced.nodes)
    return operators


def _operator(nodes: list[fx.Node], model: nn.Module) -> Operator:
    inside = set(nodes)
    reads: dict[fx.Node, None] = {}
    parameters: dict[nn.Parameter, None] = {}
    buffers: dict[Tensor, None] = {}
    for node in nodes:
        if node.op == "call_module":
            parameters.update(dict.fromkeys(node.meta["leaf"].parameters()))
            buffers.update(dict.fromkeys(node.meta["leaf"].buffers()))
        for one in node.all_input_nodes:
            if one.op == "get_attr":
                value = one.meta["value"]
                (parameters if isinstance(value, nn.Parameter) else buffers)[value] = None
            elif one not in inside:
                reads[one] = None
    gives = [node for node in nodes if any(user not in inside for user in node.users)]
    gives = [node for node in gives if isinstance(node.meta["value"], Tensor)]
    changes = any(node.meta.get("changes_buffers") for node in nodes)
    named = max(nodes, key=lambda node: (node.op == "call_module", node.meta.get("work", 0)))
    return Operator(_name(named), nodes, gives, list(reads), list(parameters), list(buffers), changes)


def _name(node: fx.Node) -> str:
    if node.op == "call_module":
        return str(node.target)
    path = node.meta.get("path", "")
    return f"{path}.{node.name}" if path else node.name


def _make_unique(operators: list[Operator]) -> None:
    taken: set[str] = set()
    for operator in operators:
        name, number = operator.name, 1
        while operator.name in taken:
            number += 1
            operator.name = f"{name} ({number})"
        taken.add(operator.name)


def to_json(operators: list[Operator], model: nn.Module) -> str:
    """The operators as the planner reads them; the last one gives the loss."""
    owner_of = {node: operator for operator in operators for node in operator.gives}
    owner: dict[nn.Parameter, Operator] = {}
    listed: list[dict[str, Any]] = []
    kept = _kept_bytes(operators)
    for operator, kept_bytes in zip(operators, kept):
        tied: dict[str, int] = {}
        own = 0
        for parameter in operator.parameters:
            if owner.setdefault(parameter, operator) is operator:
                own += parameter.nbytes
            else:
                name = owner[parameter].name
                tied[name] = tied.get(name, 0) + parameter.nbytes
        given = [node.meta["value"] for node in operator.gives]
        floating = [one for one in given if one.is_floating_point() or one.is_complex()]
        dtype = (floating or given or [torch.empty(0)])[0].dtype
        name = _DTYPES.get(dtype, "fp32" if floating else "uint8")
        size = {"fp64": 8, "int64": 8, "fp16": 2, "bf16": 2, "uint8": 1}.get(name, 4)
        work = sum(node.meta.get("work", 0.0) for node in operator.nodes)
        item: dict[str, Any] = {
            "name": operator.name,
            "kind": _kind(operator),
            "inputs": list(dict.fromkeys(owner_of[one].name for one in operator.reads if one in owner_of)),
            "forward_work": work,
            "input_gradient_work": work if any(needs_gradient(one) for one in operator.reads) else 0,
            "weight_gradient_work": work if any(one.requires_grad for one in operator.parameters) else 0,
            "parameter_bytes": own,
            "output_bytes": -(-(sum(one.nbytes for one in given) or 4) // size) * size,
            "kept_bytes": kept_bytes,
            "dtype": name,
        }
        if tied:
            item["tied"] = max(tied, key=lambda one: tied[one])
        if all(_picks_rows(node) for node in operator.nodes):
            item["picks_rows"] = True
        listed.append(item)
    return json.dumps(
        {"format": "dear-operators", "version": 1, "name": type(model).__name__, "operators": listed}, sort_keys=True
    )


def _kept_bytes(operators: list[Operator]) -> list[int]:
    """By operator: of what it makes, what its own backward or that of another reads."""
    maker: dict[int, int] = {}
    for number, operator in enumerate(operators):
        for node in operator.nodes:
            for tensor in tensors_in(node.meta.get("value")):
                maker.setdefault(tensor.untyped_storage()._cdata, number)
    inputs = {read for operator in operators for node in operator.nodes for read in node.all_input_nodes}
    batch = [tensor for node in inputs if node.op == "placeholder" for tensor in tensors_in(node.meta["value"])]
    seen = {tensor.untyped_storage()._cdata for tensor in batch}
    kept = [0] * len(operators)
    for number, operator in enumerate(operators):
        for node in operator.nodes:
            for one in node.meta.get("saved", ()):
                if one._cdata not in seen:
                    seen.add(one._cdata)
                    kept[maker.get(one._cdata, number)] += one.nbytes()
    for node in (node for operator in operators for node in operator.gives):
        node.meta["is_kept"] = node.meta["value"].untyped_storage()._cdata in seen
    # A loss as cross-entropy keeps as much as the output has, and its backward makes twice as much at once.
    given = {
        one.untyped_storage()._cdata: one.nbytes
        for node in operators[-1].nodes
        if node.op == "output"
        for one in tensors_in([read.meta["value"] for read in node.all_input_nodes])
        if one.requires_grad
    }
    kept[-1] += 3 * sum(given.values())
    return kept


def _kind(operator: Operator) -> str:
    last = [node for node in operator.nodes if node.op != "output"][-1]
    if last.op == "call_module":
        return type(last.meta["leaf"]).__name__
    return last.target if isinstance(last.target, str) else getattr(last.target, "__name__", "function")


def _picks_rows(node: fx.Node) -> bool:
    return node.target is nn.functional.embedding or type(node.meta.get("leaf")) is nn.Embedding


def needs_gradient(node: fx.Node) -> bool:
    """Whether a gradient for it comes back from what reads it."""
    return bool(node.meta.get("needs_gradient"))


def _find_gradients(nodes: list[fx.Node]) -> None:
    for node in reversed(nodes):
        requires = any(tensor.requires_grad for tensor in tensors_in(node.meta.get("value")))
        node.meta["needs_gradient"] = requires and any(
            user.op == "output" or needs_gradient(user) for user in node.users
        )
