"""One step of a pipeline: the tasks of this rank in the order of its schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import Tensor

from . import _C
from ._pipeline_gradients import Gradients
from ._pipeline_parts import Pass
from ._pipeline_stages import Stage
from ._pipeline_wire import Wire

Task = tuple[str, int, int]  # kind, stage, micro-batch


class Run:
    """`held`: by stage, the most micro-batches that it holds at once. A stage makes room for that many messages of the one
    in front, which can have sent no more before a gradient came back. Without `gradients` it evaluates: forward passes alone."""

    def __init__(
        self,
        stages: list[Stage],
        order: list[Task],
        held: list[int],
        wire: Wire,
        gradients: Optional[Gradients],
        batches: list[dict[str, Tensor]],
        loss_of: Callable[[Any, int], Tensor],
    ) -> None:
        self._stages = {stage.number: stage for stage in stages}
        self._order, self._held, self._wire, self._gradients = order, held, wire, gradients
        self._batches, self._loss_of = batches, loss_of
        self._kept: dict[tuple[int, int], Pass] = {}  # by stage and micro-batch
        self._tasks = {
            "forward": self._forward,
            "backward": self._backward,
            "input gradient": self._input_gradient,
            "weight gradient": self._weight_gradient,
        }
        self.loss: Optional[Tensor] = None

    def run(self) -> None:
        for stage in self._stages.values():
            for micro_batch in range(min(self._window(stage), len(self._batches))):
                self._expect_activations(stage, micro_batch)
        if self._gradients is not None:
            self._gradients.begin()
        for index, (kind, number, micro_batch) in enumerate(self._order):
            if self._gradients is not None:
                self._tasks[kind](self._stages[number], micro_batch)
                self._gradients.computed(index)
            elif kind == "forward":
                self._forward(self._stages[number], micro_batch)
                self._expect_following(self._stages[number], micro_batch)
        if self._gradients is not None:
            self._gradients.end()
        self._wire.finish_all()

    def _window(self, stage: Stage) -> int:
        return self._held[stage.number - 1] if stage.number else 0

    def _expect_activations(self, stage: Stage, micro_batch: int) -> None:
        for one in stage.arrives:
            self._wire.expect(one, False, micro_batch)

    def _expect_following(self, stage: Stage, micro_batch: int) -> None:
        following = micro_batch + self._window(stage)
        if following < len(self._batches):
            self._expect_activations(stage, following)

    def _forward(self, stage: Stage, micro_batch: int) -> None:
        trains = self._gradients is not None
        values = {name: self._batches[micro_batch][name] for name in stage.inputs}
        for one in stage.arrives:
            tensor = self._wire.take(one, False, micro_batch).detach()
            values[one.name] = tensor.requires_grad_() if one.has_gradient and trains else tensor
        for one in stage.arrives:  # gradients that were read before this could be sent
            self._wire.finish(one, True, micro_batch - self._window(stage))
        kept = Pass(stage.parts)
        loss = kept.forward(values, lambda output: self._loss_of(output, micro_batch))
        if trains:
            self._kept[stage.number, micro_batch] = kept
        for one in stage.leaves:
            tensor = values[one.name]
            if not one.meets(tensor):
                raise _C.MismatchError(
                    f"{stage.what} gives {_shape(tensor)} for operator '{one.operator}' of micro-batch {micro_batch}, where the "
                    f"sample gave {list(one.shape)} of {one.dtype}: shapes may not depend on values"
                )
            self._wire.send(one, False, micro_batch, tensor.detach())
            if one.has_gradient and trains:
                self._wire.expect(one, True, micro_batch)
        if loss is not None:
            self.loss = loss.detach() if self.loss is None else self.loss + loss.detach()

    def _backward(self, stage: Stage, micro_batch: int) -> None:
        self._input_gradient(stage, micro_batch)
        self._weight_gradient(stage, micro_batch)

    def _input_gradient(self, stage: Stage, micro_batch: int) -> None:
        gradients = {}
        for one in stage.leaves:
            if one.has_gradient:
                gradients[one.name] = self._wire.take(one, True, micro_batch)
            self._wire.finish(one, False, micro_batch)
        self._kept[stage.number, micro_batch].input_gradients(gradients)
        for one in stage.arrives:
            if one.has_gradient:
                found = gradients.get(one.name)
                if found is None:
                    found = torch.zeros(one.shape, dtype=one.dtype, device=self._wire.device)
                self._wire.send(one, True, micro_batch, found)
        self._expect_following(stage, micro_batch)

    def _weight_gradient(self, stage: Stage, micro_batch: int) -> None:
        self._kept.pop((stage.number, micro_batch)).weight_gradients()


def _shape(tensor: Tensor) -> str:
    return f"{list(tensor.shape)} of {tensor.dtype}"
