"""One step of a pipeline: the tasks of this rank in the order of its schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import Tensor

from . import _C
from ._pipeline_stages import Stage
from ._pipeline_wire import Wire

Task = tuple[str, int, int]  # kind, stage, micro-batch


class Run:
    """`held`: by stage, the most micro-batches that it holds at once. A stage makes room for that many messages of the one
    in front, which can have sent no more before a gradient came back."""

    def __init__(
        self,
        stages: list[Stage],
        order: list[Task],
        held: list[int],
        wire: Wire,
        batches: list[dict[str, Tensor]],
        loss_of: Callable[[Any, int], Tensor],
    ) -> None:
        self._stages = {stage.number: stage for stage in stages}
        self._order, self._held, self._wire, self._batches, self._loss_of = order, held, wire, batches, loss_of
        # By stage and micro-batch: what arrived, what was made, and the loss.
        self._kept: dict[tuple[int, int], tuple[dict[str, Tensor], dict[str, Tensor], Optional[Tensor]]] = {}
        self.loss: Optional[Tensor] = None

    def run(self) -> None:
        for stage in self._stages.values():
            for micro_batch in range(min(self._window(stage), len(self._batches))):
                self._expect_activations(stage, micro_batch)
        for kind, number, micro_batch in self._order:
            (self._forward if kind == "forward" else self._backward)(self._stages[number], micro_batch)
        self._wire.finish_all()

    def _window(self, stage: Stage) -> int:
        return self._held[stage.number - 1] if stage.number else 0

    def _expect_activations(self, stage: Stage, micro_batch: int) -> None:
        for one in stage.arrives:
            self._wire.expect(one, False, micro_batch)

    def _forward(self, stage: Stage, micro_batch: int) -> None:
        arrived: dict[str, Tensor] = {}
        for one in stage.arrives:
            tensor = self._wire.take(one, False, micro_batch).detach()
            arrived[one.name] = tensor.requires_grad_() if one.has_gradient else tensor
        for one in stage.arrives:  # gradients that were read before this could be sent
            self._wire.finish(one, True, micro_batch - self._window(stage))
        batch = self._batches[micro_batch]
        assert stage.module is not None
        made, output = stage.module(*(batch[name] for name in stage.inputs), *(arrived[name] for name in stage.reads))
        given = dict(zip(stage.makes, made))
        for one in stage.leaves:
            tensor = given[one.name] if one.name in given else arrived[one.name]
            if not one.meets(tensor):
                raise _C.MismatchError(
                    f"{stage.what} gives {_shape(tensor)} for operator '{one.operator}' of micro-batch {micro_batch}, where the "
                    f"sample gave {list(one.shape)} of {one.dtype}: shapes may not depend on values"
                )
            self._wire.send(one, False, micro_batch, tensor.detach())
            if one.has_gradient:
                self._wire.expect(one, True, micro_batch)
        loss = None
        if output is not None:
            loss = self._loss_of(output, micro_batch)
            self.loss = loss.detach() if self.loss is None else self.loss + loss.detach()
        self._kept[stage.number, micro_batch] = arrived, given, loss

    def _backward(self, stage: Stage, micro_batch: int) -> None:
        arrived, given, loss = self._kept.pop((stage.number, micro_batch))
        tensors, gradients = ([], []) if loss is None else ([loss], [None])
        passed: dict[str, Tensor] = {}
        for one in stage.leaves:
            if one.has_gradient:
                gradient = self._wire.take(one, True, micro_batch)
                if one.name in given:
                    tensors.append(given[one.name])
                    gradients.append(gradient)
                else:
                    passed[one.name] = gradient
            self._wire.finish(one, False, micro_batch)
        if tensors:
            torch.autograd.backward(tensors, gradients)
        for one in stage.arrives:
            if one.has_gradient:
                leaf, behind = arrived[one.name].grad, passed.get(one.name)
                if leaf is None:
                    leaf = torch.zeros_like(arrived[one.name]) if behind is None else behind
                elif behind is not None:
                    leaf = leaf + behind
                self._wire.send(one, True, micro_batch, leaf)
        following = micro_batch + self._window(stage)
        if following < len(self._batches):
            self._expect_activations(stage, following)


def _shape(tensor: Tensor) -> str:
    return f"{list(tensor.shape)} of {tensor.dtype}"
