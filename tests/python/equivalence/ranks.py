"""What equivalence_test.py starts as ranks:  ranks.py FOLDER WAY [WHERE...]

WAY says which ranks train. `init`: all of them, as dear.init() finds them; WHERE is a backend. `process-groups`: the first
ones, as process groups of torch.distributed; WHERE is a backend and numbers of ranks, as in "shm:2,4". Writes what it found
into FOLDER/RANK.json: how far the parameters of each job are from those of plain PyTorch.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import pathlib
import sys
from collections.abc import Iterator

import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import jobs  # noqa: E402
from dear._process_group import group_of  # noqa: E402

import dear  # noqa: E402


def jobs_on(backend: str) -> list[jobs.Job]:
    """Every policy with every optimiser. On shared memory other buckets as well, and the union of the batches."""
    policies = dear.training_policies()
    all_jobs = [jobs.Job(optimizer, policy) for optimizer in jobs.OPTIMIZERS for policy in policies]
    if backend == "shm":
        all_jobs += [jobs.Job("AdamW fused", policy, sizes=jobs.WHOLE_VECTORS) for policy in policies]
        all_jobs += [jobs.Job("AdamW foreach", fusion=fusion) for fusion in ("all", "auto", "planned")]
        all_jobs += [jobs.Job(optimizer, dtype=torch.float64) for optimizer in jobs.OPTIMIZERS]
        clipping = [policy for policy in policies if policy != "dear-eager"]
        all_jobs += [jobs.Job("AdamW foreach", policy, dtype=torch.float64, scaled=True) for policy in clipping]
    return all_jobs


@functools.lru_cache(maxsize=None)
def expected(job: jobs.Job, ranks: int) -> list[torch.Tensor]:
    train = jobs.train_plainly if job.dtype == torch.float32 else jobs.train_on_the_union
    return train(job, ranks)


def largest_difference(a: list[torch.Tensor], b: list[torch.Tensor]) -> float:
    """0 when all values are the same, bit for bit but for the sign of a zero."""
    return max(0.0 if torch.equal(x, y) else (x - y).abs().max().item() for x, y in zip(a, b))


def groups_of_init(backends: list[str]) -> Iterator[tuple[str, dear.Group]]:
    for backend in backends:
        yield backend, dear.init(backend=backend, timeout=60, reproducible=backend != "shm")


def groups_of_torch(places: list[str]) -> Iterator[tuple[str, dear.Group]]:
    """Those that this rank belongs to."""
    torch.distributed.init_process_group("gloo")
    for backend, sizes in (place.split(":") for place in places):
        for size in map(int, sizes.split(",")):
            process_group = torch.distributed.new_group(list(range(size)))
            if torch.distributed.get_rank() >= size:
                continue
            if backend == "shm":
                yield backend, group_of(process_group, timeout=60)
            else:
                yield backend, dear._C.group_on(process_group, timeout=60, reproducible=True)


def train_all(backend: str, group: dear.Group) -> list[dict[str, object]]:
    return [
        {
            "ranks": group.size,
            "backend": group.backend,
            "job": str(job),
            "exact": job.exact,
            "difference": largest_difference(
                jobs.train_with_dear(job, group),
                expected(dataclasses.replace(job, policy="dear", fusion="layer"), group.size),
            ),
        }
        for job in jobs_on(backend)
    ]


def main() -> None:
    folder, way, *places = sys.argv[1:]
    torch.set_num_threads(1)
    groups = groups_of_init if way == "init" else groups_of_torch
    found = [one for backend, group in groups(places) for one in train_all(backend, group)]
    (pathlib.Path(folder) / f"{os.environ['RANK']}.json").write_text(json.dumps(found), encoding="utf-8")
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
