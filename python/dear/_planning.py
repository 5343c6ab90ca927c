"""plan(): which policy, buckets and collectives to use on a modelled cluster."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable
from typing import Any

from . import _C, _html
from ._simulation import _MODELLED, Cluster, Model, _compression, _list, _model


@dataclasses.dataclass(frozen=True)
class PlanRow:
    """The best that one policy does. Times are those of one iteration, in seconds."""

    policy: str
    fusion: str
    """ "usual", "25MiB", "planned", ..."""
    algorithm: str
    """The one of the collectives of its largest bucket."""
    buckets: int
    """How many."""
    iteration_seconds: float
    exposed_communication_seconds: float
    compute_seconds: float
    """This and the four below add up to iteration_seconds."""
    overlap_seconds: float
    """What the policy leaves uncovered even with infinitely fine buckets and no start-up."""
    fusion_seconds: float
    """What buckets of this size add to that; may be below 0."""
    start_up_seconds: float
    """What launches and messages take."""
    interference_seconds: float
    """What communication and computation take from each other where both go on."""
    bound_seconds: float
    memory_bytes: int
    fits: bool
    """Into the memory of a rank, where that is known."""
    runs: bool
    """Here, with `dear.distribute()` or `dear train`; other policies can only be simulated."""
    why: str
    """What keeps it from computing all the time."""


@dataclasses.dataclass(frozen=True)
class CompressedRow:
    """What a compression gives under the policy that is the fastest with it. Times are those of one iteration."""

    compression: str
    policy: str
    fusion: str
    buckets: int
    """How many."""
    iteration_seconds: float
    dense_iteration_seconds: float
    """What the same policy takes without the compression."""
    codec_seconds: float
    """What all encoding and decoding takes."""
    memory_bytes: int
    fits: bool
    """Into the memory of a rank, where that is known."""
    pays_below_bits_per_second: float | None
    """The speed of the outermost links, all links scaled alike, below which the compression is faster. 0: nowhere; None: everywhere."""
    why_not_above: str


@dataclasses.dataclass(frozen=True)
class Sensitivity:
    """What a change of the machine or of the job would make of the row to use."""

    change: str
    iteration_seconds: float
    speed_up: float
    """The factor of samples per second."""
    fits: bool
    """Into the memory of a rank, where that is known."""
    memory_bytes: int


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """A policy that cannot be had on this cluster, or whose schedules are too long to be searched."""

    policy: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Gain:
    """By how much an iteration is shorter than under another policy, and why. The causes add up to `seconds`."""

    over: str
    """The other policy."""
    seconds: float
    schedule_seconds: float
    """When collectives run, and what waits for them."""
    sharding_seconds: float
    """Each rank updates its shard alone."""
    collectives_seconds: float
    """A reduce-scatter and an all-gather do not take what an all-reduce takes."""
    fusion_seconds: float
    """Buckets with which the other policy would be faster, too."""


@dataclasses.dataclass(frozen=True)
class PlannedRound:
    """Rounds of so many steps, for as many samples."""

    steps_a_round: int
    iteration_seconds: float
    """The mean of a round's steps, where ranks wait for the average."""
    overlapped_seconds: float
    """Likewise, where steps go on meanwhile."""
    sent_bytes: float
    """By a rank in a step."""


@dataclasses.dataclass(frozen=True)
class PlannedRounds:
    """Rounds (dear.DiLoCo, dear.LocalSGD) in place of the row to use; what they change in the loss is not modelled."""

    policy: str
    compute_seconds: float
    """A step without communication."""
    as_fast_from_steps: int
    """Steps of a round from which on rounds are as fast as the policy, where ranks wait for the average."""
    hidden_from_steps: int
    """Steps of a round from which on an exchange that travels under steps costs nothing."""
    rows: tuple[PlannedRound, ...]
    verdict: str


