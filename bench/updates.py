"""Who updates the parameters: PyTorch's DDP, DeAR with update="program" and DeAR on shards, in turns in the same processes:

    PYTHONPATH=build/release/python OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 bench/updates.py [--width 1024] [--batch 64] [--fusion 25MB]

A perceptron of 12 layers and AdamW. After the turns the parameters of all must agree, or nothing is printed.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import dear


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("layers", 12), ("width", 1024), ("batch", 64), ("turns", 20)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--fusion", default="25MB", help="DeAR's (default: %(default)s); DDP has its own first bucket of 1 MiB")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()

    torch.manual_seed(1)
    layers: list[nn.Module] = []
    for _ in range(options.layers):
        layers += [nn.Linear(options.width, options.width), nn.ReLU()]
    model = nn.Sequential(*layers)
    torch.manual_seed(rank)
    samples = torch.randn(options.batch, options.width)

    steps: dict[str, Callable[[], None]] = {}
    nets: dict[str, nn.Module] = {}

    def add(name: str, net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        def step() -> None:
            optimizer.zero_grad()
            net(samples).square().mean().backward()
            optimizer.step()

        steps[name], nets[name] = step, net

    def adamw(net: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(net.parameters(), lr=1e-4)

    net = copy.deepcopy(model)
    add("DDP", DistributedDataParallel(net), adamw(net))
    for update in ("program", "sharded"):
        net = copy.deepcopy(model)
        add(update, *dear.distribute(net, adamw(net), update=update, fusion=options.fusion))

    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(options.turns + 3):
        for name, step in steps.items():
            dist.barrier()
            begin = time.perf_counter()
            for _ in range(3):
                step()
            if isinstance(net := nets[name], dear.DataParallel):
                net.synchronize()
            if turn >= 3:
                seconds[name].append((time.perf_counter() - begin) / 3)
    for name, net in nets.items():
        for mine, ddp in zip(net.state_dict().values(), nets["DDP"].module.state_dict().values()):  # type: ignore[union-attr]
            if name != "DDP" and not torch.allclose(mine, ddp, rtol=1e-4, atol=1e-5):
                sys.exit(f"updates.py: parameters of {name} and DDP differ by {(mine - ddp).abs().max()}")
    if rank == 0:
        ddp = statistics.median(seconds["DDP"])
        for name, taken in seconds.items():
            median = statistics.median(taken)
            print(f"{name:8} {1e3 * median:7.1f} ms a step, {median / ddp:.3f} of DDP")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
