"""What PyTorch's DDP pays beside its bytes: for each buffer that it broadcasts, and for each gradient tensor; and what part
of DeAR's gain on a network of BatchNorms that is. In turns in the same processes:

    PYTHONPATH=build/release/python OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 bench/ddp_costs.py [--count 400] [--turns 40]

A cost is a difference of medians, of the slowest rank, over `count` small tensors: DDP's step of a model of as many buffers
with and without the broadcast; and the step of a model of as many parameters, less that of one parameter of as many
elements, less the same of the model alone. Two thirds of the buffers are floats, one third integers, as BatchNorm's.
Parameters must agree at the end, and buffers be rank 0's, or nothing is printed. `buffer_seconds` is for the member
"software" of a cluster file (docs/formats.md): `dear plan` counts it for ddp.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import dear

ELEMENTS = 256  # of a small tensor
NORMS = 53  # as ResNet-50 has


class Parts(nn.Module):
    """Parameters that are all used, and buffers that none reads."""

    def __init__(self, parameters: int, buffers: int, elements: int) -> None:
        super().__init__()
        self.parts = nn.ParameterList(nn.Parameter(torch.ones(elements // parameters)) for _ in range(parameters))
        for i in range(buffers):
            self.register_buffer(f"buffer{i}", torch.tensor(0) if i % 3 == 2 else torch.zeros(ELEMENTS))

    def forward(self) -> torch.Tensor:
        return torch.stack([part.sum() for part in self.parts]).sum()


def network() -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1)]
    for _ in range(NORMS):
        layers += [nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1, bias=False)]
    return nn.Sequential(*layers)


def step_of(model: Any, optimizer: Any, *inputs: torch.Tensor) -> Callable[[], None]:
    def step() -> None:
        optimizer.zero_grad()
        model(*inputs).mean().backward()
        optimizer.step()

    return step


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01)


def medians_of(calls: dict[str, Callable[[], None]], turns: int) -> dict[str, float]:
    """Seconds of the slowest rank."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(turns + 2):  # the first two do not count
        for name in list(calls) if turn % 2 == 0 else list(calls)[::-1]:
            dist.barrier()
            begin = time.perf_counter()
            calls[name]()
            if turn >= 2:
                seconds[name].append(time.perf_counter() - begin)
    medians = torch.tensor([statistics.median(times) for times in seconds.values()])
    dist.all_reduce(medians, dist.ReduceOp.MAX)
    return dict(zip(seconds, medians.tolist()))


def costs(count: int, turns: int) -> dict[str, float]:
    """Seconds of each tensor."""
    elements = count * ELEMENTS
    floats, integers = torch.zeros(ELEMENTS * (count - count // 3)), torch.zeros(count // 3, dtype=torch.int64)
    calls: dict[str, Callable[[], None]] = {
        "broadcasts": lambda: (dist.broadcast(floats, 0), dist.broadcast(integers, 0)) and None,
    }

    def add(name: str, model: Any, optimizer: Any = None) -> Any:
        calls[name] = step_of(model, optimizer or sgd(model))
        return model

    for tensors in (1, count):
        add(f"alone {tensors}", Parts(tensors, 0, elements))
        add(f"DDP {tensors}", DistributedDataParallel(Parts(tensors, 0, elements)))
        ours = Parts(tensors, 0, elements)
        add(f"DeAR {tensors}", *dear.distribute(ours, sgd(ours), fusion="25MB"))
    sending = add("sent", DistributedDataParallel(Parts(1, count, ELEMENTS)))
    add("not sent", DistributedDataParallel(Parts(1, count, ELEMENTS), broadcast_buffers=False))
    for buffer in sending.buffers():
        buffer.fill_(1 + dist.get_rank())
    calls["sent"]()
    if not all(bool((buffer == 1).all()) for buffer in sending.buffers()):
        sys.exit("the buffers are not rank 0's")
    of = medians_of(calls, turns)

    def of_a_tensor(side: str) -> float:
        return (of[f"{side} {count}"] - of[f"{side} 1"] - of[f"alone {count}"] + of["alone 1"]) / count

    return {
        "a buffer under DDP": (of["sent"] - of["not sent"]) / count,
        "of that the broadcasts alone": of["broadcasts"] / count,
        "a gradient tensor under DDP": of_a_tensor("DDP"),
        "a gradient tensor under DeAR": of_a_tensor("DeAR"),
    }


def steps_of_networks(turns: int) -> dict[str, float]:
    torch.manual_seed(1)
    first = network()
    images = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(dist.get_rank()))
    nets = {name: copy.deepcopy(first) for name in ("DDP", "DDP, broadcast_buffers=False", "DeAR", 'DeAR, buffers="forward"')}
    calls = {}
    for name, net in nets.items():
        if name.startswith("DDP"):
            calls[name] = step_of(DistributedDataParallel(net, broadcast_buffers=name == "DDP"), sgd(net), images)
        else:
            buffers = "forward" if "forward" in name else "synchronize"
            calls[name] = step_of(*dear.distribute(net, sgd(net), fusion="25MB", buffers=buffers), images)
    of = medians_of(calls, turns)
    for net in nets.values():
        for ours, theirs in zip(net.parameters(), nets["DDP"].parameters()):
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
    return of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("count", 400), ("turns", 40)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    load = os.getloadavg()[0]
    each = costs(options.count, options.turns)
    steps = steps_of_networks(options.turns)
    if dist.get_rank() == 0:
        print(f"load {load:.2f}, {dist.get_world_size()} ranks, torch {torch.__version__}, {options.count} tensors")
        for name, value in each.items():
            print(f"{name:34} {1e6 * value:7.1f} us")
        print(f'"buffer_seconds": {max(0.0, each["a buffer under DDP"] - each["of that the broadcasts alone"]):.2g}')
        print(f"a step of a network of {NORMS} BatchNorms")
        for name, value in steps.items():
            print(f"{name:34} {1e3 * value:7.2f} ms, {value / steps['DDP']:.3f} of DDP's")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
