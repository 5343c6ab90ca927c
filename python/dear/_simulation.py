"""simulate(): what a policy would give on a modelled cluster."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

from . import _C, _html
from ._workload import Workload

Model = str | os.PathLike[str] | Workload
Cluster = str | os.PathLike[str]

_MODELLED = "All times are modelled: no computation and no communication took place."


@dataclasses.dataclass(frozen=True)
class Case:
    """One policy for one job on one cluster, simulated. Times are those of one iteration, in seconds."""

    model: str
    cluster: str
    ranks: int
    policy: str
    fusion: str
    buckets: int
    """How many."""
    iteration_seconds: float
    compute_seconds: float
    """The time of the slowest rank: forward, backward and updates on its compute lane."""
    exposed_communication_seconds: float
    """The time in which a rank computes nothing because it waits for the network: iteration - compute."""
    bound_seconds: float
    """What the policy could reach with infinitely fine buckets."""
    memory_bytes: int
    """The memory of a rank: parameters, gradients, optimiser, activations and buffers."""
    iteration_seconds_half_width: float = 0.0
    """The half width of the confidence interval of 95 % of iteration_seconds, with jitter; 0 without."""
    compression: str = ""
    """The compression of gradients, as `compress` has it; empty where they travel dense."""
    codec_seconds: float = 0.0
    """What all encoding and decoding takes."""

    def to_dict(self) -> dict[str, Any]:
        """The element of the list that `dear simulate --json` writes."""
        fields = dataclasses.asdict(self)
        if self.iteration_seconds_half_width == 0:
            del fields["iteration_seconds_half_width"]
        if not self.compression:
            del fields["compression"], fields["codec_seconds"]
        return fields


@dataclasses.dataclass(frozen=True)
class Timeline:
    """A picture of what rank 0 does in some iterations: a row for each lane. A notebook shows it."""

    svg: str = dataclasses.field(repr=False)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes it as SVG, PDF or PNG, as the ending of the path says; PDF and PNG need rsvg-convert (librsvg2-bin)."""
        _C.write_picture(os.fspath(path), self.svg)

    def _repr_svg_(self) -> str:
        return self.svg


@dataclasses.dataclass(frozen=True)
class Simulation(Sequence[Case]):
    """Cases, policies innermost; a sequence of them. A notebook shows a table and bars."""

    cases: tuple[Case, ...]
    _made: _C.Simulation = dataclasses.field(repr=False, compare=False)
    _cases_of_one: int = dataclasses.field(repr=False, compare=False)  # model, cluster and number of ranks

    @overload
    def __getitem__(self, index: int) -> Case: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Case]: ...
    def __getitem__(self, index: int | slice) -> Case | Sequence[Case]:
        return self.cases[index]

    def __len__(self) -> int:
        return len(self.cases)

    def __iter__(self) -> Iterator[Case]:
        return iter(self.cases)

    def to_dict(self) -> list[dict[str, Any]]:
        """What `dear simulate --json` writes."""
        return [case.to_dict() for case in self.cases]

    def timeline(self, case: int = 0, *, first_iteration: int = 8, iterations: int = 2) -> Timeline:
        """What rank 0 does in these iterations of the case of this index. ConfigError where there are none."""
        return Timeline(self._made.timeline(range(len(self))[case], first_iteration, iterations))

    def save_trace(self, path: str | os.PathLike[str], case: int = 0) -> None:
        """Writes the timeline of the case of this index for https://ui.perfetto.dev."""
        _C.write_file(os.fspath(path), self._made.trace(range(len(self))[case]))

    def _speed_up(self, index: int) -> float:
        first = self.cases[index - index % self._cases_of_one]
        return first.iteration_seconds / self.cases[index].iteration_seconds

    def _repr_html_(self) -> str:
        head: tuple[str, ...]
        head = ("model", "cluster", "policy", "compression", "ranks", "buckets", "iteration", "compute", "exposed comm.",
                "bound", "memory", "speed-up")  # fmt: skip
        rows: list[tuple[object, ...]] = [
            (
                case.model,
                case.cluster,
                case.policy,
                case.compression or "-",
                case.ranks,
                case.buckets,
                _C.format_seconds(case.iteration_seconds),
                _C.format_seconds(case.compute_seconds),
                _C.format_seconds(case.exposed_communication_seconds),
                _C.format_seconds(case.bound_seconds),
                _C.format_bytes(case.memory_bytes),
                f"{self._speed_up(index):.2f}",
            )
            for index, case in enumerate(self.cases)
        ]
        if not any(case.compression for case in self.cases):
            head, rows = head[:3] + head[4:], [row[:3] + row[4:] for row in rows]
        return _html.table(head, rows, left=len(head) - 8, below=[_MODELLED])

    def save_plot(self, path: str | os.PathLike[str]) -> None:
        """Writes a bar for each case, as `dear simulate --plot`: SVG, PDF or PNG, as the ending of the path says."""
        _C.write_picture(os.fspath(path), self._made.plot())

    def _repr_svg_(self) -> str:
        return self._made.plot()


def _model(model: Model) -> str | _C.Workload:
    return model._value() if isinstance(model, Workload) else os.fspath(model)


def _list(given: Any, single: type | tuple[type, ...]) -> list[Any]:
    return [given] if isinstance(given, single) else list(given)


def models() -> list[str]:
    """The names of models that are known; `dear models` says more."""
    return _C.models()


