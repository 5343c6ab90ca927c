"""Random faults of ranks, and what the others learn of them.

    PYTHONPATH=build/release/python python bench/faults/faults.py --dear build/release/dear --runs 200

Each run trains on 2 to 6 ranks, of which one fails in a drawn way at a drawn point. Ranks without a launcher are forked by a
server (fork_server.py); those under a launcher are processes of their own, which take seconds to start. A run is bad where a rank
hangs, where a survivor goes on, names another rank or none, trained with other parameters than a training without a fault, or
learns of the fault late, and where processes or files are left. Backend "hosts": Gloo between two hosts of `bench/hosts up 2`;
"ddp": the rival, DistributedDataParallel on PyTorch's Gloo, whose survivors are judged alike. The same seed draws the same runs.
Exit code 1 where a run of DeAR was bad.

    faults.py --table LOG...    prints the tables of runs that were logged
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from typing import Optional

from fork_server import Server
from judge import BACKENDS, LAUNCHERS, Fault, Outcome, draw, judged, slow_saves
from tables import tables_of

HERE = os.path.dirname(os.path.abspath(__file__))
GIVE_UP = 30.0  # seconds beyond the timeout after which ranks of the server are killed
LAUNCHED = 400.0  # likewise of those that import PyTorch first

# The disk stalls three times: it takes no more than ten timeouts for each, and more than ten for all.
SLOW_DISK = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static void stall(int file) {
  static int left = 3;
  char link[64], path[4096] = "";
  const char* seconds = getenv("DEAR_FAULT_STALL");
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  if (!seconds || left == 0 || readlink(link, path, sizeof path - 1) < 0 || !strstr(path, "/saves/")) return;
  --left;
  for (unsigned more = atoi(seconds); more;) more = sleep(more);
}
ssize_t write(int file, const void* bytes, size_t count) {
  stall(file);
  return syscall(SYS_write, file, bytes, count);
}
int fsync(int file) {
  stall(file);
  return syscall(SYS_fsync, file);
}
"""


