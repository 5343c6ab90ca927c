"""Training with DeAR gives the parameters of plain PyTorch:  equivalence_test.py DEAR [unittest's arguments]

Every policy with every optimiser: on process groups of torchrun's ranks, and on the ranks of `DEAR launch`. A process trains
many jobs (equivalence/jobs.py), as it takes longer to start than all of them.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

DEAR = sys.argv.pop(1)
RANKS = pathlib.Path(__file__).resolve().parent / "equivalence" / "ranks.py"
GLOO = "programs over c10d gloo"
TOLERANCE = 1e-6  # where the order of additions, or the rounding, is another than in plain PyTorch


class Case(unittest.TestCase):
    def run_ranks(self, launcher: list[str], *arguments: str) -> list[dict[str, object]]:
        """What all ranks found."""
        with tempfile.TemporaryDirectory() as folder:
            command = [*launcher, str(RANKS), folder, *arguments]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.assertEqual(done.returncode, 0, done.stdout)
            return [one for file in pathlib.Path(folder).glob("*.json") for one in json.loads(file.read_text())]

    def check(self, found: list[dict[str, object]], jobs: dict[tuple[int, str], int]) -> None:
        """`jobs`: how many jobs ranks have to have trained, by the number of ranks and the backend."""
        counted: dict[tuple[int, str], int] = {}
        for one in found:
            place = (one["ranks"], one["backend"])
            counted[place] = counted.get(place, 0) + 1
            with self.subTest(f"{one['job']}, {one['ranks']} ranks, {one['backend']}"):
                self.assertLessEqual(one["difference"], 0.0 if one["exact"] else TOLERANCE)
        self.assertEqual(counted, jobs)

    def launch(self, ranks: int, *backends: str) -> list[dict[str, object]]:
        return self.run_ranks([DEAR, "launch", "-n", str(ranks), sys.executable, "-B"], "init", *backends)

    def torchrun(self, jobs: dict[tuple[int, str], int], *sizes: str) -> None:
        """`sizes`: of process groups, by backend, as in "shm:2,4"."""
        run = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
        self.check(self.run_ranks([sys.executable, "-B", *run], "process-groups", *sizes), jobs)


class Equivalence(Case):
    def test_process_groups(self) -> None:
        jobs = {(1, "single"): 54, (2, "shm"): 2 * 54, (4, "shm"): 4 * 54, (2, GLOO): 2 * 35}
        self.torchrun(jobs, "shm:1,2,4", "gloo:2")


class OnOtherRanks(Case):
    def test_process_groups(self) -> None:
        jobs = {(3, "shm"): 3 * 54, (3, GLOO): 3 * 35, (4, GLOO): 4 * 35}
        self.torchrun(jobs, "shm:3", "gloo:3,4")

    def test_dear_launch_of_2(self) -> None:
        self.check(self.launch(2, "shm"), {(2, "shm"): 108})

    def test_dear_launch_of_3(self) -> None:
        self.check(self.launch(3, "gloo"), {(3, "programs over Gloo 0.5.0"): 105})


if __name__ == "__main__":
    unittest.main()
