"""In how many parts dear.distribute(parts=...) cuts the forward pass of a model with mixtures of experts."""

from __future__ import annotations

import contextlib
import copy
import statistics
import time
import warnings
from collections.abc import Iterator
from typing import Any, Optional, Union

import torch
from torch import Tensor, nn

from . import _C, _moe_cut, _moe_ranks
from ._moe_travel import Travelling


class Choice:
    """The number of parts with the shortest iterations. Candidates take turns, ranks add up their seconds, so that all choose
    the same one."""

    CANDIDATES = (1, 2, 4)
    TURN = 4  # iterations, the first of which does not count
    ROUNDS = 3  # the first warms up, and plans weight gradients

    def __init__(self) -> None:
        self.seconds: dict[int, list[float]] = {one: [] for one in self.CANDIDATES}
        self.excluded: set[int] = set()
        self._passes, self._begun = 0, 0.0

    def ends(self) -> bool:
        """Whether all candidates have had their turns. An iteration begins."""
        now = time.perf_counter()
        number = self._passes - 1  # of the iteration that has ended
        if number >= len(self.CANDIDATES) * self.TURN and number % self.TURN > 0:
            self.seconds[self._candidate(number)].append(now - self._begun)
        self._begun = now
        return self._passes == self.ROUNDS * len(self.CANDIDATES) * self.TURN

    def next(self) -> int:
        self._passes += 1
        found = self._candidate(self._passes - 1)
        return 1 if found in self.excluded else found

    def _candidate(self, number: int) -> int:
        return self.CANDIDATES[number // self.TURN % len(self.CANDIDATES)]

    def best(self, group: Any) -> int:
        """Every rank calls it."""
        medians = [statistics.median(self.seconds[one]) for one in self.CANDIDATES]
        everyone = _moe_ranks.gathered(medians, group)
        total = {one: sum(of_rank[at] for of_rank in everyone) for at, one in enumerate(self.CANDIDATES)}
        return min((one for one in total if one not in self.excluded), key=lambda one: total[one])


class Parts:
    """Cuts a module of the model, the smallest that has all its mixtures, from install() to remove(). The first pass in parts
    is compared with one of the whole batch."""

    def __init__(self, wanted: Union[int, str], model: nn.Module, layers: dict[str, Travelling], rank: int) -> None:
        self._rank, self._layers = rank, list(layers.values())
        self.name = _moe_cut.module_to_cut(model, list(layers))
        self._module = model.get_submodule(self.name)
        self.called = f"'{self.name}'" if self.name else "the model"
        self.parts = 1 if wanted == "auto" else int(wanted)  # of this pass
        self._choice = Choice() if wanted == "auto" and self._layers[0].ranks > 1 else None
        self.refused = "one rank has all experts" if wanted == "auto" and self._choice is None else ""
        self._samples: dict[int, _moe_cut.Samples] = {}  # by number of parts, once that was compared

    def install(self) -> None:
        self._before = self._module.__dict__.get("forward")
        self._module.forward = CutForward(self)

    def remove(self) -> None:
        if isinstance(self._module.__dict__.get("forward"), CutForward):
            del self._module.forward
            if self._before is not None:
                self._module.forward = self._before

    def begin(self) -> int:
        """A forward pass of the model, which records for a backward pass. Returns in how many parts it is cut."""
        if self._choice is not None:
            if self.refused or self._choice.ends():
                self.parts = 1 if self.refused else self._choice.best(self._group())
                self._choice = None
            else:
                self.parts = self._choice.next()
        return self.parts

    def told(self) -> dict[str, Any]:
        return {
            "parts": 1 if self.refused else self.parts,
            "cut": self.name,
            "uncut_because": self.refused,
            "choosing_parts": self._choice is not None,
        }

    def whole(self, *args: Any, **kwargs: Any) -> Any:
        if self._before is not None:
            return self._before(*args, **kwargs)
        return type(self._module).forward(self._module, *args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        uncut = self.parts == 1 or self.refused or not torch.is_grad_enabled() or not self._module.training
        if uncut or _moe_cut.current() is not None or torch._C._current_graph_task_id() != -1:
            return self.whole(*args, **kwargs)
        if self.parts not in self._samples:
            return self._compared(args, kwargs)
        try:
            given, size = self._samples[self.parts].split(args, kwargs, self.parts)
        except _C.ConfigError as error:
            self._layers[0].refuse_batch()
            cut = f"{self.called} is cut into {self.parts} parts"
            raise _C.ConfigError(f"rank {self._rank}: {cut}, and {error}") from None
        try:
            return self._cut(given, size)
        except _moe_cut.NotCut as reason:
            raise _C.ConfigError(
                f"rank {self._rank}: {self.called} was cut into {self.parts} parts, and now cannot be: {reason}. Leave "
                "`parts` out of dear.distribute()"
            ) from None

    def _cut(self, given: list[tuple[Any, Any]], size: int) -> Any:
        cut = _moe_cut.Cut(self.parts, size, _greenlet())
        return _moe_cut.Samples.join(cut.run(self.whole, given), size)

    # ---- the first pass in so many parts

    def _compared(self, args: Any, kwargs: Any) -> Any:
        samples = _moe_cut.Samples(args, kwargs)
        given: list[tuple[Any, Any]] = []
        size, reason = 0, ""
        try:
            given, size = samples.split(args, kwargs, self.parts)
        except _C.ConfigError as error:
            reason = str(error)
        if refused := self._first_of_all(reason):
            if self._choice is None:
                raise _C.ConfigError(f"{refused}: give `parts` another number in dear.distribute()")
            self._choice.excluded.add(self.parts)
            return self.whole(*args, **kwargs)
        counted = [copy.deepcopy(layer._counted) for layer in self._layers]
        expected, reason = self._alone(args, kwargs)
        self._count_again(counted)
        reason = self._first_of_all(reason)
        result = None
        if not reason:
            try:
                result = self._cut(given, size)
                if _moe_cut.differs(result, expected):
                    reason = "its results for parts of a batch are not those of the whole batch"
            except _moe_cut.NotCut as error:
                reason = str(error)
            reason = self._first_of_all(reason)
        if reason:
            self._count_again(counted)
            self.refused = reason
            if self._rank == 0:
                warnings.warn(f"dear: {self.called} is not cut into parts: {reason}", stacklevel=2)
            return self.whole(*args, **kwargs)
        self._samples[self.parts] = samples
        return result

    def _alone(self, args: Any, kwargs: Any) -> tuple[Any, str]:
        """What the whole batch gives, and why it cannot be cut. Buffers and random numbers stay."""
        buffers = {name: (one, one.clone()) for name, one in self._module.named_buffers()}
        reason = ""
        with _same_random_numbers(self._device()) as drawn, torch.no_grad():
            for layer in self._layers:
                layer.compared = True
            try:
                expected = self.whole(*args, **kwargs)
            finally:
                for layer in self._layers:
                    layer.compared = False
            if drawn():
                reason = "it draws random numbers, as dropout does, which parts would draw in another order"
            for name, (one, clone) in buffers.items():
                if not torch.equal(one, clone):
                    reason = reason or f"its buffer '{name}' changes in a forward pass, which each part would change"
                    one.copy_(clone)
        return expected, reason

    def _count_again(self, counted: list[dict[str, Any]]) -> None:
        for layer, before in zip(self._layers, counted):
            layer._counted = copy.deepcopy(before)

    def _first_of_all(self, reason: str) -> str:
        """Of the first rank that has one; every rank calls it."""
        for rank, (parts, theirs) in enumerate(_moe_ranks.gathered((self.parts, reason), self._group())):
            if parts != self.parts:
                raise _C.MismatchError(
                    f"rank {self._rank}: {self.called} is cut into {self.parts} parts here and {parts} on rank {rank}: give all "
                    "ranks the same `parts`"
                )
            if theirs:
                return f"rank {rank}: {theirs}"
        return ""

    def _group(self) -> Optional[Any]:
        return self._layers[0].own_group()

    def _device(self) -> torch.device:
        return self._layers[0].device


class CutForward:
    """In place of a module's forward."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    @_moe_cut.outside_of_graphs
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.parts.forward(*args, **kwargs)


@contextlib.contextmanager
def _same_random_numbers(device: torch.device) -> Iterator[Any]:
    """Afterwards random numbers go on as before. Gives a function that says whether any were drawn."""
    of_device = torch.get_device_module(device) if device.type != "cpu" else None

    def states() -> list[Tensor]:
        return [torch.get_rng_state()] + ([] if of_device is None else [of_device.get_rng_state(device)])

    before = states()
    try:
        yield lambda: any(not torch.equal(one, now) for one, now in zip(before, states()))
    finally:
        torch.set_rng_state(before[0])
        if of_device is not None:
            of_device.set_rng_state(before[1], device)


def _greenlet() -> Any:
    try:
        import greenlet
    except ImportError:
        raise _C.ConfigError(
            "to cut a forward pass into parts takes the package greenlet: run `pip install greenlet`, or leave `parts` out"
        ) from None
    return greenlet
