"""How fast a page of `dear report` opens in Chromium, and the times of its frames while its timeline is zoomed and moved:

python3 bench/report_in_browser.py --dear build/release/dear --rounds 5 --most-open 2 --most-frame 50

The page is of 64 ranks x 10 iterations of a simulated resnet50: the rank that `dear simulate --trace` writes, once for each rank, slower
by a part of its own. A page has opened when its timeline has been drawn again after the first key that was pressed. A frame lasts from
one call of requestAnimationFrame to the next; wheel, keys and pointer are Chromium's own events, each sent when the one before has been
handled. Processor time is that of the page's main thread in a frame, by the median of rounds: other load hardly changes it. Debian's
package chromium, and nothing else, has to be installed.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests" / "report"))

from devtools import FRAMES, Browser
from many_ranks import write_trace

SLOW_FRAME = 50  # ms
VIEW = "(({ begin, end }) => [begin, end])(document.querySelector('#timelines > div').view)"
RECORD = """(() => {
  window.frames_seen = [];
  const see = (time) => { if (!window.frames_seen) return; window.frames_seen.push(time); requestAnimationFrame(see); };
  requestAnimationFrame(see);
})()"""


class Timeline:
    """The timeline of an open page, and what a person does to it."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        browser.evaluate("document.querySelector('.panel canvas').scrollIntoView()")
        browser.evaluate("document.querySelector('.panel canvas').focus()")
        browser.evaluate(FRAMES)
        self.box = browser.evaluate(
            "(({ x, y, width }) => ({ x, y, width }))(document.querySelector('.panel canvas').getBoundingClientRect())"
        )

    def at(self, part: float) -> dict[str, float]:
        return {"x": self.box["x"] + 112 + part * (self.box["width"] - 130), "y": self.box["y"] + 60}

    def keys(self, *names: str) -> None:
        """One in a frame, quicker than a keyboard repeats."""
        for name in names:
            self.browser.press(name)
            self.browser.evaluate("new Promise(requestAnimationFrame)")

    def wheel(self, by: int, times: int, part: float, modifiers: int = 2) -> None:
        for _ in range(times):
            self.browser.call("Input.dispatchMouseEvent", type="mouseWheel", deltaX=0, deltaY=by, modifiers=modifiers, **self.at(part))  # fmt: skip

    def point(self, kind: str, part: float, buttons: int) -> None:
        self.browser.call("Input.dispatchMouseEvent", type=kind, button="left" if buttons or kind != "mouseMoved" else "none",
                          buttons=buttons, clickCount=1, **self.at(part))  # fmt: skip

    def drag(self) -> None:
        self.point("mousePressed", 0.5, 1)
        for step in range(60):
            self.point("mouseMoved", 0.5 + 0.4 * (1 - abs(step - 30) / 30), 1)
        self.point("mouseReleased", 0.5, 0)

    def hover(self) -> None:
        for step in range(60):
            self.point("mouseMoved", step / 60, 0)


def whole(timeline: Timeline) -> None:
    timeline.keys("0")


ACTIONS = {
    "wheel, in and out": (whole, lambda one: (one.wheel(-120, 40, 0.37), one.wheel(120, 40, 0.63))),
    "+ and -": (whole, lambda one: one.keys(*"+" * 20, *"-" * 20)),
    "arrows, all iterations": (whole, lambda one: one.keys(*["ArrowRight"] * 20, *["ArrowLeft"] * 20)),
    "arrows, an iteration": (
        lambda one: one.keys("0", *"+" * 4),
        lambda one: one.keys(*["ArrowRight"] * 20, *["ArrowLeft"] * 20),
    ),
    "ranks by arrows": (whole, lambda one: one.keys(*["ArrowDown"] * 60, *["ArrowUp"] * 60)),
    "ranks by the wheel": (whole, lambda one: (one.wheel(240, 10, 0.5, 0), one.wheel(-240, 10, 0.5, 0))),
    "span to span": (lambda one: one.keys("0", *"+" * 6), lambda one: one.keys(*"n" * 40, *"p" * 40)),
    "drag": (lambda one: one.keys("0", "+"), Timeline.drag),
    "hover": (whole, Timeline.hover),
}


