#!/usr/bin/env python3
"""Ranks over MPI that are killed, stopped, late, absent, or ask for something else: what the others meet.

  failures_test.py MPIRUN FAILING_RANK IMPLEMENTATION [SUITE...] [--trials N]

Each trial is a job of its own, under an mpirun that is told to let the survivors live. Without --trials: each action
once, at a fixed place. With it: N of them at random, seeded."""

import argparse
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

TIMEOUT = 3  # seconds, of the ranks
LIMIT = 60  # of a trial, before it counts as hung
PATIENCE = 30  # seconds, of ranks that wait for a late one

# So that one rank's end is not the end of all: that is what is tried here. MPICH's mpiexec ends the others all the same
# when the output of a rank that was killed is closed; so a shell holds that open, and ends as if nothing had happened.
SURVIVE = {
    "openmpi": ["--enable-recovery"],
    "mpich": ["-disable-auto-cleanup", "sh", "-c", 'trap "" USR1; "$@" || :', "sh"],
}


def processes_of(folder):
    """Processes with the folder in their command line."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and folder.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            pass
    return found


def shared_memory():
    """Files in /dev/shm that no process uses."""
    used = set()
    for maps in pathlib.Path("/proc").glob("[0-9]*/maps"):
        try:
            used |= set(re.findall(r"/dev/shm/(\S+)", maps.read_text()))
        except OSError:
            pass
    found = {entry.name for entry in pathlib.Path("/dev/shm").iterdir()}
    return {name for name in found - used if not name.startswith("dear-m")}  # not of ranks that come and go


def wait_for(condition):
    end = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


class Trial:
    """One job. `reports`: by survivor, what it met."""

    def __init__(self, backend, ranks, action, victim, after):
        self.what = f"{backend}: {action} of rank {victim} of {ranks} after {after}"
        lives = re.match("leave|mismatch|late|count=|label=", action)
        self.survivors = [rank for rank in range(ranks) if rank != victim or lives]
        before = shared_memory()
        with tempfile.TemporaryDirectory(prefix="dear-mpi-failures-") as folder:
            os.mkfifo(f"{folder}/late")
            # What it says of the end of ranks is of no interest.
            job = subprocess.Popen(
                [ARGS.mpirun, ARGS.implementation, str(ranks)]
                + SURVIVE[ARGS.implementation]
                + [ARGS.failing_rank, folder, backend, str(PATIENCE if action == "late" else TIMEOUT), str(victim), action,
                   str(after)],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                env={**os.environ, "XDG_CACHE_HOME": f"{folder}/cache"})
            try:
                self.reports = self.collect(job, folder)
            finally:
                self.left = self.end(job, folder)
        wait_for(lambda: not shared_memory() - before)
        self.segments = shared_memory() - before

    def collect(self, job, folder):
        paths = {rank: pathlib.Path(folder) / str(rank) for rank in self.survivors}
        wait_for(lambda: all(path.exists() for path in paths.values()) or job.poll() is not None)
        missing = "hung" if job.poll() is None else "ended by mpirun"
        reports = {rank: path.read_text() if path.exists() else missing for rank, path in paths.items()}
        # Whatever it is told, mpirun of Open MPI 5 may end the others once one rank has ended with an error.
        if ARGS.ends_survivors and any(report != missing for report in reports.values()):
            reports = {rank: report for rank, report in reports.items() if report != "ended by mpirun"}
        return reports

    def end(self, job, folder):
        """What is left of the job when it has had time to end."""
        # Ranks that were stopped or never came are ours to end, and mpirun's only after they are gone.
        wait_for(lambda: not [pid for pid in processes_of(folder) if self.is_survivor(pid, folder)])
        for pid in processes_of(folder):
            if self.is_rank(pid):
                os.kill(pid, signal.SIGKILL)
        try:
            job.wait(20)
        except subprocess.TimeoutExpired:
            job.terminate()
            try:
                job.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()
        wait_for(lambda: not processes_of(folder))
        return processes_of(folder)

    @staticmethod
    def is_rank(pid):
        try:
            return os.path.samefile(f"/proc/{pid}/exe", ARGS.failing_rank)
        except OSError:
            return False

    def is_survivor(self, pid, folder):
        """A rank that has reported and should end by itself."""
        try:
            environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
        except OSError:
            return False
        match = re.search(r"(?:OMPI_COMM_WORLD_RANK|PMI_RANK)=(\d+)", environment)
        return self.is_rank(pid) and bool(match) and int(match.group(1)) in self.survivors


class TestCase(unittest.TestCase):
    def try_it(self, backend, ranks, action, victim, after):
        trial = Trial(backend, ranks, action, victim, after)
        self.assertEqual(trial.left, [], trial.what)
        self.assertEqual(trial.segments, set(), trial.what)
        expected = "^ended$" if action == "late" else r"^(Transport|Timeout|Mismatch)Error: ."
        for rank, report in trial.reports.items():
            self.assertRegex(report, expected, f"{trial.what}, rank {rank}")
        return trial.reports


class Failures:
    """Of one backend."""

    backend = ""
    mismatch_of_sizes = ""

    def fail_by(self, ranks, action, victim, after):
        return self.try_it(self.backend, ranks, action, victim, after)

    def test_a_rank_that_dies_is_named(self):
        for reports in (self.fail_by(2, "kill", 1, 10), self.fail_by(4, "kill", 0, 3)):
            self.assertRegex(" ".join(reports.values()), r"rank [01] \(pid \d+\) died")

    # While others wait for its word, or take the bytes that it was sending.
    def test_a_rank_that_dies_at_any_moment(self):
        generator = random.Random(20260102)
        for _ in range(3):
            self.fail_by(3, kill_soon(generator), 2, 7)

    def test_a_rank_that_is_late_is_waited_for(self):
        self.fail_by(3, "late", 1, 20)

    def test_a_rank_that_is_stopped_is_named_with_the_remedy(self):
        reports = self.fail_by(2, "stop", 1, 5)
        self.assertRegex(reports[0], r"TimeoutError: rank 1 \(pid (\d+)\) did not come .* kill -CONT \1")

    def test_a_rank_that_asks_for_something_else_is_told_so(self):
        for after in (6, 7):  # small, large
            reports = self.fail_by(2, "mismatch", 1, after)
            self.assertRegex(" ".join(reports.values()), "same collectives")

    # The algorithms of the two sizes are not the same.
    def test_large_where_others_ask_for_small_and_small_where_they_ask_for_large(self):
        for after, count in ((6, 300000), (7, 1)):
            for report in self.fail_by(3, f"count={count}", 2, after).values():
                self.assertRegex(report, self.mismatch_of_sizes.format(count=count))

    # A small message says all this in 8 bytes, but for labels that need more.
    def test_labels_that_differ_are_named(self):
        for label in (5, 1 << 40):
            reports = self.fail_by(2, f"label={label}", 1, 6)
            for report in reports.values():
                self.assertRegex(report, rf"^MismatchError: .*rank 1 asks .* \(label {label}\), rank 0 [^(]*$")

    def test_a_rank_that_leaves_is_named(self):
        trial = Trial(self.backend, 2, "leave", 1, 8)
        self.assertEqual(trial.left, [])
        self.assertIn("TransportError: rank 1", trial.reports[0])
        self.assertIn("left the group", trial.reports[0])

    def test_a_rank_that_exits_with_its_group_has_left(self):
        reports = self.fail_by(2, "exit", 1, 8)
        self.assertIn("TransportError: rank 1", reports[0])
        self.assertIn("left the group", reports[0])


class FailuresBesideSharedMemory(Failures, TestCase):
    backend = "mpi"
    mismatch_of_sizes = "^MismatchError: .*rank 2 asks for .* of {count} fp32"

    def test_a_rank_that_does_not_come_is_waited_for_in_vain(self):
        reports = self.fail_by(2, "absent", 1, 0)
        self.assertIn("TimeoutError: MPI did not start within", reports[0])


class FailuresByMessages(Failures, TestCase):
    backend = "mpi-messages"
    # An eager message that meets the first message of a program may be found too long before it is read.
    mismatch_of_sizes = "^(Mismatch|Transport)Error: .*same collectives"


def kill_soon(generator):
    return f"kill={generator.randrange(20000)}"


class Trials(TestCase):
    def test_random(self):
        generator = random.Random(20260101)
        for trial in range(ARGS.trials):
            ranks = generator.randint(2, 4)
            kill = kill_soon(generator)
            action = generator.choice([kill, kill, kill, "stop", "stop", "absent", "late"])
            backend = generator.choice(["mpi", "mpi-messages"])
            reports = self.try_it(backend, ranks, action, generator.randrange(ranks), generator.randrange(60))
            told = sorted(reports.items())[0][1][:110]
            print(f"trial {trial}: {backend}, {ranks} ranks, {action}: {told}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("mpirun")
    parser.add_argument("failing_rank")
    parser.add_argument("implementation")
    parser.add_argument("suites", nargs="*", default=["FailuresBesideSharedMemory", "FailuresByMessages"])
    parser.add_argument("--trials", type=int, default=0)
    ARGS, rest = parser.parse_known_args()
    suite = unittest.defaultTestLoader
    version = subprocess.run(["ompi_info", "--version"], capture_output=True, text=True, check=False).stdout \
        if ARGS.implementation == "openmpi" else ""
    ARGS.ends_survivors = bool(re.search(r"Open MPI v(?:[5-9]|\d\d)", version))
    names = ["Trials"] if ARGS.trials else ARGS.suites
    result = unittest.TextTestRunner(verbosity=2).run(suite.loadTestsFromNames(names, sys.modules[__name__]))
    sys.exit(not result.wasSuccessful())
