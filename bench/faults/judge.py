"""Runs of bench/faults as drawn, and what is right of their outcomes."""

from __future__ import annotations

import dataclasses
import random
import re
from typing import Any, Optional

TIMEOUT = 20.0  # seconds, of the training
SHORT = 4.0  # where nothing but the timeout tells
BOUND = 2.5  # seconds from the fault to the last error; where nothing but the timeout tells, beyond it

SIGNALLED = ("kill", "abort", "segv")
DIES = ("kill", "_exit", "abort", "segv")
HARMLESS = ("pause", "fork", "slow save")
AT_TIMEOUT = ("stop", "slow")
BACKENDS = ("shm", "gloo", "hosts", "cpu:dear", "mpi", "ddp")
LAUNCHERS = ("none", "dear", "torchrun", "mpirun")
POLICIES = ("dear", "wfbp", "dear-replicated", "serial")
SAVES = ("file", "folder", "behind", "shards")
STEP_POINTS = ("forward", "between", "after")  # in the forward pass, between backward and step(), after step()

# By point, the kinds that can be there, each as often as it stands here. "init": while the ranks meet and connect.
KINDS: dict[str, tuple[str, ...]] = {
    "before": ("raise", "exit", "kill", "_exit", "abort", "segv"),
    "init": ("kill", "kill", "abort", "segv", "stop"),
    "construct": ("raise", "return", "exit", "kill", "_exit", "abort", "segv"),
    "save": ("raise", "exit", "kill", "_exit", "abort", "segv"),
    **dict.fromkeys(
        STEP_POINTS,
        (
            "raise",
            "raise",
            "return",
            "exit",
            "exit",
            "kill",
            "kill",
            "kill",
            "_exit",
            "abort",
            "segv",
            "closed",
            "memory",
        )
        + ("stop", "slow", "pause", "fork"),
    ),
}
POINTS = (*STEP_POINTS * 3, "save", "save", "construct", "init", "before")


@dataclasses.dataclass(frozen=True)
class Fault:
    """`kind` "" is none. `thread`: another thread of the rank lives on, as a logger's does. `child`: a process that it forked
    does, as a data loader's. `delay`: seconds from the beginning of the point to a signal. `destroyed`: at the end Python destroys
    all modules, too, which takes longer than the training."""

    ranks: int
    rank: int
    kind: str
    point: str
    step: int
    backend: str
    launcher: str = "none"
    thread: bool = False
    child: bool = False
    policy: str = "dear"
    save: str = ""
    delay: float = 0.0
    destroyed: bool = False

    def __str__(self) -> str:
        beside = ", beside a thread that lives" * self.thread + ", with a child that lives" * self.child
        how = (self.save and f" by {self.save}") + (f" in {self.delay * 1e3:.0f} ms" if self.delay else "")
        return (
            f"{self.kind or 'no fault'} {self.point}{how} step {self.step} on rank {self.rank} of {self.ranks}, "
            f"{self.backend}, {self.policy}, launcher {self.launcher}{beside}"
        )

    @property
    def told_by_timeout(self) -> bool:
        # A program that has made a process group alone may go on to train in the thread that lives.
        may_train = self.thread and self.kind in ("return", "exit") and self.backend in ("cpu:dear", "ddp")
        # MPI goes on to wait where it has no file left.
        waits = self.kind == "closed" and self.backend == "mpi"
        return self.kind in AT_TIMEOUT or self.point in ("before", "init") or may_train or waits

    @property
    def timeout(self) -> float:
        return SHORT / 2 if self.kind == "slow save" else SHORT if self.told_by_timeout else TIMEOUT

    @property
    def bound(self) -> float:
        return self.timeout + BOUND if self.told_by_timeout else BOUND

    @property
    def hosts(self) -> int:
        return 2 if self.backend == "hosts" else 1

    @property
    def survivors(self) -> list[int]:
        return [rank for rank in range(self.ranks) if rank != self.rank]

    def as_run(self) -> dict[str, Any]:
        """What the program of a rank reads."""
        backend = "gloo" if self.backend == "hosts" else self.backend
        return {**dataclasses.asdict(self), "backend": backend, "timeout": self.timeout}


def draw(choice: random.Random, backends: list[str], launchers: list[str], most_ranks: int) -> Fault:
    ranks = choice.randint(2, most_ranks)
    rank = choice.randrange(ranks)
    backend = choice.choice(backends)
    launcher = "mpirun" if backend == "mpi" else "none" if backend == "hosts" else choice.choice(launchers)
    own = backend not in ("cpu:dear", "ddp")
    # Ranks meet in MPI itself, and with "cpu:dear" in PyTorch's store, which name nobody.
    meets = backend not in ("mpi", "cpu:dear")
    never = ("save",) * (not own) + ("before", "init") * (not meets)
    point = choice.choice([one for one in POINTS if one not in never])
    # The child of a fork that ends as Python ends hangs in PyTorch's own process groups.
    kinds = [one for one in KINDS[point] if own or one != "fork"]
    delay = 0.0
    if point == "save" and (rank > 0 or choice.random() < 0.5):
        delay, kinds = choice.uniform(0.0001, 0.01), list(SIGNALLED)
    if point == "init":
        delay = choice.uniform(0.0, 0.05)
    kind = choice.choice(kinds)
    step_point = point in STEP_POINTS
    return Fault(
        ranks=ranks,
        rank=rank,
        kind=kind,
        point=point,
        step=choice.randint(1, 4) if step_point or point == "save" else 0,
        backend=backend,
        launcher=launcher,
        thread=choice.random() < 0.25 and step_point and kind in ("raise", "return", "exit"),
        child=choice.random() < 0.3 and kind in DIES,
        policy=choice.choice(POLICIES) if own else "ddp",
        save=choice.choice(SAVES) if own and (point == "save" or choice.random() < 0.1) else "",
        delay=delay,
        destroyed=choice.random() < 0.15,
    )


