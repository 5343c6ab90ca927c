"""Random faults of ranks, and what the others learn of them.  faults.py [--runs N] [--seed N] [--backends ..] [--launchers ..]

Each run starts 2 to 6 ranks, of which one fails in a drawn way at a drawn point. Prints for each kind of fault the time from the
fault to the error of the last survivor, and counts hangs, survivors that blame another rank, and processes that are left. The same
seed draws the same runs. Exit code 1 where a run was not as it should be.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
import uuid
from typing import Any, Optional

TIMEOUT = 60.0  # seconds, of the training
GIVE_UP = 180.0  # seconds after which a run counts as hung
POINTS = ("forward", "between", "after")  # in the forward pass, between backward and step(), after step()
KINDS = ("raise", "return", "exit", "kill", "_exit")
BACKENDS = ("shm", "gloo", "cpu:dear")
LAUNCHERS = ("none", "dear", "torchrun")


@dataclasses.dataclass(frozen=True)
class Fault:
    """`thread`: another thread of the rank lives on, as a logger's does."""

    ranks: int
    rank: int
    kind: str
    point: str
    step: int
    backend: str
    launcher: str = "none"
    thread: bool = False

    def __str__(self) -> str:
        beside = ", beside a thread that lives" if self.thread else ""
        return (
            f"{self.kind} {self.point} step {self.step} on rank {self.rank} of {self.ranks}, {self.backend}, "
            f"launcher {self.launcher}{beside}"
        )


@dataclasses.dataclass
class Outcome:
    fault: Fault
    seconds: Optional[float]  # from the fault to the last survivor's error; None where none was reported
    errors: dict[int, str]  # of the survivors, by rank
    hung: bool
    left: int  # processes
    wrong: list[int]  # survivors that do not name the rank, or say why
    output: str

    @property
    def good(self) -> bool:
        return not self.hung and not self.left and not self.wrong


def draw(choice: random.Random, backends: list[str], launchers: list[str], most_ranks: int) -> Fault:
    ranks = choice.randint(2, most_ranks)
    return Fault(
        ranks=ranks,
        rank=choice.randrange(ranks),
        kind=choice.choice(KINDS),
        point=choice.choice(POINTS),
        step=choice.randint(1, 4),
        backend=choice.choice(backends),
        launcher=choice.choice(launchers),
        thread=choice.random() < 0.25,
    )


def expected_of(fault: Fault) -> str:
    """A regular expression that the error of each survivor has."""
    who = rf"rank {fault.rank}\b"
    if fault.kind == "raise":
        return who + r" failed: ValueError: poison \(faults\.py:\d+\)"
    if fault.kind in ("return", "exit"):
        return who + r"[^:]*(left|asks for the end of its DataParallel)"
    return rf"({who}[^:]* died|lost its connection to {who}|{who} left|no sign of life from {who})"


# ---- the harness


def environment_of(fault: Fault, mark: str, port: int) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("TORCHELASTIC", "SLURM", "OMPI"))}
    own.update(DEAR_FAULT=json.dumps(dataclasses.asdict(fault)), DEAR_FAULT_RUN=mark, OMP_NUM_THREADS="1")
    if fault.launcher == "none":
        own.update(WORLD_SIZE=str(fault.ranks), LOCAL_WORLD_SIZE=str(fault.ranks), MASTER_ADDR="127.0.0.1")
        own.update(MASTER_PORT=str(port), TORCHELASTIC_RUN_ID=mark)
    return own


def commands_of(fault: Fault, command: str) -> list[list[str]]:
    program = [sys.executable, "-B", os.path.abspath(__file__), "--as-rank"]
    if fault.launcher == "dear":
        return [[command, "launch", "-n", str(fault.ranks), "--grace", "10s", "--no-prefix", "--", *program]]
    if fault.launcher == "torchrun":
        module = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={fault.ranks}"]
        return [[*module, *program[2:]]]
    return [program] * fault.ranks


