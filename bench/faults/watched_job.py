"""A job whose ports are watched, and to which strangers come; and what true ranks say at its meetings."""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from typing import Any, Optional

from faults import processes_of
from stranger import MAGIC, Port, Stranger, has, listening

PATIENCE = 120.0  # seconds for each wait on a job
RUN = uuid.uuid4().hex  # all jobs of a backend have one name and port, so that what was said at one meeting fits others


@dataclasses.dataclass
class Ran:
    wrong: str = ""
    digest: str = ""
    step: float = 0.0
    peak: float = 0.0
    seen: dict[str, set[str]] = dataclasses.field(default_factory=lambda: collections.defaultdict(set))
    names: set[str] = dataclasses.field(default_factory=set)  # of local sockets at which ranks meet
    told: dict[str, Any] = dataclasses.field(default_factory=dict)  # by the strangers


def free_port(draw: random.Random) -> int:
    """Not one that the kernel gives to whoever connects: strangers that come before rank 0 would take it."""
    while True:
        port = draw.randrange(20000, 30000)
        with contextlib.suppress(OSError), socket.socket() as one:
            one.bind(("127.0.0.1", port))
            return port


LAUNCHED = ("elastic", "hosts")  # by `dear launch`


class Job:
    def __init__(self, options: argparse.Namespace, backend: str, folder: pathlib.Path) -> None:
        self.options, self.backend, self.folder, self.ran = options, backend, folder, Ran()
        self.mark = f"strangers-{uuid.uuid4().hex}"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.pids: list[int] = []
        self.stranger: Optional[Stranger] = None
        self.news = self.visited = 0  # ports seen, and those that stayed for strangers
        self.phase, self.known, self.foreign = "before", dict[str, Port](), set[str]()

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in processes_of(self.mark):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for process in self.processes:
            process.wait()
        if self.stranger is not None:
            self.ran.told = self.stranger.end()

    def start(self, ranks: list[int], meets_at: Optional[int] = None) -> None:
        """`meets_at`: the port of rank 0 for the last rank."""
        given = self.options
        own = {
            name: value for name, value in os.environ.items() if not name.startswith(("TORCHELASTIC", "SLURM", "OMPI"))
        }
        own.update(DEAR_FAULT_RUN=self.mark, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
        words = [
            sys.executable,
            "-B",
            os.path.join(os.path.dirname(os.path.abspath(__file__)), "strangers.py"),
            "--folder",
            str(self.folder),
            "--backends",
            self.backend,
        ]
        words += ["--steps", str(given.steps), "--width", str(given.width)]
        output = open(self.folder / "output", "ab")
        if self.backend in LAUNCHED:
            launch = [given.dear, "launch", "--elastic", f"1:{given.ranks}", "--restarts", "1"]
            on_each = [[]] if self.backend == "elastic" else [["-n", str(given.ranks - 1)], ["-n", "1"]]
            for here in on_each:
                here += ["--hosts", "2", "--meet", f"127.0.0.1:{self.options.port}"] if here else []
                command = [*launch, *here, "--", *words]
                self.processes.append(subprocess.Popen(command, env=own, stdout=output, stderr=output))
            return
        own.update(MASTER_ADDR="127.0.0.1", WORLD_SIZE=str(given.ranks), LOCAL_WORLD_SIZE=str(given.ranks))
        own["TORCHELASTIC_RUN_ID"] = f"strangers-{RUN}-{self.backend}"
        if self.backend == "gloo+secret":
            own["DEAR_SECRET_FILE"] = given.secret
        for rank in ranks:
            port = meets_at if meets_at is not None and rank == given.ranks - 1 else self.options.port
            here = {**own, "RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_PORT": str(port)}
            self.processes.append(subprocess.Popen(words, env=here, stdout=output, stderr=output))

    def sample(self) -> None:
        """Looks at all ports."""
        now = dict(listening(self.options.port))
        for inode, port in now.items():
            if self.backend == "hosts" and port.label == "MASTER_PORT":
                port = port._replace(label="--meet")
            if inode not in self.known and inode not in self.foreign:
                if has(self.pids, inode):
                    self.known[inode] = port
                    self.news += 1
                    if port.label.startswith("@dear"):
                        self.ran.names.add(port.address)
                    if self.stranger is not None and self.is_ours(port) and port.label != "MASTER_PORT":
                        self.stranger.say(name=inode, port=port)
                else:
                    self.foreign.add(inode)
            if inode in self.known:
                self.ran.seen[port.label].add(self.phase)
        # The kernel may give the number of a port that is closed to anybody.
        for inode in self.known.keys() - now.keys():
            if self.known.pop(inode).label != "MASTER_PORT" and self.stranger is not None:
                self.stranger.say(gone=inode)

    def watch(self, until: Callable[[], bool], seconds: float = PATIENCE, pause: float = 0.002) -> None:
        deadline = time.monotonic() + seconds
        while not until():
            if any(process.poll() for process in self.processes):
                raise RuntimeError("a rank ended with an error")
            if time.monotonic() > deadline:
                raise RuntimeError(f"nothing for {seconds:.0f} s in phase '{self.phase}'")
            self.sample()
            time.sleep(pause)

    def all_have(self, what: str, ranks: list[int]) -> bool:
        return all((self.folder / f"{what}-{rank}").exists() for rank in ranks)

    def enter(self, phase: str) -> None:
        self.phase = phase
        if self.stranger is not None:
            self.stranger.say(phase=phase)

    def run(self, kind: str, recorded: dict[int, bytes], seed: int, meets_at: Optional[int] = None) -> Ran:
        ranks = list(range(self.options.ranks))
        last = ranks[-1]
        try:
            self.start(ranks, meets_at)
            self.watch(lambda: self.all_have("here", ranks), pause=0.02)
            self.pids = [int((self.folder / f"here-{rank}").read_text()) for rank in ranks]
            of_last = self.pids[last]
            self.foreign.clear()
            self.pids += [process.pid for process in self.processes if process.pid not in self.pids]
            if kind:
                self.meet_strangers(kind, recorded, seed)
            self.watch(after(0.5))
            self.enter("at")
            for rank in ranks[:-1]:
                (self.folder / f"go-{rank}").touch()
            self.watch(after(self.options.hold))
            if self.known:  # members of an elastic job open no port until all of them are ready
                given_up = after(30.0)
                self.watch(lambda: self.have_done_enough() or given_up())
            self.visited = self.news
            (self.folder / f"go-{last}").touch()
            self.run_in_slices(of_last, lambda: self.all_have("met", ranks))
            self.watch(lambda: self.all_have("met", ranks))
            self.enter("after")
            self.watch(lambda: all(process.poll() is not None for process in self.processes), pause=0.05)
            results = [json.loads((self.folder / f"result-{rank}").read_text()) for rank in ranks]
            if re.search("takes its place|restart [0-9]", (self.folder / "output").read_text(errors="replace")):
                raise RuntimeError("a rank failed and was replaced")
            self.ran.digest = " ".join(sorted(one["digest"] for one in results))
            self.ran.step, self.ran.peak = results[0]["step"], results[0]["peak"]
        except (RuntimeError, OSError) as error:
            said = (self.folder / "output").read_text(errors="replace")[-1500:]
            self.ran.wrong = f"{error}: {said}"
        return self.ran

    def meet_strangers(self, kind: str, recorded: dict[int, bytes], seed: int) -> None:
        told = pathlib.Path(f"/proc/{self.pids[0]}/environ").read_bytes().decode().split("\0")
        variables = dict(one.split("=", 1) for one in told if "=" in one)
        self.stranger = Stranger(kind, recorded, self.options, seed)
        master = ("127.0.0.1", int(variables["MASTER_PORT"]))
        port = Port("MASTER_PORT", socket.AF_INET, socket.SOCK_STREAM, master)
        if self.is_ours(port):
            self.stranger.say(name="master", port=port)
        for pipe in filter(None, variables.get("DEAR_MEMBERSHIP", "").split(":")):
            self.stranger.say(name=pipe, port=Port("/proc/PID/fd/N of the launcher", 0, socket.SOCK_STREAM, pipe))

    def is_ours(self, port: Port) -> bool:
        """Whether strangers come to it: on "cpu:dear/local" not to those of PyTorch's TCPStore and its Gloo."""
        return self.backend != "cpu:dear/local" or port.family == socket.AF_UNIX

    def have_done_enough(self) -> bool:
        return self.stranger is None or bool(select.select([self.stranger.told], [], [], 0)[0])

    def run_in_slices(self, pid: int, until: Callable[[], bool]) -> None:
        """So that no port opens and closes between two looks; a new one stays for a time in which strangers reach it."""
        is_over, before = after(20.0), os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, 0, -15)
        try:
            while not until() and not is_over() and not any(process.poll() for process in self.processes):
                os.kill(pid, signal.SIGSTOP)
                self.sample()
                while self.visited < self.news:  # also those that open meanwhile
                    self.visited = self.news
                    stretched, given_up = after(self.options.stretch), after(self.options.stretch + 5.0)
                    self.watch(lambda: stretched() and (self.have_done_enough() or given_up()))
                os.kill(pid, signal.SIGCONT)
                time.sleep(0.0003)
        finally:
            os.setpriority(os.PRIO_PROCESS, 0, before)


