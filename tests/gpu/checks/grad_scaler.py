"""torch.amp.GradScaler, with steps that the device gives up, and the optimiser's state after them."""

import torch.distributed as dist
from setting import Figures, Setting
from training import STEPS, Comparisons, Job, Program, adamw, each_step, fused_adamw, fused_sgd


def scaled(*overflows: int) -> Program:
    """The loss of rank 1 overflows in these steps."""

    def take(job: Job, step: int) -> None:
        loss = job.scaler.scale(job.loss(step))
        (loss * job.infinity if step in overflows and dist.get_rank() == 1 else loss).backward()
        job.reduce()
        if step % 2:
            job.scaler.unscale_(job.optimizer)
        job.scaler.step(job.optimizer)
        job.scaler.update()
        job.optimizer.zero_grad()

    return each_step(take)


def state_after_overflow(job: Job) -> None:
    def take(step: int) -> None:
        loss = job.scaler.scale(job.loss(step))
        (loss * job.infinity if step == 1 else loss).backward()
        job.reduce()
        job.scaler.step(job.optimizer)
        job.scaler.update()
        job.optimizer.zero_grad()

    for step in range(3):
        take(step)
    steps = {float(one["step"]) for one in job.optimizer.state_dict()["state"].values()}
    assert steps == {2.0}, f"the state counts {steps} steps, and 2 were taken"
    assert job.scaler.get_scale() == 32.0, f"the scale is {job.scaler.get_scale()}"
    job.optimizer.load_state_dict(job.optimizer.state_dict())
    for step in range(3, STEPS):
        take(step)


def check(setting: Setting) -> Figures:
    comparisons = Comparisons(setting)
    # The first step that is taken is the host's decision; Adam's first overflow comes before it.
    comparisons.as_plain(scaled(0, 2, 5), fused_adamw)
    comparisons.as_plain(scaled(2, 3), fused_sgd)
    comparisons.as_plain(scaled(3), fused_adamw, policy="wfbp", fp32_masters=True)
    # Others need the host's decision: in four steps a wait for what was found, and in two of them one for the scale, too.
    comparisons.as_plain(scaled(3), adamw, waits=6)
    comparisons.as_plain(state_after_overflow, fused_adamw)
    return comparisons.figures()
