"""The result of a check as JSON, as a table, and in docs/gpu.md."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from building import ROOT
from sessions import Outcome
from steps import BUILD, STEPS, Step

KEPT = ROOT / "docs/gpu_check.json"  # the last result on a GPU
PAGE = ROOT / "docs/gpu.md"
BEGIN, END = "<!-- begin: made by scripts/gpu_check --write-page -->", "<!-- end -->"
OUTCOMES = {"passed", "failed", "not here", "not run"}
NOT_RUN = "has not run"


class BadResult(Exception):
    """A sentence that says what is wrong with a file."""


@dataclass
class Result:
    machine: dict[str, Any]  # device, libraries, commit, ...; empty where nothing has run
    steps: list[dict[str, Any]]


def as_json(machine: dict[str, Any], outcomes: Sequence[Outcome]) -> dict[str, Any]:
    steps = []
    for one in outcomes:
        step: dict[str, Any] = {"name": one.step.name, "shows": one.step.shows, "outcome": one.outcome}
        step |= {"seconds": round(one.seconds, 1), "library": one.library, "why": one.why, "figures": one.figures}
        steps.append({**step, **({"log": one.log} if one.log else {})})
    return {"machine": machine, "steps": steps}


def read(path: Path) -> Result:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        result = Result(content["machine"], content["steps"])
        wrong: list[Any] = [one for one in result.steps if one["outcome"] not in OUTCOMES or "name" not in one]
    except OSError as error:
        raise BadResult(
            f"{path} cannot be read ({error.strerror}): give a result.json that scripts/gpu_check wrote"
        ) from None
    except (ValueError, KeyError, TypeError):
        wrong = [{}]
    if wrong:
        raise BadResult(f"{path} is no result of scripts/gpu_check: give a result.json that it wrote")
    return result


def _figure(name: str, value: Any) -> str:
    if isinstance(value, dict):
        return f"{name}: " + ", ".join(_figure(key, one) for key, one in value.items())
    shown = f"{value:.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value
    what, comma, unit = name.rpartition(", ")
    return f"{what} {shown} {unit}" if comma else f"{name} {shown}"


def _row(step: dict[str, Any]) -> str:
    found = "; ".join(_figure(name, value) for name, value in step.get("figures", {}).items())
    said = step.get("why", "") or found
    seconds = f"{step['seconds']:.1f}" if step["outcome"] in ("passed", "failed") else ""
    cells = [step["name"], step["shows"], step["outcome"], step.get("library", ""), seconds, said]
    return "| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |"


def table(result: Result) -> str:
    head = "| step | what it shows | outcome | over | seconds | found |\n|---|---|---|---|---|---|"
    return "\n".join([head, *(_row(step) for step in result.steps)])


def of_a_gpu(steps: Sequence[Step] = (BUILD, *STEPS)) -> list[Step]:
    return [step for step in steps if step.library != "stub"]


def _part(result: Result) -> str:
    """What stands between the marks of the page: every step, also those that the result does not have."""
    found = {step["name"]: step for step in result.steps}
    rows = []
    for step in of_a_gpu():
        one = found.get(step.name, {"outcome": "not run"})
        one = {**one, "name": step.name, "shows": step.shows}
        rows.append(one if one["outcome"] != "not run" else {**one, "outcome": NOT_RUN})
    about = "\n".join(f"- {name}: {value}" for name, value in result.machine.items())
    return f"{about or 'No step has run on a GPU.'}\n\n{table(Result(result.machine, rows))}"


def page(text: str, result: Result) -> str:
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise BadResult(f"{PAGE} has no part between '{BEGIN}' and '{END}': put these two lines back")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n\n{_part(result)}\n\n{END}{after}"


def kept() -> Result:
    return read(KEPT) if KEPT.exists() else Result({}, [])


def write_page(path: Path | None) -> None:
    """Keeps the result, where one is given, and writes the page from what is kept."""
    if path is not None:
        given = read(path)
        if given.machine.get("device") != "cuda":
            raise BadResult(
                f"{path} is of the device {given.machine.get('device')}: the page is made of results on a GPU"
            )
        KEPT.write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), kept()), encoding="utf-8")


def page_is_current() -> bool:
    text = PAGE.read_text(encoding="utf-8")
    return text == page(text, kept())
