"""dear.pipeline(): one model over machines that are far apart."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Optional, Union

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils import _pytree

from . import _C
from ._moe import MoE
from ._moe_ranks import gathered
from ._pipeline_operators import operators_of, to_json
from ._pipeline_parameters import Parameters
from ._pipeline_run import Run
from ._pipeline_stages import build, check, stages_of
from ._pipeline_trace import Traced, trace
from ._pipeline_wire import Wire

_SCHEDULES = ("1f1b", "gpipe", "interleaved")
_WRAPPERS = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "OptimizedModule", "FSDPModule")


class Pipeline:
    """What dear.pipeline() returns. All ranks make the same calls in the same order."""

    def __init__(self, made: _Made) -> None:
        self._made = made
        self._broken: Optional[str] = None
        self.rank = made.rank
        self.world_size = made.ranks
        # The plan, as a file has it (docs/formats.md), and what the planner expects of a step.
        self.plan = made.plan
        self.estimated_seconds: float = made.read.estimated_seconds
        # Names of the operators of each stage, in order.
        self.stages = [[operator.name for operator in stage.operators] for stage in made.stages]
        self.stages_here = [stage.number for stage in made.stages if stage.rank == made.rank]

    def step(self, x: Any = None, y: Any = None, *, loss: Callable[[Any, Any], Tensor]) -> Tensor:
        """Forward and backward of a batch, cut into micro-batches along dimension 0. Returns the mean of the micro-batches'
        losses on every rank. Gradients of parameters are added to those that are there.

        x: as the sample was. It is read on ranks whose stages read it, y on that of the last stage; other ranks may leave
            them out.
        loss: of the model's output and the part of y that belongs to it, a mean over samples; called on the last stage.

        ConfigError on every rank, before anything is sent, where one rank's arguments cannot be.
        """
        if self._broken is not None:
            raise _C.TransportError(f"rank {self.rank}: the pipeline failed in an earlier step: {self._broken}")
        made = self._made
        batches: list[dict[str, Tensor]] = []
        targets: list[Any] = []
        refusal = None
        try:
            batches, targets = self._cut(x, y, loss)
        except _C.ConfigError as error:
            refusal = str(error)
        self._agree(refusal)

        def loss_of(output: Any, micro_batch: int) -> Tensor:
            value = loss(output, targets[micro_batch])
            if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
                raise _C.ConfigError(
                    "the loss of a pipeline is a tensor of one element that depends on the model's output; that of "
                    f"micro-batch {micro_batch} is {value!r}"
                )
            return value / made.micro_batches

        run = Run(
            [stage for stage in made.stages if stage.rank == self.rank],
            made.order,
            made.read.most_held,
            made.wire,
            batches,
            loss_of,
        )
        try:
            earlier = made.parameters.put_tied_gradients_aside()
            run.run()
            made.parameters.add_tied_gradients(earlier)
            return self._told(run.loss)
        except BaseException as error:
            self._broken = " ".join(str(error).split()) or type(error).__name__
            raise

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """Scales gradients so that the norm of those of all stages together is at most `max_norm`; returns what it was."""
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
        return self._made.parameters.state()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Takes a whole state, of whatever plan or none."""
        self._made.parameters.load(state)

    @property
    def bytes_sent(self) -> int:
        """By this rank to other stages, since the start."""
        return self._made.wire.bytes_sent

    # ---- arguments of a step

    def _cut(self, x: Any, y: Any, loss: Any) -> tuple[list[dict[str, Tensor]], list[Any]]:
        made = self._made
        if not callable(loss):
            raise _C.ConfigError(
                f"rank {self.rank}: loss is a {type(loss).__name__}, not a function of output and target"
            )
        for name, module in made.traced.model.named_modules():
            if module.training != made.traced.modes.get(name, module.training):
                raise _C.ConfigError(
                    f"rank {self.rank}: '{name}' has gone {'into' if module.training else 'out of'} training mode since the model "
                    "was traced: make the pipeline in the mode in which it runs"
                )
        here = [stage for stage in made.stages if stage.rank == self.rank]
        needed = {name for stage in here for name in stage.inputs}
        given: dict[str, Tensor] = {}
        if x is None and needed:
            raise _C.ConfigError(f"rank {self.rank}: its stages read the batch, and x is None")
        if x is not None:
            arguments, keywords = _arguments(x)
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
        group = self._made.group
        if group is not None:
            fine = torch.tensor(int(refusal is None))
            dist.all_reduce(fine, op=dist.ReduceOp.MIN, group=group)
            if fine:
                return
        _refuse_together(refusal, group)

    def _told(self, loss: Optional[Tensor]) -> Tensor:
        """The loss, from the rank of the last stage."""
        made = self._made
        if made.group is None:
            assert loss is not None
            return loss
        told = torch.zeros((), dtype=torch.float64) if loss is None else loss.reshape(()).cpu().double()
        dist.broadcast(told, group=made.group, group_src=made.stages[-1].rank)
        return told if loss is None else loss


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
    process_group: Any = None,
    timeout: float = 1800.0,
) -> tuple[Pipeline, torch.optim.Optimizer]:
    """Trains one model whose stages lie on the ranks of a process group, which may be far apart (FusionLLM, Tang et al.
    2024, arXiv 2410.12707)."""
    made = _Made(model, optimizer, process_group, timeout)
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
    return Pipeline(made), optimizer


