"""Each policy, PyTorch's optimisers, buckets that are tuned, accumulation with a scheduler and evaluation."""

import contextlib
from collections.abc import Callable

import torch
from setting import Figures, Setting
from training import STEPS, Comparisons, Job, adamw, each_step, fused_adamw, fused_sgd, plain_step, sgd


def tuned(comparisons: Comparisons, settle: Callable[[], None]) -> int:
    """How many numbers of buckets were tried. The device has ended each step before the next, so that its time is known when
    sizes are chosen, also on a busy machine."""
    numbers = set()

    def program(job: Job) -> None:
        for step in range(60):
            plain_step(job, step % STEPS)
            settle()
            if not job.plain:
                numbers.add(job.model.statistics()["buckets"])

    comparisons.as_plain(program, adamw, waits=None, fusion="auto=2KiB")
    assert len(numbers) > 1, "no other buckets were tried"
    return len(numbers)


def accumulating(job: Job) -> None:
    scheduler = torch.optim.lr_scheduler.StepLR(job.optimizer, 1, 0.5)

    def take(job: Job, step: int) -> None:
        with contextlib.nullcontext() if job.plain else job.model.no_sync():
            job.loss(step).backward()
        job.loss(step - 1).backward()
        job.step()
        scheduler.step()
        with torch.no_grad():
            job.loss(step)

    each_step(take)(job)


def check(setting: Setting) -> Figures:
    comparisons = Comparisons(setting)
    # The stub device computes what the CPU does.
    reference = "cpu" if setting.device.name == "stub" else setting.device.name
    for policy in ("dear", "dear-replicated", "wfbp", "serial"):
        comparisons.as_plain(each_step(plain_step), adamw, device=reference, policy=policy)
    for optimizer_of in (sgd, fused_sgd, fused_adamw):
        comparisons.as_plain(each_step(plain_step), optimizer_of, device=reference)
    comparisons.as_plain(accumulating)
    tried = tuned(comparisons, setting.device.settle)
    return {**comparisons.figures(), "numbers of buckets tried": tried}
