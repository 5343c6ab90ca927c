"""Tables of logged runs of bench/faults."""

from __future__ import annotations

import csv
import json
import statistics
from collections.abc import Callable
from typing import Any

Run = dict[str, Any]

# By row: the runs that are in it.
ROWS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "killed, aborts, faults, `_exit`": lambda one: (
        one["kind"] in ("kill", "abort", "segv", "_exit") and not one["child"]
    ),
    "likewise, with a child that lives": lambda one: one["kind"] in ("kill", "abort", "segv", "_exit") and one["child"],
    "raises": lambda one: one["kind"] == "raise",
    "returns, exits": lambda one: one["kind"] in ("return", "exit"),
    "out of memory": lambda one: one["kind"] == "memory",
    "all files closed": lambda one: one["kind"] == "closed",
    "stopped": lambda one: one["kind"] == "stop",
    "slower than the timeout": lambda one: one["kind"] == "slow",
    "saves of ten timeouts": lambda one: one["kind"] == "slow save",
    "stopped for a second, forks": lambda one: one["kind"] in ("pause", "fork"),
}
# Where ranks meet and connect the row is that of the point.
OF_POINT = {"before": "before the meeting", "init": "while ranks meet and connect"}
BADS = ("hung", "late", "left", "silent", "wrong result", "wrong rank", "unnamed", "false alarm")


def row_of(fault: dict[str, Any]) -> str:
    if fault["point"] in OF_POINT:
        return OF_POINT[fault["point"]]
    return next(name for name, holds in ROWS.items() if holds(fault))


def tables_of(logs: list[str], path: str) -> str:
    runs: list[Run] = []
    for log in logs:
        with open(log) as file:
            runs += [json.loads(line) for line in file]
    lines = []
    figures: list[list[object]] = []
    launchers = sorted({run["fault"]["launcher"] for run in runs})
    backends = sorted({run["fault"]["backend"] for run in runs}, key=lambda one: (one == "ddp", one))
    lines += [
        "| backend | launcher | runs | " + " | ".join(BADS) + " | survivors right |",
        "|---" * (4 + len(BADS)) + "|",
    ]
    for backend in backends:
        for launcher in launchers:
            some = [one for one in runs if (one["fault"]["backend"], one["fault"]["launcher"]) == (backend, launcher)]
            if not some:
                continue
            counts = [sum(bad in one["bad"] for one in some) for bad in BADS]
            asked, right = sum(one["asked"] for one in some), sum(one["right"] for one in some)
            lines.append(
                f"| {backend} | {launcher} | {len(some)} | {' | '.join(map(str, counts))} | {right} of {asked} |"
            )
            setting = f"{backend}, launcher {launcher}"
            side = "DDP" if backend == "ddp" else "DeAR"
            for name, value in [
                ("runs", len(some)),
                *zip(BADS, counts),
                ("survivors asked", asked),
                ("survivors right", right),
            ]:
                figures.append([setting, side, name, value, "", "", ""])
    lines += [
        "",
        "| fault | backend | runs | median | 95 % | worst | survivors right |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in [*ROWS, *OF_POINT.values()]:
        for backend in backends:
            some = [
                one
                for one in runs
                if one["fault"]["backend"] == backend
                and one["fault"]["launcher"] == "none"
                and row_of(one["fault"]) == name
            ]
            if not some:
                continue
            times = sorted(one["seconds"] for one in some if one["seconds"] is not None)
            asked, right = sum(one["asked"] for one in some), sum(one["right"] for one in some)
            shown = ["-"] * 3
            side = "DDP" if backend == "ddp" else "DeAR"
            if times:
                most = times[min(len(times) - 1, int(0.95 * len(times)))]
                shown = [f"{one:.2f} s" for one in (statistics.median(times), most, times[-1])]
                figures.append(
                    [
                        f"{name}, {backend}",
                        side,
                        "fault to the last error",
                        round(statistics.median(times), 4),
                        round(times[0], 4),
                        round(times[-1], 4),
                        "s",
                    ]
                )
            lines.append(f"| {name} | {backend} | {len(some)} | {' | '.join(shown)} | {right} of {asked} |")
    if path:
        with open(path, "w", newline="") as out:
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow(["claim", "setting", "side", "quantity", "value", "least", "greatest", "unit"])
            writer.writerows(["Faults of ranks", *figure] for figure in figures)
    return "\n".join(lines)
