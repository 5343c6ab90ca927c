"""A process that has imported all that a rank imports, and forks the ranks of one run after another: `Server` starts one and asks it.

A run so takes the time of its training, not that of importing PyTorch. The server has no thread but its own, and has run no
operator. Processes that its ranks leave behind become its children, so it finds them whatever session they are in.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Optional, TextIO


@dataclasses.dataclass
class Ended:
    """`codes`: of os.waitstatus_to_exitcode(), by rank, of those that ended by themselves. `left`: processes that were
    there when all ranks had ended, but for those that a fault leaves on purpose."""

    codes: dict[int, int]
    left: list[str]


class Server:
    """`prefix`: the words of a command that runs its arguments elsewhere, as `bench/hosts run 1` does. `ddp`: its ranks train by
    DistributedDataParallel. `preload`: a library that is loaded before all others."""

    def __init__(self, prefix: Sequence[str] = (), ddp: bool = False, preload: str = "") -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "LD_PRELOAD": preload}
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-B", os.path.abspath(__file__), *["ddp"] * ddp],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self._answer()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def ask(self, **request: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the fork server has ended: see what it printed")
        return json.loads(line)

    def start(
        self,
        run: dict[str, Any],
        environments: dict[int, dict[str, str]],
        folder: str,
        await_all_but: Optional[int],
        limit: float,
    ) -> None:
        """Forks a rank for each environment; its output goes to rank-N.txt in the folder. wait() then tells when all but
        one have ended, or `limit` seconds have passed."""
        self.ask(run=run, environments=environments, folder=folder, await_all_but=await_all_but, limit=limit)

    def wait(self) -> list[int]:
        """The awaited ranks that have not ended in time."""
        return list(self._answer())

    def end(self, patience: float) -> Ended:
        """Kills what is there after so many seconds, and what outlives the ranks."""
        self.ask(patience=patience)
        answer = self._answer()
        return Ended({int(rank): code for rank, code in answer["codes"].items()}, answer["left"])


# ---- the process


class _Ranks:
    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.processes: dict[int, int] = {}
        self.codes: dict[int, int] = {}

    def wait(self, whom: set[int], deadline: float) -> list[int]:
        files = {os.pidfd_open(self.processes[rank]): rank for rank in whom - set(self.codes)}
        waiting = select.poll()
        for file in files:
            waiting.register(file, select.POLLIN)
        open_ = set(files)
        while open_:
            left = deadline - time.monotonic()
            found = waiting.poll(max(0.0, left) * 1e3)
            if not found:
                break
            for file, _ in found:
                rank = files[file]
                self.codes[rank] = os.waitstatus_to_exitcode(os.waitpid(self.processes[rank], 0)[1])
                waiting.unregister(file)
                open_.discard(file)
        for file in files:
            os.close(file)
        return sorted(files[file] for file in open_)

    def end(self, patience: float) -> dict[str, Any]:
        everyone = set(self.processes)
        self.wait(everyone, time.monotonic() + patience)
        codes = dict(self.codes)
        for rank in everyone - set(codes):
            os.kill(self.processes[rank], signal.SIGKILL)
        self.wait(everyone, time.monotonic() + 60)
        for name in os.listdir(self.folder):
            if name.startswith("child-"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(name.removeprefix("child-")), signal.SIGKILL)
        return {"codes": codes, "left": self._left()}

    def _left(self) -> list[str]:
        """Those whose end is under way have some seconds for it."""
        deadline = time.monotonic() + 10.0
        while True:
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            children = [
                pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _parent(pid) == os.getpid()
            ]
            if not children or time.monotonic() > deadline:
                break
            time.sleep(0.01)
        names = []
        for pid in children:
            with contextlib.suppress(OSError):
                names.append(open(f"/proc/{pid}/stat").read())
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        return names


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        return 0


def _become(rank: int, environment: dict[str, str], folder: str, *files: TextIO) -> None:
    for file in files:
        file.close()
    os.setpgid(0, 0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    output = os.open(os.path.join(folder, f"rank-{rank}.txt"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(3, 256)
    os.environ.clear()
    os.environ.update(environment)


def serve() -> Optional[Callable[[], None]]:
    """In a rank: its program. It is called where the server's own calls have returned, and ends as any program does."""
    import rank as program

    requests = os.fdopen(os.dup(0), "r")
    answers = os.fdopen(os.dup(1), "w")

    def answer(what: Any) -> None:
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    os.dup2(2, 1)
    program.become_reaper()
    program.import_all("ddp" in sys.argv)
    gc.collect()
    gc.freeze()
    answer("ready")
    ranks = _Ranks("")
    for line in requests:
        asked = json.loads(line)
        if "patience" in asked:
            answer(ranks.end(asked["patience"]))
            continue
        run, ranks = asked["run"], _Ranks(asked["folder"])
        deadline = time.monotonic() + asked["limit"]
        for name, environment in asked["environments"].items():
            pid = os.fork()
            if pid == 0:
                _become(int(name), environment, asked["folder"], requests, answers)
                return lambda: program.main(run)
            ranks.processes[int(name)] = pid
        answer(ranks.wait(set(ranks.processes) - {asked["await_all_but"]}, deadline))
    return None


if __name__ == "__main__":
    act = serve()
    if act is not None:
        act()