def open_page(browser: Browser, page: str) -> float:
    """Seconds until a key has changed the timeline and it is drawn."""
    begin = time.monotonic()
    browser.open(page)
    before = browser.evaluate(VIEW)
    browser.evaluate("document.querySelector('.panel canvas').focus()")
    browser.press("+")
    browser.evaluate(FRAMES)
    seconds = time.monotonic() - begin
    after = browser.evaluate(VIEW)
    if not after[1] - after[0] < before[1] - before[0]:
        sys.exit(f"the key + did not zoom: {before}, then {after}")
    return seconds


def busy(browser: Browser) -> float:
    """Milliseconds of processor time that the main thread of the page has used."""
    metrics = browser.call("Performance.getMetrics")["metrics"]
    return 1e3 * next(one["value"] for one in metrics if one["name"] == "TaskDuration")


def frames_of(timeline: Timeline, action: str) -> tuple[list[int], float]:
    """Milliseconds of each frame, and of processor time in the mean of them."""
    prepare, act = ACTIONS[action]
    prepare(timeline)
    timeline.browser.evaluate(FRAMES)
    before = busy(timeline.browser)
    timeline.browser.evaluate(RECORD)
    act(timeline)
    timeline.browser.evaluate(FRAMES)
    used = busy(timeline.browser) - before
    times = timeline.browser.evaluate("(() => { const seen = frames_seen; frames_seen = null; return seen; })()")
    # In whole ones: a screen of 60 Hz has frames of 50.0 ms, and clocks that make them 50.1.
    frames = [round(end - begin) for begin, end in zip(times, times[1:], strict=False)]
    return frames, used / len(frames)


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dear", default="build/release/dear")
    parser.add_argument("--chromium", default="chromium")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--most-open", type=float, metavar="SECONDS", help="fail where the median of opening is above it"
    )
    parser.add_argument(
        "--most-frame",
        type=float,
        metavar="MS",
        help="fail where the longest frame of a round is above it, by the median of rounds",
    )
    arguments = parser.parse_args()
    dear = os.path.abspath(arguments.dear)

    with tempfile.TemporaryDirectory() as folder:
        spans = write_trace(
            dear, os.path.join(folder, "all.json"), arguments.model, arguments.ranks, arguments.iterations
        )
        subprocess.run([dear, "report", "all.json", "--out", "page.html"], cwd=folder, check=True, capture_output=True)
        page = os.path.join(folder, "page.html")
        print(f"{arguments.ranks} ranks x {arguments.iterations} iterations, {spans} spans, page of {os.path.getsize(page) / 1e6:.1f} MB; "
              f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")  # fmt: skip
        opened: list[float] = []
        frames: dict[str, list[list[int]]] = {action: [] for action in ACTIONS}
        processor: dict[str, list[float]] = {action: [] for action in ACTIONS}
        for _ in range(arguments.rounds):
            browser = Browser(arguments.chromium)
            try:
                browser.size(1400, 900)
                browser.call("Performance.enable", timeDomain="threadTicks")
                opened.append(open_page(browser, page))
                timeline = Timeline(browser)
                for action in ACTIONS:
                    found, used = frames_of(timeline, action)
                    frames[action].append(found)
                    processor[action].append(used)
                faults = browser.faults()
                if faults:
                    sys.exit(f"the page complained: {faults}")
            finally:
                browser.close()

    print(f"opened in {median(opened):.2f} s ({min(opened):.2f} to {max(opened):.2f})")
    print(
        "| | frames of a round | median frame | longest of a round, median | longest of all | above 50 ms | processor time |"
    )
    print("|---|---|---|---|---|---|---|")
    for action, rounds in frames.items():
        every = [one for found in rounds for one in found]
        longest = [max(found) for found in rounds]
        slow = sum(one > SLOW_FRAME for one in every)
        print(f"| {action} | {len(every) // len(rounds)} | {median(every)} ms | {median(longest)} ms | {max(longest)} ms | {slow} of {len(every)} | {median(processor[action]):.1f} ms |")  # fmt: skip
    failed = []
    if arguments.most_open is not None and median(opened) > arguments.most_open:
        failed.append(f"opening took more than {arguments.most_open} s")
    if arguments.most_frame is not None:
        for action, rounds in frames.items():
            if median([max(found) for found in rounds]) > arguments.most_frame:
                failed.append(f"{action}: a frame above {arguments.most_frame} ms")
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
