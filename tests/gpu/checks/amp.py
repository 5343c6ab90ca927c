"""Autocast in bfloat16."""

import torch
from setting import Figures, Setting
from training import Comparisons, Job, adamw, each_step, sgd


def check(setting: Setting) -> Figures:
    def take(job: Job, step: int) -> None:
        with torch.autocast(setting.device.name, torch.bfloat16):
            loss = job.loss(step)
        loss.backward()
        job.step()

    comparisons = Comparisons(setting)
    for optimizer_of in (sgd, adamw):
        comparisons.as_plain(each_step(take), optimizer_of)
    return comparisons.figures()
