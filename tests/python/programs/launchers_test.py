"""Programs that call dear.distribute(), started by launchers:  launchers_test.py DEAR [unittest's arguments]

This python imports the package `dear` and PyTorch. examples_test.py starts programs by `dear launch`.
"""

import json
import pathlib
import socket
import sys
import uuid

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "training"))
import dear_processes
from dear_processes import Case, Job

PROGRAM = HERE / "launched.py"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
ENVIRONMENT = {"OMP_NUM_THREADS": "1"}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Launched(Case):
    def begin(self, *command: object, environment: dict | None = None) -> Job:
        return self.start(*command, environment=ENVIRONMENT | (environment or {}))

    def ended(self, job: Job) -> list[dict]:
        """What the ranks printed, once all processes have gone. torchrun leaves its logs in the folder for temporary files."""
        ended = job.end()
        job.wait_until_gone()
        self.assertEqual(dear_processes.shared_memory() - self.shared_memory, set())
        self.assertEqual(ended.returncode, 0, ended)
        lines = [line[line.index("{") :] for line in ended.stdout.splitlines() if "{" in line]
        return [json.loads(line) for line in lines]

    trained_alone: list[float] = []

    def alone(self) -> list[float]:
        """What one rank without a launcher trains."""
        if not Launched.trained_alone:
            (found,) = self.ended(self.begin(sys.executable, PROGRAM))
            self.assertEqual((found["ranks"], found["backend"]), (1, "single"))
            Launched.trained_alone = found["trained"]
        return Launched.trained_alone

    def check(self, ranks: list[dict], backend: str) -> None:
        """Two ranks that trained the same, and as one rank on all samples."""
        self.assertEqual(sorted((rank["rank"], rank["ranks"]) for rank in ranks), [(0, 2), (1, 2)])
        for rank in ranks:
            self.assertIn(backend, rank["backend"].lower())
        self.assertEqual(ranks[0]["trained"], ranks[1]["trained"])
        for one, other in zip(self.alone(), ranks[0]["trained"]):
            self.assertAlmostEqual(one, other, places=5)


class Mpi(Launched):
    def test_mpirun(self):
        command = [ROOT / "scripts" / "mpirun", "openmpi", 2, "--bind-to", "none", sys.executable, PROGRAM]
        self.check(self.ended(self.begin(*command)), "shm")


class Hosts(Launched):
    """Where the launcher says that each rank has a host of its own; here these are the same."""

    def test_srun(self):
        shared = {
            "SLURM_STEP_NUM_TASKS": 2,
            "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
            "SLURM_STEP_NODELIST": "localhost",
            "SLURM_LOCALID": 0,
            "SLURM_JOB_ID": 4711,
            "SLURM_STEP_ID": 0,
            "MASTER_PORT": free_port(),
        }
        jobs = [
            self.begin(sys.executable, PROGRAM, environment=shared | {"SLURM_PROCID": rank, "SLURM_NODEID": rank})
            for rank in (0, 1)
        ]
        self.check([line for job in jobs for line in self.ended(job)], "gloo")

    def test_torchrun_starts_again_what_has_died(self):
        port = free_port()
        command = [
            *TORCHRUN, "--nnodes", 2, "--nproc-per-node", 1, "--max-restarts", 1, "--rdzv-id", uuid.uuid4().hex,
            "--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{port}", PROGRAM, "die",
        ]  # fmt: skip
        agents = [self.begin(*command, environment={"TORCHELASTIC_WAIT_ON_SHUTDOWN": "1"}) for _ in range(2)]
        lines = [line for agent in agents for line in self.ended(agent)]
        self.assertEqual([line for line in lines if "died" in line], [{"died": 0}])
        ranks = [line for line in lines if "rank" in line]
        self.assertEqual(max(rank["restarts"] for rank in ranks), 1)
        self.check(ranks, "gloo")


class Restart(Launched):
    def test_on_one_host(self):
        lines = self.ended(self.begin(*TORCHRUN, "--nproc-per-node", 2, "--max-restarts", 1, PROGRAM, "die"))
        self.assertEqual([line for line in lines if "died" in line], [{"died": 0}])
        ranks = [line for line in lines if "rank" in line]
        self.assertEqual([rank["restarts"] for rank in ranks], [1, 1])
        self.check(ranks, "shm")


TORCHRUN_VARIABLES = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                      "MASTER_PORT": "29500"}  # fmt: skip
SLURM_VARIABLES = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_NODEID": "0",
                   "SLURM_LOCALID": "0", "SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0"}  # fmt: skip


class Refusals(Launched):
    def test_environments(self):
        cases = [
            (TORCHRUN_VARIABLES | {"RANK": "2"}, "ConfigError", "RANK"),
            (TORCHRUN_VARIABLES | {"RANK": "first"}, "ConfigError", "RANK"),
            (TORCHRUN_VARIABLES | {"WORLD_SIZE": ""}, "ConfigError", "WORLD_SIZE"),
            (TORCHRUN_VARIABLES | {"MASTER_PORT": ""}, "ConfigError", "MASTER_PORT"),
            ({"WORLD_SIZE": "2"}, "ConfigError", "RANK"),
            ({"OMPI_COMM_WORLD_RANK": "0"}, "ConfigError", "OMPI_COMM_WORLD_SIZE"),
            (SLURM_VARIABLES | {"SLURM_STEP_TASKS_PER_NODE": "2(x"}, "ConfigError", "SLURM_STEP_TASKS_PER_NODE"),
            (SLURM_VARIABLES | {"SLURM_LOCALID": "2"}, "ConfigError", "SLURM_LOCALID"),
            (TORCHRUN_VARIABLES | {"DEAR_RENDEZVOUS": uuid.uuid4().hex}, "TimeoutError", "rank 1"),
        ]
        lines = "".join(json.dumps(environment) + "\n" for environment, _, _ in cases)
        self.write("environments.jsonl", lines)
        found = self.ended(self.begin("sh", "-c", '"$0" "$1" refuse < environments.jsonl', sys.executable, PROGRAM))
        self.assertEqual(len(found), len(cases))
        for (environment, error, noun), one in zip(cases, found):
            with self.subTest(environment=environment):
                self.assertEqual(one.get("error"), error)
                self.assertIn(noun, one["message"])


if __name__ == "__main__":
    dear_processes.main()