def slow_saves(backends: list[str]) -> list[Fault]:
    """Saves of more than ten times the timeout, of each way."""
    return [
        Fault(2, 0, "slow save", "save", 2, backend, policy=policy, save=save)
        for backend in backends
        for save, policy in zip(SAVES, POLICIES)
    ]


@dataclasses.dataclass
class Outcome:
    """What became of a run: the faults of DeAR in it are in `bad`, as words of `Verdicts`."""

    fault: Fault
    seconds: Optional[float]  # from the fault to the last survivor's error; None where none was reported
    errors: dict[int, str]  # of the survivors, by rank
    bad: list[str]
    right: int  # survivors that name the rank and say why
    asked: int  # survivors that were to
    output: str

    @property
    def good(self) -> bool:
        return not self.bad


def expected_of(fault: Fault) -> str:
    """A regular expression that the error of each survivor has."""
    who = rf"rank {fault.rank}\b"
    gone = rf"{who}[^:]* died|lost its connection to {who}|{who}[^:]* left|no sign of life from {who}|{who}[^:]* ended"
    late = (
        rf"{who}[^:]*did not (come|answer)|(nothing|no sign of life) (came )?from {who}|with {who} in time|ranks? [\d, ]*\b"
        rf"{fault.rank}\b[^:]*did not come|did not find {who}|heard nothing from {who}"
    )
    if fault.point == "before":
        return f"{gone}|{late}" if fault.launcher == "none" else f"{gone}|{late}|{who}"
    if fault.point == "init":
        return f"{gone}|{late}|lost {who}|cannot (reach|connect to) {who}"
    if fault.kind == "raise":
        return who + (
            r"( failed)?: ValueError: poison" if fault.point == "save" else r" failed: ValueError: poison \(rank\.py:\d+\)"
        )
    if fault.kind == "memory":
        return who + r" failed[^:]*: MemoryError"
    if fault.kind == "exit" and fault.point == "save":
        return who + r"(( failed)?: SystemExit: 3|[^:]*left)"
    if fault.kind == "slow" or (fault.kind in ("return", "exit") and fault.told_by_timeout):
        return late
    if fault.kind in ("return", "exit"):
        return who + r"[^:]*(left|for the end of its DataParallel)"
    if fault.kind == "stop":
        return rf"{who}.*(stopped by a signal|did not come)|no sign of life from {who}"
    if fault.kind == "closed":
        return f"{gone}|{who} failed" + (f"|{late}" if fault.backend == "mpi" else "")
    return gone


_BLAMES = (
    r"((?:rank \d+(?: \(pid \d+\))?, )*rank \d+(?: \(pid \d+\))?) (?:died|left|did not (?:come|answer)|ended|failed\b)",
    r"lost its connection to (rank \d+)",
    r"(?:no sign of life|nothing came|heard nothing) from (rank \d+)",
    r"(?:no connection with|cannot reach|cannot connect to|did not find|lost) (rank \d+)",
)


def blamed(text: str) -> set[int]:
    """The ranks that an error names as those that failed."""
    found = [group for pattern in _BLAMES for group in re.findall(pattern, text)]
    return {int(number) for group in found for number in re.findall(r"rank (\d+)", group)}


def judged(fault: Fault, output: str, hung: list[int], left: list[str], digests: Optional[list[str]]) -> Outcome:
    """`hung`: ranks that had to be killed. `digests`: those of a training without a fault, by step."""
    begin: Optional[float] = None
    errors: dict[int, str] = {}
    seen: dict[int, list[str]] = {}
    done: set[int] = set()
    last = 0.0
    for line in output.splitlines():
        if found := re.search(r"FAULT-AT ([0-9.]+)", line):
            begin = float(found[1])
        if found := re.search(r"ERROR-OF (\d+) ([0-9.]+) (.*)", line):
            errors[int(found[1])] = found[3]
            last = max(last, float(found[2]))
        if found := re.search(r"DIGESTS-OF (\d+) ?(.*)", line):
            seen[int(found[1])] = found[2].split()
        if found := re.search(r"DONE (\d+)", line):
            done.add(int(found[1]))
    seconds = last - begin if begin is not None and errors else None
    bad = []
    right = asked = 0
    if hung:
        bad.append("hung")
    if left:
        bad.append("left")
    if digests is not None and any(steps != digests[: len(steps)] for steps in seen.values()):
        bad.append("wrong result")
    if fault.kind == "closed" and done >= set(fault.survivors):
        return Outcome(fault, None, errors, bad, 0, 0, output)  # the rank needed no file
    if fault.kind in ("", *HARMLESS):
        if done != set(range(fault.ranks)):
            bad.append("false alarm")
        return Outcome(fault, None, errors, bad, 0, 0, output)
    if done & set(fault.survivors):
        bad.append("silent")
    # A launcher ends ranks with a signal, which some hear of before the error.
    whom = fault.survivors if fault.launcher == "none" else [rank for rank in fault.survivors if rank in errors]
    asked = len(whom)
    right = sum(bool(re.search(expected_of(fault), errors.get(rank, ""))) for rank in whom)
    if right < asked:
        bad.append("unnamed")
    if any(blamed(errors.get(rank, "")) - {fault.rank} for rank in whom):
        bad.append("wrong rank")
    if seconds is not None and seconds > fault.bound and not hung:
        bad.append("late")
    said = re.findall(r"^dear launch: rank (\d+) failed first", output, re.MULTILINE)
    if any(int(rank) != fault.rank for rank in said):
        bad.append("wrong rank")
    return Outcome(fault, seconds, errors, sorted(set(bad)), right, asked, output)
