"""Gradients clipped by their norm, which stays on the device."""

import torch
from setting import Figures, Setting
from training import Comparisons, Job, adamw, each_step, sgd

MAX_NORM = 0.05
ROUNDING = 1e-5  # PyTorch adds the norms of tensors in fp32, DeAR the squares of all elements in fp64


def check(setting: Setting) -> Figures:
    norms: dict[bool, list[torch.Tensor]] = {False: [], True: []}

    def take(job: Job, step: int) -> None:
        job.loss(step).backward()
        job.reduce()
        if job.plain:
            norm = torch.nn.utils.clip_grad_norm_(job.model.parameters(), MAX_NORM)
        else:
            norm = job.optimizer.clip_grad_norm_(MAX_NORM)
        assert norm.device.type == job.device, f"the norm lies on {norm.device}"
        norms[job.plain].append(norm.detach().double())
        job.optimizer.step()
        job.optimizer.zero_grad()

    comparisons = Comparisons(setting)
    apart = 0.0
    for optimizer_of in (sgd, adamw):
        found, waits = comparisons.run(each_step(take), optimizer_of)
        expected, _ = comparisons.run(each_step(take), optimizer_of, plain=True)
        assert waits == 0, f"the host waited {waits} times"
        for mine, theirs in zip(found, expected):
            apart = max(apart, float((mine - theirs).abs().max() / theirs.abs().max()))
    assert apart <= ROUNDING, f"parameters are apart from plain PyTorch's by {apart:.1e}"
    mine, theirs = (torch.stack(norms[plain]).cpu() for plain in (False, True))
    torch.testing.assert_close(mine, theirs, rtol=ROUNDING, atol=0)
    return {
        "parameters": f"apart from plain PyTorch's by {apart:.0e} at most",
        "largest norm": round(float(mine.max()), 4),
    }
