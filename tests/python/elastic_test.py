"""dear.Elastic: ranks that fail are given up, others take their place, and training learns the same.

elastic_test.py DEAR

Under `DEAR launch` this file is the program of each rank.
"""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "training"))
from two_hosts import launch_on_two_hosts  # noqa: E402

DEAR = sys.argv[1] if len(sys.argv) > 1 else ""
SAMPLES, BATCH, EPOCHS = 96, 12, 3


def train(folder: str, policy: str, kind: str) -> None:
    """Counts the uses of each sample in a parameter. Rank 1 fails as `kind` says after ten steps."""
    import torch
    from torch import nn

    import dear

    torch.manual_seed(1)

    class Counted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(4, 1, dtype=torch.float64)
            self.uses = nn.Parameter(torch.zeros(SAMPLES, dtype=torch.float64))

        def forward(self, indices: Any) -> Any:
            return self.net(inputs[indices]).square().mean() + self.uses[indices].mean()

    inputs = torch.sin(torch.arange(4.0 * SAMPLES, dtype=torch.float64)).view(SAMPLES, 4)
    net = Counted()
    optimizer = torch.optim.SGD(
        [{"params": net.net.parameters(), "lr": 0.1, "momentum": 0.9}, {"params": [net.uses], "lr": 1.0}]
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, [lambda step: 0.9 ** (step // 5), lambda step: 1.0])
    run = dear.Elastic(
        net,
        optimizer,
        samples=SAMPLES,
        batch=BATCH,
        epochs=EPOCHS,
        policy=policy,
        extra={"schedule": schedule},
        checkpoints=os.path.join(folder, "saves") if kind == "two killed" else "",
        every=4,
    )
    for step in run:
        with step as indices:
            loss = run.model(indices)
            if run.steps == 10 and (run.model.rank == 1 or (run.model.rank == 2 and kind == "two killed")):
                if kind == "poison":
                    raise ValueError("poison")
                marked = pathlib.Path(folder, f"failed-{run.model.rank}")
                if kind != "calm" and not marked.exists():
                    marked.touch()
                    os.kill(os.getppid() if kind == "host lost" else os.getpid(), signal.SIGKILL)
            loss.backward()
            optimizer.step()
            schedule.step()
        # Epoch 1 is without the rank that failed, epoch 2 with the process that takes its place.
        while kind == "replaced" and run.steps == 14 and run._member.epoch() < 2:
            time.sleep(0.02)
    uses = (-net.uses.detach() * BATCH).round(decimals=6).unique().tolist()
    weights = [one.hex() for one in net.net.weight.detach().flatten().tolist()]
    rates = [group["lr"] for group in optimizer.param_groups]
    print("memory", os.environ.get("DEAR_ELASTIC_FOLDER", ""), flush=True)
    print(f"ranks {run.model.world_size} steps {run.steps} uses {uses} rates {rates} weights {weights}", flush=True)


class Elastic(unittest.TestCase):
    def launch(self, kind: str, *options: str, policy: str = "wfbp") -> Any:
        with tempfile.TemporaryDirectory() as folder:
            program = [sys.executable, "-B", __file__, DEAR, "--train", folder, policy, kind]
            job = subprocess.run(
                [DEAR, "launch", "--grace", "5s", *options, "--", *program], capture_output=True, text=True, timeout=150
            )
        for memory in re.findall("memory (/.*)", job.stdout):
            self.assertFalse(os.path.exists(os.path.dirname(memory)), memory)
        return job

    def results(self, job: Any, ranks: int) -> dict[str, str]:
        """What all ranks say at the end, which is the same on all: by name."""
        self.assertEqual(job.returncode, 0, job.stderr)
        lines = {line.partition("] ")[2] for line in job.stdout.splitlines() if "uses" in line}
        self.assertEqual(len(lines), 1, job)
        found = re.fullmatch(r"ranks (\d+) steps 24 uses \[3.0\] rates (.*) weights (.*)", lines.pop())
        assert found is not None, job
        self.assertEqual(int(found[1]), ranks, job)
        return {"rates": found[2], "weights": found[3]}

    def assert_learnt_alike(self, one: dict[str, str], other: dict[str, str]) -> None:
        self.assertEqual(one["rates"], other["rates"])
        hexadecimal = re.compile(r"-?0x[0-9a-fp.+-]+")
        for first, second in zip(
            hexadecimal.findall(one["weights"]), hexadecimal.findall(other["weights"]), strict=True
        ):
            self.assertAlmostEqual(float.fromhex(first), float.fromhex(second), delta=1e-12)

    def test_others_go_on_and_learn_the_same(self) -> None:
        calm = self.results(self.launch("calm", "-n", "3"), 3)
        for policy, kind, ranks in (("wfbp", "shrunk", 2), ("dear", "replaced", 3)):
            with self.subTest(policy):
                restarts = ("--restarts", "1") if kind == "replaced" else ()
                job = self.launch(kind, "--elastic", "1:3", *restarts, policy=policy)
                self.assert_learnt_alike(self.results(job, ranks), calm)
                self.assertIn("rank 1 was killed by signal 9 (Killed), and the job had come to step 1", job.stderr)
                self.assertIn(": it goes on with 2 ranks", job.stderr)
                self.assertEqual("takes its place" in job.stderr, kind == "replaced", job.stderr)
        for policy, kind, ranks in (("dear", "host lost", 1), ("wfbp", "replaced", 3)):
            with self.subTest(kind, hosts=2):
                restarts = ("--restarts", "1") if kind == "replaced" else ()
                with tempfile.TemporaryDirectory() as folder:
                    program = [sys.executable, "-B", __file__, DEAR, "--train", folder, policy, kind]
                    job = launch_on_two_hosts(DEAR, (1, 2), ["--grace", "5s", "--elastic", "1:3", *restarts], program)
                self.assert_learnt_alike(self.results(job, ranks), calm)
                self.assertIn("is lost" if kind == "host lost" else "takes its place", job.stderr)

    def test_too_few_start_again_from_a_checkpoint(self) -> None:
        job = self.launch("two killed", "--elastic", "2:3", "--restarts", "3")
        self.results(job, 3)
        self.assertIn("restart 1 of 3" if "takes its place" not in job.stderr else "restart 2 of 3", job.stderr)

    def test_a_poison_batch_ends_the_job(self) -> None:
        job = self.launch("poison", "--elastic", "1:3", "--restarts", "5")
        self.assertEqual(job.returncode, 1, job)
        self.assertIn("failed: ValueError: poison (elastic_test.py:", job.stderr)
        self.assertIn("its batch, or the program, is at fault", job.stderr)
        self.assertNotIn("restart ", job.stderr.replace("no restart helps", ""))

    def test_example_without_a_launcher(self) -> None:
        example = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python" / "elastic.py"
        ended = subprocess.run([sys.executable, "-B", example], capture_output=True, text=True, timeout=100)
        self.assertEqual(ended.returncode, 0, ended)
        self.assertRegex(ended.stdout, r"^140 steps, 1 ranks, 9\d\.\d% right\n$")

    def test_refusals(self) -> None:
        import torch

        import dear

        net = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for arguments, text in (
            ({"samples": 0, "batch": 1}, "samples=0"),
            ({"samples": 4, "batch": 2, "commit": 0}, "commit=0"),
            ({"samples": 4, "batch": 2, "balance": "measured"}, "balance= is not for dear.Elastic"),
        ):
            with self.assertRaises(dear.ConfigError) as refused:
                dear.Elastic(net, optimizer, **arguments)
            self.assertIn(text, str(refused.exception))
        os.environ.update(DEAR_MEMBERSHIP="/nowhere/a:/nowhere/b", DEAR_MEMBER="0")
        try:
            with self.assertRaises(dear.ConfigError) as refused:
                dear.Elastic(net, optimizer, samples=4, batch=2)
            self.assertIn("DEAR_MEMBERSHIP: cannot open '/nowhere/a'", str(refused.exception))
            os.environ["DEAR_MEMBER"] = "first"
            with self.assertRaises(dear.ConfigError) as refused:
                dear.Elastic(net, optimizer, samples=4, batch=2)
            self.assertIn("DEAR_MEMBER is 'first'", str(refused.exception))
        finally:
            del os.environ["DEAR_MEMBERSHIP"], os.environ["DEAR_MEMBER"]


if __name__ == "__main__":
    if sys.argv[2:3] == ["--train"]:
        train(*sys.argv[3:6])
    else:
        unittest.main(argv=sys.argv[:1] + sys.argv[2:])
