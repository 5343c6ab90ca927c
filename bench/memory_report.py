"""What model.memory() reports beside what the processes grew by, for a model of 100 MB under each policy:

GLIBC_TUNABLES=glibc.malloc.mmap_threshold=65536 PYTHONPATH=build/release/python \\
    build/release/dear launch -n 2 python bench/memory_report.py

Memory that processes share counts in equal parts (Pss); with the tunable the C library gives back what is freed. A small model is
trained before, so that what the first steps load is not counted. What neither the policy nor the report knows of, such as the threads
of a model and what autograd keeps between steps, is part of the growth.
"""

import gc

import torch
from torch import nn

import dear

WIDTH, LAYERS = 1024, 25


def held() -> int:
    with open("/proc/self/smaps_rollup", encoding="utf-8") as lines:
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def train(policy: str, width: int, layers: int, fusion: str, **options: bool) -> tuple[int, dict[str, int], int]:
    torch.manual_seed(0)
    before = held()
    model = nn.Sequential(*[nn.Linear(width, width, bias=False) for _ in range(layers)])
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    model, optimizer = dear.distribute(model, optimizer, policy=policy, fusion=fusion, profile_steps=1000, **options)
    for _ in range(4):
        model(torch.ones(4, width)).square().mean().backward()
        optimizer.step()
    model.synchronize()
    report, rank = model.memory(), model.rank
    gc.collect()
    grew = held() - before
    model.synchronize()  # nobody ends before all have looked
    model.close()
    return grew, report, rank


def main() -> None:
    torch.set_num_threads(1)
    for policy, options in (
        *((policy, {}) for policy in ("serial", "wfbp", "dear-replicated", "dear", "dear-eager")),
        ("dear", {"one_copy": True}),
    ):
        train(policy, 64, 2, "layer", **options)
        gc.collect()
        grew, report, rank = train(policy, WIDTH, LAYERS, "8MB", **options)
        gc.collect()
        name = policy + (", one copy" if options else "")
        print(f"{name}, rank {rank}: grew by {grew / 1e6:.1f} MB, memory() says {report['total'] / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
