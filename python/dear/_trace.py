"""Traces of training."""

from __future__ import annotations

import json
import os
from typing import Any

from . import _C


class Trace:
    """Spans on lanes of one rank, in the Trace Event Format that https://ui.perfetto.dev reads."""

    def __init__(self, text: str) -> None:
        self._text = text

    def to_dict(self) -> dict[str, Any]:
        return json.loads(self._text)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file whole or not at all; ConfigError when that fails."""
        _C.write_file(os.fspath(path), self._text)

    def __repr__(self) -> str:
        return f"<dear.Trace of {len(self.to_dict()['traceEvents'])} events>"