def clusters() -> list[str]:
    """The names of clusters that are known; `dear clusters` says more."""
    return _C.clusters()


def policies() -> list[str]:
    """The names of policies; docs/policies.md says more."""
    return _C.policies()


def _compression(compress: str | Iterable[str], codec: str, union_density: float) -> _C.CompressionNames:
    return _C.CompressionNames(compressions=_list(compress, str), codec=codec, union_density=union_density)


def simulate(
    model: Model | Iterable[Model],
    cluster: Cluster | Iterable[Cluster],
    *,
    ranks: int | Iterable[int] | None = None,
    policy: str | Iterable[str] | None = None,
    fusion: str | None = None,
    schedule: str | os.PathLike[str] | None = None,
    algorithm: str = "auto",
    detail: str = "closed-form",
    jobs: int = 1,
    placement: str = "spread",
    iterations: int = 16,
    jitter: float = 0.0,
    repetitions: int = 1,
    seed: int = 1,
    optimizer_states: int = 2,
    accumulate: int = 1,
    compress: str | Iterable[str] = (),
    codec: str = "auto",
    union_density: float = 0.05,
    device: str = "",
    batch: int = 0,
    size: int = 0,
    dtype: str = "",
    checkpoint_activations: bool = False,
    scale_compute: float | None = None,
) -> Simulation:
    """Iteration times of policies on a modelled cluster, as `dear simulate` (docs/simulator.md).

    Every policy for every model on every cluster with every number of ranks, policies innermost; each policy without
    compression, then with each one.

    Args:
        model: names of `dear.models()`, paths of workload files, or Workloads.
        cluster: names of `dear.clusters()`, paths of cluster files, or flat networks ("10gbe",
            "bandwidth=1gbit,latency=50us"), which need `ranks`.
        ranks: of a job; None: all that the cluster has.
        policy: names of `dear.policies()`; None: serial, wfbp and dear.
        fusion: None or "usual" (as each policy's own system groups tensors), "planned" (the best borders), a size ("25MB"),
            "layer" or "all".
        schedule: a file that `Plan.save_schedule` wrote: policy and buckets, instead of `policy` and `fusion`.
        algorithm: of collectives: "auto" (the quickest for each size), "ring", "double-tree", "hierarchical", "nccl";
            with detail "blocks" also "halving-doubling" and others.
        detail: "closed-form", "flows" (bytes of each rank share links) or "blocks" (every message).
        jobs: equal jobs that share the cluster, each of `ranks` ranks; with flows or blocks.
        placement: of several jobs: "spread" or "packed".
        iterations: to simulate; the first half warms up.
        jitter: standard deviation of every step of every rank, as a part of its time (0.05).
        repetitions: with jitter of their own, for a confidence interval.
        seed: of the jitter.
        optimizer_states: values that the optimiser keeps for each parameter: 2 for Adam and AdamW, 1 for momentum.
        accumulate: passes forward and backward in an iteration, whose gradients add up before they travel.
        compress: compressions of gradients to look at beside dense ones: "top-k:0.01,ef" (docs/compression.md).
        codec: how fast codecs are: "roofline" (by the memory of the device), "measured" (on this machine), "none" (in no
            time) or "auto" (roofline where there is a device); with ",beside" on cores of their own, else in turns with
            computation.
        union_density: part of a gradient's elements that is not zero on one rank at least, for sketches.
        device, batch, size, dtype: how a model by name is built: its accelerator, samples on one rank, side of an image
            or length of a sequence, and "fp32", "fp16" or "bf16"; "" and 0: the cluster's, or the model's own.
        checkpoint_activations: whether activations are kept at the ends of segments only, and the rest computed again.
        scale_compute: by what all times of computation are multiplied: 0.05 for a device 20 times as fast as the one
            that a workload was measured on.

    Raises:
        ConfigError: for a name that there is not, a file that cannot be read, or numbers that cannot be.
    """
    names = _C.CaseNames(
        policies=["serial", "wfbp", "dear"] if policy is None else _list(policy, str),
        fusion="usual" if fusion is None else fusion,
        algorithm=algorithm,
        detail=detail,
        jobs=jobs,
        placement=placement,
        compression=_compression(compress := _list(compress, str), codec, union_density),
    )
    if schedule is not None:
        if policy is not None or fusion is not None:
            raise _C.ConfigError("a schedule names a policy and its buckets: leave policy and fusion out")
        names.take_schedule(os.fspath(schedule))
    made = _C.simulate(
        models=[_model(one) for one in _list(model, (str, os.PathLike, Workload))],
        clusters=[os.fspath(one) for one in _list(cluster, (str, os.PathLike))],
        ranks=[] if ranks is None else _list(ranks, int),
        model_options=_C.ModelOptions(
            device=device,
            batch=batch,
            size=size,
            dtype=dtype,
            optimizer_states=optimizer_states,
            checkpoint_activations=checkpoint_activations,
            scale_compute=scale_compute,
        ),
        names=names,
        evaluate=_C.EvaluateOptions(
            iterations=iterations,
            jitter=jitter,
            repetitions=repetitions,
            seed=seed,
            optimizer_states=optimizer_states,
            micro_batches=accumulate,
        ),
    )
    cases = tuple(Case(**fields) for fields in json.loads(made.to_json()))
    return Simulation(cases, made, len(names.policies) * (1 + len(compress)))
