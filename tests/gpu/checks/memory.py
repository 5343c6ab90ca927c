"""How much memory of the device a training takes at most: DeAR beside DDP and FSDP2."""

import gc

import torch.distributed as dist
from cases import CASES
from setting import Figures, NotHere, Setting
from sides import SIDES, Side

from .times import size_of

STEPS = 3


def check(setting: Setting) -> Figures:
    settings, batch = size_of("gpt", setting)
    case = CASES["gpt"](**settings).on(setting.device.name)
    samples = case.batches(batch, dist.get_rank())
    figures: Figures = {}
    for key in ("ddp", "fsdp2", "dear"):
        name, make = SIDES[key]

        sides: list[Side] = []

        def train() -> None:
            side = make(case, "25MB")
            sides.append(side)
            for _ in range(STEPS):
                side.step(samples)
            side.settle()

        try:
            peak = setting.device.peak_bytes(train)
            sides.pop().close()
        except Exception as error:
            if key == "dear":
                raise
            why = (str(error).splitlines() or [type(error).__name__])[0]
            figures[name] = f"not on {setting.device.name} over {setting.library}: {why[:100]}"
            continue
        finally:
            sides.clear()
            gc.collect()
        if peak is None:
            raise NotHere("nothing counts the memory of this device")
        figures[name] = f"{peak / 2**20:.1f} MiB"
    return figures
