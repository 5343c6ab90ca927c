"""What resuming from shards reads and holds in Python, as loads.cpp tells it of C++. First with --save, then without:

dear launch -n 4 python bench/checkpoints/loads.py --directory /var/tmp/saved --save
dear launch -n 4 python bench/checkpoints/loads.py --directory /var/tmp/saved
"""

from __future__ import annotations

import argparse
import math
import os
import pathlib
import sys
import threading
import time

import torch
from torch import nn

import dear
from dear import _C


def in_proc(file: str, key: str) -> int:
    """A number of a file of /proc/self, in bytes."""
    for line in pathlib.Path("/proc/self", file).read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * (1024 if line.endswith("kB") else 1)
    raise KeyError(key)


def memory() -> int:
    return in_proc("status", "RssAnon") + in_proc("status", "RssFile")


class Watch:
    """The most memory of this process, but for what ranks share, and the bytes that it reads, mapped ones too."""

    def __enter__(self) -> Watch:
        self.before, self.files, self.read = memory(), in_proc("status", "RssFile"), in_proc("io", "rchar")
        self.peak, self.most_files = self.before, self.files
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def watch(self) -> None:
        while not self.ended.wait(0.002):
            self.peak = max(self.peak, memory())
            self.most_files = max(self.most_files, in_proc("status", "RssFile"))

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()
        self.read = in_proc("io", "rchar") - self.read + self.most_files - self.files


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", required=True)
    parser.add_argument("--megabytes", type=int, default=2000)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(3)
    side = int(math.sqrt(options.megabytes * 1e6 / 12 / options.layers))
    net = nn.Sequential(*(nn.Linear(side, side, bias=False) for _ in range(options.layers)))
    model, optimizer = dear.distribute(net, torch.optim.AdamW(net.parameters()), fusion="25MiB")

    def step() -> None:
        model(torch.ones(1, side)).square().mean().backward()
        optimizer.step()

    def total() -> float:
        model.synchronize()
        return sum(float(parameter.detach().double().sum()) for parameter in net.parameters())

    checkpoints = dear.Checkpoints(options.directory, model, sharded=True)
    expected = pathlib.Path(options.directory, "sum")
    if options.save:
        step()
        checkpoints.save(1)
        step()
        result = total()
        if model.rank == 0:
            expected.write_text(repr(result))
        return 0
    with Watch() as watch:
        begin = time.perf_counter()
        position = checkpoints.resume()
        seconds = time.perf_counter() - begin
    with Watch() as later:
        step()
    right = position == {"step": 1} and math.isclose(total(), float(expected.read_text()), rel_tol=1e-6)
    mine = f"{watch.read + later.read} {watch.peak - watch.before}"
    everyone = [[int(one) for one in text.split()] for text in _C.gather_bytes(model._group, mine.encode())]
    if model.rank == 0:
        size = sum(file.stat().st_size for file in pathlib.Path(options.directory).glob("step-*/*"))
        read, held = sum(one[0] for one in everyone), max(one[1] for one in everyone)
        print(
            f"{size / 1e6:.0f} MB resumed on {model.world_size} ranks in {seconds:.1f} s, {'right' if right else 'WRONG'}\n"
            f"  read by all ranks: {read / 1e6:.0f} MB, {read / size:.2f} x the checkpoint\n"
            f"  most memory of a rank in resume(), beyond the model: {held / 1e6:.0f} MB, "
            f"{held * model.world_size / size:.2f} x its part of the checkpoint"
        )
    return 0 if right else 1


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
