"""One optimiser of a DataParallel, or several that train one model, each its own parameters (Muon for matrices, AdamW for
the rest)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Union

from torch.optim import Optimizer

from ._C import ConfigError

Optimizers = Union[Optimizer, Sequence[Optimizer]]


def listed(optimizers: Any) -> list[Any]:
    """One optimiser, or those of a list or a tuple."""
    return list(optimizers) if isinstance(optimizers, (list, tuple)) else [optimizers]


class Turns:
    """Which of several optimisers have stepped: an iteration ends with the step of the last."""

    def __init__(self, optimizers: list[Optimizer]) -> None:
        self._all = optimizers
        self._stepped: list[Optimizer] = []

    @property
    def count(self) -> int:
        return len(self._all)

    def take(self, optimizer: Optimizer) -> bool:
        """Whether the step of this one ends the iteration. ConfigError where it steps again before the others."""
        if self.has_stepped(optimizer):
            missing = [type(other).__name__ for other in self._all if not self.has_stepped(other)]
            raise ConfigError(
                f"{type(optimizer).__name__} stepped twice, and {', '.join(missing)} not yet: each optimiser of a "
                f"DataParallel steps once an iteration, in any order"
            )
        self._stepped.append(optimizer)
        if len(self._stepped) < len(self._all):
            return False
        self._stepped = []
        return True

    def has_stepped(self, optimizer: Optimizer) -> bool:
        """In this iteration, which has not ended."""
        return any(one is optimizer for one in self._stepped)

    def give_up(self) -> None:
        self._stepped = []

    def holder(self, parameter: Any) -> tuple[Optimizer, dict[str, Any]]:
        """The optimiser that trains the parameter, and its parameter group."""
        for optimizer in self._all:
            for group in optimizer.param_groups:
                if any(one is parameter for one in group["params"]):
                    return optimizer, group
        raise ConfigError("no optimiser of this DataParallel holds the parameter")