def after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def run(options: argparse.Namespace, backend: str, kind: str, recorded: dict[int, bytes], seed: int) -> Ran:
    with tempfile.TemporaryDirectory(prefix="dear-strangers-") as folder:
        with Job(options, backend, pathlib.Path(folder)) as job:
            job.run(kind, recorded, seed)
        return job.ran


# ---- what true ranks say


def carry(listener: socket.socket, port: int, file: pathlib.Path) -> None:
    """Carries bytes between whoever connects to the listener and the port, and keeps what the longest connection said."""
    said = b""
    while True:
        guest, _ = listener.accept()
        with guest, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as host:
            mine, other = b"", {guest: host, host: guest}
            reads = [guest, host]
            while reads:
                for one in select.select(reads, [], [], PATIENCE)[0]:
                    data = one.recv(65536)
                    mine += data if one is guest else b""
                    if data:
                        other[one].sendall(data)
                    else:
                        reads.remove(one)
                        other[one].shutdown(socket.SHUT_WR)
            if len(mine) > len(said):
                said = mine
                file.write_bytes(said)


def record_stream(options: argparse.Namespace, backend: str) -> bytes:
    """Of a whole meeting over TCP."""
    with (
        tempfile.TemporaryDirectory(prefix="dear-strangers-") as folder,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        with Job(options, backend, pathlib.Path(folder)) as job:
            pid = os.fork()
            if pid == 0:
                try:
                    carry(listener, options.port, pathlib.Path(folder, "said"))
                finally:
                    os._exit(0)
            try:
                job.run("", {}, 0, meets_at=listener.getsockname()[1])
            finally:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        if job.ran.wrong:
            raise RuntimeError(job.ran.wrong)
        said = pathlib.Path(folder, "said").read_bytes()
        if not said.startswith(MAGIC):
            raise RuntimeError(
                f"what a rank says at a meeting begins with {said[:8]!r}, not with {MAGIC!r}: mend stranger.py"
            )
        return said


def record_packet(options: argparse.Namespace) -> bytes:
    """The last rank's hello at the local socket of a meeting, whose name a whole job tells."""
    name = run(options, "shm", "", {}, 0).names.pop()
    with tempfile.TemporaryDirectory(prefix="dear-strangers-") as folder:
        last = options.ranks - 1
        with (
            Job(options, "shm", pathlib.Path(folder)) as job,
            socket.socket(1, socket.SOCK_SEQPACKET) as listener,
        ):
            listener.bind(name)
            listener.listen()
            listener.settimeout(PATIENCE)
            (job.folder / f"go-{last}").touch()
            job.start([last])
            return listener.accept()[0].recv(65536)
