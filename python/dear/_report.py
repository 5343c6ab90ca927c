"""report(): one page of HTML of runs, in a notebook or as a file."""

from __future__ import annotations

import dataclasses
import html
import json
import os
import pathlib
import subprocess
import tempfile
from typing import TYPE_CHECKING

from . import _C
from ._simulation import Simulation
from ._trace import Trace
from ._version import __version__

if TYPE_CHECKING:
    from ._distribute import DataParallel


@dataclasses.dataclass(frozen=True)
class Report:
    """A page of HTML that needs nothing but itself. A notebook shows it in a frame."""

    html: str = dataclasses.field(repr=False)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file whole or not at all; ConfigError when that fails."""
        _C.write_file(os.fspath(path), self.html)

    def _repr_html_(self) -> str:
        page = html.escape(self.html)
        return f'<iframe srcdoc="{page}" title="Report of DeAR" style="width: 100%; height: 800px; border: 0"></iframe>'


def _files(source: object, name: str, folder: pathlib.Path) -> list[str]:
    """Files of one run as the command takes them."""

    def write(ending: str, text: str) -> str:
        path = folder / f"{len(list(folder.iterdir()))}{ending}"
        path.write_text(text, encoding="utf-8")
        return str(path)

    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        return [f"{name}={path}" if name else path]
    if isinstance(source, Simulation):
        found = []
        several = len(source) > 1
        for index, case in enumerate(source):
            run = f"{name or 'simulation'}{f': {case.policy}, {case.model}, {case.cluster}' if several else ''}"
            result = {"dear_version": __version__, "modelled": ["computation", "communication"], **case.to_dict()}
            trace = folder / f"{len(list(folder.iterdir()))}.json"
            source.save_trace(trace, index)
            found += [f"{run}={trace}", f"{run}={write('.json', json.dumps([result]))}"]
        return found
    trace_of = source if isinstance(source, Trace) else getattr(source, "trace", lambda: None)()
    if not isinstance(trace_of, Trace):
        raise _C.ConfigError(
            f"report() takes models of dear.distribute(), traces, simulations and paths of files, not {type(source).__name__}"
        )
    return [f"{name or 'training'}={write('.json', json.dumps(trace_of.to_dict()))}"]


def report(
    *sources: DataParallel | Trace | Simulation | str | os.PathLike[str],
    title: str = "",
    **named: DataParallel | Trace | Simulation | str | os.PathLike[str],
) -> Report:
    """A page of timelines, where the time goes, overlap and comparisons: what `dear report` makes of files.

    sources, named: models of distribute() with record_trace, whose trace() is taken, so every rank calls it; traces;
        simulations; paths of files that `dear report` takes. The name of a named one is that of its run.
    title: of the page.

    ConfigError for what no report is made of, as the command says it. Starts the command of this package; threads may
    call it at once.
    """
    command = pathlib.Path(__file__).parent / "bin" / "dear"
    with tempfile.TemporaryDirectory(prefix="dear-report-") as place:
        folder = pathlib.Path(place)
        (folder / "runs").mkdir()
        runs = [file for source in sources for file in _files(source, "", folder / "runs")]
        runs += [file for name, source in named.items() for file in _files(source, name, folder / "runs")]
        if not runs:
            raise _C.ConfigError("report() has nothing to show: give it a model, a trace, a simulation or a file")
        page = folder / "page.html"
        done = subprocess.run(
            [command, "report", *runs, "--out", page, "--title", title or "Report of DeAR"],
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            said = done.stderr.strip().removeprefix("dear report: ").removesuffix(" (see dear report --help)")
            raise _C.ConfigError(said or f"dear report ended with exit code {done.returncode}")
        return Report(page.read_text(encoding="utf-8"))
