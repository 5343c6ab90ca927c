"""Runs steps in processes of their own, each step with its deadline.

Steps that follow one another with the same ranks and library run in the same processes, which take seconds to start: a
session. A step that fails, or is not done at its deadline, ends the session; the next step begins another. So what is
left of a failed step reaches no other.
"""

from __future__ import annotations

import itertools
import json
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steps import Step

START_SECONDS = 90.0  # until all ranks have imported PyTorch and found one another
END_SECONDS = 5.0  # for a process that is told to end
TAIL = 30  # lines of a log in a result


@dataclass
class Outcome:
    step: Step
    outcome: str  # "passed", "failed", "not here", "not run"
    why: str = ""
    seconds: float = 0.0
    figures: dict[str, Any] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)  # its end, where the step failed
    library: str = ""
    hung: bool = False


Command = Callable[[Sequence[Step], int, int], tuple[list[str], dict[str, str]]]
"""Of the steps, a rank and the file descriptor that it reports to: what is started, and its environment."""


class Session:
    """The processes of the ranks, which make checks one after another."""

    def __init__(self, steps: Sequence[Step], command: Command, log: Path) -> None:
        self._log = log
        self._selector = selectors.DefaultSelector()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._unread: list[bytes] = []
        self._told: list[list[dict[str, Any]]] = []  # by rank: lines that no step has taken yet
        rendezvous = _rendezvous()
        ranks = steps[0].ranks
        with log.open("wb") as output:
            for rank in range(ranks):
                reading, writing = os.pipe()
                arguments, environment = command(steps, rank, writing)
                environment = {**environment, **rendezvous, "RANK": str(rank), "WORLD_SIZE": str(ranks)}
                self._processes.append(
                    subprocess.Popen(
                        arguments, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                        pass_fds=[writing], start_new_session=True,
                    )
                )  # fmt: skip
                os.close(writing)
                self._unread.append(b"")
                self._told.append([])
                self._selector.register(reading, selectors.EVENT_READ, rank)

    def next_outcome(self, step: Step, seconds: float) -> Outcome:
        """What the ranks say next, of a step that they have begun; one that fails speaks for all."""
        begin = time.monotonic()
        while True:
            failed = [told[0] for told in self._told if told and told[0]["outcome"] == "failed"]
            if failed or all(self._told):
                found = failed or sorted((told[0] for told in self._told), key=lambda line: line["outcome"])
                if not failed:
                    for told in self._told:
                        told.pop(0)
                first = found[0]
                return self._outcome(step, first["outcome"], first.get("why", ""), begin, first.get("figures", {}))
            left = begin + seconds - time.monotonic()
            if left <= 0:
                late = [str(rank) for rank, told in enumerate(self._told) if not told]
                self._abort()
                why = f"rank {' and rank '.join(late)} did not end within {seconds:.0f} s; the log says where"
                return self._outcome(step, "failed", why, begin, hung=True)
            for key, _ in self._selector.select(left):
                self._read(key)

    def _read(self, key: selectors.SelectorKey) -> None:
        rank: int = key.data
        data = os.read(key.fd, 65536)
        if not data:
            self._selector.unregister(key.fd)
            os.close(key.fd)
            status = self._processes[rank].wait()
            why = f"ended by signal {-status}" if status < 0 else f"ended with exit code {status}"
            self._told[rank].append({"outcome": "failed", "why": f"rank {rank} {why}"})
            return
        *lines, self._unread[rank] = (self._unread[rank] + data).split(b"\n")
        self._told[rank] += [json.loads(line) for line in lines]

    def _outcome(
        self,
        step: Step,
        outcome: str,
        why: str,
        begin: float,
        figures: dict[str, Any] | None = None,
        hung: bool = False,
    ) -> Outcome:
        log = self._log.read_text(errors="replace").splitlines()[-TAIL:] if outcome == "failed" else []
        return Outcome(step, outcome, why, time.monotonic() - begin, figures or {}, log, hung=hung)

    def _abort(self) -> None:
        """The ranks say where they are, by faulthandler, and end."""
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGABRT)
        self._reap(END_SECONDS)

    def _reap(self, seconds: float) -> None:
        """Waits for the ranks so long, and kills what is left of them with all that they have started."""
        end = time.monotonic() + seconds
        for process in self._processes:
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
        for process in self._processes:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()

    def end(self, failed: bool) -> None:
        self._reap(0.0 if failed else END_SECONDS)
        for key in list(self._selector.get_map().values()):
            os.close(key.fd)
        self._selector.close()


def _rendezvous() -> dict[str, str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}


def run(steps: Sequence[Step], command: Command, folder: Path, until: float) -> Iterator[Outcome]:
    """Steps of the same ranks and library, in as many sessions as it takes. `until`: no step goes on beyond this time of
    time.monotonic()."""
    left = list(steps)
    for number in itertools.count():
        if not left:
            return
        if time.monotonic() >= until:
            yield from (Outcome(step, "not run", "the time of the check was used up") for step in left)
            return
        log = folder / f"{left[0].name}-{number}.log"
        session = Session(left, command, log)
        failed = True
        try:
            start = session.next_outcome(left[0], min(START_SECONDS, until - time.monotonic()))
            if start.outcome == "failed":  # so it would be with the others
                start.why = f"the ranks did not start: {start.why}"
                yield start
                yield from (Outcome(step, "failed", f"as {left[0].name}: {start.why}") for step in left[1:])
                return
            while left:
                seconds = min(left[0].seconds, until - time.monotonic())
                if seconds <= 0:
                    break
                outcome = session.next_outcome(left.pop(0), seconds)
                failed = outcome.outcome == "failed"
                yield outcome
                if failed:
                    break
        finally:
            session.end(failed)
