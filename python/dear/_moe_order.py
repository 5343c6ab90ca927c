"""The order in which autograd runs the backward pass of mixtures of experts, by the numbers of its nodes.

Of the nodes that are ready autograd runs the one with the highest number, and numbers nodes as they are made. Below all
those numbers a range is reserved here. In it lie nodes that wait for an all-to-all and nodes that compute a weight
gradient, for which nothing of the backward pass waits: so that a launched all-to-all is waited for once the weight gradients
that go under it are computed (Lancet, Jiang et al. 2024, https://doi.org/10.48550/arXiv.2404.19429, section 4.2).
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any, Optional

import torch

from . import _C

_EXCHANGES = 1 << 18  # numbers start again after so many, which changes an order and no result
_ABOVE_ALL_WAITS = 2 * _EXCHANGES + 3
_exchanges = itertools.count()
_log: Optional[list[str]] = None


def reserve() -> None:
    """Before this thread makes a node."""
    _C.reserve_sequence_numbers(_ABOVE_ALL_WAITS + 1)


def wait_late(result: torch.Tensor) -> None:
    """The node that made the result waits, in the backward pass, for an all-to-all: behind all weight gradients that are
    ready then. Of several that wait, the one made last comes first, as without this."""
    if result.grad_fn is not None:
        result.grad_fn._set_sequence_nr(2 * (next(_exchanges) % _EXCHANGES) + 2)  # type: ignore[attr-defined]


def compute_late(token: torch.Tensor) -> None:
    """The node that made the token computes a weight gradient: once nothing else is ready but what waits."""
    if token.grad_fn is not None:
        token.grad_fn._set_sequence_nr(_ABOVE_ALL_WAITS)  # type: ignore[attr-defined]


def compute_at_once(token: torch.Tensor) -> None:
    """Likewise, as soon as it can be: where plain autograd computes it."""
    if token.grad_fn is not None:
        token.grad_fn._set_sequence_nr(1 << 60)  # type: ignore[attr-defined]


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
        self._pass = -1
        self._parts: dict[int, Any] = {}

    def add(self, part: int, what: Any) -> None:
        running = torch._C._current_graph_task_id()
        if running != self._pass:
            self._pass, self._parts = running, {}
        self._parts[part] = what

    def take(self) -> list[Any]:
        parts, self._parts = self._parts, {}
        return [parts[part] for part in sorted(parts)]
