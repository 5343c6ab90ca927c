"""dear.pipeline(): one model over machines that are far apart."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Optional, Union

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils import _pytree

from . import _C
from ._pipeline_making import Made, arguments_of, refuse_together
from ._pipeline_run import Run
from ._pipeline_stages import Stage
from ._pipeline_wire import waiting


class Pipeline:
    """What dear.pipeline() returns. All ranks make the same calls in the same order."""

    def __init__(self, made: Made) -> None:
        self._made = made
        self._broken: Optional[str] = None
        self.rank = made.rank
        self.world_size = made.ranks
        self.replica = made.rank % made.replicas  # which of the pipelines beside each other this rank is in
        # The plan, as a file has it (docs/formats.md), and what the planner expects of a step, and of this rank's memory.
        self.plan = made.plan
        # The ranks agree once before they begin.
        latency = max(0.0, *(other or 0.0 for row in json.loads(made.cluster)["latency_seconds"] for other in row))
        self.estimated_seconds: float = made.read.estimated_seconds + latency
        self.estimated_peak_bytes: float = made.peak_bytes
        # Names of the operators of each stage, in order.
        self.stages = [stage.names for stage in made.stages]
        self.stages_here = [stage.number for stage in made.stages if stage.rank == made.rank]

    def step(self, x: Any = None, y: Any = None, *, loss: Callable[[Any, Any], Tensor]) -> Tensor:
        """Forward and backward of a batch, cut into micro-batches along dimension 0. Returns the mean of the micro-batches'
        losses on every rank. Gradients of parameters are added to those that are there.

        x: as the sample was. It is read on ranks whose stages read it, y on that of the last stage; other ranks may leave
            them out.
        loss: of the model's output and the part of y that belongs to it, a mean over samples; called on the last stage.

        ConfigError on every rank, before anything is sent, where one rank's arguments cannot be.
        """
        return self._run(x, y, loss, evaluates=False)

    def evaluate(self, x: Any = None, y: Any = None, *, loss: Callable[[Any, Any], Tensor]) -> Tensor:
        """The mean loss of a batch, on every rank, as step() takes them: forward passes alone, in evaluation mode, which the
        modules are in meanwhile, and with the buffers of the first replica. ConfigError on every rank for a model that computes other operators in that mode."""
        modes = [(module, module.training) for module in self._made.model.modules()]
        self._made.model.eval()
        try:
            with torch.no_grad():
                return self._run(x, y, loss, evaluates=True)
        finally:
            for module, training in modes:
                module.training = training

    def _run(self, x: Any, y: Any, loss: Callable[[Any, Any], Tensor], *, evaluates: bool) -> Tensor:
        self._require_whole()
        made = self._made
        stages = made.stages_evaluated if evaluates else made.stages
        stages_here = [stage for stage in stages if stage.rank == self.rank]
        batches: list[dict[str, Tensor]] = []
        targets: list[Any] = []
        refusal = None
        try:
            if not evaluates:
                self._check_modes()
            elif isinstance(made.evaluated, str):
                raise _C.ConfigError(f"the pipeline cannot evaluate: {made.evaluated}")
            batches, targets = self._cut(x, y, loss, stages_here)
        except _C.ConfigError as error:
            refusal = str(error)
        self._agree(refusal)

        def loss_of(output: Any, micro_batch: int) -> Tensor:
            value = loss(output, targets[micro_batch])
            if not isinstance(value, Tensor) or value.numel() != 1 or not (value.requires_grad or evaluates):
                raise _C.ConfigError(
                    "the loss of a pipeline is a tensor of one element that depends on the model's output; that of "
                    f"micro-batch {micro_batch} is {value!r}"
                )
            parts.append(value.detach() / made.micro_batches)
            if len(parts) == made.micro_batches:
                with waiting(self.rank, "the loss to be taken by others"):
                    made.wire.tell_loss(sum(parts[1:], parts[0]))
            return value / made.micro_batches

        parts: list[Tensor] = []
        run = Run(
            stages_here,
            made.order,
            made.read.most_held,
            made.wire_evaluated if evaluates else made.wire,
            None if evaluates else made.gradients,
            batches,
            loss_of,
        )
        try:
            if evaluates:
                with waiting(self.rank, "buffers of the first replica"):
                    made.parameters.make_buffers_alike(made.gradients.replicas)
            with waiting(self.rank, "the other ranks to begin the step"):
                made.wire.expect_loss()
            run.run()
            return made.wire.take_loss(run.loss)
        except BaseException as error:
            self._broken = " ".join(str(error).split()) or type(error).__name__
            made.break_off()
            raise

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """Scales gradients so that the norm of those of all stages together is at most `max_norm`; returns what it was."""
        self._require_whole()
        with waiting(self.rank, "the norm of gradients"):
            return self._made.parameters.clip(float(max_norm), float(norm_type))

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Those of this rank's stages, under the model's names."""
        for name, tensor in self._made.parameters.own.items():
            if isinstance(tensor, nn.Parameter):
                yield name, tensor

    def parameters(self) -> Iterator[nn.Parameter]:
        return (parameter for _, parameter in self.named_parameters())

    def state_dict(self) -> dict[str, Tensor]:
        """The whole model's, on every rank, on the CPU, under its own names."""
        self._require_whole()
        with waiting(self.rank, "the state of other ranks"):
            return self._made.parameters.state()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Takes a whole state, of whatever plan or none."""
        self._made.parameters.load(state)

    def optimizer_state_dict(self) -> dict[str, Any]:
        """The whole optimiser's, on every rank, on the CPU, as its state_dict() is in one process."""
        self._require_whole()
        with waiting(self.rank, "the optimiser's state on other ranks"):
            return self._made.optimizer_state.state(self.rank, self._made.group)

    def load_optimizer_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes a whole state, of whatever plan or none."""
        self._made.optimizer_state.load(state)

    @property
    def bytes_sent(self) -> int:
        """By this rank to other stages, since the start."""
        made = self._made
        evaluating = made.wire_evaluated.bytes_sent if made.stages_evaluated else 0
        return made.wire.bytes_sent + evaluating + made.gradients.bytes_sent

    def _require_whole(self) -> None:
        if self._broken is not None:
            raise _C.TransportError(f"rank {self.rank}: the pipeline failed in an earlier step: {self._broken}")

    # ---- arguments of a step

    def _check_modes(self) -> None:
        for name, module in self._made.traced.model.named_modules():
            if module.training != self._made.traced.modes.get(name, module.training):
                raise _C.ConfigError(
                    f"rank {self.rank}: '{name}' has gone {'into' if module.training else 'out of'} training mode since the model "
                    "was traced: make the pipeline in the mode in which it runs"
                )

    def _cut(self, x: Any, y: Any, loss: Any, stages: list[Stage]) -> tuple[list[dict[str, Tensor]], list[Any]]:
        made = self._made
        if not callable(loss):
            raise _C.ConfigError(
                f"rank {self.rank}: loss is a {type(loss).__name__}, not a function of output and target"
            )
        needed = {name for stage in stages for name in stage.inputs}
        given: dict[str, Tensor] = {}
        if x is None and needed:
            raise _C.ConfigError(f"rank {self.rank}: its stages read the batch, and x is None")
        if x is not None:
            arguments, keywords = arguments_of(x)
            given = {f"input_{index}": value for index, value in enumerate(arguments) if isinstance(value, Tensor)}
            given |= {name: value for name, value in keywords.items() if isinstance(value, Tensor)}
        parts: dict[str, Any] = {}
        for name in needed:
            sample = made.traced.inputs[name]
            shape = (made.micro_batches * sample.shape[0], *sample.shape[1:])
            if name not in given or tuple(given[name].shape) != shape or given[name].dtype != sample.dtype:
                is_there = f"{list(given[name].shape)} of {given[name].dtype}" if name in given else "nothing"
                raise _C.ConfigError(
                    f"rank {self.rank}: '{name}' of the batch is {is_there}, where the sample was {list(shape)} of {sample.dtype}: "
                    "give every step a batch like the sample"
                )
            parts[name] = given[name].to(made.device).chunk(made.micro_batches)
        batches = [{name: parts[name][number] for name in needed} for number in range(made.micro_batches)]
        if made.stages[-1].rank != self.rank:
            return batches, []
        leaves, structure = _pytree.tree_flatten(y)
        for leaf in leaves:
            if isinstance(leaf, Tensor) and (leaf.dim() == 0 or leaf.shape[0] != made.samples):
                raise _C.ConfigError(
                    f"rank {self.rank}: y has the shape {list(leaf.shape)}, and the batch {made.samples} samples: give one row "
                    "for each"
                )
        cut = [
            leaf.to(made.device).chunk(made.micro_batches) if isinstance(leaf, Tensor) else [leaf] * made.micro_batches
            for leaf in leaves
        ]
        targets = [
            _pytree.tree_unflatten([one[number] for one in cut], structure) for number in range(made.micro_batches)
        ]
        return batches, targets

    def _agree(self, refusal: Optional[str]) -> None:
        try:
            if self._made.wire.agree(refusal is None):
                return
        except _C.Error as error:
            self._broken = str(error)
            self._made.break_off()
            raise
        refuse_together(refusal, self._made.group)


def pipeline(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    sample: Any,
    stages: Optional[int] = None,
    plan: Union[None, str, os.PathLike[str]] = None,
    micro_batches: Optional[int] = None,
    schedule: Optional[str] = None,
    method: str = "op-fence",
    cluster: Union[None, str, os.PathLike[str]] = None,
    compress: Optional[str] = None,
    leaves: tuple[type[nn.Module], ...] = (),
    replicas: int = 1,
    process_group: Any = None,
    timeout: float = 1800.0,
) -> tuple[Pipeline, torch.optim.Optimizer]:
    """Trains one model whose parts lie on the ranks of a process group, which may be far apart (FusionLLM, Tang et al. 2024,
    arXiv 2410.12707).

        pipe, optimizer = dear.pipeline(model, optimizer, sample=x, micro_batches=8)
        for x, y in batches:
            optimizer.zero_grad()
            loss = pipe.step(x, y, loss=torch.nn.functional.cross_entropy)
            pipe.clip_grad_norm_(1.0)
            optimizer.step()
        torch.save({"model": pipe.state_dict(), "optimizer": pipe.optimizer_state_dict()}, "last.pt")

    The model is traced on a micro-batch of the sample, without computing it: its modules of torch.nn and its functions become
    operators. Rank 0 plans which rank computes which of them, in contiguous stages, and tells the others. Each rank keeps the
    parameters of its own stages, with rank 0's values; the others are on the device meta from then on. Activations and their
    gradients travel between neighbour stages over a process group of Gloo of their own, while stages compute; what skips
    stages is handed on from stage to stage. Gradients are those of one process that accumulates the mean loss over the same
    micro-batches. A parameter that several stages read has a copy on each, and their gradients are added up in every step.

    sample: a batch as step() gets it: a tensor, a tuple of arguments or a dict of keyword arguments, all tensors of as many
        samples. Every batch has its shapes.
    stages: how many; a multiple of the ranks, as many as ranks by default.
    plan: a file, or its text (docs/formats.md), in place of stages, micro_batches, schedule and compress.
    schedule: "1f1b", "gpipe", "interleaved" (several stages a rank) or "zb-h1" (gradients of weights apart, later).
    method: of planning: "op-fence", "equal-work", "equal-number".
    cluster: a file of devices and links, its text or the name of a preset; device i is rank i. By default all are alike.
    compress: "top-k:RATIO" or "ada-top-k:RATIO": of one in RATIO elements of floating-point tensors that cross links the
        largest travel, and likewise of their gradients, which pass the selection whole. Integers and masks travel as they are.
    leaves: classes of modules that are kept whole, each an operator: what cannot be traced.
    replicas: so many ranks in a row have the same stages, and each a batch of its own, as in data-parallel training: gradients
        are the mean over them, by the backend "dear". Device i of the cluster stands for the i-th of these rows.
    timeout: seconds, of every wait for another rank.

    Every rank makes it with the same arguments, and with the model whole. The optimiser keeps its groups and options, and
    of its parameters those of this rank; make it before, as always.

    ConfigError on every rank, in one sentence, for what cannot be traced, planned or cut; MismatchError where ranks' models
    differ. TransportError and TimeoutError say which stage waited for which operator and micro-batch.
    """
    made = Made(model, optimizer, process_group, replicas, timeout)
    try:
        made.make(
            sample=sample,
            stages=stages,
            plan=plan,
            micro_batches=micro_batches,
            schedule=schedule,
            method=method,
            cluster=cluster,
            compress=compress,
            leaves=tuple(leaves),
        )
    except BaseException:
        if made.group is not None:
            dist.destroy_process_group(made.group)
        raise
    finally:
        made.forget_constants()
    return Pipeline(made), optimizer
