"""A training that is saved on the device, loaded into a new one, and goes on: to the bit as if it had not stopped."""

from pathlib import Path

import torch
from setting import Figures, Setting
from training import STEPS, Comparisons, Job, adamw, plain_step

import dear

SAVED = 3  # after so many steps


def goes_on(job: Job, folder: Path, asynchronous: bool) -> list[torch.Tensor]:
    """Saves `job` in the middle, and returns what another training ends with that loads it."""
    checkpoints = dear.Checkpoints(str(folder), job.model, asynchronous=asynchronous)
    for step in range(SAVED):
        plain_step(job, step)
    checkpoints.save(SAVED)
    for step in range(SAVED, STEPS):
        plain_step(job, step)
    checkpoints.wait()
    del checkpoints
    other = Job(job.device, adamw)
    with torch.no_grad():
        for parameter in other.net.parameters():
            parameter.zero_()
    position = dear.Checkpoints(str(folder), other.model).resume()
    assert position == {"step": SAVED}, f"the position is {position}"
    for step in range(SAVED, STEPS):
        plain_step(other, step)
    return other.end()


def check(setting: Setting) -> Figures:
    comparisons = Comparisons(setting)
    ways = {"when it returns": False, "on a thread": True}
    for number, asynchronous in enumerate(ways.values()):
        loaded: list[torch.Tensor] = []
        folder = setting.folder / str(number)

        def program(job: Job) -> None:
            loaded.extend(goes_on(job, folder, asynchronous))

        whole, _ = comparisons.run(program, adamw)
        comparisons.same(loaded, whole, ways)
    return {**comparisons.figures(), "files written": " and ".join(ways)}
