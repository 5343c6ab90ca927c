"""Activations that are computed anew in the backward pass: torch.utils.checkpoint, both values of use_reentrant."""

from setting import Figures, Setting
from training import Comparisons, Job, Program, each_step, plain_step


def checkpointed(use_reentrant: bool) -> Program:
    def program(job: Job) -> None:
        job.net.checkpointed = use_reentrant
        each_step(plain_step)(job)

    return program


def check(setting: Setting) -> Figures:
    comparisons = Comparisons(setting)
    for use_reentrant in (True, False):
        comparisons.as_plain(checkpointed(use_reentrant))
    return comparisons.figures()
