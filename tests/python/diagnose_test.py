"""`dear diagnose` names culprit and cause of jobs that fail, hang or run; `dear launch` starts a job that fails again.

diagnose_test.py DEAR

Under `DEAR launch` this file is the program of each rank.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEAR = sys.argv[1] if len(sys.argv) > 1 else ""


def trained(folder: str, kind: str) -> None:
    """Twelve steps with a checkpoint after every third, of which rank 1 survives as `kind` says."""
    import torch
    from torch import nn

    import dear

    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))
    model, optimizer = dear.distribute(net, torch.optim.Adam(net.parameters(), lr=0.01), timeout=30.0)
    checkpoints = dear.Checkpoints(folder, model)
    step = (checkpoints.resume() or {"step": 0})["step"]
    first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    while step < 12:
        inputs = torch.sin(torch.arange(32.0).view(2, 16) + 10 * step + model.rank)
        model(inputs).square().mean().backward()
        if step == 7 and model.rank == 1 and first and kind == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.step()
        step += 1
        if step % 3 == 0:
            checkpoints.save({"step": step})
    state = model.state_dict()
    if model.rank == 0:
        digest = sum(
            one.double().mul(torch.arange(1.0, one.numel() + 1).view_as(one)).sum().item() for one in state.values()
        )
        print(f"digest {digest.hex()} of {model._group.size}", flush=True)


class Case(unittest.TestCase):
    def setUp(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.folder = self._folder.name

    def launch(self, *options: str, kind: str) -> Any:
        program = [sys.executable, "-B", __file__, DEAR, "--trained", os.path.join(self.folder, "saves"), kind]
        return subprocess.run(
            [DEAR, "launch", *options, "--", *program], capture_output=True, text=True, timeout=120, env=os.environ
        )


class Diagnoses(Case):
    def test_culprit_and_cause(self) -> None:
        spec = importlib.util.spec_from_file_location("diagnosis", ROOT / "bench" / "faults" / "diagnosis.py")
        assert spec is not None and spec.loader is not None
        diagnosis = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(diagnosis)
        draw = random.Random(3)
        for number, kind in enumerate(("killed", "sleeps")):
            with self.subTest(kind):
                right, what = diagnosis.diagnosed(DEAR, kind, draw, number % 2 == 1)
                self.assertTrue(right, what)

    def test_of_a_job_that_runs(self) -> None:
        record = os.path.join(self.folder, "record")
        job = subprocess.Popen(
            [DEAR, "launch", "-n", "2", "--grace", "1s", "--record", record, "--", sys.executable, "-c", WAITS],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.addCleanup(job.wait)
        self.addCleanup(job.terminate)
        found: dict[str, Any] = {}
        deadline = time.monotonic() + 150
        while found.get("culprits") != [1] and time.monotonic() < deadline:
            time.sleep(0.5)
            told = subprocess.run([DEAR, "diagnose", str(job.pid), "--json"], capture_output=True, text=True)
            found = json.loads(told.stdout) if told.returncode == 0 else {}
        self.assertEqual((found.get("cause"), found.get("culprits")), ("late", [1]), found)
        job.send_signal(signal.SIGUSR2)
        stacks = pathlib.Path(record, "rank-1.stacks")
        while (not stacks.exists() or "sleeps_here" not in stacks.read_text()) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertIn("sleeps_here", stacks.read_text())
        self.assertIsNone(job.poll())

    def test_of_what_is_none(self) -> None:
        for what, text in ((self.folder, "no record of a job"), ("999999999", "process 999999999"), ("1", "process 1")):
            told = subprocess.run([DEAR, "diagnose", what], capture_output=True, text=True)
            self.assertEqual(told.returncode, 2, told)
            self.assertIn(text, told.stderr)
            self.assertEqual(told.stderr.count("\n"), 1, told.stderr)


WAITS = """
import os, time, torch, dear
net = torch.nn.Linear(4, 4)
model, optimizer = dear.distribute(net, torch.optim.SGD(net.parameters(), lr=0.1))
def sleeps_here():
    time.sleep(100)
for step in range(4):
    model(torch.ones(2, 4)).sum().backward()
    if step == 2 and model.rank == 1:
        sleeps_here()
    optimizer.step()
"""


class Restarts(Case):
    def test_go_on_from_a_checkpoint_with_the_same_bits(self) -> None:
        whole = self.launch("-n", "3", kind="whole")
        digest = [line for line in whole.stdout.splitlines() if "digest" in line]
        self.assertEqual(len(digest), 1, whole)
        self._folder.cleanup()
        os.makedirs(self.folder)
        killed = self.launch("-n", "3", "--restarts", "2", "--grace", "5s", kind="killed")
        self.assertEqual(killed.returncode, 0, killed.stderr)
        self.assertIn("restart 1 of 2, with 3 ranks: rank 1 failed, and the job had come to step 7", killed.stderr)
        self.assertEqual([line for line in killed.stdout.splitlines() if "digest" in line], digest)

    def test_end_where_no_restart_helps(self) -> None:
        program = ["sh", "-c", 'echo "count $TORCHELASTIC_RESTART_COUNT"; [ $RANK != 1 ]']
        ended = subprocess.run(
            [DEAR, "launch", "--elastic", "2:3", "--restarts", "9", "--", *program], capture_output=True, text=True
        )
        self.assertEqual(ended.returncode, 1, ended)
        self.assertIn("restart 1 of 9, with 3 ranks: rank 1 failed", ended.stderr)
        self.assertIn("restart 2 of 9, with 2 ranks: rank 1 failed", ended.stderr)
        self.assertIn("its batch, or the program, is at fault", ended.stderr)
        self.assertIn("count 2", ended.stdout)
        self.assertNotIn("count 3", ended.stdout)

    def test_refuse_what_cannot_be(self) -> None:
        for options, text in (
            (["--elastic", "3:2"], "two numbers of ranks"),
            (["--elastic", "x"], "two numbers of ranks"),
            (["--elastic", "2:3", "-n", "4"], "leave out one of both"),
            ([], "-n 4"),
            (["-n", "2", "--restarts", "-1"], "--restarts"),
        ):
            refused = self.launch(*options, kind="whole")
            self.assertNotEqual(refused.returncode, 0, options)
            self.assertIn(text, refused.stderr, options)


if __name__ == "__main__":
    if "--trained" in sys.argv:
        trained(*sys.argv[-2:])
    else:
        sys.argv = sys.argv[:1] + sys.argv[2:]
        unittest.main()
