"""Optimisers whose updates take norms of whole tensors: LAMB, LARS, and the class that another one derives from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.optim import Optimizer

from . import _C

Options = dict[str, Any]
"""A parameter group of an optimiser."""


def _norm(tensor: torch.Tensor) -> float:
    if tensor.device.type == "cpu":
        return _C.norm(tensor.detach())
    return float(torch.linalg.vector_norm(tensor.detach(), dtype=torch.float64))


class TensorNormOptimizer(Optimizer):
    """An optimiser whose update of an element depends on this element and on norms of whole tensors.

    It trains one process as every torch.optim.Optimizer does. Under dear.distribute() each rank updates its parts of
    tensors, and ranks exchange what the norms need between the two halves of an update. Norms are sums of exact squares:
    the same bits for every number of ranks, policy and grouping (on the CPU).

    Another such optimiser is a class that derives from this one and defines `norms`, propose() and apply().
    """

    norms: int
    """How many norms the update of a tensor takes."""

    def propose(self, part: torch.Tensor, group: Options, state: dict[str, Any]) -> Sequence[torch.Tensor]:
        """The first half of an update. `part` is a parameter, or a part of one as a vector; it has its gradient. Returns
        `norms` tensors of its shape: those whose 2-norms, over the whole parameter, are needed. Changes the state and what
        it returns, not `part`."""
        raise NotImplementedError

    def apply(
        self,
        part: torch.Tensor,
        group: Options,
        state: dict[str, Any],
        proposed: Sequence[torch.Tensor],
        norms: Sequence[float],
    ) -> None:
        """The second half, which changes `part`: with what the first returned, and the norms of that."""
        raise NotImplementedError

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is None:
                        continue
                    if parameter.grad.is_sparse:
                        raise RuntimeError(f"{type(self).__name__} takes no sparse gradients")
                    state = self.state[parameter]
                    proposed = self.propose(parameter, group, state)
                    self.apply(parameter, group, state, proposed, [_norm(tensor) for tensor in proposed])
        return loss


def _vector(state: dict[str, Any], name: str, part: torch.Tensor) -> torch.Tensor:
    if name not in state:
        state[name] = torch.zeros_like(part, memory_format=torch.preserve_format)
    return state[name]


def _require(optimizer: str, **conditions: bool) -> None:
    wrong = [name for name, holds in conditions.items() if not holds]
    if wrong:
        raise ValueError(f"{optimizer}: {', '.join(wrong)} out of range")


class LAMB(TensorNormOptimizer):
    """LAMB (You et al., ICLR 2020, https://doi.org/10.48550/arXiv.1904.00962): the update of Adam, plus weight_decay *
    parameter, is scaled for each tensor by its trust ratio |parameter| / |update|, which is 1 where one of them is zero.

    decoupled: weight decay acts outside of the ratio, by 1 - lr * weight_decay, as in AdamW.
    bias_correction: the moments are divided by 1 - beta^t. The paper does; some implementations leave it out.
    adapt: whether updates are scaled. Biases and norm layers are usually in a group without, and without weight decay.
    max_norm, max_ratio: the norm of a parameter counts as at most this (some implementations: 10), and the ratio is at
        most that (some: 1).
    """

    norms = 2

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | torch.Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        *,
        decoupled: bool = False,
        bias_correction: bool = True,
        adapt: bool = True,
        max_norm: float = math.inf,
        max_ratio: float = math.inf,
    ) -> None:
        _require(
            "LAMB",
            lr=float(lr) >= 0,
            betas=all(0 <= beta < 1 for beta in betas),
            eps=eps >= 0,
            weight_decay=weight_decay >= 0,
            max_norm=max_norm > 0,
            max_ratio=max_ratio > 0,
        )
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "decoupled": decoupled,
                "bias_correction": bias_correction,
                "adapt": adapt,
                "max_norm": max_norm,
                "max_ratio": max_ratio,
            },
        )

    def propose(self, part: torch.Tensor, group: Options, state: dict[str, Any]) -> Sequence[torch.Tensor]:
        beta1, beta2 = group["betas"]
        average, squares = _vector(state, "exp_avg", part), _vector(state, "exp_avg_sq", part)
        steps = state["step"] = state.get("step", 0) + 1
        average.mul_(beta1).add_(part.grad, alpha=1 - beta1)  # type: ignore[arg-type]
        squares.mul_(beta2).addcmul_(part.grad, part.grad, value=1 - beta2)  # type: ignore[arg-type]
        correct = group["bias_correction"]
        divisor = squares.sqrt().div_(math.sqrt(1 - beta2**steps) if correct else 1).add_(group["eps"])
        update = (average / (1 - beta1**steps if correct else 1)).div_(divisor)
        if group["weight_decay"] and not group["decoupled"]:
            update.add_(part, alpha=group["weight_decay"])
        return part, update

    def apply(
        self,
        part: torch.Tensor,
        group: Options,
        state: dict[str, Any],
        proposed: Sequence[torch.Tensor],
        norms: Sequence[float],
    ) -> None:
        lr, norm = float(group["lr"]), min(norms[0], group["max_norm"])
        ratio = min(norm / norms[1], group["max_ratio"]) if group["adapt"] and norm and norms[1] else 1.0
        if group["weight_decay"] and group["decoupled"]:
            part.mul_(1 - lr * group["weight_decay"])
        part.add_(proposed[1], alpha=-lr * ratio)


class LARS(TensorNormOptimizer):
    """LARS (You, Gitman, Ginsburg 2017, https://doi.org/10.48550/arXiv.1708.03888): SGD with momentum, where gradient +
    weight_decay * parameter is scaled for each tensor by its trust ratio, trust_coefficient * |parameter| / (|gradient| +
    weight_decay * |parameter| + eps), which is 1 where one of the norms is zero.

    The learning rate multiplies the momentum buffer, as in torch.optim.SGD; in the paper it is inside the buffer, which
    differs where it changes.

    decoupled: weight decay acts outside of the ratio, by 1 - lr * weight_decay, as in AdamW.
    larc: a tensor's own learning rate is at most lr (LARC), where LARS multiplies both.
    adapt: whether updates are scaled. Biases and norm layers are usually in a group without, and without weight decay.
    """

    norms = 2

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | torch.Tensor = 0.1,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        *,
        nesterov: bool = False,
        decoupled: bool = False,
        trust_coefficient: float = 0.001,
        eps: float = 0.0,
        larc: bool = False,
        adapt: bool = True,
    ) -> None:
        _require(
            "LARS",
            lr=float(lr) >= 0,
            momentum=momentum >= 0 and (momentum > 0 or not nesterov),
            weight_decay=weight_decay >= 0,
            trust_coefficient=trust_coefficient > 0,
            eps=eps >= 0,
        )
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "weight_decay": weight_decay,
                "nesterov": nesterov,
                "decoupled": decoupled,
                "trust_coefficient": trust_coefficient,
                "eps": eps,
                "larc": larc,
                "adapt": adapt,
            },
        )

    def propose(self, part: torch.Tensor, group: Options, state: dict[str, Any]) -> Sequence[torch.Tensor]:
        return part, part.grad  # type: ignore[return-value]

    def apply(
        self,
        part: torch.Tensor,
        group: Options,
        state: dict[str, Any],
        proposed: Sequence[torch.Tensor],
        norms: Sequence[float],
    ) -> None:
        lr, decay = float(group["lr"]), group["weight_decay"]
        inside = 0.0 if group["decoupled"] else decay
        ratio = 1.0
        if group["adapt"] and norms[0] and norms[1]:
            ratio = group["trust_coefficient"] * norms[0] / (norms[1] + inside * norms[0] + group["eps"])
            if group["larc"]:
                ratio = min(ratio / lr, 1.0) if lr > 0 else 1.0
        if decay and group["decoupled"]:
            part.mul_(1 - lr * decay)
        update = (proposed[1].add(part, alpha=inside) if inside else proposed[1]) * ratio
        if group["momentum"]:
            buffer = _vector(state, "momentum_buffer", part).mul_(group["momentum"]).add_(update)
            update = update.add(buffer, alpha=group["momentum"]) if group["nesterov"] else buffer
        part.add_(update, alpha=-lr)
