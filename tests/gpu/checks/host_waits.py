"""How often the host waits for the device in steps, and in steps that clip and scale."""

import torch
from setting import Figures, NotHere, Setting
from training import STEPS, Comparisons, Job, fused_adamw, plain_step

MOST = 0


def clipped(job: Job, step: int) -> None:
    job.loss(step).backward()
    job.optimizer.clip_grad_norm_(0.05)
    job.step()


def scaled(job: Job, step: int) -> None:
    with torch.autocast(job.device, torch.bfloat16):
        loss = job.loss(step)
    job.scaler.scale(loss).backward()
    job.scaler.step(job.optimizer)
    job.scaler.update()
    job.optimizer.zero_grad()


def check(setting: Setting) -> Figures:
    if not setting.enqueues:
        raise NotHere(f"{setting.library} carries memory of the device through the host, which waits by design")
    found: Figures = {}
    for name, take in {"steps": plain_step, "steps that clip": clipped, "steps that scale": scaled}.items():

        def program(job: Job) -> None:
            def all_steps() -> None:
                for step in range(STEPS):
                    take(job, step)

            all_steps()
            found[f"waits in {STEPS} {name}"] = setting.device.waits_in(all_steps)

        Comparisons(setting).run(program, fused_adamw)
    wrong = {name: waits for name, waits in found.items() if waits > MOST}
    assert not wrong, f"the host waited for the device: {wrong}"
    return found
