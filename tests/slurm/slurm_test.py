"""Slurm on two nodes starts, preempts, requeues and resumes a training:  slurm_test.py

Needs root, and PYTHONPATH with DeAR's package. Brings a cluster up by bench/slurm/cluster (which installs Slurm where it is
missing), and takes it away at the end. Each rank runs under the interpreter of this test.
"""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time
import typing
import unittest

import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CLUSTER = ROOT / "bench/slurm/cluster"
SCHEDULERS = ROOT / "examples/schedulers"
STEPS = 400
LONGEST_SECONDS = 120  # of each wait
GRACE_SECONDS = 60  # of a preempted job
BEGINS = r"2 ranks, backend programs over Gloo .*, begins at step (\d+)\n"


def environment(**more: str) -> dict:
    """The caller's, without what would make this process a rank."""
    others = r"(RANK|WORLD_SIZE|LOCAL_|MASTER_|OMPI_|PMI|MPI_|SLURM_|SBATCH_|TORCHELASTIC_|DEAR_)"
    kept = {name: value for name, value in os.environ.items() if not re.match(others, name)}
    return {**kept, "OMP_NUM_THREADS": "1", **more}


def run(*command: object, expected: typing.Optional[int] = 0, **more: str) -> str:
    """What a command on the cluster prints. Fails where it ends with another code."""
    done = subprocess.run(
        [CLUSTER, "run", *map(str, command)],
        env=environment(**more),
        text=True,
        timeout=LONGEST_SECONDS,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if expected is not None and done.returncode != expected:
        raise AssertionError(f"{command} ended with {done.returncode}, not {expected}:\n{done.stdout}")
    return done.stdout


def wait_for(what: str, found: typing.Callable[[], object], shown: typing.Callable[[], str]) -> None:
    """Slurm tells nobody what has happened: it has to be asked."""
    deadline = time.monotonic() + LONGEST_SECONDS
    while not found():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {LONGEST_SECONDS} s for {what}, in vain:\n{shown()}")
        time.sleep(0.05)


class Job:
    """A job of train.sbatch."""

    def __init__(self, folder: pathlib.Path, *options: object):
        command = ["sbatch", "--parsable", f"--chdir={folder}", SCHEDULERS / "train.sbatch", "--steps", STEPS, *options]
        self.id = run(*command, PYTHON=sys.executable, TRAIN=str(SCHEDULERS / "train.py")).strip()
        self.output = folder / f"train-{self.id}.out"
        self.checkpoints = folder / f"run-{self.id}"

    def said(self) -> str:
        return self.output.read_text(encoding="utf-8") if self.output.exists() else ""

    def wait_until_said(self, text: str, times: int = 1) -> None:
        wait_for(f"'{text}'", lambda: self.said().count(text) >= times, lambda: f"{self.said()}\n{self.state()}")

    def state(self) -> dict:
        return dict(re.findall(r"(\w+)=(\S*)", run("scontrol", "show", "job", self.id)))

    def wait_until(self, state: str) -> None:
        wait_for(f"state {state}", lambda: self.state()["JobState"] == state, lambda: f"{self.state()}\n{self.said()}")

    def start_now(self) -> None:
        """Slurm lets a job that was requeued wait two minutes from the end of its last process, which may come after an update."""
        self.wait_until("PENDING")

        def begun() -> bool:
            if self.state()["Reason"] == "BeginTime":
                run("scontrol", "update", f"JobId={self.id}", "StartTime=now")
            return self.state()["JobState"] == "RUNNING"

        wait_for("the job's next begin", begun, lambda: f"{self.state()}\n{self.said()}")


def last_checkpoint(folder: pathlib.Path) -> dict:
    return torch.load(folder / f"step-{STEPS:08}.pt", weights_only=True)


def differences(one: object, other: object, where: str = "") -> list:
    """Places at which two checkpoints differ in a bit."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        same = one.dtype == other.dtype and one.shape == other.shape
        return [] if same and one.numpy().tobytes() == other.numpy().tobytes() else [where]
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return [place for key in one for place in differences(one[key], other[key], f"{where}/{key}")]
    if isinstance(one, (list, tuple)) and type(one) is type(other) and len(one) == len(other):
        return [place for i in range(len(one)) for place in differences(one[i], other[i], f"{where}/{i}")]
    return [] if type(one) is type(other) and one == other else [where]


class OnACluster(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        subprocess.run(
            [CLUSTER, "up", "2"],
            env={**os.environ, "GRACE": str(GRACE_SECONDS)},
            check=True,
            timeout=600,
            stdout=subprocess.DEVNULL,
        )
        cls.addClassCleanup(subprocess.run, [CLUSTER, "down"], check=True, timeout=LONGEST_SECONDS)
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.scratch = pathlib.Path(scratch.name)


class Trains(OnACluster):
    def folder(self) -> pathlib.Path:
        folder = self.scratch / self.id().rpartition(".")[2]
        folder.mkdir()
        return folder

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        said = run(
            "srun",
            "-N2",
            "-n2",
            sys.executable,
            SCHEDULERS / "train.py",
            "--steps",
            STEPS,
            "--folder",
            cls.scratch / "uninterrupted",
        )
        if not re.search(BEGINS, said):
            raise AssertionError(said)
        cls.uninterrupted = last_checkpoint(cls.scratch / "uninterrupted")

    def check(self, job: Job, stops: int) -> None:
        """The job has been stopped so often in its midst, and its bits are those of the uninterrupted run."""
        begins = [int(step) for step in re.findall(BEGINS, job.said())]
        self.assertEqual(len(begins), stops + 1, job.said())
        self.assertEqual(job.said().count("stopped by SIGTERM"), stops, job.said())
        self.assertEqual(begins, sorted(set(begins)), job.said())
        self.assertLess(begins[-1], STEPS, job.said())
        self.assertEqual(job.state()["Restarts"], str(stops))
        self.assertEqual(job.state()["ExitCode"], "0:0")
        self.assertEqual(differences(last_checkpoint(job.checkpoints), self.uninterrupted), [], job.said())

    def test_differences_are_seen(self):
        changed = last_checkpoint(self.scratch / "uninterrupted")
        self.assertEqual(differences(changed, self.uninterrupted), [])
        name = next(iter(changed["model"]))
        changed["model"][name].view(torch.int32).view(-1)[0] ^= 1
        self.assertEqual(differences(changed, self.uninterrupted), [f"/model/{name}"])

    def test_requeued_by_hand(self):
        job = Job(self.folder(), "--pause", 0.04)
        job.wait_until_said("step 50: ")
        run("scontrol", "requeue", job.id)
        job.wait_until_said("stopped by SIGTERM")
        job.start_now()
        job.wait_until("COMPLETED")
        self.check(job, stops=1)

    def test_preempted_twice_by_jobs_of_higher_priority(self):
        job = Job(self.folder(), "--pause", 0.04)
        for stops in (1, 2):
            job.wait_until_said("saved\n", times=stops)
            urgent = run(
                "sbatch", "--parsable", "--partition=high", "-N2", "-n2", "--output=/dev/null", "--wrap=srun hostname"
            ).strip()
            job.wait_until_said("stopped by SIGTERM", times=stops)
            wait_for("the urgent job", lambda: "JobState=COMPLETED" in run("scontrol", "show", "job", urgent), job.said)
            job.start_now()
            job.wait_until_said("begins at step", times=stops + 1)
        job.wait_until("COMPLETED")
        self.check(job, stops=2)

    def test_cancelled(self):
        job = Job(self.folder(), "--pause", 0.05)
        job.wait_until_said("step 50: ")
        run("scancel", job.id)
        job.wait_until("CANCELLED")
        job.wait_until_said("stopped by SIGTERM")
        self.assertEqual(job.state()["Restarts"], "0")
        self.assertRegex(job.said(), rf"saved step \d+ of {STEPS}")


# A rank that joins its job, and says what came of it.
JOIN = """
import sys
import dear
try:
    group = dear.init(timeout=5)
    print("joined", group.rank, "of", group.size)
except dear.Error as error:
    print(f"{type(error).__name__}: {error}")
    sys.exit(1)
"""


class Joins(OnACluster):
    def join(self, tasks: int, shell: str = "", expected: int = 1) -> list:
        """What each of the tasks says, by its rank. They run `shell` first."""
        script = f"{shell}\nexec {shlex.quote(sys.executable)} -c {shlex.quote(JOIN)}"
        said = run("srun", "--label", "--overcommit", "-N2", f"-n{tasks}", "sh", "-c", script, expected=expected)
        lines = dict(re.findall(r"^(\d+): ((?:joined|\w+Error:).*)$", said, re.MULTILINE))
        self.assertEqual(sorted(map(int, lines)), list(range(tasks)), said)
        return [lines[str(rank)] for rank in range(tasks)]

    def test_every_task_is_a_rank(self):
        for tasks in (2, 4):
            with self.subTest(tasks=tasks):
                said = self.join(tasks, expected=0)
                self.assertEqual(said, [f"joined {rank} of {tasks}" for rank in range(tasks)])

    def test_a_launcher_on_each_node(self):
        launch = ["-m", "dear", "launch", "-n", "2", "--hosts", "2", "--meet", "n1:29417", "--"]
        program = [sys.executable, "-c", JOIN]
        said = run("srun", "--overcommit", "-N2", "--ntasks-per-node=1", sys.executable, *launch, *program)
        self.assertEqual(
            sorted(re.findall(r"\[\d\] joined .*", said)), [f"[{rank}] joined {rank} of 4" for rank in range(4)], said
        )

    def test_more_ranks_than_tasks(self):
        for said in self.join(2, "export SLURM_STEP_NUM_TASKS=3"):
            self.assertRegex(said, "TimeoutError: rank [01]: of 3 ranks, rank 2 did not come")

    def test_fewer_ranks_than_tasks(self):
        self.assertEqual(
            self.join(2, "export SLURM_STEP_NUM_TASKS=1")[1],
            "ConfigError: environment variable SLURM_PROCID is 1 and SLURM_STEP_NUM_TASKS is 1: a rank must be below "
            "the number of ranks",
        )

    def test_torchrun_variables_without_a_place_to_meet(self):
        ranks = "export RANK=$SLURM_PROCID WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1"
        for said in self.join(2, f"{ranks} MASTER_PORT=29500"):
            self.assertRegex(
                said, r"ConfigError: rank [01] of 2 \(torchrun\) does not know where to meet .* set MASTER_ADDR"
            )
        for said in self.join(2, f"{ranks} MASTER_ADDR=n1"):
            self.assertRegex(said, "ConfigError: environment variable MASTER_PORT is not set although RANK is")

    def test_an_address_that_does_not_exist(self):
        for said in self.join(2, "export MASTER_ADDR=nowhere.invalid"):
            self.assertRegex(
                said, r"TransportError: rank [01] cannot find the host nowhere.invalid .*\(check MASTER_ADDR\)"
            )


if __name__ == "__main__":
    unittest.main()
