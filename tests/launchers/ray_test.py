"""Ray Train starts two workers that train by DeAR, and starts them again when one has died:  ray_test.py

Needs PYTHONPATH with DeAR's package. Ray is that of .venv-ray, with the PyTorch of the interpreter of this test. Exits with 77, which
ctest takes for skipped, where Ray is not there.
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = ROOT / "examples" / "schedulers" / "ray_train.py"
PYTHON = pathlib.Path(os.environ.get("RAY_PYTHON", ROOT / ".venv-ray" / "bin" / "python"))
SKIPPED = 77
LONGEST_SECONDS = 600
STEPS = 120
ENDS = rf"2 workers, backend shm, step {STEPS}: loss of rank 0 ([\d.]+), parameters (\w{{16}})\n"


def environment() -> dict[str, str]:
    """The caller's, without what would make this process a rank; PyTorch is found behind what Ray has installed."""
    others = r"(RANK|WORLD_SIZE|LOCAL_|MASTER_|OMPI_|PMI|SLURM_|TORCHELASTIC_|DEAR_|RAY_)"
    kept = {name: value for name, value in os.environ.items() if not re.match(others, name)}
    of_torch = str(pathlib.Path(torch.__file__).parents[1])
    # A busy machine starts workers slowly, and Ray gives them the lowest priority.
    quiet = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "300",
        "RAY_worker_niceness": "0",
        "OMP_NUM_THREADS": "1",
    }
    return {**kept, **quiet, "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), of_torch])}


def has_ray() -> bool:
    return PYTHON.exists() and not subprocess.run([PYTHON, "-c", "import ray.train"], env=environment(), capture_output=True, check=False).returncode  # fmt: skip


# The same training by PyTorch alone: the means of both ranks' gradients.
ALONE = f"""
import sys
sys.path.insert(0, {str(PROGRAM.parent)!r})
import torch
from torch import nn
from ray_train import digest, make_batch
torch.set_num_threads(1)
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 8))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range({STEPS}):
    gradients = []
    for rank in range(2):
        inputs, classes = make_batch(step, rank)
        loss = nn.functional.cross_entropy(model(inputs), classes)
        gradients.append(torch.autograd.grad(loss, list(model.parameters())))
        first = loss.item() if rank == 0 else first
    for parameter, one, other in zip(model.parameters(), *gradients):
        parameter.grad = (one + other) / 2
    optimizer.step()
print(f"{{first:.6f}}", digest(model))
"""


class Ray(unittest.TestCase):
    def run_with(self, *options: object) -> tuple[str, str, str]:
        """What it printed, the loss and the digest of the parameters."""
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [PYTHON, "-B", PROGRAM, "--steps", str(STEPS), "--storage", folder, *map(str, options)],
                env=environment(), text=True, timeout=LONGEST_SECONDS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                check=False,
            )  # fmt: skip
        ended = re.search(ENDS, done.stdout)
        self.assertTrue(done.returncode == 0 and ended, done.stdout)
        assert ended
        return done.stdout, ended[1], ended[2]

    def test_a_worker_that_dies_changes_nothing(self) -> None:
        alone = subprocess.run(
            [PYTHON, "-B", "-c", ALONE], env=environment(), capture_output=True, text=True, check=True
        )
        _, *whole = self.run_with("--every", 40)
        self.assertEqual(whole, alone.stdout.split())
        said, *again = self.run_with("--every", 40, "--fail-at", 60)
        self.assertEqual(again, whole)
        self.assertIn("dear", said)  # the worker that was left said why it ended
        self.assertRegex(said, "rank 1")


if __name__ == "__main__":
    if not has_ray():
        print(
            f"ray_test.py: skipped, because {PYTHON} has no Ray: python3 -m venv .venv-ray && "
            ".venv-ray/bin/python -m pip install 'ray[train]==2.60.0'"
        )
        sys.exit(SKIPPED)
    unittest.main()
