"""The order in which autograd runs the backward pass of mixtures of experts, by the numbers of its nodes.

Of the nodes that are ready autograd runs the one with the highest number, and numbers nodes as they are made. Below all
those numbers a range is reserved here. In it lie nodes that wait for an all-to-all and nodes that compute a weight
gradient, for which nothing of the backward pass waits: so that a launched all-to-all is waited for once the weight gradients
that go under it are computed (Lancet, Jiang et al. 2024, https://doi.org/10.48550/arXiv.2404.19429, section 4.2).
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, Optional

import torch

from . import _C

_EXCHANGES = 1 << 18  # numbers start again after so many, which changes an order and no result
_ABOVE_ALL_WAITS = 2 * _EXCHANGES + 3
_AT_ONCE = 1 << 60
Event = tuple[str, int, float, float]  # see Pass.in_order()
_exchanges = 0  # so many were made
_log: Optional[list[str]] = None


def reserve() -> None:
    """Before this thread makes a node."""
    _C.reserve_sequence_numbers(_ABOVE_ALL_WAITS + 1)


def wait_late(result: torch.Tensor) -> Optional[Measured]:
    """The node that made the result waits, in the backward pass, for an all-to-all: behind all weight gradients that are
    ready then and go under it. Of several that wait, the one made last comes first, as without this. Returns who wants to
    know what becomes of it."""
    global _exchanges
    if result.grad_fn is None:
        return None
    number, _exchanges = _exchanges, _exchanges + 1
    result.grad_fn._set_sequence_nr(2 * (number % _EXCHANGES) + 2)  # type: ignore[attr-defined]
    return None if _pass is None else _pass.has_exchange()


def forward_exchange() -> Optional[Measured]:
    """Who wants to know what becomes of an all-to-all of this forward pass."""
    return None if _pass is None else _pass.has_forward_exchange()


def compute_late(token: torch.Tensor, left: Left) -> None:
    """The node that made the token computes a weight gradient: under the all-to-all that was planned, or at once where none
    was; without a plan, once nothing else is ready but what waits."""
    if token.grad_fn is None:
        return
    number = _ABOVE_ALL_WAITS
    if _pass is not None:
        left.measured, under = _pass.has_weight()
        if under is not None:
            number = 2 * (under % _EXCHANGES) + 3
        elif _pass.is_planned:
            number = _AT_ONCE
    token.grad_fn._set_sequence_nr(number)  # type: ignore[attr-defined]


def compute_at_once(token: torch.Tensor) -> None:
    """Likewise, as soon as it can be: where plain autograd computes it."""
    if token.grad_fn is not None:
        token.grad_fn._set_sequence_nr(_AT_ONCE)  # type: ignore[attr-defined]


def note(what: str) -> None:
    if _log is not None:
        _log.append(what)


@contextlib.contextmanager
def recording() -> Iterator[list[str]]:
    """What the nodes of backward passes do meanwhile, in order: "launch", "wait" and "weight"."""
    global _log
    before, _log = _log, []
    try:
        yield _log
    finally:
        _log = before


class Left:
    """What the backward of a product leaves for its weight gradient, by part, within one backward pass. What a pass left
    that was broken off is dropped by the next."""

    def __init__(self) -> None:
        self.measured: Optional[Measured] = None
        self._pass = -1
        self._parts: dict[int, Any] = {}

    def add(self, part: int, what: Any) -> None:
        running = torch._C._current_graph_task_id()
        if running != self._pass:
            self._pass, self._parts = running, {}
        self._parts[part] = what
        if self.measured is not None:
            self.measured.happens("ready")

    @contextlib.contextmanager
    def taken(self) -> Iterator[list[Any]]:
        """For the weight gradient to be computed meanwhile."""
        note("weight")
        parts, self._parts = self._parts, {}
        begun = time.perf_counter()
        yield [parts[part] for part in sorted(parts)]
        if self.measured is not None:
            self.measured.takes(time.perf_counter() - begun)


class Half:
    """All-to-alls and weight gradients of a forward or a backward pass that is measured, where all-to-alls are waited for at
    once."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int, float]] = []  # the last: when, without seconds that are `beside`
        self.beside = 0.0  # seconds of weight gradients and all-to-alls
        self.weight_seconds: dict[int, float] = {}
        self.exchange_seconds: dict[int, float] = {}

    def in_order(self) -> list[Event]:
        """Of each weight gradient, where the last part of its product was ready. Seconds that it takes, and seconds of
        computation before it."""
        ready = {number: at for at, (what, number, _) in enumerate(self.events) if what == "ready"}
        found = []
        for at, (what, number, when) in enumerate(self.events):
            if what != "ready" or ready[number] == at:
                seconds = self.weight_seconds if what == "ready" else self.exchange_seconds
                found.append((what, number, seconds[number], when - self.events[0][2]))
        return found


