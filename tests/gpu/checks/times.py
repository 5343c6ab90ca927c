"""bench/rivals/on_streams.py: what a step takes the host and the device, beside DDP."""

import torch
import torch.distributed as dist
from cases import CASES
from on_streams import measure
from setting import Figures, Setting

# By case: its settings and the batch. On two ranks gradients go through sockets where they share a GPU.
SIZES: dict[str, tuple[dict[str, int], int]] = {
    "mlp": ({"layers": 12, "width": 2048}, 256),
    "gpt": ({"layers": 6, "width": 512, "context": 256}, 16),
    "resnet": ({"layers": 3, "width": 64}, 128),
}
SIZES_OF_TWO: dict[str, tuple[dict[str, int], int]] = {
    "mlp": ({"layers": 12, "width": 512}, 256),
    "gpt": ({"layers": 4, "width": 256, "context": 128}, 16),
}
QUICK: dict[str, tuple[dict[str, int], int]] = {
    "mlp": ({"layers": 2, "width": 8}, 2),
    "gpt": ({"layers": 1, "width": 8, "context": 4}, 2),
    "resnet": ({"layers": 1, "width": 2}, 2),
}


def size_of(name: str, setting: Setting) -> tuple[dict[str, int], int]:
    return (QUICK if setting.quick else SIZES if dist.get_world_size() == 1 else SIZES_OF_TWO)[name]


def of_case(name: str, setting: Setting) -> Figures:
    settings, batch = size_of(name, setting)
    rounds, steps = (2, 4) if setting.quick else (5, 10) if dist.get_world_size() == 1 else (3, 5)
    try:
        found = measure(setting.device, CASES[name](**settings), batch, rounds, steps)
    except SystemExit as refused:
        raise AssertionError(str(refused)) from None
    apart = f"{found.verified['parameters']:.0e}"
    return {"parameters": found.parameters, "apart by": apart, **{side: found.numbers(side) for side in found.waits}}


def mlp(setting: Setting) -> Figures:
    return of_case("mlp", setting)


def gpt(setting: Setting) -> Figures:
    # The other ways to compute attention add in another order at each run.
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return of_case("gpt", setting)


def resnet(setting: Setting) -> Figures:
    return of_case("resnet", setting)
