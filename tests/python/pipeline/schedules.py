"""What schedules hold, and in which order they compute where links are slow. Cases of pipeline_test.py."""

from __future__ import annotations

import copy
import gc
import json
from typing import Any
from unittest import mock

import torch
from nets import DOUBLE, Case, alone, groups, sgd
from torch import Tensor, nn
from torch.nn import functional

import dear
from dear import _pipeline_run, _pipeline_wire


def chain(layers: int, width: int = 5) -> nn.Sequential:
    torch.manual_seed(4)
    return nn.Sequential(*(nn.Linear(width, width, dtype=DOUBLE) for _ in range(layers)))


def batch(samples: int, width: int = 5) -> Tensor:
    return torch.randn(samples, width, dtype=DOUBLE, generator=torch.Generator().manual_seed(6))


class Saved:
    """A tensor that autograd keeps for a backward pass."""

    now = most = 0

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        Saved.now += 1
        Saved.most = max(Saved.most, Saved.now)

    def __del__(self) -> None:
        Saved.now -= 1


class Slow:
    """A link that carries no message of a stage before it is opened; words of ranks about a step, which are scalars, pass."""

    def __init__(self) -> None:
        self.messages: list[Late] = []
        self.waited = False
        self.is_open = False
        self.send = torch.distributed.isend

    def isend(self, tensor: Tensor, **where: Any) -> Any:
        if self.is_open or tensor.dim() == 0:
            return self.send(tensor, **where)
        self.messages.append(Late(self, tensor, where))
        return self.messages[-1]

    def open(self) -> None:
        self.is_open = True
        for message in self.messages:
            message.work = self.send(message.tensor, **message.where)


class Late:
    def __init__(self, link: Slow, tensor: Tensor, where: dict[str, Any]) -> None:
        self.link, self.tensor, self.where = link, tensor, where
        self.work: Any = None

    def wait(self, timeout: Any) -> None:
        if self.work is None:
            self.link.waited = True
            self.link.open()
        self.work.wait(timeout)


class Schedules(Case):
    def planned(
        self, schedule: str, warm_up: list[int], model: nn.Sequential, samples: int, **options: Any
    ) -> dear.Pipeline:
        """Equal stages, one of each rank, of as many micro-batches as samples / 2."""
        made = copy.deepcopy(model)
        ranks = torch.distributed.get_world_size(options.get("process_group"))
        each = len(model) // ranks
        stages: list[dict[str, Any]] = [
            {"device": f"rank {rank}", "operators": [str(one) for one in range(rank * each, (rank + 1) * each)]}
            for rank in range(ranks)
        ]
        for stage, depth in zip(stages, warm_up):
            stage["warm_up"] = depth
        plan = {
            "format": "dear-pipeline-plan",
            "version": 1,
            "model": "Sequential",
            "method": "by hand",
            "schedule": schedule,
            "micro_batches": samples // 2,
            "stages": stages,
            "compressed": [],
        }
        return dear.pipeline(made, sgd(made), sample=batch(samples), plan=json.dumps(plan), **options)[0]

    def test_holds_what_the_schedule_says(self) -> None:
        """Two layers a stage, whose inputs are kept until the last gradient is computed."""
        samples = 12
        for schedule, warm_up, held in (
            ("gpipe", [], [6, 6, 6, 6]),
            ("1f1b", [4, 3, 2, 1], [4, 3, 2, 1]),
            ("zb-h1", [4, 3, 2, 1], [4, 4, 4, 4]),
            ("zb-h1", [6, 4, 4, 2], [6, 6, 6, 6]),
        ):
            with self.subTest(schedule, warm_up=warm_up):
                model = chain(8)
                pipe = self.planned(schedule, warm_up, model, samples)
                x = batch(samples)
                Saved.most = 0
                seen: list[Tensor] = []  # by hooks of parameters
                for parameter in pipe.parameters():
                    parameter.register_post_accumulate_grad_hook(seen.append)

                def kept(tensor: Tensor) -> Any:
                    return Saved(tensor) if tensor.shape == (2, 5) and tensor.requires_grad else tensor

                first = 0 in pipe.stages_here
                given = x.clone().requires_grad_() if first else x
                with torch.autograd.graph.saved_tensors_hooks(kept, lambda one: getattr(one, "tensor", one)):
                    pipe.step(given, x, loss=of_sums)
                self.assertEqual(len(seen), samples // 2 * len(list(pipe.parameters())))
                gc.collect()
                self.assertEqual(Saved.now, 0)
                self.assertEqual(Saved.most, 2 * held[pipe.stages_here[0]])
                alone(model, x, x, of_sums, samples // 2)
                self.assertAsAlone(pipe, model)

    def test_a_slow_link_holds_up_nothing_else(self) -> None:
        """Messages of a rank leave when it has computed all that needs no answer, or what waits for one opens the link."""
        samples = 8
        for schedule, warm_up, last_forward, last_backward in (
            ("gpipe", [], 3, 3),
            ("1f1b", [3, 1], 2, 2),
            ("zb-h1", [3, 1], 2, 2),
        ):
            with self.subTest(schedule):
                model = chain(4)
                pipe = self.planned(schedule, warm_up, model, samples, process_group=groups.pair)
                link, computed = Slow(), []
                first = 0 in pipe.stages_here
                until = ("_forward", last_forward) if first else ("_input_gradient", last_backward)

                def noted(name: str) -> Any:
                    do = getattr(_pipeline_run.Run, name)

                    def task(run: Any, stage: Any, micro_batch: int) -> None:
                        do(run, stage, micro_batch)
                        computed.append((name, micro_batch))  # noqa: B023
                        if computed[-1] == until and not link.is_open:  # noqa: B023
                            link.open()  # noqa: B023

                    return task

                tasks = {name: noted(name) for name in ("_forward", "_input_gradient")}
                x = batch(samples)
                with (
                    mock.patch.multiple(_pipeline_run.Run, **tasks),
                    mock.patch.object(_pipeline_wire.dist, "isend", link.isend),
                ):
                    pipe.step(x, x, loss=functional.mse_loss)
                self.assertFalse(link.waited, computed)
                self.assertGreater(len(link.messages), 2)
                alone(model, x, x, functional.mse_loss, samples // 2)
                self.assertAsAlone(pipe, model)


def of_sums(output: Tensor, target: Tensor) -> Tensor:
    return (output * target).mean()
