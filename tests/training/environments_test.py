"""Ranks that something else than `dear train` has started: launchers, or a user by hand."""

import os
import uuid

import dear_processes
from dear_processes import Case, main


def torchrun(rank, size, job):
    return {
        "RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_RANK": rank,
        "LOCAL_WORLD_SIZE": size,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": 29500,
        "TORCHELASTIC_RUN_ID": job,
    }


def given_rendezvous(rank, size, job):
    return {"RANK": rank, "WORLD_SIZE": size, "DEAR_RENDEZVOUS": job}


def mpirun(rank, size, job):
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
    return dict(zip((f"OMPI_COMM_WORLD_{name}" for name in names), (rank, size) * 2)) | {"PMIX_NAMESPACE": job}


def mpiexec(rank, size, job):
    """MPICH's names no job: its ranks are children of one process."""
    return {"PMI_RANK": rank, "PMI_SIZE": size, "MPI_LOCALRANKID": rank, "MPI_LOCALNRANKS": size}


def srun(rank, size, job):
    return {
        "SLURM_PROCID": rank,
        "SLURM_LOCALID": rank,
        "SLURM_STEP_NUM_TASKS": size,
        "SLURM_STEP_TASKS_PER_NODE": size,
        "SLURM_NODEID": 0,
        "SLURM_JOB_ID": job,
        "SLURM_STEP_ID": 0,
    }


class Environments(Case):
    def ranks(self, launcher, size, *changes, job=None):
        job = job or uuid.uuid4().hex
        return [self.train(*changes, environment=launcher(rank, size, job)) for rank in range(size)]

    def fails(self, job):
        """What it says, in one line."""
        ended = self.end(job)
        self.assertEqual(ended.returncode, 1, ended)
        self.assertEqual(ended.stderr.count("\n"), 1, ended)
        return ended.stderr


class Launchers(Environments):
    def setUp(self):
        super().setUp()
        self.expected = self.results("--workers", 2)

    def check(self):
        found = self.read_json("launched.json")
        for key in ("workers", "losses", "digest"):
            self.assertEqual(found[key], self.expected[key])
        os.remove(self.path("launched.json"))

    def test_environments_of_launchers(self):
        for launcher in (torchrun, given_rendezvous, mpirun, mpiexec, srun):
            with self.subTest(launcher=launcher.__name__):
                first, second = self.ranks(launcher, 2, "--json", "launched.json")
                self.assertIn("2 workers", self.succeed(first))
                self.assertEqual(self.succeed(second), "")
                self.check()

    def test_dear_launch(self):
        command = [dear_processes.dear, "train", *dear_processes.options("--json", "launched.json")]
        output = self.succeed(self.start(dear_processes.dear, "launch", "-n", 2, "--", *command))
        self.assertTrue(all(line.startswith("[0] ") for line in output.splitlines()), output)
        self.check()

    def test_two_jobs_at_once_do_not_meet(self):
        jobs = self.ranks(torchrun, 2, "--json", "launched.json") + self.ranks(torchrun, 2, "--seed", 2)
        for job in jobs:
            self.succeed(job)
        self.check()


class MissingRanks(Environments):
    def test_each_rank_alone_names_the_other_and_leaves_no_trace_for_late_ones(self):
        job = uuid.uuid4().hex
        for rank in (0, 1):
            before = self.files()
            changes = ["--timeout", "2s", "--json", "out.json"]
            sentence = self.fails(self.train(*changes, environment=given_rendezvous(rank, 2, job)))
            self.assertIn(f"dear train: rank {rank}: rank {1 - rank} did not come", sentence)
            self.assertEqual(self.files(), before)
        for process in self.ranks(given_rendezvous, 2, job=job):
            self.succeed(process)

    def test_all_missing_ranks_are_named(self):
        alone = self.train("--timeout", "2s", environment=given_rendezvous(1, 4, uuid.uuid4().hex))
        sentence = self.fails(alone)
        self.assertIn("did not come", sentence)
        self.assert_names(0, sentence)


class Disagreements(Environments):
    def test_ranks_started_with_different_options(self):
        different = {
            "--steps": 5, "--batch": 3, "--context": 8, "--seed": 2, "--lr": 0.5, "--fusion": "layer",
            "--policy": "serial", "--width": 64, "--layers": 1, "--optimizer": "sgd", "--heads": 4, "--network": "1gbit",
        }  # fmt: skip
        for option, value in different.items():
            with self.subTest(option=option):
                job = uuid.uuid4().hex
                first, second = (
                    self.train(*changes, "--timeout", "3600s", environment=torchrun(rank, 2, job))
                    for rank, changes in enumerate(([], [option, value]))
                )
                self.assert_names(1, self.fails(first))
                self.assertEqual(self.end(second).returncode, 1)


if __name__ == "__main__":
    main()
