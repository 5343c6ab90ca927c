"""What a program watches of a DataParallel: bucket hooks, metrics of steps, files and TensorBoard."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from . import _C


class OverRanks(NamedTuple):
    """The smallest, mean and largest value of one number over all ranks."""

    min: float
    mean: float
    max: float


@dataclass(frozen=True)
class StepMetrics:
    """One training step as this rank saw it, or the mean of the steps since the last report.

    A step lasts from the end of one optimizer.step() to the end of the next, and what happened in that time is counted:
    forward and backward of the iteration, the reductions of its gradients, and, where they hide under the forward pass,
    the all-gathers of the iteration before.
    """

    rank: int
    ranks: int
    iteration: int  # of the last step described: from 0, steps that were given up included
    steps: int  # described: the numbers below are of one step, their mean
    given_up: int  # of those steps
    seconds: float
    exposed_seconds: float  # the program waited for communication
    communication_seconds: float  # a collective of the schedule ran, all ranks having come to it
    overlap: float  # share of communication_seconds that was hidden, from 0 to 1
    bytes: float  # sent by this rank, where collectives send no more than they must; as many received
    bandwidth: float  # bytes / communication_seconds
    buckets: list[int]  # bytes of each; empty where one rank trains alone
    tuning: str  # of buckets: "off", "measuring", "trying" or "settled"
    candidate: str  # the buckets in force, where they are tuned
    loss_scale: float  # of the last step that was given one
    gradient_norm: float | None  # that the last clipping in these steps found
    nonfinite: str  # what check_gradients last found in these steps
    resident_bytes: int  # memory of this process that is in use
    over_ranks: dict[str, OverRanks] = field(default_factory=dict)  # with ranks="reduced"


@dataclass(frozen=True)
class BucketGradients:
    """The gradients of one bucket on one rank, as a bucket hook sees them: views, so what is written into them travels,
    or is applied."""

    iteration: int  # from 0
    bucket: int  # index in schedule()["buckets"]
    flat: torch.Tensor  # all of them, 1-D, with zeros between tensors where there is padding
    tensors: dict[str, torch.Tensor]  # by the name of the parameter; 1-D where only a part of it lies here
    begin: dict[str, int]  # of that part in the parameter, in elements in the order of memory; else 0


class TensorBoard:
    """A callback for on_step() that writes scalars: `model.on_step(dear.TensorBoard("runs/1"), every=10)`.

    writer: an object with add_scalar(name, value, step), such as torch.utils.tensorboard.SummaryWriter, or the folder for
        one. ConfigError for a folder where the package tensorboard is not installed.
    prefix: of every name.

    Numbers of all ranks, with ranks="reduced", are written as seconds/min, seconds/mean and seconds/max.
    """

    _SCALARS = (
        "seconds",
        "exposed_seconds",
        "communication_seconds",
        "overlap",
        "bytes",
        "bandwidth",
        "loss_scale",
        "gradient_norm",
        "given_up",
        "resident_bytes",
    )

    def __init__(self, writer: Any, prefix: str = "dear/") -> None:
        self.writer = _summary_writer(writer) if isinstance(writer, str | os.PathLike) else writer
        if not callable(getattr(self.writer, "add_scalar", None)):
            raise _C.ConfigError(
                f"a {type(writer).__name__} has no add_scalar(): pass a SummaryWriter, or the folder for one"
            )
        self.prefix = prefix

    def __call__(self, metrics: StepMetrics) -> None:
        for name in self._SCALARS:
            value = getattr(metrics, name)
            if value is not None:
                self._add(name, value, metrics)
        self._add("buckets", len(metrics.buckets), metrics)
        for name, over in metrics.over_ranks.items():
            for part, value in over._asdict().items():
                self._add(f"{name}/{part}", value, metrics)

    def _add(self, name: str, value: float, metrics: StepMetrics) -> None:
        self.writer.add_scalar(self.prefix + name, value, metrics.iteration)


def _summary_writer(folder: str | os.PathLike[str]) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise _C.ConfigError(
            f"TensorBoard cannot write to '{os.fspath(folder)}', for its package is missing ({error}): "
            "pip install tensorboard, or pass an object with add_scalar()"
        ) from None
    writer: Any = SummaryWriter(os.fspath(folder))  # type: ignore[no-untyped-call]
    return writer


class Watched:
    """The methods of a DataParallel that are of watching."""

    _training: Any
    _sources: Any

    def register_bucket_hook(self, hook: Callable[[BucketGradients], None], when: str = "before") -> _C.RemovableHandle:
        """Calls hook(bucket) for every bucket of every step. Returns a handle whose remove() ends that.

        when: "before" the reduction, with this rank's local gradients of the whole bucket, on the thread that runs
            backward() or optimizer.step(); or "after" it, before the update, with the means: those elements that this
            rank updates, which is its shard under the policies that shard updates. That runs on a thread of DeAR's, or
            under serial and wfbp in step().

        A hook may change gradients in place: add noise, clip this rank's part, round. Its time is added to the backward
        pass, or to the update. It must not communicate, nor call anything of DeAR, nor read the model's parameters or
        other gradients. Ranks should register alike. Several hooks run in the order of registration. They stay through
        regroup() and tuning, and are called with the new buckets; they see gradients before compression, and after it.
        A rank that trains alone has no buckets: each parameter counts as one.

        What a hook raises ends the step on every rank: this rank raises it from backward() or from the next call of DeAR,
        the others a TransportError that names the rank and the hook's message.
        """
        return self._training.register_bucket_hook(_with_bucket(hook), when)

    def on_step(
        self, callback: Callable[[StepMetrics], None], every: int = 1, ranks: str = "each"
    ) -> _C.RemovableHandle:
        """Calls callback(metrics) at the end of every `every`-th optimizer.step(), on its thread. Returns a handle whose
        remove() ends that. While nobody listens nothing is measured.

        ranks: "each" rank its own; the "first" its own, the others nothing; or "reduced": rank 0 its own, and in
            `over_ranks` the smallest, mean and largest of all. Then every rank calls on_step(), between a step and the
            next backward, and a report is one small collective.

        What the callback raises leaves step(), which has been taken. A step that was given up by discard_step() or
        zero_grad() is reported by the next step.
        """
        return self._training.on_step(_with_metrics(callback), every, ranks)

    def write_metrics(self, path: str | os.PathLike[str], every: int = 1, ranks: str = "first") -> _C.RemovableHandle:
        """Appends the metrics to a file, one line of JSON a report, written whole. Arguments as of on_step(); with
        ranks="each" the path has "{rank}", in whose place each rank writes its number. Every rank calls it, between a
        step and the next backward. ConfigError, on all, when one cannot open its file."""
        return self._training.write_metrics(os.fspath(path), every, ranks)

    def memory(self) -> dict[str, int]:
        """What this rank holds in memory, in bytes by kind: parameters, gradients, padding (of buckets), optimizer_state
        and masters (of what this rank updates), compression, replaced, frozen (parameters that are not trained, and the
        model's buffers), staging, trace, and with rounds theirs; their total; and beside it saved_by_one_copy, and change_of_buckets, which
        regroup() and the tuning of buckets need more for its time. What ranks share is counted on rank 0. Between a step
        and the next backward. Activations are no part: see docs/watching.md."""
        memory = self._training.memory()
        of_program = sum(_tensor_bytes(one.original.state) for one in self._sources if one.of_program and not one.known)
        return {
            **memory,
            "optimizer_state": memory["optimizer_state"] + of_program,
            "total": memory["total"] + of_program,
        }


def _tensor_bytes(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.nbytes
    return sum(map(_tensor_bytes, value.values())) if isinstance(value, dict) else 0


def _with_bucket(hook: Callable[[BucketGradients], None]) -> Callable[[tuple[Any, ...]], None]:
    _require_callable(hook, "a bucket hook")

    def call(bucket: tuple[Any, ...]) -> None:
        iteration, number, flat, tensors = bucket
        hook(
            BucketGradients(
                iteration,
                number,
                flat,
                {name: values for name, values, _ in tensors},
                {name: begin for name, _, begin in tensors},
            )
        )

    return call


def _with_metrics(callback: Callable[[StepMetrics], None]) -> Callable[[dict[str, Any]], None]:
    _require_callable(callback, "a callback for metrics")

    def call(values: dict[str, Any]) -> None:
        over = {name: OverRanks(*numbers) for name, numbers in values.pop("over_ranks").items()}
        callback(StepMetrics(**values, over_ranks=over))

    return call


def _require_callable(thing: object, what: str) -> None:
    if not callable(thing):
        raise _C.ConfigError(f"{what} is a {type(thing).__name__}: pass a function")
