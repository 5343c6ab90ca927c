"""What join() and samples() cost a step: steps without them and with them in turns, each of a model of its own; and
PyTorch's DistributedDataParallel without and with its join(). The parameters of what computes the same are compared. On an
idle machine, with the package of a build:

    PYTHONPATH=build/release/python torchrun --nproc-per-node=2 bench/join.py
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import dear


def make_model(layers: int, width: int) -> nn.Module:
    torch.manual_seed(3)
    stack: list[nn.Module] = []
    for _ in range(layers):
        stack += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*stack)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--policy", default="dear")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    inputs = torch.randn(options.batch, options.width, generator=torch.Generator().manual_seed(100 + rank))

    def ours() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = make_model(options.layers, options.width)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
        return dear.distribute(model, optimizer, policy=options.policy, fusion="1MiB")

    def theirs() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = DistributedDataParallel(make_model(options.layers, options.width), gradient_as_bucket_view=True)
        return model, torch.optim.AdamW(model.parameters(), 1e-4)

    rivals = {
        "DeAR": ours(),
        "DeAR, join()": ours(),
        "DeAR, samples()": ours(),
        "DDP": theirs(),
        "DDP, join()": theirs(),
    }
    seconds: dict[str, list[float]] = {name: [] for name in rivals}

    def step(name: str, before: Callable[[], None] = lambda: None) -> None:
        model, optimizer = rivals[name]
        dist.barrier()
        begin = time.perf_counter()
        optimizer.zero_grad()
        before()
        model(inputs).square().mean().backward()
        optimizer.step()
        if isinstance(model, dear.DataParallel):
            model.synchronize()
        seconds[name].append(time.perf_counter() - begin)

    with contextlib.ExitStack() as joins:
        joins.enter_context(rivals["DeAR, join()"][0].join())
        joins.enter_context(rivals["DDP, join()"][0].join())
        for number in range(options.steps):
            names = list(rivals)
            for name in names[number % len(names) :] + names[: number % len(names)]:
                if name == "DeAR, samples()":
                    step(name, lambda: rivals[name][0].samples(options.batch))
                else:
                    step(name)
    plain = list(rivals["DeAR"][0].parameters())
    for name in ("DeAR, join()", "DeAR, samples()"):
        assert all(torch.equal(a, b) for a, b in zip(plain, rivals[name][0].parameters())), name
    if rank == 0:
        print(f"load {os.getloadavg()[0]:.2f}, {dist.get_world_size()} ranks, policy {options.policy}")
        for name in rivals:
            base = seconds[name.split(",")[0]][10:]
            ratios = sorted(a / b for a, b in zip(seconds[name][10:], base))
            quarter = len(ratios) // 4
            print(
                f"{name:16} {1e3 * statistics.median(seconds[name]):8.3f} ms a step, ratio {ratios[2 * quarter]:.3f}"
                f" ({ratios[quarter]:.3f}, {ratios[3 * quarter]:.3f})"
            )


if __name__ == "__main__":
    main()
