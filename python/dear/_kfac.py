"""dear.KFAC: second-order training, whose curvature is gathered and inverted by all ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from . import _C
from ._distribute import DataParallel


class KFAC:
    """Makes natural gradients of those of Linear and Conv2d layers, before the optimiser applies them (K-FAC: Martens and
    Grosse 2015, https://doi.org/10.48550/arXiv.1503.05671), with communication hidden under the passes (SPD-KFAC: Shi et
    al. 2021, https://doi.org/10.48550/arXiv.2107.06533).

        model, optimizer = dear.distribute(model, optimizer)
        kfac = dear.KFAC(model, damping=1e-2)
        for samples, labels in batches:
            criterion(model(samples), labels).backward()
            kfac.step()       # gradients are averaged over ranks, then preconditioned in place
            optimizer.step()

    The loss is a mean over samples. Inputs and output gradients are caught where operators use the weights, in forward
    passes that record for a backward pass and in training mode: no module is wrapped, any number of passes may make a
    step, and a layer may be used several times in one. Each rank may have any number of samples: what all ranks compute is
    what one process computes on the union of their batches, whatever the strategy. Other layers, frozen, excluded and
    grouped ones keep their plain gradients.

    strategy: "spd-kfac" (factors travel under the passes, in fused groups; who inverts what is planned), "d-kfac"
        (every rank inverts every factor), "mpd-kfac" (inverses are dealt out in turns), and the first and the last with
        "-owner" (a factor is reduced only to the rank that inverts it).
    fusion: which factors travel together: "alone", "threshold", "rule", "exact", "together"; "" for the strategy's own.
    damping: is added to the diagonals of factors before they are inverted; above 0 and at most 1e30.
    pi_correction: splits the damping between the two factors of a layer by the roots of their mean diagonals.
    ema: the weight of the old running average of a factor, above 0 and below 1.
    kl_clip: scales the gradients v of a step by min(1, sqrt(kl_clip / |sum of lr^2 <v, gradient>|)); None: not at all.
    factor_every, inverse_every: steps between renewals of factors, and of inverses (a multiple of factor_every; None: as
        often).
    exclude: names of modules whose layers keep their plain gradients, such as a large output layer.
    largest_factor: a layer with a larger dimension is an error: exclude it.
    replan_after: steps that are measured before groups and placement are planned anew; 0: they never are.

    Every rank makes it together and makes the same calls, from one thread, between an optimizer.step() and the next
    backward. ConfigError, on every rank, for options out of range, a name to exclude that no layer has, a model without
    layers to precondition, policy "dear-eager", compression, and a model that has a KFAC; MismatchError where ranks
    differ.
    """

    _on_every_rank = True  # state_dict() is a call of every rank, for checkpoints to know

    def __init__(
        self,
        model: DataParallel,
        *,
        strategy: str = "spd-kfac",
        fusion: str = "",
        damping: float = 1e-3,
        pi_correction: bool = False,
        ema: float = 0.95,
        kl_clip: float | None = 1e-3,
        factor_every: int = 1,
        inverse_every: int | None = None,
        exclude: Iterable[str] = (),
        largest_factor: int = 8192,
        replan_after: int = 5,
    ) -> None:
        if not isinstance(model, DataParallel):
            raise _C.ConfigError(
                f"a KFAC is of a model that trains, and this is a {type(model).__name__}: give it the model that "
                "dear.distribute() returned"
            )
        if isinstance(exclude, str):
            raise _C.ConfigError(f'exclude="{exclude}" is one string: give a list of names')
        self._model = model
        self._clips = kl_clip is not None
        layers = _layers_of(model.module)
        self._open: Any = _C.Kfac(
            layers,
            model._training,
            strategy=strategy,
            fusion=fusion,
            damping=damping,
            pi_correction=pi_correction,
            ema=ema,
            kl_clip=kl_clip,
            factor_every=factor_every,
            inverse_every=factor_every if inverse_every is None else inverse_every,
            exclude=list(exclude),
            largest_factor=largest_factor,
            replan_after=replan_after,
        )
        chosen = set(self._open.report()["layers"])
        self._weights = {id(weight) for name, weight, *_ in layers if name in chosen}
        model._beside.add(self)

    def _end(self) -> None:
        """With the training, which lives as long as the engine of this object does."""
        self._open = None

    @property
    def _kfac(self) -> Any:
        if self._open is None:
            raise _C.ConfigError("the DataParallel of this KFAC was closed: make new ones of both")
        return self._open

    def step(self, *, lr: float | None = None, loss_scale: float = 1.0) -> None:
        """After the last backward() of a step and before optimizer.step(), also before clipping: makes all gradients
        means over ranks, and those of its layers natural ones.

        lr: the learning rate of kl_clip; by default that of the optimiser's groups. loss_scale: by what the loss of each
        backward pass was multiplied: 1/k where k passes make a step, or the scale of a GradScaler, whose unscale_() comes
        before. Both are the same on every rank: MismatchError on each where they differ.
        """
        if self._clips and lr is None:
            lr = self._learning_rate()
        self._kfac.step(lr, loss_scale)

    def _learning_rate(self) -> float:
        rates = {
            float(group["lr"])
            for optimizer in self._model._optimizers
            for group in optimizer.param_groups
            if any(id(parameter) in self._weights for parameter in group["params"])
        }
        if len(rates) != 1:
            raise _C.ConfigError(
                f"rank {self._model._group.rank}: kl_clip needs one learning rate, and the layers' groups have "
                f"{sorted(rates)}: give step(lr=...), or kl_clip=None"
            )
        return rates.pop()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Factors, inverses and the number of steps, whole on every rank. Every rank calls it, between an
        optimizer.step() and the next backward. Checkpoints take the object itself: `extra={"kfac": kfac}`."""
        return self._kfac.state()

    def load_state_dict(self, state_dict: dict[str, torch.Tensor]) -> None:
        """Goes on from there, on every rank with the same. ConfigError that names a tensor that is missing, unknown or of
        another shape."""
        self._kfac.load_state(dict(state_dict))

    def report(self) -> dict[str, Any]:
        """On this rank so far: steps; layers that are preconditioned; left_out (of Linear and Conv2d, a reason by
        name); late_uses (of layers that are used more often than in any step before, left out); nonfinite_factors
        (renewals left out); raised_dampings and given_up_inverses (of factors that were not positive definite); plan
        (groups and placement in words); waited_seconds (for factors and inverses under way)."""
        return self._kfac.report()


def _layers_of(module: nn.Module) -> list[tuple[str, torch.Tensor, torch.Tensor | None, int, Any]]:
    """Each weight once. A weight that a parametrisation computes is no parameter, and keeps its plain gradient."""
    layers = []
    seen: set[int] = set()
    for name, layer in module.named_modules():
        if not isinstance(layer, (nn.Linear, nn.Conv2d)) or isinstance(layer, nn.modules.lazy.LazyModuleMixin):
            continue
        weight = layer._parameters.get("weight")
        if weight is None or id(weight) in seen:
            continue
        seen.add(id(weight))
        groups = layer.groups if isinstance(layer, nn.Conv2d) else 1
        layers.append((name, weight, layer._parameters.get("bias"), groups, _InTraining(layer)))
    return layers


class _InTraining:
    def __init__(self, layer: nn.Module) -> None:
        self._layer = layer

    def __call__(self) -> bool:
        return self._layer.training
