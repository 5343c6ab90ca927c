"""What it brings to reduce the gradient of an embedding as rows: DeAR and PyTorch's DistributedDataParallel (over gloo), each
with nn.Embedding(sparse=True) and with dense gradients, in turns, each of a model of its own. Words are drawn by Zipf's law.
All must end with the same parameters, within rounding. On an idle machine, with the package of a build:

    PYTHONPATH=build/release/python torchrun --nproc-per-node=2 bench/sparse_embedding.py

--gloo: DeAR's messages go through the same process group as DDP's, and not through shared memory.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import dear


def make_model(words: int, width: int, sparse: bool) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.EmbeddingBag(words, width, mode="sum", sparse=sparse), nn.Linear(width, width), nn.ReLU())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--words", type=int, default=200_000)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--policies", nargs="+", default=["wfbp", "dear"])
    parser.add_argument("--gloo", action="store_true")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    generator = torch.Generator().manual_seed(100 + rank)
    chances = 1 / torch.arange(1, options.words + 1, dtype=torch.float64)

    def make(sparse: bool) -> tuple[nn.Module, torch.optim.Optimizer]:
        model = make_model(options.words, options.width, sparse)
        return model, torch.optim.SGD(model.parameters(), 0.01)

    def ours(policy: str, sparse: bool) -> tuple[Any, torch.optim.Optimizer]:
        group = dist.new_group(backend="gloo") if options.gloo else None
        return dear.distribute(*make(sparse), policy=policy, fusion="1MiB", process_group=group)

    def theirs(sparse: bool) -> tuple[Any, torch.optim.Optimizer]:
        model, optimizer = make(sparse)
        return DistributedDataParallel(model), optimizer

    rivals = {"DDP, dense": theirs(False), "DDP, sparse": theirs(True)}
    for policy in options.policies:
        rivals[f"DeAR {policy}, dense"] = ours(policy, False)
        rivals[f"DeAR {policy}, sparse"] = ours(policy, True)
    seconds: dict[str, list[float]] = {name: [] for name in rivals}
    for number in range(options.steps):
        tokens = torch.multinomial(chances, options.batch * options.length, True, generator=generator)
        tokens = tokens.view(options.batch, options.length)
        names = list(rivals)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            model, optimizer = rivals[name]
            dist.barrier()
            begin = time.perf_counter()
            optimizer.zero_grad()
            model(tokens).square().mean().backward()
            optimizer.step()
            if isinstance(model, dear.DataParallel):
                model.synchronize()
            seconds[name].append(time.perf_counter() - begin)
    first = list(rivals["DDP, dense"][0].parameters())
    for name, (model, _) in rivals.items():
        for mine, other in zip(model.parameters(), first):
            torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}")
    if rank == 0:
        print(f"load {os.getloadavg()[0]:.2f}, {dist.get_world_size()} ranks, {options.words} words of {options.width}")
        for name, (model, _) in rivals.items():
            quartiles = [1e3 * value for value in statistics.quantiles(seconds[name][5:], n=4)]
            sent = ""
            if isinstance(model, dear.DataParallel):
                told = model.statistics()
                sent = f", {told['bytes'] / told['iterations'] / 1e6:.2f} MB sent a step, {told['sparse_as_rows']} as rows"
            print(f"{name:20} {quartiles[1]:8.2f} ms a step ({quartiles[0]:.2f}, {quartiles[2]:.2f}){sent}")


if __name__ == "__main__":
    main()
