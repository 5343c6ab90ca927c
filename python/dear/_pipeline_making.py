"""How ranks make a pipeline together: traced, planned and cut alike on all of them."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Callable
from typing import Any, Optional, Union

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils import _pytree

from . import _C, _distributed
from ._moe import MoE
from ._moe_ranks import gathered
from ._pipeline_gradients import Gradients
from ._pipeline_memory import peak_bytes
from ._pipeline_operators import operators_of, to_json
from ._pipeline_optimizer import OptimizerState
from ._pipeline_parameters import Parameters
from ._pipeline_stages import Stage, build, check, evaluated, release, stages_of
from ._pipeline_trace import Traced, trace
from ._pipeline_wire import Wire
from ._process_group import new_group_like

_WRAPPERS = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "OptimizedModule", "FSDPModule")


class Made:
    """What ranks agree upon, step by step, when they make a pipeline."""

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, process_group: Any, replicas: int, timeout: float
    ) -> None:
        self.model, self.optimizer = model, optimizer
        if not 0 < timeout < 1e9:
            raise _C.ConfigError(f"timeout={timeout}: give seconds, above 0")
        self.timeout = datetime.timedelta(seconds=timeout)
        self.group, self.rank, self.ranks = _own_group(process_group, self.timeout)
        self.replicas = replicas

    def make(self, *, plan: Any, cluster: Any, sample: Any, leaves: Any, **options: Any) -> None:
        everyone = gathered(self.replicas, self.group)
        if any(one != self.replicas for one in everyone):
            raise _C.MismatchError(f"rank {self.rank}: replicas are {everyone} on the ranks: give all the same number")
        if not isinstance(self.replicas, int) or self.replicas < 1 or self.ranks % self.replicas:
            raise _C.ConfigError(
                f"replicas={self.replicas!r} on {self.ranks} ranks: each place of the pipeline has as many ranks, so give a "
                "number that divides them"
            )
        self.places = self.ranks // self.replicas
        # Rank 0 alone reads files.
        self.cluster, plan = self._of_first_rank(
            lambda: (self._cluster(cluster), None if plan is None else _text_of(plan))
        )
        operators: str = self._together(lambda: self._trace(sample, leaves, plan, **options))
        digests = gathered(self._together(lambda: _C.pipeline_digest(operators)), self.group)
        for rank, digest in enumerate(digests):
            if digest != digests[0]:
                raise _C.MismatchError(
                    f"rank {self.rank}: rank {rank} has another model or sample than rank 0: give all ranks the same"
                )
        self.plan: str = self._of_first_rank(lambda: plan or self._plan(operators, **options))
        self._together(lambda: self._read(operators))
        self.gradients = Gradients(
            [stage for stage in self.stages if stage.rank == self.rank],
            self.order,
            self.parameters.tied(),
            rank=self.rank,
            group=self.group,
            replicas=_group_of_replicas(self.group, self.rank, self.replicas, self.timeout),
            first_tag=self.wire.tags,
        )
        self.parameters.make_as_on_first_rank()
        apart = any(kind == "weight gradient" for kind, _, _ in self.order)
        for stage in self.stages:
            if stage.rank == self.rank:
                build(stage, self.traced, apart)
        self._make_evaluation()
        self.optimizer_state = OptimizerState(self.optimizer, self.parameters.first_ranks())
        self.optimizer_state.release(set(self.parameters.own.values()))
        self.parameters.release()
        release(self.stages, self.traced)
        self.operators.clear()

    def break_off(self) -> None:
        """Ends the connections, which last as long as anything refers to their process group, so that those who wait for this
        rank do not wait for their deadline."""
        if self.wire.failed is None and self.stages_evaluated:
            self.wire.failed = self.wire_evaluated.failed
        self.wire.say_farewell()
        self.gradients.break_off()
        self.wire.break_off()
        if self.stages_evaluated:
            self.wire_evaluated.break_off()
        if self.group is not None:
            dist.destroy_process_group(self.group)
        self.group = self.parameters.group = None

    def _together(self, act: Callable[[], Any]) -> Any:
        """Does on every rank what any may refuse."""
        result, refusal = None, None
        try:
            result = act()
        except _C.ConfigError as error:
            refusal = str(error)
        refuse_together(refusal, self.group)
        return result

    def _of_first_rank(self, act: Callable[[], Any]) -> Any:
        result = self._together(lambda: act() if self.rank == 0 else None)
        return gathered(result, self.group)[0]

    def _trace(self, sample: Any, leaves: Any, plan: Optional[str], **options: Any) -> str:
        for what in ("stages", "micro_batches", "schedule", "compress"):
            if plan is not None and options[what] is not None:
                raise _C.ConfigError(f"{what}={options[what]!r} and a plan: leave it out, the plan has it")
        _check_model(self.model, self.optimizer)
        given = _micro_batches_of(plan) if plan is not None else options["micro_batches"]
        self.micro_batches: int = 8 if given is None else given
        arguments, keywords = arguments_of(sample)
        tensors = [value for value in (*arguments, *keywords.values()) if isinstance(value, Tensor)]
        self.samples = tensors[0].shape[0] if tensors and tensors[0].dim() else 0
        for value in tensors:
            if value.dim() == 0 or value.shape[0] != self.samples:
                raise _C.ConfigError(
                    f"the sample has tensors of shapes {list(tensors[0].shape)} and {list(value.shape)}: dimension 0 is that "
                    "of samples, along which all are cut; what is the same for all samples belongs into a buffer"
                )
        if self.micro_batches < 1 or self.samples == 0 or self.samples % self.micro_batches:
            raise _C.ConfigError(
                f"a batch of {self.samples} cannot be cut into {self.micro_batches} micro-batches of as many samples: give "
                "a multiple"
            )
        size = self.samples // self.micro_batches
        arguments, keywords = _pytree.tree_map_only(Tensor, lambda one: one[:size], (arguments, keywords))
        self.traced: Traced = trace(self.model, tuple(arguments), keywords, leaves)
        self.operators = operators_of(self.traced)
        self.evaluated: Union[Traced, str] = evaluated(
            self.traced, self.operators, (tuple(arguments), keywords), leaves
        )
        self.device = next((parameter.device for parameter in self.model.parameters()), torch.device("cpu"))
        return to_json(self.operators, self.model)

    def _plan(self, operators: str, **options: Any) -> str:
        stages = self.places if options["stages"] is None else options["stages"]
        if stages < 1 or stages % self.places:
            of = f" with {self.replicas} replicas" if self.replicas > 1 else ""
            raise _C.ConfigError(
                f"{stages} stages cannot be dealt to {self.ranks} ranks{of}: give a multiple of {self.places}"
            )
        schedule = options["schedule"] or ("1f1b" if stages == self.places else "interleaved")
        rule, _, ratio = (options["compress"] or "none").partition(":")
        try:
            number = float(ratio or 100)
        except ValueError:
            raise _C.ConfigError(
                f"compress='{options['compress']}': give a rule and a ratio, as ada-top-k:100"
            ) from None
        return _C.pipeline_plan(
            operators,
            self.cluster,
            method=options["method"],
            schedule=schedule,
            micro_batches=self.micro_batches,
            stages_of_device=stages // self.places,
            rule=rule,
            ratio=number,
        )

    def _read(self, operators: str) -> None:
        self.read = _C.pipeline_read(self.plan, "the plan", operators, self.cluster)
        place = self.rank // self.replicas
        self.stages = stages_of(self.plan, self._ranks(), self.operators)
        check(self.stages, self.traced)
        self.parameters = Parameters(self.model, self.stages, self.group, self.replicas)
        self.wire = Wire(self.group, self.stages, self.micro_batches, self.device, self.timeout, self.replicas)
        devices = self.read.devices[: len(self.read.orders)]
        self.order = self.read.orders[devices.index(place)] if place in devices else []
        kept = iter(json.loads(operators)["operators"])
        for stage in self.stages:
            stage.kept_bytes = sum(next(kept)["kept_bytes"] for _ in stage.operators)
        self.peak_bytes = peak_bytes(
            self.stages,
            self.rank,
            self.order,
            self.read.most_held,
            self.micro_batches,
            [one for one in self.parameters.own.values() if isinstance(one, nn.Parameter)],
        )

    def _ranks(self) -> list[int]:
        """By stage, of this replica."""
        return [device * self.replicas + self.rank % self.replicas for device in self.read.devices]

    def _make_evaluation(self) -> None:
        """The same stages, as they compute outside of training."""
        self.stages_evaluated: list[Stage] = []
        if isinstance(self.evaluated, str):
            return
        self.stages_evaluated = stages_of(self.plan, self._ranks(), operators_of(self.evaluated))
        for stage in self.stages_evaluated:
            if stage.rank == self.rank:
                build(stage, self.evaluated, False)
        self.wire_evaluated = Wire(self.group, self.stages_evaluated, self.micro_batches, self.device, self.timeout)
        release(self.stages_evaluated, self.evaluated)

    def forget_constants(self) -> None:
        for name in ("traced", "evaluated"):
            traced = getattr(self, name, None)
            if isinstance(traced, Traced):
                traced.forget_constants()

    def _cluster(self, cluster: Any) -> str:
        if cluster is not None:
            text, devices = _C.pipeline_cluster(os.fspath(cluster))
            if devices != self.places:
                each = "rank" if self.replicas == 1 else f"{self.replicas} ranks"
                raise _C.ConfigError(
                    f"the cluster has {devices} devices, and {self.ranks} ranks train: give one with a device for each {each}, "
                    "in their order"
                )
            return text
        ranks = range(self.places)

        def links(value: float) -> list[list[Optional[float]]]:
            return [[None if one == other else value for other in ranks] for one in ranks]

        return json.dumps(
            {
                "format": "dear-pair-cluster",
                "version": 1,
                "name": "equal ranks",
                "devices": [
                    {"name": self._name_of(rank), "flops_per_second": 1e12, "memory_bytes": 1 << 50} for rank in ranks
                ],
                "bytes_per_second": links(1e10),
                "latency_seconds": links(0.0),
            }
        )

    def _name_of(self, place: int) -> str:
        first = place * self.replicas
        return f"rank {first}" if self.replicas == 1 else f"ranks {first} to {first + self.replicas - 1}"


def _group_of_replicas(group: Any, rank: int, replicas: int, timeout: datetime.timedelta) -> Any:
    """Of the ranks of this one's place: DeAR's own, which is in shared memory within a host."""
    if replicas == 1:
        return None
    first = rank // replicas * replicas
    return new_group_like(group, _distributed.NAME, timeout, part=slice(first, first + replicas))


def _own_group(given: Any, timeout: datetime.timedelta) -> tuple[Any, int, int]:
    initialised = dist.is_available() and dist.is_initialized()
    base = given if given is not None else dist.group.WORLD if initialised else None
    if base is None:
        return None, 0, 1
    if not isinstance(base, dist.ProcessGroup):
        raise _C.ConfigError(f"process_group is a {type(given).__name__}, not one of torch.distributed")
    ranks = dist.get_process_group_ranks(base)
    if len(ranks) == 1:
        return None, 0, 1
    backend = "gloo" if _distributed.network_under(base) is None else f"cpu:{_distributed.NAME}"
    group = new_group_like(base, backend, timeout)
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
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_meta:
            raise _C.ConfigError(f"'{name}' is on the device meta, without a value: initialise the model first")
    if not isinstance(optimizer, torch.optim.Optimizer) or isinstance(optimizer, torch.optim.LBFGS):
        raise _C.ConfigError(
            f"the optimiser is a {type(optimizer).__name__}: give one of torch.optim that updates each parameter by its own gradient"
        )


def arguments_of(x: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(x, dict):
        return (), x
    return (x,) if isinstance(x, Tensor) else tuple(x), {}


def _text_of(plan: Any) -> str:
    text = os.fspath(plan)
    if text.lstrip().startswith("{"):
        return text
    try:
        with open(text, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError) as error:
        raise _C.ConfigError(f"the plan cannot be read: {error}") from error


def _micro_batches_of(plan: str) -> int:
    """Of a plan that is checked later."""
    try:
        number = json.loads(plan)["micro_batches"]
    except (ValueError, KeyError, TypeError) as error:
        raise _C.ConfigError(f"the plan cannot be read: {error}") from error
    if not isinstance(number, int):
        raise _C.ConfigError(f"a plan of {number!r} micro-batches cannot be: give a number")
    return number


def refuse_together(refusal: Optional[str], group: Any) -> None:
    """ConfigError on every rank where one refuses."""
    everyone = gathered(refusal, group)
    if refusal is not None:
        raise _C.ConfigError(refusal)
    for rank, sentence in enumerate(everyone):
        if sentence is not None:
            raise _C.ConfigError(sentence if sentence.startswith("rank ") else f"rank {rank}: {sentence}")