def of_run(mark: str) -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
            if f"DEAR_FAULT_RUN={mark}".encode() in file.read().split(b"\0"):
                found.append(int(name))
    return found


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def run(fault: Fault, command: str = "dear") -> Outcome:
    """One run. `command`: the path of the program dear, for its launcher."""
    mark = f"faults-{uuid.uuid4().hex}"
    shared = environment_of(fault, mark, free_port())
    started = []
    for rank, words in enumerate(commands_of(fault, command)):
        own = shared if fault.launcher != "none" else {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        started.append(
            subprocess.Popen(
                words, env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
            )
        )
    texts = [""] * len(started)

    def read(at: int) -> None:
        stream = started[at].stdout
        assert stream is not None
        texts[at] = stream.read()

    readers = [threading.Thread(target=read, args=(at,)) for at in range(len(started))]
    for reader in readers:
        reader.start()
    deadline = time.monotonic() + GIVE_UP
    hung = False
    for at, process in enumerate(started):
        if fault.launcher == "none" and at == fault.rank and fault.thread:
            continue  # its thread lives
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            hung = True
    if fault.launcher == "none" and fault.thread:
        started[fault.rank].kill()
    if hung:
        for pid in of_run(mark):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
    for process in started:
        process.wait()
    left = of_run(mark)
    for pid in left:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    for reader in readers:
        reader.join()
    return judged(fault, "\n".join(texts), hung, len(left))


def judged(fault: Fault, output: str, hung: bool, left: int) -> Outcome:
    begin: Optional[float] = None
    errors: dict[int, str] = {}
    last = 0.0
    for line in output.splitlines():
        if found := re.search(r"FAULT-AT ([0-9.]+)", line):
            begin = float(found[1])
        if found := re.search(r"ERROR-OF (\d+) ([0-9.]+) (.*)", line):
            errors[int(found[1])] = found[3]
            last = max(last, float(found[2]))
    survivors = [rank for rank in range(fault.ranks) if rank != fault.rank]
    # A launcher ends ranks with a signal, which some hear of before the error.
    asked = survivors if fault.launcher == "none" else [rank for rank in survivors if rank in errors]
    wrong = [rank for rank in asked if not re.search(expected_of(fault), errors.get(rank, ""))]
    seconds = last - begin if begin is not None and errors else None
    return Outcome(fault, seconds, errors, hung, left, wrong, output)


# ---- a rank


def train(fault: Fault) -> None:
    import torch
    from torch import nn

    import dear

    rank = int(os.environ["RANK"])

    def here(step: int, point: str) -> bool:
        if (rank, step, point) != (fault.rank, fault.step, fault.point):
            return False
        if fault.thread:
            threading.Thread(target=time.sleep, args=(GIVE_UP / 2,)).start()
        print(f"FAULT-AT {time.monotonic()}", flush=True)
        if fault.kind == "raise":
            raise ValueError("poison")
        if fault.kind == "exit":
            sys.exit(3)
        if fault.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault.kind == "_exit":
            os._exit(3)
        return True

    class Layer(nn.Linear):
        step = 0

        def forward(self, batch: torch.Tensor) -> Any:
            if here(self.step, "forward"):
                raise Returned
            return super().forward(batch)

    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(64, 64), Layer(64, 64), nn.Linear(64, 8))
    optimizer: Any = torch.optim.SGD(net.parameters(), lr=0.01)
    if fault.backend == "cpu:dear":
        import datetime

        torch.distributed.init_process_group("cpu:dear", timeout=datetime.timedelta(seconds=TIMEOUT))
        model: Any = nn.parallel.DistributedDataParallel(net)
    else:
        group = dear.init(backend=fault.backend, timeout=TIMEOUT)
        model, optimizer = dear.distribute(net, optimizer, fusion="layer", process_group=group, timeout=TIMEOUT)
    for step in range(1000):
        net[1].step = step
        try:
            loss = model(torch.ones(4, 64)).square().mean()
        except Returned:
            return
        optimizer.zero_grad()
        loss.backward()
        if here(step, "between"):
            return
        optimizer.step()
        if here(step, "after"):
            return


class Returned(Exception):
    pass


def as_rank() -> None:
    fault = Fault(**json.loads(os.environ["DEAR_FAULT"]))
    if int(os.environ["RANK"]) == fault.rank:
        return train(fault)
    try:
        train(fault)
    except Exception as error:
        text = " ".join(str(error).split())
        print(f"ERROR-OF {os.environ['RANK']} {time.monotonic()} {type(error).__name__}: {text}", flush=True)
        sys.exit(1)


# ---- the command


def main() -> int:
    asked = argparse.ArgumentParser(description="Random faults of ranks, and what the others learn of them.")
    asked.add_argument("--runs", type=int, default=40)
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--backends", default=",".join(BACKENDS))
    asked.add_argument("--launchers", default=",".join(LAUNCHERS))
    asked.add_argument("--most-ranks", type=int, default=6)
    asked.add_argument("--dear", default="dear", help="the program, for its launcher")
    given = asked.parse_args()
    backends, launchers = given.backends.split(","), given.launchers.split(",")
    unknown = [one for one in backends if one not in BACKENDS] + [one for one in launchers if one not in LAUNCHERS]
    if unknown or given.runs < 1 or given.most_ranks < 2:
        print(
            f"faults.py: cannot draw {given.runs} runs with {', '.join(unknown) or 'these options'}: see --help",
            file=sys.stderr,
        )
        return 2
    choice = random.Random(given.seed)
    outcomes: list[Outcome] = []
    for number in range(given.runs):
        outcome = run(draw(choice, backends, launchers, given.most_ranks), given.dear)
        outcomes.append(outcome)
        took = "-" if outcome.seconds is None else f"{outcome.seconds:.2f} s"
        print(f"{number:4} {'good' if outcome.good else 'BAD '} {took:>8}  {outcome.fault}", flush=True)
        if not outcome.good:
            print(f"     hung {outcome.hung}, left {outcome.left}, wrong {outcome.wrong}: {outcome.errors}", flush=True)
    print("\n| fault | runs | median | worst |\n|---|---|---|---|")
    for kind in KINDS:
        times = [one.seconds for one in outcomes if one.fault.kind == kind and one.seconds is not None]
        if times:
            print(f"| {kind} | {len(times)} | {statistics.median(times):.2f} s | {max(times):.2f} s |")
    bad = [one for one in outcomes if not one.good]
    print(
        f"\n{len(outcomes)} runs: {sum(one.hung for one in outcomes)} hung, {sum(len(one.wrong) for one in outcomes)} survivors "
        f"that blame another rank, {sum(one.left for one in outcomes)} processes left"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--as-rank"]:
        as_rank()
    else:
        sys.exit(main())
