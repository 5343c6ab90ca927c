"""One rank of side_by_side: all sides train in this process, in turns. Run by side_by_side:  rank.py OPTIONS_AS_JSON

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say who it is. Rank 0 writes what was measured to the file `output`, or the
sentence why nothing is to be compared. Exit code 0 in both cases.
"""

from __future__ import annotations

import datetime
import json
import os
import statistics
import sys
import time
from typing import Any

import torch
from cases import CASES, Case, Sample
from sides import SIDES, Side
from torch import Tensor, distributed

APART = 1e-5  # relative, of losses and of parameters
LONGEST_WAIT = datetime.timedelta(seconds=300)
SKIPPED = 2  # steps at the begin of a turn, in which pipelines fill again


def computation_seconds(case: Case, samples: list[Sample], steps: int = 5) -> float:
    """The time of a forward and backward pass of a model that nobody reduces, while all ranks compute."""
    model = case.make_model()
    distributed.barrier()
    seconds = []
    for step in range(steps + 1):
        begin = time.perf_counter()
        case.loss(model, samples[step % len(samples)]).backward()
        seconds.append(time.perf_counter() - begin)
        model.zero_grad()
    return statistics.median(seconds[1:])


def from_rank_0(value: float) -> float:
    tensor = torch.tensor([value], dtype=torch.float64)
    distributed.broadcast(tensor, 0)
    return tensor.item()


def choose_batch(case: Case, options: dict[str, Any], rank: int) -> int:
    """The batch whose computation takes `compute_seconds`, by measurements; or `batch` as it is given."""
    size: int = options["batch"]
    if not options["compute_seconds"]:
        return size
    for _ in range(4):
        seconds = from_rank_0(computation_seconds(case, case.batches(size, rank)))
        size = max(1, round(size * min(8, options["compute_seconds"] / seconds)))
    return size


def turn(side: Side, samples: list[Sample], steps: int) -> list[tuple[float, float]]:
    """Seconds of each step and, of these, seconds of this thread on its core; without the first steps."""
    distributed.barrier()
    found = []
    for _ in range(steps + SKIPPED):
        begin, begin_of_thread = time.perf_counter(), time.thread_time()
        side.step(samples)
        found.append((time.perf_counter() - begin, time.thread_time() - begin_of_thread))
    side.settle()
    return found[SKIPPED:]


def apart(one: Tensor, other: Tensor) -> float:
    return ((one - other).norm() / one.norm()).item()


def verify(sides: dict[str, Side], start: Tensor, allowed: float = APART) -> dict[str, float]:
    """The greatest relative differences between the first side and the others; SystemExit when there is nothing to compare."""
    ends = {name: side.parameters() for name, side in sides.items()}  # on all ranks alike, before any of them refuses
    (name, first), *others = sides.items()
    found = {"losses": 0.0, "parameters": 0.0, "moved": apart(start, ends[name])}
    if not found["moved"] > 10 * allowed:
        raise SystemExit(
            f"training moved the parameters of {name} by {found['moved']:.1e} alone: nothing to compare; take more steps"
        )
    for other_name, other in others:
        if other.steps != first.steps:
            raise SystemExit(f"{name} took {first.steps} steps, {other_name} {other.steps}: nothing to compare")
        mine, theirs = torch.stack(first.losses).cpu(), torch.stack(other.losses).cpu()
        losses = ((mine - theirs).abs() / mine.abs()).max().item()
        parameters = apart(ends[name], ends[other_name])
        if not losses <= allowed or not parameters <= allowed:
            raise SystemExit(
                f"{name} and {other_name} did not compute the same: after {first.steps} steps losses are apart by {losses:.1e}, "
                f"parameters by {parameters:.1e}; {allowed:.0e} is allowed: nothing to compare"
            )
        found["losses"], found["parameters"] = max(found["losses"], losses), max(found["parameters"], parameters)
    return found


def measure(options: dict[str, Any], rank: int) -> dict[str, Any]:
    case = CASES[options["case"]](**options["model"])
    size = choose_batch(case, options, rank)
    samples = case.batches(size, rank)
    before = computation_seconds(case, samples)
    start = torch.cat([one.detach().reshape(-1) for one in case.make_model().parameters()])
    sides = {SIDES[name][0]: SIDES[name][1](case, options["fusion"]) for name in options["sides"]}
    names = list(sides)
    for side in sides.values():
        turn(side, samples, options["warm_up"])
    rounds = []
    for number in range(options["rounds"]):
        first = number % len(names)
        rounds.append({name: turn(sides[name], samples, options["steps"]) for name in names[first:] + names[:first]})
    after = computation_seconds(case, samples)
    verified = verify(sides, start)
    notes = {name: side.note() for name, side in sides.items()}
    for side in sides.values():
        side.close()
    return {
        "rounds": rounds, "batch": size, "parameters": start.numel(), "computation": [before, after], "verified": verified,
        "notes": notes, "torch": torch.__version__, "threads": torch.get_num_threads(), "ranks": distributed.get_world_size(),
    }  # fmt: skip


def main() -> None:
    options = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    distributed.init_process_group("gloo", timeout=LONGEST_WAIT, rank=rank, world_size=size)
    try:
        result = measure(options, rank)
    except SystemExit as refused:
        result = {"refused": str(refused)}
    # A rank that has something against it speaks for all.
    everyones: list[Any] = [None] * size
    distributed.all_gather_object(everyones, result.get("refused"))
    if rank == 0:
        refusals = [f"rank {number}: {sentence}" for number, sentence in enumerate(everyones) if sentence]
        with open(options["output"], "w", encoding="utf-8") as file:
            json.dump({"refused": refusals[0]} if refusals else result, file)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
