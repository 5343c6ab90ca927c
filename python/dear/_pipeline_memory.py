"""How much memory a rank of a pipeline needs at most in a step."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from torch import Tensor

from ._pipeline_stages import Stage

COPIES = 3  # of parameters: themselves, their gradients, one state of the optimiser


def peak_bytes(
    stages: list[Stage],
    rank: int,
    order: list[tuple[str, int, int]],
    held: list[int],
    micro_batches: int,
    parameters: Iterable[Tensor],
) -> float:
    """Plays the tasks of a rank in their order: parameters, what its forwards keep for their backwards, and messages from when
    there is room for them until nothing needs them. `stages`: of all ranks. `held`: by stage, the most micro-batches at once."""
    needs = {stage.number: _needs(stage, stages) for stage in stages if stage.rank == rank}
    window = {number: held[number - 1] if number else 0 for number in needs}
    now = COPIES * sum(one.nbytes for one in parameters)
    now += sum(min(window[number], micro_batches) * one.arrival for number, one in needs.items())
    peak = now
    on_its_way: set[tuple[int, int]] = set()  # gradients, by stage and micro-batch
    for kind, number, micro_batch in order:
        one = needs[number]
        before = number, micro_batch - window[number]
        if kind == "forward":
            if before in on_its_way:
                on_its_way.remove(before)
                now -= one.gradient
            now += one.kept + one.sent + one.gradient_room
        elif kind != "weight gradient":
            now += one.gradient - one.sent
            on_its_way.add((number, micro_batch))
            peak = max(peak, now)  # before what the forward kept is let go
            now -= one.gradient_room
            if micro_batch + window[number] < micro_batches:
                now += one.arrival
        if kind in ("backward", "weight gradient"):
            now -= one.kept + one.arrival
        peak = max(peak, now)
    return float(peak)


@dataclasses.dataclass
class _Needs:
    """Bytes of a micro-batch in a stage."""

    arrival: int  # the message from the stage in front
    kept: int  # by the forward, beside that message
    sent: int  # messages to the stage behind that no backward keeps
    gradient_room: int
    gradient: int  # the message back


def _needs(stage: Stage, stages: list[Stage]) -> _Needs:
    def travels(other: int) -> bool:
        return 0 <= other < len(stages) and stages[other].rank != stage.rank

    arrives = stage.arrives if travels(stage.number - 1) else []
    leaves = stage.leaves if travels(stage.number + 1) else []
    own = [one for one in leaves if one.name in stage.makes]
    sent = sum(one.message_nbytes(False) for one in own if not one.is_kept or one.activation_ratio > 1)
    arrival = sum(one.message_nbytes(False) for one in arrives)
    return _Needs(
        arrival=arrival,
        kept=stage.kept_bytes + sum(one.nbytes for one in arrives) - arrival,  # what came compressed is whole then
        sent=sent,
        gradient_room=sum(one.message_nbytes(True) for one in leaves),
        gradient=sum(one.message_nbytes(True) for one in arrives),
    )
