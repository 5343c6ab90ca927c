"""An optimiser of a program's own that reads memory by raw pointers, as a kernel of Triton does."""

from collections.abc import Callable
from typing import Any

import torch
from setting import Figures, NotHere, Setting
from torch import Tensor
from training import Comparisons, each_step, plain_step

Update = Callable[[Tensor, Tensor, float], None]


def of_triton() -> Update:
    try:
        import triton
        from triton import language as tl
    except ImportError:
        raise NotHere("Triton is not installed") from None

    @triton.jit  # type: ignore[untyped-decorator]
    def descend(parameter, gradient, lr, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = at < size
        value = tl.load(parameter + at, mask=inside) - lr * tl.load(gradient + at, mask=inside)
        tl.store(parameter + at, value, mask=inside)

    def update(parameter: Tensor, gradient: Tensor, lr: float) -> None:
        descend[(triton.cdiv(parameter.numel(), 256),)](parameter, gradient, lr, parameter.numel(), BLOCK=256)

    return update


def of_pointers(parameter: Tensor, gradient: Tensor, lr: float) -> None:
    """Asks for the pointers, and leaves the arithmetic to the stream."""
    assert parameter.data_ptr() and gradient.data_ptr()
    parameter.add_(gradient, alpha=-lr)


class Descent(torch.optim.Optimizer):
    def __init__(self, parameters: Any, update: Update) -> None:
        super().__init__(parameters, {"lr": 0.1})
        self.update = update

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                # DeAR tries a class that it does not know on the CPU.
                update = self.update if parameter.device.type != "cpu" else of_pointers
                update(parameter, parameter.grad, group["lr"])


def check(setting: Setting) -> Figures:
    update = of_pointers if setting.device.name == "stub" else of_triton()
    comparisons = Comparisons(setting)
    comparisons.as_plain(each_step(plain_step), lambda parameters: Descent(parameters, update))
    return comparisons.figures()
