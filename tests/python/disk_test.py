"""Checkpoints from Python on a disk that is full or write-protected: a tmpfs in a mount namespace.  disk_test.py DEAR

Under `DEAR launch` this file is the program of each rank, in the folder where the disk is mounted.
"""

from __future__ import annotations

import gc
import itertools
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn

import dear


class Job:
    def __init__(self) -> None:
        torch.manual_seed(1)
        net = nn.Sequential(nn.Linear(256, 256), nn.Linear(256, 256))
        self.model, self.optimizer = dear.distribute(net, torch.optim.AdamW(net.parameters()), fusion="256KiB")

    def train(self, first: int, steps: int) -> torch.Tensor:
        for step in range(first, first + steps):
            generator = torch.Generator().manual_seed(10 * step + self.model.rank)
            self.model(torch.randn(4, 256, generator=generator)).square().mean().backward()
            self.optimizer.step()
        return torch.cat([value.flatten() for value in self.model.state_dict().values()])


def fill(folder: pathlib.Path) -> None:
    """Leaves room for more than a tensor, and less than a checkpoint."""
    with open(folder / "filler", "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            file.truncate(file.tell() - 350_000)


def remount(folder: pathlib.Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)


def refused(folder: pathlib.Path, spoil: Callable[[], None], mend: Callable[[], None], *reasons: str) -> None:
    reference = Job()
    expected = reference.train(0, 4)
    reference.model.close()
    for number, (sharded, asynchronous) in enumerate(itertools.product((False, True), (False, True))):
        job = Job()
        checkpoints = dear.Checkpoints(
            str(folder / f"saved{number}"), job.model, sharded=sharded, asynchronous=asynchronous, keep=1
        )
        job.train(0, 2)
        checkpoints.save(2)
        checkpoints.wait()
        if job.model.rank == 0:
            spoil()
        dist.barrier()
        job.train(2, 1)
        try:
            checkpoints.save(3)
            checkpoints.wait()
        except dear.ConfigError as error:
            for word in ("rank ", "step-00000003", "("):
                assert word in str(error), (word, str(error))
            assert any(reason in str(error) for reason in reasons), str(error)
        else:
            raise AssertionError(f"saved, sharded={sharded}, asynchronous={asynchronous}")
        assert torch.equal(job.train(3, 1), expected)
        assert checkpoints.resume() == {"step": 2}
        assert torch.equal(job.train(2, 2), expected)
        dist.barrier()
        if job.model.rank == 0:
            mend()
        dist.barrier()
        checkpoints.save(4)
        checkpoints.wait()
        assert checkpoints.resume() == {"step": 4}
        job.model.close()
        rank = job.model.rank
        del job, checkpoints
        gc.collect()  # a file that is mapped could not be removed from a disk that is to be write-protected
        dist.barrier()
        if rank == 0:
            subprocess.run(["rm", "-r", str(folder / f"saved{number}")], check=True)
        dist.barrier()


def on_a_rank(folder: pathlib.Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    full = "No space left", "bytes of its disk are free"
    refused(folder, lambda: fill(folder), lambda: (folder / "filler").unlink(), *full)
    refused(folder, lambda: remount(folder, "ro"), lambda: remount(folder, "rw"), "Read-only")
    dist.destroy_process_group()


def main() -> int:
    if "RANK" in os.environ:
        on_a_rank(pathlib.Path(sys.argv[1]))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        mount = ["mount", "-t", "tmpfs", "-o", "size=6m", "none", folder]
        reasons = []
        for namespace in (["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"]):
            attempt = subprocess.run([*namespace, *mount], capture_output=True, text=True, check=False)
            if attempt.returncode == 0:
                break
            reasons.append(attempt.stderr.strip())
        else:
            print(f"skipped: no tmpfs can be mounted here: {'; '.join(reasons)}")
            return 0
        program = [sys.argv[1], "launch", "-n", "2", sys.executable, "-B", __file__, folder]
        inside = [*namespace, "sh", "-c", f'{" ".join(mount)} && exec "$@"', "sh", *program]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.run(inside, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
