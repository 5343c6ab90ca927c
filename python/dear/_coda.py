"""dear.CoDA: trains for AUC in stages of local steps, with averages over ranks once in a round."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Optional

import torch
from torch import Tensor
from torch.optim import Optimizer

from . import _C
from ._auc import AUCMLoss
from ._auc_ranks import Ranks
from ._process_group import ProcessGroup

# Batches without a class that the end of a stage takes before it gives up.
PATIENCE = 100


class CoDA(Optimizer):
    """Trains a model and its AUCMLoss on ranks that seldom communicate (Guo et al. 2020, https://doi.org/10.48550/arXiv.2005.02426).

        loss = dear.AUCMLoss(version="v2")
        optimizer = dear.CoDA(model.parameters(), loss, lr=0.1, every=32)
        for samples, labels in batches:  # each rank its own, with both classes: dear.DualSampler
            optimizer.zero_grad()
            loss(model(samples), labels).backward()
            optimizer.step()
        optimizer.end_stage()  # all ranks have the mean of the iterates

    A step goes down in the model, a and b, with the proximal term taken at the new point, and up in alpha:

        v = (v / lr + epoch_decay * v_ref - gradient) / (1 / lr + epoch_decay)
        alpha = alpha + lr * gradient

    Once in `every` steps v and alpha become their means over ranks; in between nothing is sent. After the last step of a stage the
    mean of its iterates, over ranks and steps, becomes v and v_ref. The next step(), in whose batch the model has made scores there,
    changes no parameter, but gives alpha = margin + b - a of these, over all ranks. Then the next stage begins, with
    lr / decay and growth times as many steps. The model is not given to dear.distribute().

    params: of the model, or groups of them; in fp32 or fp64. They become rank 0's, as those of the loss do.
    loss_fn: an AUCMLoss, whose forward pass is the batch's. `a`, `b` and `alpha` are groups of their own.
    lr: the step size of the first stage; below 1 / (p (1-p)) with an `imratio`, 1 for version v2, else 4.
    clip_value: bounds each element of a gradient of v. weight_decay: of the model, added to its gradient.
    epoch_decay: 1 / gamma of the proximal term; 0 for none. It has to outweigh how far from convex the loss is in the model.
    every: steps of a round. None: max(1, 1 / sqrt(ranks * lr)) of each stage, so that rounds grow as steps get smaller.
    stage_steps: of the first stage. growth: 3 as in the paper; 1 for stages of one length. decay: of lr from stage to stage.
    dual_batches: how many batches give alpha at a stage's end; more where these lack a class.
    process_group, timeout: as dear.auc() takes them.

    Every rank makes it, and makes as many steps. ConfigError, on every rank, for arguments out of range, for an imratio that is not
    the share of positives in the batches of a stage, and where PATIENCE (100) batches of all ranks lack a class; MismatchError where
    ranks differ; Error that names rank and parameter where an average is not finite. Buffers, as of BatchNorm, are each rank's
    own: prefer GroupNorm. state_dict() is of this rank, whose model between rounds is its own, too; the loss has a state_dict() beside.
    """

    def __init__(
        self,
        params: Iterable[Any],
        loss_fn: AUCMLoss,
        lr: float = 0.1,
        *,
        clip_value: Optional[float] = None,
        weight_decay: float = 0.0,
        epoch_decay: float = 2e-3,
        every: Optional[int] = None,
        stage_steps: int = 1000,
        growth: float = 3.0,
        decay: float = 3.0,
        dual_batches: int = 1,
        process_group: ProcessGroup = None,
        timeout: float = 120.0,
    ) -> None:
        self._open = True  # to new groups
        self._ranks = Ranks(process_group, timeout)
        self._period, self._steps_of_first, self._growth, self._decay = every, stage_steps, growth, decay
        self._dual_batches = dual_batches

        def tell() -> dict[str, Any]:
            if not isinstance(loss_fn, AUCMLoss):
                raise _C.ConfigError(
                    f"CoDA: loss_fn is a {type(loss_fn).__name__}: give the dear.AUCMLoss that is trained"
                )
            _require_options(every, stage_steps, growth, decay, dual_batches)
            defaults = {"lr": lr, "clip_value": clip_value, "weight_decay": weight_decay, "epoch_decay": epoch_decay}
            given = list(params)
            if not given:
                raise _C.ConfigError("CoDA: there are no parameters: give those of a model")
            groups = given if given and isinstance(given[0], dict) else [{"params": given}]
            primal = {"params": [loss_fn.a, loss_fn.b], "weight_decay": 0.0, "lr": lr}
            dual = {"params": [loss_fn.alpha], "weight_decay": 0.0, "lr": lr}
            super(CoDA, self).__init__([*groups, primal, dual], defaults)
            self._open = False
            for group in self.param_groups:
                _require_usable(group)
            if lr >= loss_fn.dual_limit:
                raise _C.ConfigError(
                    f"CoDA: lr={lr} makes alpha diverge with {loss_fn}: give less than {loss_fn.dual_limit:g}"
                )
            return {
                "parameters": [f"{one.numel()} in {one.dtype}" for one in self._everything()],
                "groups": [[group[name] for name in defaults] for group in self.param_groups],
                "every, stage_steps, growth, decay, dual_batches": [every, stage_steps, growth, decay, dual_batches],
                "loss": repr(loss_fn),
            }

        self._ranks.agree("CoDA", tell)
        self._loss = loss_fn
        self._stage = self._step = self._rounds = self._batches_for_dual = self._batches_lacking = 0
        self._dual_sums = torch.zeros(4, dtype=torch.float64)
        self._stage_counts = torch.zeros(2, dtype=torch.float64)  # of negative samples, and of positive ones
        loss_fn.take_seen()
        with torch.no_grad():
            if self._ranks.rank != 0:
                for one in self._everything():
                    one.zero_()
            if not self._add_up(self._everything(), 1.0):
                raise _C.ConfigError("CoDA: a parameter of rank 0 is NaN or infinite: give a model with finite ones")
            for one in self._primal():
                self.state[one].update(reference=one.detach().clone(), mean=torch.zeros_like(one))
        self._plan_stage()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if not self._open:
            raise _C.ConfigError("CoDA: parameters do not join while it trains: make a new CoDA of all of them")
        super().add_param_group(param_group)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """A local step, and at their turn the average or the end of a stage; or, after that, alpha of this batch's scores."""
        result = None
        if closure is not None:
            with torch.enable_grad():
                result = closure()
        seen = self._loss.take_seen().cpu()
        if self._batches_for_dual > 0:
            self._restart_dual(seen)
            return result
        self._stage_counts += seen[2:]
        self._step += 1
        for group in self.param_groups[:-1]:
            for one in group["params"]:
                self._descend(one, group)
        dual = self._loss.alpha
        if dual.grad is not None:
            dual.add_(dual.grad, alpha=self.param_groups[-1]["lr"])
        if self._step >= self._steps:
            self.end_stage()
        elif self._step % self._every == 0:
            self._average(self._everything())
        return result

    def _descend(self, one: Tensor, group: dict[str, Any]) -> None:
        state = self.state[one]
        if one.grad is not None:
            gradient, clip = one.grad, group["clip_value"]
            if gradient.is_sparse:
                raise _C.ConfigError("CoDA takes no sparse gradients: make the embedding with sparse=False")
            if clip is not None:
                gradient = gradient.clamp(-clip, clip)
            if group["weight_decay"] != 0:
                gradient = gradient.add(one, alpha=group["weight_decay"])
            pull = group["lr"] * group["epoch_decay"]
            one.add_(gradient, alpha=-group["lr"])
            if pull != 0:
                one.add_(state["reference"], alpha=pull).div_(1 + pull)
        state["mean"].lerp_(one, 1 / self._step)

    @torch.no_grad()
    def end_stage(self) -> None:
        """Ends the stage now, on every rank, which call it after as many steps: the model, a and b become the mean of the stage's
        iterates, alike on all ranks. Nothing is done where a stage has ended, and none has begun."""
        self._ranks.agree("the stage of CoDA", lambda: {"number": self._stage, "steps": self._step})
        if self._step == 0:
            return
        self._require_share()
        means = [self.state[one]["mean"] for one in self._primal()]
        self._average([*means, self._loss.alpha])
        for one in self._primal():
            state = self.state[one]
            one.copy_(state["mean"])
            state["reference"].copy_(state["mean"])
            state["mean"].zero_()
        for group in self.param_groups:
            group["lr"] /= self._decay
        self._stage, self._step, self._batches_for_dual = self._stage + 1, 0, self._dual_batches
        self._dual_sums.zero_()
        self._stage_counts.zero_()
        self._plan_stage()

    def update_regularizer(self, decay_factor: Optional[float] = None) -> None:
        """end_stage() by the name that it has in LibAUC; the stages that follow divide lr by `decay_factor`, where it is given."""
        if decay_factor is not None:
            _require_options(self._period, self._steps_of_first, self._growth, decay_factor, self._dual_batches)
            self._decay = decay_factor
        self.end_stage()

    def report(self) -> dict[str, Any]:
        """`stage` (from 0) and `step` in it, with `stage_steps`, `every` and `lr`; `rounds`: how often model, a, b and alpha were averaged so
        far, and `bytes_of_round`: of all that an average is of, once."""
        return {
            "stage": self._stage,
            "step": self._step,
            "stage_steps": self._steps,
            "every": self._every,
            "lr": self.param_groups[0]["lr"],
            "rounds": self._rounds,
            "bytes_of_round": sum(one.nbytes for one in self._everything()),
        }

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = super().state_dict()
        state["coda"] = {
            "stage": self._stage,
            "step": self._step,
            "rounds": self._rounds,
            "batches_for_dual": self._batches_for_dual,
            "decay": self._decay,
            "dual_sums": self._dual_sums.tolist(),
            "stage_counts": self._stage_counts.tolist(),
        }
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if "coda" not in state_dict:
            raise _C.ConfigError("CoDA: the state is of another optimiser: give what CoDA.state_dict() returned")
        own = state_dict["coda"]
        super().load_state_dict({name: one for name, one in state_dict.items() if name != "coda"})
        self._stage, self._step, self._rounds = own["stage"], own["step"], own["rounds"]
        self._batches_for_dual, self._decay = own["batches_for_dual"], own["decay"]
        self._dual_sums = torch.tensor(own["dual_sums"], dtype=torch.float64)
        self._stage_counts = torch.tensor(own["stage_counts"], dtype=torch.float64)
        self._plan_stage()

    # ---- of a stage

    def _primal(self) -> Iterator[Tensor]:
        return (one for group in self.param_groups[:-1] for one in group["params"])

    def _everything(self) -> list[Tensor]:
        return [one for group in self.param_groups for one in group["params"]]

    def _plan_stage(self) -> None:
        self._steps = max(1, round(self._steps_of_first * self._growth**self._stage))
        by_theory = 1 / math.sqrt(self._ranks.size * self.param_groups[0]["lr"])
        self._every = max(1, int(by_theory)) if self._period is None else self._period

    def _restart_dual(self, seen: Tensor) -> None:
        self._dual_sums += seen
        self._batches_for_dual -= 1
        if self._batches_for_dual > 0:
            return
        sums = self._dual_sums.to(self._loss.alpha.device, copy=True)  # whose memory the process group carries
        if not self._add_up([sums], 1.0):
            raise _C.Error(
                "CoDA: scores of a rank are NaN or infinite at the end of a stage: take a smaller lr, or a clip_value"
            )
        below, above, negatives, positives = sums.tolist()
        if negatives == 0 or positives == 0:
            self._batches_lacking += 1
            if self._batches_lacking >= PATIENCE:
                lacking = "positive" if positives == 0 else "negative"
                raise _C.ConfigError(
                    f"CoDA: {PATIENCE} batches of all ranks had no {lacking} sample, so that alpha has no value: take a "
                    "dear.DualSampler"
                )
            self._batches_for_dual = 1
            return
        self._batches_lacking = 0
        self._loss.alpha.fill_(self._loss.margin + below / negatives - above / positives)

    def _require_share(self) -> None:
        if self._loss.p is None or self._loss.version == "v2":
            return
        counts = self._stage_counts.to(self._loss.alpha.device, copy=True)
        self._add_up([counts], 1.0)
        negatives, positives = counts.tolist()
        samples, p = negatives + positives, self._loss.prior
        if p is None or samples == 0:
            return
        deviation = math.sqrt(p * (1 - p) / samples)
        if abs(positives / samples - p) > 5 * deviation + 0.2 * p * (1 - p):
            raise _C.ConfigError(
                f"CoDA: imratio={p} and {positives / samples:.3g} of the samples in the batches of a stage were positive: give the "
                'share that batches have, or take version="v2", which needs none'
            )

    # ---- averages

    def _average(self, tensors: list[Tensor]) -> None:
        """Of what is in the order of _everything()."""
        self._rounds += 1
        if self._add_up(tensors, 1 / self._ranks.size):
            return
        names = [f"parameter {number}" for number in range(len(tensors) - 3)] + ["a", "b", "alpha"]
        mine = [name for name, one in zip(names, tensors) if not one.isfinite().all()]
        for rank, name in enumerate(self._ranks.gathered((mine[0] if mine else "").encode())):
            if name:
                raise _C.Error(
                    f"rank {rank}: {name.decode()} is NaN or infinite at the end of a round: take a smaller lr, or a clip_value"
                )
        raise _C.Error("CoDA: the sum of parameters over ranks is infinite at the end of a round: take a smaller lr")

    def _add_up(self, tensors: list[Tensor], scale: float) -> bool:
        """Makes them sums over ranks, times `scale`. False, on every rank, and nothing has changed, where a sum is not finite."""
        kinds: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
        for one in tensors:
            kinds.setdefault((one.device, one.dtype), []).append(one)
        sums = [torch.cat([one.reshape(-1) for one in kind]) for kind in kinds.values()]
        for flat in sums:
            self._ranks.add_up(flat)
        if not all(bool(flat.isfinite().all()) for flat in sums):
            return False
        for kind, flat in zip(kinds.values(), sums):
            parts = flat.mul_(scale).split([one.numel() for one in kind])
            for one, part in zip(kind, parts):
                one.copy_(part.view(one.shape))
        return True


def _require_options(every: Optional[int], stage_steps: int, growth: float, decay: float, dual_batches: int) -> None:
    for name, value in (("every", every), ("stage_steps", stage_steps), ("dual_batches", dual_batches)):
        if value is None and name == "every":
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise _C.ConfigError(f"CoDA: {name}={value!r}: give a whole number of at least 1")
    for name, factor in (("growth", growth), ("decay", decay)):
        if not (math.isfinite(factor) and factor >= 1):
            raise _C.ConfigError(f"CoDA: {name}={factor}: give a number of at least 1")


def _require_usable(group: dict[str, Any]) -> None:
    lr, clip = group["lr"], group["clip_value"]
    if not (math.isfinite(lr) and lr > 0):
        raise _C.ConfigError(f"CoDA: lr={lr}: give a number above 0")
    if clip is not None and not clip > 0:
        raise _C.ConfigError(f"CoDA: clip_value={clip}: give a number above 0, or None")
    for name in ("weight_decay", "epoch_decay"):
        if not (math.isfinite(group[name]) and group[name] >= 0):
            raise _C.ConfigError(f"CoDA: {name}={group[name]}: give a number of at least 0")
    for one in group["params"]:
        if one.dtype not in (torch.float32, torch.float64):
            raise _C.ConfigError(
                f"CoDA: a parameter is in {one.dtype}, in which means of iterates are lost: keep parameters in float32, and compute "
                "under torch.autocast"
            )
