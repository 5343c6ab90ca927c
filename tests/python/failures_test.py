"""What ranks learn of one that fails, with its exception as the cause.  failures_test.py DEAR

A hundred drawn runs of bench/faults, and some with another thread or a launcher; children of a fork; saves that take longer than
the timeout.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "faults"))

import faults  # noqa: E402
from judge import Fault, draw  # noqa: E402

import dear  # noqa: E402
from dear import _failures  # noqa: E402

COMMAND = ""


class Told(unittest.TestCase):
    """Runs of which each survivor names the rank and the cause, which is no timeout; none has trained with other parameters than a
    training without a fault, and nothing is left."""

    def check(self, bench: faults.Bench, fault: Fault) -> faults.Outcome:
        outcome = bench.run(fault)
        self.assertEqual(set(outcome.bad) - {"late"}, set(), f"{fault}: {outcome}")
        return outcome

    def test_a_hundred_drawn_runs(self) -> None:
        choice = random.Random(7)
        drawn: list[Fault] = []
        while len(drawn) < 100:
            fault = draw(choice, ["shm", "shm", "gloo", "cpu:dear"], ["none"], most_ranks=4)
            if not fault.told_by_timeout:
                drawn.append(fault)

        digests: dict[tuple[str, int, str], list[str]] = {}

        def run(some: list[Fault]) -> None:
            with faults.Bench(digests=digests) as bench:
                for fault in some:
                    self.check(bench, fault)

        with ThreadPoolExecutor(2) as pool:
            for _ in pool.map(run, (drawn[::2], drawn[1::2])):
                pass

    def test_the_launcher_says_it_last_and_once(self) -> None:
        with faults.Bench(COMMAND) as bench:
            outcome = self.check(
                bench, Fault(ranks=2, rank=1, kind="raise", point="between", step=2, backend="shm", launcher="dear")
            )
        lines = [line for line in outcome.output.splitlines() if line.startswith("dear launch: ")]
        self.assertEqual(len(lines), 1, outcome.output)
        self.assertRegex(
            lines[0],
            r"^dear launch: rank 1 failed first, [0-9.]+ s after the start: ValueError: poison \(rank\.py:\d+\)$",
        )
        self.assertEqual(outcome.output.strip().splitlines()[-1], lines[0])


class Words(unittest.TestCase):
    def cause(self, error: BaseException) -> str:
        try:
            raise error
        except BaseException as caught:
            return _failures.cause_of(type(caught), caught, caught.__traceback__)

    def test_type_text_and_line(self) -> None:
        self.assertRegex(self.cause(ValueError("bad\n batch")), r"^ValueError: bad batch \(failures_test\.py:\d+\)$")
        self.assertRegex(self.cause(KeyboardInterrupt()), r"^KeyboardInterrupt \(failures_test\.py:\d+\)$")
        self.assertLess(len(self.cause(ValueError("x" * 10_000))), 500)

    def test_the_line_is_the_programs_own(self) -> None:
        import torch

        try:
            torch.nn.Linear(2, 2)(torch.ones(3))
        except RuntimeError as error:
            self.assertRegex(
                _failures.cause_of(RuntimeError, error, error.__traceback__), r"\(failures_test\.py:\d+\)$"
            )

    def test_what_another_rank_did_stays_its_doing(self) -> None:
        self.assertEqual(self.cause(dear.TransportError("rank 2 failed: ValueError")), "rank 2 failed: ValueError")

    def test_hooks_are_put_around_those_of_the_program_once(self) -> None:
        before, seen = sys.excepthook, []
        try:
            sys.excepthook = lambda *about: seen.append(about)
            _failures.install()
            ours = sys.excepthook
            _failures.install()
            self.assertIs(sys.excepthook, ours)
        finally:
            sys.excepthook = before

    def test_the_end_of_a_thread_that_does_not_train_ends_nothing(self) -> None:
        before: Any = threading.excepthook
        told: list[Any] = []
        tell, _failures.tell = _failures.tell, lambda *about: told.append(about)  # type: ignore[assignment]
        try:
            threading.excepthook = lambda arguments: None
            _failures.install()

            def fail() -> None:
                raise ValueError("of a logger")

            beside = threading.Thread(target=fail)
            beside.start()
            beside.join()
            self.assertEqual(told, [])

            def train_and_fail() -> None:
                _failures._training_threads.add(threading.get_ident())
                fail()

            beside = threading.Thread(target=train_and_fail)
            beside.start()
            beside.join()
            self.assertEqual(len(told), 1)
        finally:
            threading.excepthook, _failures.tell = before, tell


# ---- programs of ranks


def model_on(backend: str, timeout: float) -> tuple[Any, Any]:
    import torch
    from torch import nn

    net = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 4))
    group = dear.init(backend=backend, timeout=timeout)
    return dear.distribute(net, torch.optim.SGD(net.parameters(), lr=0.01), fusion="layer", process_group=group)


def forked(backend: str) -> None:
    """A child that was forked between backward and step, with a save behind the training, ends as Python ends."""
    import shutil
    import tempfile

    import torch

    model, optimizer = model_on(backend, 60)
    folder = tempfile.mkdtemp()  # not removed by a child
    checkpoints = dear.Checkpoints(os.path.join(folder, "run"), model, asynchronous=True)
    for step in range(3):
        model(torch.ones(2, 16)).square().mean().backward()
        ends = {1: lambda: sys.exit(7), 2: lambda: [][1]}.get(step)
        if ends is not None:
            child = os.fork()
            if child == 0:
                ends()
                return
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            assert code == {1: 7, 2: 1}[step], code
        optimizer.step()
        if step == 0:
            checkpoints.save(step)
    checkpoints.wait()
    model.close()
    shutil.rmtree(folder)


def patient() -> None:
    """Rank 1 writes for three timeouts."""
    from dear import _C

    timeout = 0.7
    group = dear.init(timeout=timeout)

    def write() -> str:
        end = time.monotonic() + 3 * timeout
        while group.rank == 1 and time.monotonic() < end:
            _C.write_file(os.devnull, "x" * 4096)
        return f"rank {group.rank}"

    assert _C.patiently(group, write) == f"rank {group.rank}"
    try:
        _C.patiently(group, lambda: {}["no such"])
    except KeyError:
        return
    raise AssertionError("an error of the act was lost")


class Ranks(unittest.TestCase):
    def launch(self, *words: str, ranks: int = 2) -> None:
        program = [sys.executable, "-B", __file__, *words]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        ended = subprocess.run(
            [COMMAND, "launch", "-n", str(ranks), *program],
            env=environment,
            capture_output=True,
            text=True,
            timeout=100,
        )
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)

    def test_forked_children_leave_the_training_alone(self) -> None:
        self.launch("forked", "shm")

    def test_forked_children_leave_the_training_alone_over_gloo(self) -> None:
        self.launch("forked", "gloo")

    def test_saves_may_take_longer_than_the_timeout(self) -> None:
        self.launch("patient")


if __name__ == "__main__":
    if "RANK" in os.environ:
        {"forked": forked, "patient": patient}[sys.argv[1]](*sys.argv[2:])
    else:
        COMMAND = sys.argv.pop(1)
        unittest.main()
