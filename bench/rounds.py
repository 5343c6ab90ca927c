"""A small GPT on the characters of Python's library, on two hosts with a slow wire: every step, and DiLoCo in fragments.

    bench/hosts up 2 20mbit
    PYTHONPATH=build/release/python python bench/rounds.py
    bench/hosts down

Starts a rank on each host. Both ways begin with the same model, and rank r has the same samples in step s. Then DiLoCo goes on
until it has the loss that every-step training ended with, for at most three times the steps. Losses are of the global model on
text that is not trained with, and are not timed. Fails where less than 90 % of what DiLoCo sends is hidden, or where it takes more
than a tenth of the time of every-step training, for the same samples or to the same loss.

--local: no wire; the ranks are on this host, and only losses count.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import sys
import time
from typing import Any

import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples" / "python"))
from chargpt import CharGpt, loss_of, read_text

import dear


class Way:
    """One training."""

    def __init__(self, options: argparse.Namespace, group: dear.Group, rounds: dear.DiLoCo | None) -> None:
        torch.manual_seed(1)
        self._options, self._rank = options, group.rank
        self._text = read_text(options.characters)
        self._test = self._text[: 32 * (options.context + 1)].view(32, -1)
        model = CharGpt(options.layers, options.width, 4, options.context)
        optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
        self.model: Any
        self.model, self._optimizer = dear.distribute(
            model, optimizer, process_group=group, rounds=rounds, fusion="2MB"
        )
        self.seconds, self.steps = 0.0, 0

    def train(self, steps: int) -> None:
        begin = time.perf_counter()
        for _ in range(steps):
            self.steps += 1
            generator = torch.Generator().manual_seed(1000 * self.steps + self._rank)
            length = self._options.context
            begins = torch.randint(
                self._test.numel(), len(self._text) - length, (self._options.batch,), generator=generator
            )
            pieces = torch.stack([self._text[one : one + length + 1] for one in begins.tolist()])
            loss_of(self.model, pieces).backward()
            self._optimizer.step()
            self._optimizer.zero_grad()
        self.model.synchronize()
        self.seconds += time.perf_counter() - begin

    @torch.no_grad()
    def loss(self) -> float:
        with self.model.global_parameters():
            return loss_of(self.model, self._test).item()


def rank(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    group = dear.init(backend=None if options.local else "gloo", timeout=300)
    rounds = dear.DiLoCo(
        every=options.every,
        fragments=options.fragments,
        delay=options.delay,
        mixing=options.mixing,
        compression=options.compression,
        outer=lambda p: torch.optim.SGD(p, lr=options.outer_lr, momentum=options.outer_momentum, nesterov=True),
    )
    stepwise = Way(options, group, None)
    stepwise.train(3)  # buckets are made, connections are open
    stepwise.seconds, before = 0.0, stepwise.model.statistics()["bytes"]
    stepwise.train(options.steps - 3)
    seconds = stepwise.seconds * options.steps / (options.steps - 3)
    sent = (stepwise.model.statistics()["bytes"] - before) / (options.steps - 3)
    aim = stepwise.loss()
    stepwise.model.close()

    diloco = Way(options, group, rounds)
    diloco.train(options.steps)
    same, same_seconds, told = diloco.loss(), diloco.seconds, diloco.model.overlap_report()["rounds"]
    mine, reached = same, same_seconds
    while mine > aim and diloco.steps < 3 * options.steps:
        diloco.train(options.every // options.fragments)
        mine, reached = diloco.loss(), diloco.seconds
    steps = diloco.steps
    if mine <= aim and steps == options.steps:
        reached = same_seconds
    diloco.model.close()
    if group.rank != 0:
        return
    print(f"{options.steps} steps of {sum(p.numel() for p in diloco.model.module.parameters())} parameters on 2 ranks")
    print(f"every step: {seconds:7.1f} s, {sent / 1e3:8.1f} kB a step, loss {aim:.4f}")
    print(
        f"DiLoCo:     {same_seconds:7.1f} s, {told['bytes_per_step'] / 1e3:8.1f} kB a step, loss {same:.4f} ({same - aim:+.4f}), "
        f"{same_seconds / seconds:.1%} of the time; {told['hidden']:.1%} hidden: {told['exposed_seconds']:.2f} s waited for "
        f"{told['communication_seconds']:.2f} s of exchanges"
    )
    print(
        f"DiLoCo to the loss of every step: {reached:.1f} s, {steps} steps, loss {mine:.4f}, {reached / seconds:.1%} of the time"
    )
    if options.local:
        return
    failed = [
        text
        for text, fails in (
            ("less than 90 % is hidden", told["hidden"] < 0.9),
            ("the same samples take more than a tenth of the time", same_seconds > seconds / 10),
            ("the same loss takes more than a tenth of the time", mine > aim or reached > seconds / 10),
        )
        if fails
    ]
    sys.exit("; ".join(failed) if failed else 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("steps", 200), ("batch", 4), ("layers", 2), ("width", 256), ("context", 64), ("characters", 400_000),
                        ("every", 32), ("fragments", 4), ("delay", 6)):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=value)
    for name, number in (("lr", 2e-3), ("outer-lr", 0.7), ("outer-momentum", 0.5), ("mixing", 0.5)):
        parser.add_argument(f"--{name}", type=float, default=number)
    parser.add_argument("--compression", default="bf16")
    parser.add_argument("--local", action="store_true")
    options = parser.parse_args()
    if "RANK" in os.environ:
        return rank(options)
    ranks = []
    for number in range(2):
        place = {"RANK": str(number), "WORLD_SIZE": "2", "LOCAL_RANK": str(number), "LOCAL_WORLD_SIZE": "2"}
        host = "127.0.0.1" if options.local else "10.77.0.1"
        place |= {"MASTER_ADDR": host, "MASTER_PORT": "29617", "OMP_NUM_THREADS": "1"}
        if not options.local:
            place |= {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GLOO_SOCKET_IFNAME": "eth0"}
        on = [] if options.local else [str(ROOT / "bench" / "hosts"), "run", str(number)]
        ranks.append(subprocess.Popen([*on, sys.executable, "-B", *sys.argv], env={**os.environ, **place}))
    sys.exit(max(abs(one.wait()) for one in ranks))


if __name__ == "__main__":
    main()
