"""What a check is given, and how it says that it cannot be made here."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench/rivals"))

from devices import Device

Figures = dict[str, Any]
"""What a check measured: numbers and texts by name, for the table."""


class NotHere(Exception):
    """The check cannot be made on this machine: a sentence that says why."""


@dataclass
class Setting:
    """Every rank has one; torch.distributed is initialised."""

    device: Device
    library: str  # the backend of torch.distributed that carries memory of the device
    quick: bool
    folder: Path  # the same for all ranks, of this check alone
    said: list[str]  # by DeAR, where it chose the process group

    @property
    def enqueues(self) -> bool:
        """Whether collectives return when they are enqueued. Gloo carries memory of a GPU through the host, which waits."""
        return self.library != "gloo"