class Measured:
    """An all-to-all or a weight gradient of a pass that is measured."""

    def __init__(self, half: Half, number: int) -> None:
        self._half, self._number = half, number

    def happens(self, what: str) -> None:
        """In this order: "ready", "launch", "wait"."""
        self._half.events.append((what, self._number, time.perf_counter() - self._half.beside))

    def takes(self, seconds: float) -> None:
        self._half.weight_seconds[self._number] = seconds
        self._half.beside += seconds

    def travels(self, seconds: float) -> None:
        self._half.exchange_seconds[self._number] = seconds
        self._half.beside += seconds


class Pass:
    """A forward pass, whose all-to-alls and weight gradients are numbered in its order, and its backward pass."""

    def __init__(self, plan: Optional[dict[int, int]], measured: bool) -> None:
        self._plan, self._measured, self._first = plan or {}, measured, _exchanges
        self.is_planned = plan is not None
        self._exchanges = self._weights = self._forward_exchanges = 0
        self.forward, self.backward = Half(), Half()
        self.begun = time.perf_counter()

    def has_exchange(self) -> Optional[Measured]:
        self._exchanges += 1
        return Measured(self.backward, self._exchanges - 1) if self._measured else None

    def has_forward_exchange(self) -> Optional[Measured]:
        self._forward_exchanges += 1
        return Measured(self.forward, self._forward_exchanges - 1) if self._measured else None

    def has_weight(self) -> tuple[Optional[Measured], Optional[int]]:
        """Also the number of the all-to-all that it goes under, among all that were ever made."""
        self._weights += 1
        under = self._plan.get(self._weights - 1)
        measured = Measured(self.backward, self._weights - 1) if self._measured else None
        return measured, None if under is None else self._first + under

    def is_whole(self) -> bool:
        """Whether its backward pass ran to the end."""
        half = self.backward
        return (len(half.exchange_seconds), len(half.weight_seconds)) == (self._exchanges, self._weights)


class Planner:
    """Which weight gradient of a model goes under which all-to-all, from the times of some passes, whose all-to-alls
    are waited for where they are launched, by best fit (Lancet's Algorithm 1). All ranks have the plan of their mean times: a
    gradient may wait for other ranks where it arrives, so it must not arrive before an all-to-all on one rank and after
    it on another."""

    WARM, MEASURED = 2, 3  # passes

    def __init__(self, gather: Callable[[Any], list[Any]]) -> None:
        self._gather = gather  # what all ranks give, in their order, on every rank
        self._passes = 0
        self._watched: Optional[Pass] = None
        self._found: list[list[tuple[list[Event], list[Event], float]]] = []  # by pass and rank
        self.plan: Optional[dict[int, int]] = None
        self.all_to_all_seconds = self.waited_seconds = self.hidden_seconds = self.iteration_seconds = 0.0

    @contextlib.contextmanager
    def forward(self) -> Iterator[None]:
        """A forward pass of the model."""
        global _pass
        if self._watched is not None:
            watched, self._watched = self._watched, None
            whole = watched.is_whole()
            mine = watched.forward.in_order(), watched.backward.in_order(), time.perf_counter() - watched.begun
            everyone = self._gather(mine if whole else None)
            if all(one is not None for one in everyone):
                self._found.append(everyone)
            if len(self._found) == self.MEASURED:
                self._choose()
        measured = self.plan is None and self._passes >= self.WARM
        before, _pass = _pass, Pass(self.plan, measured)
        self._watched = _pass if measured else None
        self._passes += 1
        try:
            yield
        finally:
            _pass = before

    def _choose(self) -> None:
        self.plan = {}
        forward = _typical([[of_rank[0] for of_rank in one] for one in self._found])
        backward = _typical([[of_rank[1] for of_rank in one] for one in self._found])
        if not backward:
            return
        _, waited_forward, _ = _C.moe_plan(forward)
        self.plan, waited, self.hidden_seconds = _C.moe_plan(backward)
        self.waited_seconds = waited_forward + waited
        self.all_to_all_seconds = sum(seconds for kind, _, seconds, _ in (*forward, *backward) if kind == "launch")
        measured = statistics.median(seconds for one in self._found for _, _, seconds in one)
        self.iteration_seconds = measured - self.all_to_all_seconds + self.waited_seconds - self.hidden_seconds


def _typical(passes: list[list[list[Event]]]) -> list[Event]:
    """By pass and rank: the median pass of the mean rank; nothing where they differ in what happens."""
    if len({tuple((kind, number) for kind, number, _, _ in events) for one in passes for events in one}) != 1:
        return []
    found = []
    for place, (kind, number, _, _) in enumerate(passes[0][0]):
        seconds = statistics.median(statistics.fmean(events[place][2] for events in one) for one in passes)
        at = statistics.median(statistics.fmean(events[place][3] for events in one) for one in passes)
        found.append((kind, number, seconds, at))
    return found


_pass: Optional[Pass] = None  # the forward pass that runs