def environment_of(fault: Fault, mark: str, folder: str, port: int, rank: int) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("TORCHELASTIC", "SLURM", "OMPI"))}
    own.update(
        DEAR_FAULT=json.dumps(fault.as_run()), DEAR_FAULT_RUN=mark, DEAR_FAULT_FOLDER=folder, OMP_NUM_THREADS="1"
    )
    if fault.launcher == "none":
        here = ranks_of_host(fault, host_of(fault, rank))
        own.update(RANK=str(rank), LOCAL_RANK=str(here.index(rank)), LOCAL_WORLD_SIZE=str(len(here)))
        own.update(
            WORLD_SIZE=str(fault.ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCHELASTIC_RUN_ID=mark
        )
        if fault.hosts > 1:
            own.update(MASTER_ADDR="10.77.0.1", GLOO_SOCKET_IFNAME="eth0")
    return own


def host_of(fault: Fault, rank: int) -> int:
    return rank * fault.hosts // fault.ranks


def ranks_of_host(fault: Fault, host: int) -> list[int]:
    return [rank for rank in range(fault.ranks) if host_of(fault, rank) == host]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def processes_of(mark: str) -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
            if f"DEAR_FAULT_RUN={mark}".encode() in file.read().split(b"\0"):
                found.append(int(name))
    return found


class Bench:
    """Runs faults. `dear`: the path of the program, for its launcher. `digests`: of trainings without a fault, by backend, ranks and,
    where sums depend on it, policy; several benches may share them."""

    def __init__(self, dear: str = "dear", digests: Optional[dict[tuple[str, int, str], list[str]]] = None) -> None:
        self._dear = dear
        self._servers: dict[tuple[int, bool, bool], list[Server]] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="dear-faults-")
        self._digests = {} if digests is None else digests

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        for servers in self._servers.values():
            for server in servers:
                server.__exit__()
        self._folder.cleanup()

    def servers(self, fault: Fault) -> list[Server]:
        hosts, ddp, slow = fault.hosts, fault.backend in ("cpu:dear", "ddp"), fault.kind == "slow save"
        if (hosts, ddp, slow) not in self._servers:
            preload = self._slow_disk() if slow else ""
            command = os.path.join(HERE, "..", "hosts")
            prefixes = [[command, "run", str(host)] for host in range(hosts)] if hosts > 1 else [[]]
            self._servers[hosts, ddp, slow] = [Server(prefix, ddp, preload) for prefix in prefixes]
        return self._servers[hosts, ddp, slow]

    def _slow_disk(self) -> str:
        """A library by which a rank with DEAR_FAULT_STALL writes slowly."""
        source, library = (os.path.join(self._folder.name, f"slow_disk.{end}") for end in ("c", "so"))
        with open(source, "w") as file:
            file.write(SLOW_DISK)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        return library

    def run(self, fault: Fault) -> Outcome:
        key = (fault.backend, fault.ranks, fault.policy if fault.backend in ("gloo", "hosts", "mpi") else "")
        if fault.kind and key not in self._digests:
            launcher = "mpirun" if fault.backend == "mpi" else "none"
            whole = Fault(fault.ranks, 0, "", "", 0, fault.backend, launcher, policy=fault.policy)
            outcome, digests = self._run(whole, None)
            if outcome.bad or not digests:
                raise RuntimeError(f"a training without a fault failed: {outcome}")
            self._digests[key] = digests
        return self._run(fault, self._digests.get(key))[0]

    def _run(self, fault: Fault, digests: Optional[list[str]]) -> tuple[Outcome, list[str]]:
        mark = f"faults-{uuid.uuid4().hex}"
        folder = tempfile.mkdtemp(prefix="dear-faults-")
        try:
            hung, left = (self._fork if fault.launcher == "none" else self._launch)(fault, mark, folder)
            output = "\n".join(path.read_text(errors="replace") for path in sorted(pathlib.Path(folder).glob("*.txt")))
            # Whoever is killed in a save leaves its unfinished file to the next save.
            saved = pathlib.Path(folder, "saves").rglob(".dear-*")
            if fault.kind not in ("kill", "abort", "segv", "_exit", "stop", "slow"):
                left += [str(path) for path in saved]
            left += [str(path) for path in pathlib.Path(folder, "shm").glob("*")]
            output += "".join(f"\nLEFT {one}" for one in left)
            outcome = judged(fault, output, hung, left, digests)
            of_steps = [line.split()[2:] for line in output.splitlines() if line.startswith("DIGESTS-OF ")]
            return outcome, of_steps[0] if of_steps and all(one == of_steps[0] for one in of_steps) else []
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _fork(self, fault: Fault, mark: str, folder: str) -> tuple[list[int], list[str]]:
        servers, port = self.servers(fault), free_port()
        lives = fault.kind in ("stop", "slow", "closed") or fault.thread
        for host, server in enumerate(servers):
            environments = {
                rank: environment_of(fault, mark, folder, port, rank) for rank in ranks_of_host(fault, host)
            }
            server.start(fault.as_run(), environments, folder, fault.rank if lives else None, fault.timeout + GIVE_UP)
        hung = [rank for server in servers for rank in server.wait()]
        left = [one for server in servers for one in server.end(0.0).left]
        return hung, left

    def _launch(self, fault: Fault, mark: str, folder: str) -> tuple[list[int], list[str]]:
        program = [sys.executable, "-B", os.path.join(HERE, "rank.py")]
        shm = os.path.join(folder, "shm")
        os.mkdir(shm)
        count = str(fault.ranks)
        words = {
            "dear": [self._dear, "launch", "-n", count, "--grace", "10s", "--no-prefix", "--", *program],
            "torchrun": [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
            + program[2:],
            "mpirun": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", count]
            + ["--mca", "btl_vader_backing_directory", shm, *program],
        }[fault.launcher]
        hung = []
        with open(os.path.join(folder, "launcher.txt"), "w") as output:
            launcher = subprocess.Popen(
                words, env=environment_of(fault, mark, folder, 0, 0), stdout=output, stderr=subprocess.STDOUT
            )
            try:
                launcher.wait(LAUNCHED)
            except subprocess.TimeoutExpired:
                hung = [-1]
        # A rank that a launcher has just ended may take a moment to go.
        deadline = time.monotonic() + 10.0
        while (left := processes_of(mark)) and time.monotonic() < deadline and not hung:
            time.sleep(0.02)
        of_fault = {int(path.name.removeprefix("child-")) for path in pathlib.Path(folder).glob("child-*")}
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        launcher.wait()
        mine = [str(pid) for pid in left if fault.launcher == "dear" or pid not in of_fault]
        return hung, [] if hung else mine


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--runs", type=int, default=40)
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--first", type=int, default=0, help="draw, but do not run, those before this one")
    asked.add_argument(
        "--backends",
        default="shm,gloo,cpu:dear",
        help=f"among {', '.join(BACKENDS)}; one twice as often if given twice",
    )
    asked.add_argument("--launchers", default="none", help=f"likewise among {', '.join(LAUNCHERS)}")
    asked.add_argument("--kinds", default="", help="only these")
    asked.add_argument("--points", default="", help="only these")
    asked.add_argument("--slow-saves", action="store_true", help="saves of ten times the timeout instead")
    asked.add_argument("--most-ranks", type=int, default=6)
    asked.add_argument("--dear", default="dear", help="the program, for its launcher")
    asked.add_argument("--log", default="", help="a file to which each run is added as a line of JSON")
    asked.add_argument("--table", nargs="+", default=[], metavar="LOG")
    asked.add_argument("--csv", default="", help="with --table: a file for its figures")
    given = asked.parse_args()
    if given.table:
        print(tables_of(given.table, given.csv))
        return 0
    backends, launchers = given.backends.split(","), given.launchers.split(",")
    unknown = [one for one in backends if one not in BACKENDS] + [one for one in launchers if one not in LAUNCHERS]
    if unknown or given.runs < 1 or given.most_ranks < 2:
        print(
            f"faults.py: cannot draw {given.runs} runs with {', '.join(unknown) or 'these options'}: see --help",
            file=sys.stderr,
        )
        return 2
    choice = random.Random(given.seed)
    drawn = slow_saves(backends) if given.slow_saves else []
    kinds, points = given.kinds.split(",") if given.kinds else [], given.points.split(",") if given.points else []
    while len(drawn) < given.runs and not given.slow_saves:
        fault = draw(choice, backends, launchers, given.most_ranks)
        if (not kinds or fault.kind in kinds) and (not points or fault.point in points):
            drawn.append(fault)
    wrong = 0
    log = given.log or os.path.join(tempfile.mkdtemp(), "faults.jsonl")
    with Bench(given.dear) as bench, open(log, "a") as file:
        for number, fault in enumerate(drawn):
            if number < given.first:
                continue
            begin = time.monotonic()
            outcome = bench.run(fault)
            about = dataclasses.asdict(outcome)
            if outcome.good:
                del about["output"]
            file.write(json.dumps(about) + "\n")
            file.flush()
            wrong += not outcome.good and fault.backend != "ddp"
            took = "-" if outcome.seconds is None else f"{outcome.seconds:.2f} s"
            print(
                f"{number:4} {', '.join(outcome.bad) or 'good'} {took:>8}  {fault} ({time.monotonic() - begin:.1f} s)",
                flush=True,
            )
            if not outcome.good and fault.backend != "ddp":
                print(f"     right {outcome.right} of {outcome.asked}: {outcome.errors}", flush=True)
    print(tables_of([log], ""))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
