"""MPICH starts, stops and starts again ranks in Python:  mpich_test.py

Needs PYTHONPATH with DeAR's package; each rank runs under the interpreter of this test. Exits with 77, which ctest takes for
skipped, where there is no mpiexec of MPICH.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TRAIN = ROOT / "examples" / "schedulers" / "train.py"
SKIPPED = 77
STEPS = 200
LONGEST_SECONDS = 240  # of each wait
MPIEXEC = ""

# A rank that trains with the others over the chosen backend, and writes which parameters it has at the end; rank 1 may end too soon.
PROGRAM = """
import hashlib, os, pathlib, sys
import dear, torch
group = dear.init(backend=sys.argv[1], timeout=60)
torch.manual_seed(group.rank)
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 4))
model, optimizer = dear.distribute(model, torch.optim.AdamW(model.parameters(), lr=0.01), process_group=group)
for step in range(10):
    if step == 5 and group.rank == 1 and sys.argv[3:] == ["fails"]:
        os._exit(3)
    generator = torch.Generator().manual_seed(100 * step + group.rank)
    optimizer.zero_grad()
    model(torch.randn(8, 16, generator=generator)).square().mean().backward()
    optimizer.step()
bits = b"".join(one.numpy().tobytes() for one in model.state_dict().values())
told = f"{group.size} {hashlib.sha256(bits).hexdigest()} {model.backend}"
pathlib.Path(sys.argv[2], f"rank-{group.rank}").write_text(told)
"""


def mpiexec_of_mpich() -> str:
    """Its path, under Debian's name or because a program of the usual name says so; "" where there is none."""
    for name in ("mpiexec.mpich", "mpiexec.hydra", "mpiexec"):
        path = shutil.which(name)
        if path and "HYDRA" in subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout:
            return path
    return ""


def environment() -> dict[str, str]:
    """The caller's, without what would make this process a rank."""
    others = r"(RANK|WORLD_SIZE|LOCAL_|MASTER_|OMPI_|PMI|MPI_|SLURM_|TORCHELASTIC_|DEAR_)"
    kept = {name: value for name, value in os.environ.items() if not re.match(others, name)}
    return {**kept, "OMP_NUM_THREADS": "1"}


def start(*command: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [MPIEXEC, "-n", "2", sys.executable, "-B", *map(str, command)],
        env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def run(*command: object) -> str:
    ranks = start(*command)
    said, _ = ranks.communicate(timeout=LONGEST_SECONDS)
    if ranks.returncode != 0:
        raise AssertionError(f"{command} ended with {ranks.returncode}:\n{said}")
    return said


class Mpich(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_a_training_that_is_stopped_ends_with_the_same_bits(self) -> None:
        whole = run(TRAIN, "--steps", STEPS, "--folder", self.folder / "whole")
        self.assertIn("2 ranks, backend shm, begins at step 0\n", whole)

        ranks = start(TRAIN, "--steps", STEPS, "--folder", self.folder / "stopped", "--pause", 0.02)
        self.addCleanup(ranks.kill)
        assert ranks.stdout
        said = ""
        for line in ranks.stdout:
            said += line
            if line.startswith("step 50: "):
                ranks.send_signal(signal.SIGTERM)
        self.assertEqual(ranks.wait(LONGEST_SECONDS), 75, said)
        self.assertIn("stopped by SIGTERM", said)
        resumed = run(TRAIN, "--steps", STEPS, "--folder", self.folder / "stopped")
        begins = re.search(r"begins at step (\d+)\n", resumed)
        assert begins, resumed
        self.assertGreaterEqual(int(begins[1]), 50)
        self.assertLess(int(begins[1]), STEPS)
        one, other = (
            torch.load(self.folder / name / f"step-{STEPS:08}.pt", weights_only=True) for name in ("whole", "stopped")
        )
        self.assertEqual(one["model"].keys(), other["model"].keys())
        for name, tensor in one["model"].items():
            self.assertTrue(torch.equal(tensor, other["model"][name]), name)

    def program(self) -> pathlib.Path:
        path = self.folder / "ranks.py"
        path.write_text(PROGRAM, encoding="utf-8")
        return path

    def test_messages_of_mpi_give_the_bits_of_shared_memory(self) -> None:
        told = {}
        for backend in ("shm", "mpi"):
            run(self.program(), backend, self.folder)
            ends = [(self.folder / f"rank-{rank}").read_text(encoding="utf-8").split(" ", 2) for rank in range(2)]
            self.assertEqual([(size, found) for size, _, found in ends], [("2", backend)] * 2)
            self.assertEqual(ends[0][1], ends[1][1])
            told[backend] = ends[0][1]
        self.assertEqual(told["mpi"], told["shm"])

    def test_a_rank_that_fails_ends_the_others(self) -> None:
        for backend in ("shm", "mpi"):
            ranks = start(self.program(), backend, self.folder, "fails")
            self.addCleanup(ranks.kill)
            said, _ = ranks.communicate(timeout=LONGEST_SECONDS)
            self.assertNotEqual(ranks.returncode, 0, said)
            self.assertFalse((self.folder / "rank-0").exists(), said)


if __name__ == "__main__":
    MPIEXEC = mpiexec_of_mpich()
    if not MPIEXEC:
        print("mpich_test.py: skipped, because there is no mpiexec of MPICH here: install Debian's package mpich")
        sys.exit(SKIPPED)
    unittest.main()
