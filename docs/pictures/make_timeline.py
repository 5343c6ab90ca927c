"""Draws one iteration under wfbp and under dear:  make_timeline.py DEAR [--check]

Simulates examples/eight_layers.json with the command DEAR, reads the two traces, and writes timeline-light.svg and
timeline-dark.svg beside this file. With --check it writes nothing, and fails when these files would change.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import typing

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE.parent.parent / "examples" / "eight_layers.json"
SIMULATE = ["--network", "bandwidth=600mbit,latency=50us", "--ranks", "4", "--fusion", "layer"]
POLICIES = {
    "wfbp": "wfbp: all-reduce under the backward pass",
    "dear": "dear: reduce-scatter under the backward pass, all-gather under the next forward pass",
}
ITERATION = 10  # far from the first one, so that iterations are alike
KINDS = ("forward", "backward", "all-reduce", "reduce-scatter", "all-gather", "update")

LEFT, RIGHT, TOP = 92, 20, 40
PIXELS_A_MILLISECOND = 3.6
LANE, GAP, TITLE, BETWEEN = 34, 6, 26, 44


class Theme(typing.NamedTuple):
    text: str
    faint: str
    wait: str
    fills: dict


THEMES = {
    "light": Theme(
        "#1f2328", "#656d76", "#cf222e",
        dict(zip(KINDS, ("#9ec5fe", "#5b8def", "#f0a35e", "#f2c14e", "#7cc492", "#57606a"))),
    ),
    "dark": Theme(
        "#e6edf3", "#9198a1", "#ff7b72",
        dict(zip(KINDS, ("#2f5f9e", "#4d86d9", "#c0712b", "#b98a1d", "#3f8f5b", "#8b949e"))),
    ),
}


class Span(typing.NamedTuple):
    kind: str
    label: str
    lane: str
    start: float  # milliseconds from the start of the window
    length: float


class Iteration(typing.NamedTuple):
    policy: str
    spans: list
    length: float


def kind_of(name: str) -> str:
    return next((kind for kind in KINDS if name.startswith(kind)), "")


def read_iteration(dear: str, policy: str) -> Iteration:
    """One iteration of the steady state. Its window begins where the forward pass, or what that waits for, begins."""
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder, "trace.json")
        subprocess.run([dear, "simulate", "--model", MODEL, *SIMULATE, "--policy", policy, "--trace", trace],
                       stdout=subprocess.DEVNULL, check=True)
        events = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]

    def first(kind: str, iteration: int) -> float:
        return min((event["ts"] for event in events
                    if kind_of(event["name"]) == kind and event["args"]["iteration"] == iteration), default=float("inf"))

    def begin(iteration: int) -> float:
        return min(first("forward", iteration), first("all-gather", iteration - 1))

    start, end = begin(ITERATION), begin(ITERATION + 1)
    spans = []
    for event in events:
        kind = kind_of(event["name"])
        if kind and start <= event["ts"] < end - 0.5:
            lane = "computation" if kind in ("forward", "backward", "update") else "network"
            spans.append(Span(kind, event["name"].split()[-1].removeprefix("layer"), lane, (event["ts"] - start) / 1e3, event["dur"] / 1e3))
    return Iteration(policy, sorted(spans, key=lambda span: span.start), (end - start) / 1e3)


def waits(iteration: Iteration) -> list:
    """Where the rank computes nothing, as (start, length) in milliseconds."""
    found, now = [], 0.0
    for span in iteration.spans:
        if span.lane == "computation":
            if span.start - now > 0.05:
                found.append((now, span.start - now))
            now = max(now, span.start + span.length)
    if iteration.length - now > 0.05:
        found.append((now, iteration.length - now))
    return found


def draw(iterations: list, theme: Theme) -> str:
    width = LEFT + RIGHT + PIXELS_A_MILLISECOND * max(iteration.length for iteration in iterations)
    block = TITLE + 2 * LANE + GAP + BETWEEN
    height = TOP + block * len(iterations) + 4
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
        f'font-family="Helvetica, Arial, sans-serif" font-size="12" fill="{theme.text}">',
        "<title>One iteration under wfbp and under dear, simulated</title>",
        '<defs><pattern id="wait" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        f'<rect width="2" height="6" fill="{theme.wait}" fill-opacity="0.55"/></pattern></defs>',
    ]

    def x(milliseconds: float) -> float:
        return LEFT + PIXELS_A_MILLISECOND * milliseconds

    def text(at_x: float, at_y: float, words: str, more: str = "") -> None:
        out.append(f'<text x="{at_x:.1f}" y="{at_y:.1f}" {more}>{words}</text>')

    def box(at_x: float, at_y: float, wide: float, high: float, fill: str) -> None:
        out.append(f'<rect x="{at_x:.1f}" y="{at_y:.1f}" width="{wide:.1f}" height="{high:.1f}" rx="1.5" fill="{fill}"/>')

    at = float(LEFT)
    for kind in (*KINDS, "waits"):
        box(at, 12, 14, 14, theme.fills.get(kind, "url(#wait)"))
        text(at + 19, 23.5, kind)
        at += 19 + 7 * len(kind) + 22

    top = float(TOP)
    for iteration in iterations:
        text(LEFT, top + 15, POLICIES[iteration.policy], 'font-weight="bold"')
        lanes = {"computation": top + TITLE, "network": top + TITLE + LANE + GAP}
        for lane, y in lanes.items():
            text(LEFT - 10, y + LANE / 2 + 4, lane, 'text-anchor="end"')
        for start, length in waits(iteration):
            box(x(start), lanes["computation"], PIXELS_A_MILLISECOND * length, LANE, "url(#wait)")
        for span in iteration.spans:
            wide = PIXELS_A_MILLISECOND * span.length
            box(x(span.start) + 0.5, lanes[span.lane], max(wide - 1, 1), LANE, theme.fills[span.kind])
            if wide > 12:
                text(x(span.start) + wide / 2, lanes[span.lane] + LANE / 2 + 4, span.label, 'text-anchor="middle"')
        line = lanes["network"] + LANE + 14
        out.append(f'<path d="M{x(0):.1f} {line - 6:.1f}v12M{x(0):.1f} {line:.1f}H{x(iteration.length):.1f}m0 -6v12" '
                   f'stroke="{theme.faint}" fill="none"/>')
        text(x(iteration.length / 2), line + 16, f"one iteration: {iteration.length:.0f} ms", f'text-anchor="middle" fill="{theme.faint}"')
        top += block
    out.append("</svg>")
    return "\n".join(out) + "\n"


def main() -> None:
    dear, *rest = sys.argv[1:]
    iterations = [read_iteration(dear, policy) for policy in POLICIES]
    stale = []
    for name, theme in THEMES.items():
        file, picture = HERE / f"timeline-{name}.svg", draw(iterations, theme)
        if "--check" not in rest:
            file.write_text(picture, encoding="utf-8")
        elif not file.exists() or file.read_text(encoding="utf-8") != picture:
            stale.append(file.name)
    if stale:
        sys.exit(f"{', '.join(stale)} in docs/pictures would change: run docs/pictures/make_timeline.py DEAR")


if __name__ == "__main__":
    main()
