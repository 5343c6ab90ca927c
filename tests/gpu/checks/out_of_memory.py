"""A step in which memory runs out, in the forward or in the backward pass: the program catches the error and goes on."""

from typing import Any

import torch
from setting import Figures, Setting
from torch import Tensor
from training import Comparisons, Job, each_step, plain_step

FAILS = {1: "forward", 4: "backward"}  # by step


def exhaust(device: str) -> None:
    if device == "cuda":
        torch.empty(1 << 46, dtype=torch.uint8, device=device)
    raise torch.OutOfMemoryError("the stub device does as if it had no memory left")


class Exhausting(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, where: str) -> Tensor:
        if where == "forward":
            exhaust(x.device.type)
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Any:
        exhaust(gradient.device.type)


def take(job: Job, step: int) -> None:
    if step not in FAILS:
        plain_step(job, step)
        return
    hook = job.net.blocks[1].register_forward_pre_hook(lambda _, inputs: Exhausting.apply(inputs[0], FAILS[step]))
    try:
        job.loss(step).backward()
    except torch.OutOfMemoryError:
        job.optimizer.zero_grad()
    else:
        raise AssertionError(f"memory did not run out in the {FAILS[step]} pass")
    finally:
        hook.remove()


def check(setting: Setting) -> Figures:
    comparisons = Comparisons(setting)
    comparisons.as_plain(each_step(take), waits=None)
    return {**comparisons.figures(), "ran out in": " and ".join(FAILS.values())}
