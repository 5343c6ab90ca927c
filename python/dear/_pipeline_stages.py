"""The stages of a plan: which operators they compute, and what crosses the cuts between them."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import torch
from torch import Tensor, fx

from . import _C
from ._pipeline_operators import Operator, needs_gradient, operators_of
from ._pipeline_parts import Part, parts_of
from ._pipeline_trace import Traced, trace


@dataclasses.dataclass(frozen=True)
class Crossing:
    """A tensor that travels over the cut behind stage `cut`, and its gradient back. Ratios are of elements that there are
    to those that travel; 1: all of them, as they are."""

    name: str  # of its node
    operator: str
    cut: int
    index: int  # among those that cross this cut
    shape: tuple[int, ...]
    dtype: torch.dtype
    has_gradient: bool
    activation_ratio: float = 1
    gradient_ratio: float = 1
    is_kept: bool = False  # by a backward that reads it

    @property
    def nbytes(self) -> int:
        return torch.Size(self.shape).numel() * self.dtype.itemsize

    def message_nbytes(self, gradient: bool) -> int:
        if gradient and not self.has_gradient:
            return 0
        ratio = self.gradient_ratio if gradient else self.activation_ratio
        return 8 * max(1, int(torch.Size(self.shape).numel() / ratio)) if ratio > 1 else self.nbytes

    def meets(self, tensor: Tensor) -> bool:
        return tuple(tensor.shape) == self.shape and tensor.dtype == self.dtype


@dataclasses.dataclass
class Stage:
    number: int
    rank: int
    operators: list[Operator]  # emptied by release()
    names: list[str]  # of these operators
    arrives: list[Crossing]  # over the cut in front
    leaves: list[Crossing]  # over the cut behind
    # Names of nodes: inputs of the model and what arrives, of what it computes with, and what leaves of what it makes.
    inputs: list[str]
    reads: list[str]
    makes: list[str]
    kept_bytes: int = 0  # by a forward, for its backward
    parts: list[Part] = dataclasses.field(default_factory=list)  # of a stage of this rank

    @property
    def what(self) -> str:
        first, last = self.names[0], self.names[-1]
        return f"stage {self.number} ('{first}' to '{last}')" if first != last else f"stage {self.number} ('{first}')"


def stages_of(plan: str, devices: list[int], operators: list[Operator]) -> list[Stage]:
    """As a plan has them that dear._C.pipeline_read() accepted."""
    document = json.loads(plan)
    ratios = {(one["from_stage"], one["output"]): one for one in document["compressed"]}
    stage_of: dict[fx.Node, int] = {}
    by_stage: list[list[Operator]] = []
    rest = list(operators)
    for number, stage in enumerate(document["stages"]):
        by_stage.append(rest[: len(stage["operators"])])
        rest = rest[len(stage["operators"]) :]
        stage_of.update((node, number) for operator in by_stage[-1] for node in operator.nodes)
    owners = {node: operator for operator in operators for node in operator.gives}
    crossing: list[list[Crossing]] = [[] for _ in by_stage]
    for node, operator in owners.items():
        for cut in range(stage_of[node], max(stage_of[user] for user in node.users)):
            crossing[cut].append(_crossing(node, operator, cut, len(crossing[cut]), ratios))
    stages = []
    for number, own in enumerate(by_stage):
        reads = list(dict.fromkeys(node for operator in own for node in operator.reads))
        stages.append(
            Stage(
                number=number,
                rank=devices[number],
                operators=own,
                names=[operator.name for operator in own],
                arrives=crossing[number - 1] if number else [],
                leaves=crossing[number],
                inputs=[node.name for node in reads if node.op == "placeholder"],
                reads=[node.name for node in reads if node.op != "placeholder" and stage_of[node] < number],
                makes=[one.name for one in crossing[number] if any(one.name == node.name for op in own for node in op.gives)],
            )
        )  # fmt: skip
    return stages


def _crossing(node: fx.Node, operator: Operator, cut: int, index: int, ratios: dict[Any, Any]) -> Crossing:
    value = node.meta["value"]
    ratio = ratios.get((cut, operator.name), {}) if value.is_floating_point() else {}
    return Crossing(
        name=node.name,
        operator=operator.name,
        cut=cut,
        index=index,
        shape=tuple(value.shape),
        dtype=value.dtype,
        has_gradient=needs_gradient(node),
        is_kept=bool(node.meta.get("is_kept")),
        activation_ratio=ratio.get("activation_ratio", 1),
        gradient_ratio=ratio.get("gradient_ratio", 1),
    )


def build(stage: Stage, traced: Traced, apart: bool) -> None:
    """Makes the parts of a stage of this rank."""
    stage.parts = parts_of(stage.operators, [*stage.inputs, *stage.reads], stage.makes, traced, apart)


def evaluated(
    traced: Traced, operators: list[Operator], sample: tuple[Any, Any], leaves: tuple[type, ...]
) -> Traced | str:
    """The model as it is outside of training; or why its stages cannot compute that."""
    model = traced.model
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        found = trace(model, *sample, leaves)
    except _C.ConfigError as error:
        return f"in evaluation mode {error}"
    finally:
        for module, training in modes:
            module.training = training
    try:
        others = operators_of(found)
    except _C.ConfigError:
        others = []
    if [_names(one) for one in others] != [_names(one) for one in operators]:
        found.forget_constants()
        return "in evaluation mode the model has other operators than as it was traced, so the plan does not fit it"
    return found


def _names(operator: Operator) -> list[str]:
    return [node.name for node in operator.nodes]


def release(stages: list[Stage], traced: Traced) -> None:
    """Lets go of all that refers to the whole model's parameters."""
    for stage in stages:
        stage.operators.clear()
    traced.nodes.clear()


def check(stages: list[Stage], traced: Traced) -> None:
    """ConfigError for what stages may not be cut into."""
    holders: dict[Tensor, set[int]] = {}
    for stage in stages:
        for operator in stage.operators:
            for buffer in operator.buffers:
                holders.setdefault(buffer, set()).add(stage.rank)
    for stage in stages:
        for operator in stage.operators:
            if operator.changes_buffers and any(len(holders[buffer]) > 1 for buffer in operator.buffers):
                raise _C.ConfigError(
                    f"operator '{operator.name}' changes buffers, as of batch statistics, that another stage has as well: "
                    "give each use a module of its own"
                )
    last = traced.nodes[-1]
    if not any(needs_gradient(node) or _is_trained(node) for node in last.all_input_nodes):
        raise _C.ConfigError(
            "no output of the model depends on a parameter that requires a gradient, so there is nothing to train"
        )


def _is_trained(node: fx.Node) -> bool:
    return node.op == "get_attr" and bool(node.meta["value"].requires_grad)