class _Made:
    """What ranks agree upon, step by step, when they make a pipeline."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, process_group: Any, timeout: float) -> None:
        self.model, self.optimizer = model, optimizer
        self.group, self.rank, self.ranks = _own_group(process_group, timeout)

    def make(self, **options: Any) -> None:
        refusal, operators = None, ""
        try:
            operators = self._trace(**options)
        except _C.ConfigError as error:
            refusal = str(error)
        _refuse_together(refusal, self.group)
        try:
            text = self._plan(operators, **options) if self.rank == 0 else ""
        except (_C.ConfigError, OSError) as error:
            refusal, text = str(error), ""
        refusal, self.plan = gathered((refusal, text), self.group)[0]
        if refusal is not None:
            raise _C.ConfigError(refusal)
        try:
            self._read(operators, options["cluster"])
        except _C.ConfigError as error:
            refusal = str(error)
        _refuse_together(refusal, self.group)
        digests = gathered(self.read.digest, self.group)
        for rank, digest in enumerate(digests):
            if digest != digests[0]:
                raise _C.MismatchError(
                    f"rank {self.rank}: rank {rank} has another model or sample than rank 0: give all ranks the same"
                )
        self.parameters.make_as_on_first_rank()
        for stage in self.stages:
            if stage.rank == self.rank:
                build(stage, self.traced)
        self.traced.forget_constants()
        self.parameters.release(self.optimizer)

    def _trace(self, *, sample: Any, micro_batches: Optional[int], leaves: Any, **options: Any) -> str:
        for what in ("stages", "micro_batches", "schedule", "compress"):
            given = micro_batches if what == "micro_batches" else options[what]
            if options["plan"] is not None and given is not None:
                raise _C.ConfigError(f"{what}={given!r} and a plan: leave it out, the plan has it")
        _check_model(self.model, self.optimizer)
        self.micro_batches = _micro_batches_of(options["plan"]) if options["plan"] is not None else micro_batches or 8
        arguments, keywords = _arguments(sample)
        tensors = [value for value in (*arguments, *keywords.values()) if isinstance(value, Tensor)]
        self.samples = tensors[0].shape[0] if tensors and tensors[0].dim() else 0
        for value in tensors:
            if value.dim() == 0 or value.shape[0] != self.samples:
                raise _C.ConfigError(
                    f"the sample has tensors of shapes {list(tensors[0].shape)} and {list(value.shape)}: dimension 0 is that "
                    "of samples, along which all are cut; what is the same for all samples belongs into a buffer"
                )
        if micro_batches is not None and micro_batches < 1 or self.samples == 0 or self.samples % self.micro_batches:
            raise _C.ConfigError(
                f"a batch of {self.samples} cannot be cut into {self.micro_batches} micro-batches of as many samples: give "
                "a multiple"
            )
        size = self.samples // self.micro_batches
        arguments, keywords = _pytree.tree_map_only(Tensor, lambda one: one[:size], (arguments, keywords))
        self.traced: Traced = trace(self.model, tuple(arguments), keywords, leaves)
        self.operators = operators_of(self.traced)
        self.device = next((parameter.device for parameter in self.model.parameters()), torch.device("cpu"))
        return to_json(self.operators, self.model)

    def _plan(self, operators: str, *, plan: Any, cluster: Any, **options: Any) -> str:
        if plan is not None:
            return _text_of(plan)
        stages = self.ranks if options["stages"] is None else options["stages"]
        if stages < 1 or stages % self.ranks:
            raise _C.ConfigError(f"{stages} stages cannot be dealt to {self.ranks} ranks: give a multiple")
        schedule = options["schedule"] or ("1f1b" if stages == self.ranks else "interleaved")
        if schedule == "zb-h1":
            raise _C.ConfigError(
                "schedule='zb-h1' needs gradients of inputs and of weights apart, which a pipeline does not compute live: "
                "give '1f1b'"
            )
        rule, _, ratio = (options["compress"] or "none").partition(":")
        try:
            number = float(ratio or 100)
        except ValueError:
            raise _C.ConfigError(
                f"compress='{options['compress']}': give a rule and a ratio, as ada-top-k:100"
            ) from None
        return _C.pipeline_plan(
            operators,
            self._cluster(cluster),
            method=options["method"],
            schedule=schedule,
            micro_batches=self.micro_batches,
            stages_of_device=stages // self.ranks,
            rule=rule,
            ratio=number,
        )

    def _read(self, operators: str, cluster: Any) -> None:
        devices = self._cluster(cluster)
        if _C.pipeline_devices(devices) != self.ranks:
            raise _C.ConfigError(
                f"the cluster has {_C.pipeline_devices(devices)} devices, and {self.ranks} ranks train: give one with a device "
                "for each rank, in their order"
            )
        self.read = _C.pipeline_read(self.plan, "the plan", operators, devices)
        if json.loads(self.plan)["schedule"] not in _SCHEDULES:
            raise _C.ConfigError(f"a pipeline runs the schedules {', '.join(_SCHEDULES)}: plan one of them")
        self.stages = stages_of(self.plan, self.read.devices, self.operators)
        check(self.stages, self.traced)
        self.parameters = Parameters(self.model, self.stages, self.group)
        self.wire = Wire(self.group, self.stages, self.micro_batches, self.device)
        places = self.read.devices[: len(self.read.orders)]
        self.order = self.read.orders[places.index(self.rank)] if self.rank in places else []

    def _cluster(self, cluster: Any) -> str:
        if cluster is not None:
            return os.fspath(cluster)
        ranks = range(self.ranks)

        def links(value: float) -> list[list[Optional[float]]]:
            return [[None if one == other else value for other in ranks] for one in ranks]

        return json.dumps(
            {
                "format": "dear-pair-cluster",
                "version": 1,
                "name": "equal ranks",
                "devices": [
                    {"name": f"rank {rank}", "flops_per_second": 1e12, "memory_bytes": 1 << 50} for rank in ranks
                ],
                "bytes_per_second": links(1e15),
                "latency_seconds": links(0.0),
            }
        )


def _own_group(given: Any, timeout: float) -> tuple[Any, int, int]:
    initialised = dist.is_available() and dist.is_initialized()
    base = given if given is not None else dist.group.WORLD if initialised else None
    if base is None:
        return None, 0, 1
    if not isinstance(base, dist.ProcessGroup):
        raise _C.ConfigError(f"process_group is a {type(given).__name__}, not one of torch.distributed")
    ranks = dist.get_process_group_ranks(base)
    if len(ranks) == 1:
        return None, 0, 1
    some = len(ranks) != dist.get_world_size()
    group = dist.new_group(
        ranks, backend="gloo", timeout=datetime.timedelta(seconds=timeout), use_local_synchronization=some
    )
    return group, dist.get_rank(group), len(ranks)


def _check_model(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    if not isinstance(model, nn.Module):
        raise _C.ConfigError(f"the model is a {type(model).__name__}, not a torch.nn.Module")
    for name, module in model.named_modules():
        kinds = {base.__name__ for base in type(module).__mro__}
        if kinds & set(_WRAPPERS) or isinstance(module, MoE):
            raise _C.ConfigError(
                f"'{name}' is a {type(module).__name__}, which talks to other ranks or compiles by itself: give the pipeline "
                "the model without it"
            )
    if not isinstance(optimizer, torch.optim.Optimizer) or isinstance(optimizer, torch.optim.LBFGS):
        raise _C.ConfigError(
            f"the optimiser is a {type(optimizer).__name__}: give one of torch.optim that updates each parameter by its own gradient"
        )


def _arguments(x: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(x, dict):
        return (), x
    return (x,) if isinstance(x, Tensor) else tuple(x), {}


def _text_of(plan: Any) -> str:
    text = os.fspath(plan)
    if text.lstrip().startswith("{"):
        return text
    with open(text, encoding="utf-8") as file:
        return file.read()


def _micro_batches_of(plan: Any) -> int:
    """Of a plan that is read and checked later."""
    try:
        number = json.loads(_text_of(plan))["micro_batches"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _C.ConfigError(f"the plan cannot be read: {error}") from error
    if not isinstance(number, int) or number < 1:
        raise _C.ConfigError(f"a plan of {number!r} micro-batches cannot be: give at least one")
    return number


def _refuse_together(refusal: Optional[str], group: Any) -> None:
    """ConfigError on every rank where one refuses."""
    everyone = gathered(refusal, group)
    if refusal is not None:
        raise _C.ConfigError(refusal)
    for rank, sentence in enumerate(everyone):
        if sentence is not None:
            raise _C.ConfigError(sentence if sentence.startswith("rank ") else f"rank {rank}: {sentence}")
