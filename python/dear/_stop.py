"""dear.StopOnSignal: an orderly end."""

from __future__ import annotations

import os
import signal as signals
from typing import Union

from . import _C
from ._distribute import DataParallel


class StopOnSignal:
    """Makes SIGTERM, which a launcher or a batch system sends before it kills, an orderly end: all ranks leave their loop
    after the same step, although the signal may reach one of them alone.

        stop = dear.StopOnSignal(model)
        while step < steps and not stop.requested():
            train(step)
            step += 1
        checkpoints.save(step)

    Every rank makes one, and calls requested() after as many steps. A thread asks the other ranks every `interval` seconds, on a
    group of its own, whether a signal has come, however long steps take; where one has, all stop after the first step that none
    has ended. A second signal ends the process. While the object lives, the signal is its own: a handler of signal.signal() is
    put back when it goes, which waits for the next exchange.

    file: counts as the signal as soon as it is there, on any rank; None for none.
    """

    def __init__(
        self,
        model: Union[DataParallel, _C.Group],
        *,
        signal: int = signals.SIGTERM,
        interval: float = 0.5,
        file: Union[str, os.PathLike[str], None] = None,
    ) -> None:
        group = model._everyone if isinstance(model, DataParallel) else model
        self._own = _C.StopOnSignal(group, int(signal), interval, "" if file is None else os.fspath(file))

    def requested(self) -> bool:
        """Whether the signal has come to a rank: the same on every rank at the same call. Once True, it stays so."""
        return self._own.requested()

    def request(self) -> None:
        """As if the signal had come to this rank."""
        self._own.request()

    def comes(self) -> bool:
        """Whether this rank knows of a signal, before all do: for loops without collectives, as an evaluation of one rank."""
        return self._own.comes()
