"""What PyTorch's DDP costs beyond its bytes: for each buffer that it broadcasts, and for each gradient tensor, in turns in
the same processes:

    OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 bench/ddp_costs.py [--count 400] [--steps 40] [--turns 20]

Models of `count` small parameters or buffers beside models of one parameter, or none, of as many bytes; two bytes of every
sum say nothing, so that all models compute alike. A cost is the difference of two medians over `count`, of the slowest rank.
`sent` is what the collectives alone add: a broadcast of all buffers of a dtype at once. The last line is for the member
"software" of a cluster file (docs/formats.md): `dear plan` then counts it for ddp. Nothing is printed unless the buffers of
all ranks are rank 0's after a step.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ELEMENTS = 256  # of a small tensor, as the statistics of a BatchNorm


class Parts(nn.Module):
    """Parameters that are all used, and buffers that none reads."""

    def __init__(self, parameters: int, buffers: int, elements: int) -> None:
        super().__init__()
        self.parts = nn.ParameterList(nn.Parameter(torch.ones(elements // parameters)) for _ in range(parameters))
        for i in range(buffers):  # two of three are floats, as in a BatchNorm
            value = torch.tensor(0) if i % 3 == 2 else torch.zeros(ELEMENTS)
            self.register_buffer(f"buffer{i}", value)

    def forward(self) -> torch.Tensor:
        return torch.stack([part.sum() for part in self.parts]).sum()


def step_of(model: nn.Module) -> Callable[[], None]:
    def step() -> None:
        model().backward()
        model.zero_grad()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("count", 400), ("turns", 40)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    count, elements = options.count, options.count * ELEMENTS
    floats = torch.zeros(ELEMENTS * (count - count // 3))
    integers = torch.zeros(count // 3, dtype=torch.int64)

    def collectives() -> None:
        dist.broadcast(floats, 0)
        dist.broadcast(integers, 0)

    with_buffers = DistributedDataParallel(Parts(1, count, ELEMENTS))
    models = {
        "alone, one tensor": Parts(1, 0, elements),
        "alone, tensors": Parts(count, 0, elements),
        "DDP, one tensor": DistributedDataParallel(Parts(1, 0, elements)),
        "DDP, tensors": DistributedDataParallel(Parts(count, 0, elements)),
        "DDP, tensors, views": DistributedDataParallel(Parts(count, 0, elements), gradient_as_bucket_view=True),
        "DDP, buffers": with_buffers,
        "DDP, buffers, none sent": DistributedDataParallel(Parts(1, count, ELEMENTS), broadcast_buffers=False),
    }
    calls = {name: step_of(model) for name, model in models.items()} | {"sent": collectives}
    with torch.no_grad():
        for buffer in with_buffers.buffers():
            buffer.fill_(1 + dist.get_rank())
    calls["DDP, buffers"]()
    assert all(bool((buffer == 1).all()) for buffer in with_buffers.buffers()), "the buffers are not rank 0's"

    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(options.turns + 2):  # the first two do not count
        for name in list(calls) if turn % 2 == 0 else list(calls)[::-1]:
            dist.barrier()
            begin = time.perf_counter()
            calls[name]()
            if turn >= 2:
                seconds[name].append(time.perf_counter() - begin)
    medians = torch.tensor([statistics.median(times) for times in seconds.values()])
    dist.all_reduce(medians, dist.ReduceOp.MAX)
    of = dict(zip(seconds, medians.tolist()))
    each = {
        "a gradient tensor": of["DDP, tensors"] - of["alone, tensors"] - of["DDP, one tensor"] + of["alone, one tensor"],
        "a gradient tensor that is a view of its bucket": of["DDP, tensors, views"]
        - of["alone, tensors"]
        - of["DDP, one tensor"]
        + of["alone, one tensor"],
        "a buffer": of["DDP, buffers"] - of["DDP, buffers, none sent"],
        "a buffer, beyond what is sent": of["DDP, buffers"] - of["DDP, buffers, none sent"] - of["sent"],
    }
    if dist.get_rank() == 0:
        print(f"load {os.getloadavg()[0]:.2f}, {dist.get_world_size()} ranks, torch {torch.__version__}, {count} of each")
        for name, value in of.items():
            print(f"{name:48} {1e3 * value:8.3f} ms")
        for name, value in each.items():
            print(f"{name:48} {1e6 * value / count:8.2f} us each")
        buffer = max(0.0, each["a buffer, beyond what is sent"]) / count
        print(f'"software": {{"launch_seconds": 0, "hold_seconds": 0, "buffer_seconds": {buffer:.3g}}}')
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
