#!/usr/bin/env python3
"""What a step takes the host and the device, on a device with streams: DeAR beside DDP, and PyTorch alone on one rank.

  .venv/bin/python bench/rivals/on_streams.py [--device stub|cuda] [--case gpt|mlp|resnet] [--layers 4] [--width 64]
                                              [--context 32] [--batch 8] [--rounds 8] [--steps 20] [--build build/release]

One rank; under torchrun, as many as it starts. All sides train the same case, from the same parameters and on the same
samples, by turns in one process: in each of `rounds` every side has one turn: the host enqueues `steps` steps, and then
waits for the device. The columns are

  enqueued   from the begin of a step to its end on the host, ms: the median
  host       processor time of a step, ms: of all threads but the streams of the stub device; the median of turns
  beside DDP host, as a share of DDP's: the median over rounds, the least and the greatest
  device     from the begin of a turn until the program's stream is through, ms a step: the median of turns
  waits      how often the host waited for the device in a turn that is not timed
  NCCL       its kernels in another such turn, ms a step; on one rank there are none, or copies alone
  hidden     of these the time in which other kernels ran, ms a step

The stub device (dear/testing/stub_device) computes on the CPU: it shows what the host does, and not how long a step takes. Nothing
is printed where sides did not compute the same. Exit code: 0 with a table, 2 without.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
import warnings
from dataclasses import dataclass
from typing import Any

from devices import DEVICES, Device, NoDevice
from options import count, fail

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
ALLOWED = {"stub": 1e-5, "cuda": 1e-4}  # between sides: kernels of a GPU may add in another order at each run
HEAD = ["", "enqueued, ms", "host, ms", "beside DDP", "least, greatest", "device, ms", "waits", "NCCL, ms", "hidden, ms"]


@dataclass
class Turn:
    enqueued: float  # seconds: the median of its steps
    host: float  # seconds of processors in a step
    device: float | None  # seconds of a step on the device's clock


@dataclass
class Measured:
    """Of each side, by its name."""

    rounds: list[dict[str, Turn]]
    waits: dict[str, int]
    hidden: dict[str, tuple[float, float] | None]  # of a step: see Device.hidden_in()
    verified: dict[str, float]
    parameters: int

    def rows(self) -> list[list[str]]:
        return [self._row(name) for name in self.waits]

    def numbers(self, name: str) -> dict[str, float]:
        """Of one side; without what its device does not tell."""
        turns = [one[name] for one in self.rounds]
        found = {
            "enqueued, ms": 1e3 * statistics.median(turn.enqueued for turn in turns),
            "host, ms": 1e3 * statistics.median(turn.host for turn in turns),
            "waits": self.waits[name],
        }
        on_device = [turn.device for turn in turns if turn.device is not None]
        if on_device:
            found["device, ms"] = 1e3 * statistics.median(on_device)
        hidden = self.hidden[name]
        if hidden is not None:
            found["NCCL, ms"] = 1e3 * hidden[0]
            found["hidden, ms"] = 1e3 * hidden[1]
        return found

    def _row(self, name: str) -> list[str]:
        ratios = [one[name].host / one["DDP"].host for one in self.rounds]
        numbers = {column: f"{value:.2f}" for column, value in self.numbers(name).items()}
        numbers |= {"waits": str(self.waits[name]), "beside DDP": f"{statistics.median(ratios):.3f}"}
        numbers["least, greatest"] = f"{min(ratios):.3f}, {max(ratios):.3f}"
        return [name, *(numbers.get(column, "not told") for column in HEAD[1:])]


def host_seconds() -> float:
    """The time on processors of this process, without the threads that are streams of the stub device."""
    total = 0.0
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/comm", encoding="utf-8") as file:
                if file.read().strip() != "stub-stream":
                    total += time.clock_gettime((~int(thread) << 3) | 6)  # Linux's number for the clock of that thread
        except OSError:
            pass  # it has ended meanwhile
    return total


def enqueue(side: Any, samples: Any, steps: int) -> list[float]:
    """Seconds of each step on the host."""
    seconds = []
    for _ in range(steps):
        begin = time.perf_counter()
        side.step(samples)
        seconds.append(time.perf_counter() - begin)
    return seconds


def take_turn(side: Any, samples: Any, steps: int, device: Device) -> Turn:
    seconds: list[float] = []
    host = 0.0

    def run() -> None:
        nonlocal host
        before = host_seconds()
        seconds.extend(enqueue(side, samples, steps))
        host = host_seconds() - before

    on_device = device.seconds_in(run)
    device.settle()
    return Turn(statistics.median(seconds), host / steps, None if on_device is None else on_device / steps)


def measure(device: Device, case: Any, batch: int, rounds: int, steps: int) -> Measured:
    """In the process group of torch.distributed that is there; all ranks call it. SystemExit with a sentence where sides did
    not compute the same."""
    import torch
    from rank import verify
    from sides import SIDES

    distributed = torch.distributed
    case = case.on(device.name)
    samples = case.batches(batch, distributed.get_rank())
    start = torch.cat([one.detach().cpu().reshape(-1) for one in case.make_model().parameters()])
    chosen = ("ddp", "dear") if distributed.get_world_size() > 1 else ("plain", "ddp", "dear")
    sides = {SIDES[name][0]: SIDES[name][1](case, "25MB") for name in chosen}
    names = list(sides)
    waits, hidden = {}, {}
    for name, side in sides.items():
        take_turn(side, samples, steps, device)
        waits[name] = device.waits_in(lambda side=side: enqueue(side, samples, steps))
        device.settle()
        spent = device.hidden_in(lambda side=side: enqueue(side, samples, steps))
        hidden[name] = spent and (spent[0] / steps, spent[1] / steps)
        device.settle()
    turns = []
    for number in range(rounds):
        first = number % len(names)
        order = names[first:] + names[:first]
        turns.append({name: take_turn(sides[name], samples, steps, device) for name in order})
    verified = verify(sides, start, ALLOWED[device.name])
    for side in sides.values():
        side.close()
    return Measured(turns, waits, hidden, verified, start.numel())


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.error = fail  # type: ignore[method-assign]
    parser.add_argument("--device", default="stub", choices=list(DEVICES))
    parser.add_argument("--case", default="gpt", choices=["gpt", "mlp", "resnet"])
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

    torch.set_num_threads(1)
    try:
        device = DEVICES[options.device]()
    except NoDevice as missing:
        fail(str(missing))
    backend = device.backend(device.libraries[-1])
    if "RANK" in os.environ:
        if device.name == "cuda":
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
        torch.distributed.init_process_group(backend)
    else:
        torch.distributed.init_process_group(backend, rank=0, world_size=1, store=torch.distributed.HashStore())
    settings = {"layers": options.layers, "width": options.width}
    if options.case == "gpt":
        settings["context"] = options.context
    try:
        found = measure(device, CASES[options.case](**settings), options.batch, options.rounds, options.steps)
    except SystemExit as refused:
        fail(str(refused))
    if torch.distributed.get_rank() == 0:
        print(
            f"{options.case}, {settings}, batch {options.batch}, {found.parameters:,} parameters; {options.rounds} rounds of "
            f"{options.steps} steps on {device.name}, PyTorch {torch.__version__}; losses apart by "
            f"{found.verified['losses']:.0e}, parameters by {found.verified['parameters']:.0e}\n"
        )
        for row in (HEAD, ["---"] * len(HEAD), *found.rows()):
            print("| " + " | ".join(row) + " |")
    device.close()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