@dataclasses.dataclass(frozen=True)
class Plan:
    """Which policy, buckets and collectives to use. A notebook shows a table and the verdict."""

    model: str
    cluster: str
    ranks: int
    device: str
    """The device of the model's times; "": not known."""
    memory_bytes: int
    """The memory of a rank; 0: not known."""
    floor_seconds: float
    """max(f + b, r): what gradients one iteration old would reach."""
    rows: tuple[PlanRow, ...]
    """The fastest first."""
    best: int
    """The index of the row to use: of those that fit and run the fastest; of those within half a hundredth of it the
    one that needs least memory, and of such the simplest. Where none fits or none runs, `choice` says so."""
    left_out: tuple[LeftOut, ...]
    gain: Gain | None
    """The gain of the row to use over wfbp; None where that is no other row that fits."""
    sensitivities: tuple[Sensitivity, ...]
    """None where the row to use does not fit."""
    verdict: tuple[str, ...]
    """Sentences: what to use, whether DeAR is the answer, and from which bandwidth on compressions pay."""
    compressed: tuple[CompressedRow, ...]
    """One for each compression asked for; it changes what is learnt, so that `choice` is without."""
    rounds: PlannedRounds | None
    """None where ranks compute for half of the time or more."""
    _made: _C.Plan = dataclasses.field(repr=False, compare=False)

    @property
    def choice(self) -> PlanRow:
        """The row to use."""
        return self.rows[self.best]

    def to_dict(self) -> dict[str, Any]:
        """The element of the list that `dear plan --json` writes."""
        lists = {
            "rows": [dataclasses.asdict(row) for row in self.rows],
            "left_out": [dataclasses.asdict(one) for one in self.left_out],
            "gain": None if self.gain is None else dataclasses.asdict(self.gain),
            "sensitivities": [dataclasses.asdict(change) for change in self.sensitivities],
            "verdict": list(self.verdict),
            "compressed": [dataclasses.asdict(row) for row in self.compressed],
            "rounds": self.rounds
            and {**dataclasses.asdict(self.rounds), "rows": [dataclasses.asdict(row) for row in self.rounds.rows]},
        }
        left_out = {"_made"}
        left_out |= set() if self.compressed else {"compressed"}
        left_out |= set() if self.rounds else {"rounds"}
        fields = dataclasses.fields(self)
        return {
            field.name: lists.get(field.name, getattr(self, field.name))
            for field in fields
            if field.name not in left_out
        }

    def schedule(self) -> str:
        """The text of a schedule file: the policy and the buckets to use. ConfigError where nothing fits into memory."""
        return self._made.schedule()

    def save_schedule(self, path: str | os.PathLike[str]) -> None:
        """Writes a schedule file, for `dear simulate --schedule`."""
        _C.write_file(os.fspath(path), self.schedule())

    def plot(self) -> str:
        """SVG: a bar for each policy, as `dear plan --plot` draws it."""
        return self._made.plot()

    def save_plot(self, path: str | os.PathLike[str]) -> None:
        """Writes plot() as SVG, PDF or PNG, as the ending of the path says; PDF and PNG need rsvg-convert (librsvg2-bin)."""
        _C.write_picture(os.fspath(path), self.plot())

    def _repr_html_(self) -> str:
        head = ("policy", "here", "fusion", "collectives", "buckets", "iteration", "exposed comm.", "bound", "memory",
                "what it waits for")  # fmt: skip
        rows = [
            (
                row.policy,
                "trains" if row.runs else "simulated",
                row.fusion,
                row.algorithm,
                row.buckets,
                _C.format_seconds(row.iteration_seconds),
                _C.format_seconds(row.exposed_communication_seconds),
                _C.format_seconds(row.bound_seconds),
                _C.format_bytes(row.memory_bytes) + ("" if row.fits else ", too much"),
                row.why,
            )
            for row in self.rows
        ]
        caption = f"{self.model} on {self.cluster}, {self.ranks} ranks"
        return _html.table(head, rows, left=4, caption=caption, marked=self.best, below=[*self.verdict, _MODELLED])


def plan(
    model: Model,
    cluster: Cluster,
    *,
    ranks: int | None = None,
    policy: str | Iterable[str] = (),
    algorithm: str = "auto",
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
) -> Plan:
    """The policy, buckets and collectives to use for a model on a cluster, as `dear plan` (docs/planner.md).

    `policy` names those to choose from; none: all, also those that can only be simulated. The other arguments are
    those of `simulate`.

    Raises:
        ConfigError: for a name that there is not, a file that cannot be read, or numbers that cannot be.
    """
    made = _C.plan(
        model=_model(model),
        cluster=os.fspath(cluster),
        ranks=ranks,
        model_options=_C.ModelOptions(
            device=device,
            batch=batch,
            size=size,
            dtype=dtype,
            optimizer_states=optimizer_states,
            checkpoint_activations=checkpoint_activations,
            scale_compute=scale_compute,
        ),
        names=_C.PlanNames(
            policies=_list(policy, str),
            algorithm=algorithm,
            optimizer_states=optimizer_states,
            micro_batches=accumulate,
            compression=_compression(compress, codec, union_density),
        ),
    )
    [fields] = json.loads(made.to_json())
    fields["rows"] = tuple(PlanRow(**row) for row in fields["rows"])
    fields["sensitivities"] = tuple(Sensitivity(**change) for change in fields["sensitivities"])
    fields["left_out"] = tuple(LeftOut(**one) for one in fields["left_out"])
    fields["gain"] = None if fields["gain"] is None else Gain(**fields["gain"])
    fields["verdict"] = tuple(fields["verdict"])
    fields["compressed"] = tuple(CompressedRow(**row) for row in fields.get("compressed", []))
    rounds = fields.pop("rounds", None)
    if rounds is not None:
        rounds = PlannedRounds(**{**rounds, "rows": tuple(PlannedRound(**row) for row in rounds["rows"])})
    return Plan(**fields, rounds=rounds, _made=made)
