#!/usr/bin/env python3
"""What a step takes the host, on a device with streams and with one rank: DeAR beside PyTorch alone and DDP.

  .venv/bin/python bench/rivals/on_streams.py [--device stub|cuda] [--case gpt] [--layers 4] [--width 64] [--context 32]
                                              [--batch 8] [--rounds 8] [--steps 20] [--build build/release]

All sides train the same case, from the same parameters and on the same samples, by turns in one process: in each of
`rounds` every side has one turn: the host enqueues `steps` steps, and then waits for the device. The columns are

  enqueued   from the begin of a step to its end on the host, ms: the median
  host       processor time of a step, ms: of all threads but the streams of the stub device; the median of turns
  beside DDP host, as a share of DDP's: the median over rounds, the least and the greatest
  waits      how often the host waited for the device in a turn that is not timed

The stub device (dear/stub_device) computes on the CPU: it shows what the host does, and not how long a step takes. Nothing
is printed where sides did not compute the same. Exit code: 0 with a table, 2 without.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from options import count, fail

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
WAITS_OF_CUDA = {"cudaDeviceSynchronize", "cudaEventSynchronize", "cudaStreamSynchronize"}


@dataclass
class Turn:
    enqueued: float  # seconds: the median of its steps
    host: float  # seconds of processors in a step


@dataclass
class Device:
    name: str
    process_group: str
    settle: Callable[[], object]  # waits for what is enqueued
    waits_in: Callable[[Callable[[], object]], int]  # how often the host waits for the device in a call
    close: Callable[[], object] = lambda: None


def stub_device() -> Device:
    import dear_stub_device as stub
    from stub_registration import register

    register()

    def waits_in(run: Callable[[], object]) -> int:
        before = stub.host_waits()
        run()
        return stub.host_waits() - before

    return Device("stub", "cpu:gloo,stub:stub", stub.settle, waits_in, stub.finish)


def cuda_device() -> Device:
    import torch

    if not torch.cuda.is_available():
        fail("PyTorch has no CUDA device here: choose --device stub")

    def waits_in(run: Callable[[], object]) -> int:
        with torch.profiler.profile() as profile:
            run()
        return sum(event.name in WAITS_OF_CUDA for event in profile.events())

    return Device("cuda", "cpu:gloo,cuda:nccl", torch.cuda.synchronize, waits_in)


def host_seconds() -> float:
    """The time on processors of this process, without the threads that are streams of the stub device."""
    total = 0.0
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/comm", encoding="utf-8") as file:
            if file.read().strip() != "stub-stream":
                total += time.clock_gettime((~int(thread) << 3) | 6)  # Linux's number for the clock of that thread
    return total


def on_device(case: Any, device: str) -> Any:
    def make_batch(size: int, generator: Any) -> Any:
        return tuple(one.to(device) for one in case.make_batch(size, generator))

    return dataclasses.replace(case, make_model=lambda: case.make_model().to(device), make_batch=make_batch)


def enqueue(side: Any, samples: Any, steps: int) -> list[float]:
    """Seconds of each step on the host."""
    seconds = []
    for _ in range(steps):
        begin = time.perf_counter()
        side.step(samples)
        seconds.append(time.perf_counter() - begin)
    return seconds


def take_turn(side: Any, samples: Any, steps: int, device: Device) -> Turn:
    before = host_seconds()
    seconds = enqueue(side, samples, steps)
    host = host_seconds() - before
    device.settle()
    return Turn(statistics.median(seconds), host / steps)


def table(rounds: list[dict[str, Turn]], waits: dict[str, int]) -> None:
    print("| | enqueued, ms | host, ms | beside DDP | least, greatest | waits |\n|---|---|---|---|---|---|")
    for name, waited in waits.items():
        enqueued, host = (1e3 * statistics.median(getattr(one[name], what) for one in rounds) for what in ("enqueued", "host"))
        ratios = [one[name].host / one["DDP"].host for one in rounds]
        print(
            f"| {name} | {enqueued:.2f} | {host:.2f} | {statistics.median(ratios):.3f} "
            f"| {min(ratios):.3f}, {max(ratios):.3f} | {waited} |"
        )


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.error = fail  # type: ignore[method-assign]
    parser.add_argument("--device", default="stub", choices=["stub", "cuda"])
    parser.add_argument("--case", default="gpt", choices=["gpt", "mlp"])
    parser.add_argument("--layers", type=count, default=4)
    parser.add_argument("--width", type=count, default=64)
    parser.add_argument("--context", type=count, default=32, help="of gpt")
    parser.add_argument("--batch", type=count, default=8)
    parser.add_argument("--rounds", type=count, default=8)
    parser.add_argument("--steps", type=count, default=20, help="of a side in a round")
    parser.add_argument("--build", default=os.path.join(ROOT, "build/release"))
    options = parser.parse_args()
    if not os.path.isdir(os.path.join(options.build, "python", "dear")):
        fail(f"there is no package dear in '{options.build}/python': build it, or name its folder by --build")
    if options.device == "stub" and not os.path.exists(os.path.join(options.build, "python_testing", "stub_registration.py")):
        fail(f"there is no stub device in '{options.build}/python_testing': build with DEAR_TESTS=ON")
    return options


def main() -> None:
    options = read_options()
    sys.path[:0] = [os.path.join(options.build, "python"), os.path.join(options.build, "python_testing")]
    warnings.filterwarnings("ignore", message=".*Set seed for `stub` device.*")
    import torch
    from cases import CASES
    from rank import verify
    from sides import SIDES

    torch.set_num_threads(1)
    device = cuda_device() if options.device == "cuda" else stub_device()
    torch.distributed.init_process_group(device.process_group, rank=0, world_size=1, store=torch.distributed.HashStore())
    settings = {"layers": options.layers, "width": options.width}
    if options.case == "gpt":
        settings["context"] = options.context
    case = on_device(CASES[options.case](**settings), device.name)
    samples = case.batches(options.batch, 0)
    start = torch.cat([one.detach().cpu().reshape(-1) for one in case.make_model().parameters()])
    sides = {SIDES[name][0]: SIDES[name][1](case, "25MB") for name in ("plain", "ddp", "dear")}
    names = list(sides)
    waits = {}
    for name, side in sides.items():
        take_turn(side, samples, options.steps, device)
        waits[name] = device.waits_in(functools.partial(enqueue, side, samples, options.steps))
        device.settle()
    rounds = []
    for number in range(options.rounds):
        first = number % len(names)
        order = names[first:] + names[:first]
        rounds.append({name: take_turn(sides[name], samples, options.steps, device) for name in order})
    try:
        verified = verify(sides, start)
    except SystemExit as refused:
        fail(str(refused))
    print(
        f"{options.case}, {settings}, batch {options.batch}, {start.numel():,} parameters; {options.rounds} rounds of {options.steps} "
        f"steps on {device.name}, PyTorch {torch.__version__}; losses apart by {verified['losses']:.0e}, parameters by "
        f"{verified['parameters']:.0e}\n"
    )
    table(rounds, waits)
    for side in sides.values():
        side.close()
    device.close()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
