"""How much memory a rank holds with fp32 masters and without, beside what docs/training_precision.md says of it:

GLIBC_TUNABLES=glibc.malloc.mmap_threshold=65536 PYTHONPATH=build/release/python \\
    build/release/dear launch -n 2 python bench/master_memory.py MASTERS       MASTERS: 0 or 1

A model in bfloat16, trained by AdamW. Memory that processes share counts in equal parts; with the tunable the C library gives
back what is freed.
"""

import sys

import torch
from torch import nn

import dear


def held_mib() -> float:
    with open("/proc/self/smaps_rollup", encoding="utf-8") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    masters = sys.argv[1] == "1"
    model = nn.Sequential(*[nn.Linear(1024, 1024, bias=False) for _ in range(24)]).bfloat16()
    n = sum(parameter.numel() for parameter in model.parameters())
    before = held_mib()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    model, optimizer = dear.distribute(model, optimizer, fusion="8MB", fp32_masters=masters)
    for _ in range(4):
        model(torch.randn(4, 1024).bfloat16()).square().mean().backward()
        optimizer.step()
        model.synchronize()
    grew = held_mib() - before
    sharded = (12 if masters else 4) * n / model.world_size / 2**20
    report = {name: size / 2**20 for name, size in model.memory().items()}
    print(
        f"{n} parameters, masters {masters}: grew by {grew:.1f} MiB; {sharded:.1f} MiB are of masters and state, "
        f"by the formula, {report['masters'] + report['optimizer_state']:.1f} MiB by memory(), whose total is "
        f"{report['total']:.1f} MiB"
    )


if __name__ == "__main__":
    main()
