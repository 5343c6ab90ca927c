"""The backend "dear" of torch.distributed beside Gloo, in turns in the same processes, results compared:

    PYTHONPATH=build/release/python OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 bench/distributed.py

All-reduces of several sizes, and steps of DistributedDataParallel of a perceptron of 12 x 1024 x 1024, batch 64.
"""

from __future__ import annotations

import datetime
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import dear  # noqa: F401

TURNS = 15


def in_turns(calls: dict[str, Callable[[], Any]], turns: int = TURNS) -> dict[str, float]:
    """Median seconds of each, over turns in which each comes once; the first two do not count."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(turns + 2):
        for name in list(calls) if turn % 2 == 0 else list(calls)[::-1]:
            dist.barrier()
            begin = time.perf_counter()
            calls[name]()
            if turn >= 2:
                seconds[name].append(time.perf_counter() - begin)
    return {name: statistics.median(times) for name, times in seconds.items()}


def report(what: str, medians: dict[str, float]) -> None:
    if dist.get_rank() == 0:
        ratio = medians["gloo"] / medians["dear"]
        print(f"{what:44} dear {1e3 * medians['dear']:9.3f} ms, gloo {1e3 * medians['gloo']:9.3f} ms, ratio {ratio:6.2f}", flush=True)


def all_reduces(groups: dict[str, Any]) -> None:
    for size in (16, 4096, 262_144, 16 << 20):
        value = torch.randn(size)
        copies = {name: value.clone() for name in groups}
        for name, group in groups.items():
            dist.all_reduce(copies[name], group=group)
        torch.testing.assert_close(copies["dear"], copies["gloo"], rtol=1e-4, atol=1e-5)
        calls = {name: (lambda group=group, one=copies[name].zero_(): dist.all_reduce(one, group=group)) for name, group in groups.items()}
        report(f"all-reduce of {size * 4} bytes", in_turns(calls, TURNS if size > 100_000 else 200))


class Training:
    def __init__(self, group: Any) -> None:
        torch.manual_seed(1)
        layers: list[nn.Module] = []
        for _ in range(12):
            layers += [nn.Linear(1024, 1024), nn.ReLU()]
        self.model = DistributedDataParallel(nn.Sequential(*layers[:-1]), process_group=group, gradient_as_bucket_view=True)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.inputs = torch.randn(64, 1024, generator=torch.Generator().manual_seed(dist.get_rank()))

    def step(self) -> None:
        self.model(self.inputs).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("cpu:dear", timeout=datetime.timedelta(seconds=120))
    groups = {"dear": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    if dist.get_rank() == 0:
        print(f"load {os.getloadavg()[0]:.2f}, {dist.get_world_size()} ranks, torch {torch.__version__}")
    all_reduces(groups)
    trainings = {name: Training(group) for name, group in groups.items()}
    report("a step of DDP, 12 x 1024 x 1024, batch 64", in_turns({name: one.step for name, one in trainings.items()}))
    for ours, theirs in zip(trainings["dear"].model.parameters(), trainings["gloo"].model.parameters()):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
