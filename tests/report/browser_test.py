"""A page of `dear report` in Chromium:  browser_test.py PATH_OF_DEAR PATH_OF_CHROMIUM"""

import base64
import json
import os
import subprocess
import sys
import tempfile
import unittest

from devtools import FRAMES, Browser
from many_ranks import write_trace

DEAR = CHROMIUM = ""
ROW = 18  # pixels, of a lane
VIEW = "(({ begin, end }) => [begin, end])(document.querySelector('#timelines > div').view)"
SAID = "document.querySelector('.panel .said').textContent"
# Of a panel: where it draws, and the colours of some of its pixels, as [[x, y], ...] of its canvas.
PANEL = """(() => {
  const view = document.querySelector('#timelines > div').view, panel = view.panels[%d];
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const colours = Object.fromEntries(['paper', 'exposed', ...panel.activities].map((one) => [one, colour(one)]));
  const { field, shift, rows_height } = panel;
  return { begin: view.begin - shift, end: view.end - shift, field, height: rows_height, top: panel.frame.scrollTop, colours };
})()"""
PIXELS = """((places) => {
  const canvas = document.querySelectorAll('.panel canvas')[%d], { width, height } = canvas;
  const brush = Object.assign(document.createElement('canvas'), { width, height }).getContext('2d', { willReadFrequently: true });
  brush.drawImage(canvas, 0, 0);
  const { data } = brush.getImageData(0, 0, width, height);
  return places.map(([x, y]) => '#' + [0, 1, 2].map((i) => data[4 * (y * width + x) + i].toString(16).padStart(2, '0')).join(''));
})(%s)"""


def spans_of(lane, names):
    """Begin and end in seconds, and the activity."""
    numbers, begin = lane["spans"], 0
    for i in range(0, len(numbers), 4):
        begin += numbers[i]
        yield begin / 1e9, (begin + numbers[i + 1]) / 1e9, names[numbers[i + 2]][1]


def intervals_of(numbers):
    begin = 0
    for i in range(0, len(numbers), 2):
        begin += numbers[i]
        yield begin / 1e9, (begin + numbers[i + 1]) / 1e9, "exposed"


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        for policy in ("wfbp", "dear"):
            cls.dear("simulate", "--model", "resnet18", "--cluster", "10gbe-64", "--policy", policy, "--trace", f"{policy}.json", "--json", f"{policy}.result.json")  # fmt: skip
        write_trace(DEAR, os.path.join(cls.folder, "ranks.json"), "resnet18", ranks=64, iterations=10)
        cls.dear("report", "wfbp.json", "wfbp=wfbp.result.json", "dear.json", "dear=dear.result.json", "ranks.json", "--out", "page.html")  # fmt: skip
        cls.page = os.path.join(cls.folder, "page.html")
        with open(cls.page, encoding="utf-8") as file:
            cls.runs = json.loads(file.read().split('id="data">')[1].split("</script>")[0])["runs"]
        cls.browser = Browser(CHROMIUM)
        cls.addClassCleanup(cls.browser.close)

    @classmethod
    def dear(cls, *arguments):
        subprocess.run([DEAR, *arguments], cwd=cls.folder, check=True, capture_output=True)

    def setUp(self):
        self.browser.size(1400, 900)
        self.browser.scheme("light")
        self.browser.open(self.page)
        self.browser.evaluate("document.getElementById('timelines').scrollIntoView()")
        self.browser.evaluate(FRAMES)

    # Whatever a test did to the page.
    def tearDown(self):
        self.assertEqual(self.browser.faults(), [])
        self.assertEqual(self.browser.requests(), [f"file://{self.page}"])

    def press(self, *keys):
        for key in keys:
            self.browser.press(key)
        self.browser.evaluate(FRAMES)

    def test_shows_the_numbers_of_its_files(self):
        shown = set(self.browser.evaluate("[...document.querySelectorAll('#results [data-value]')].map((one) => Number(one.dataset.value))"))  # fmt: skip
        for policy in ("wfbp", "dear"):
            with open(os.path.join(self.folder, f"{policy}.result.json"), encoding="utf-8") as file:
                (result,) = json.load(file)
            numbers = {value for value in result.values() if isinstance(value, (int, float))}
            self.assertEqual(numbers - shown, set())

    def test_tables_are_those_of_the_traces(self):
        for section, field, columns in (
            ("ranks", "by_rank", ("rank", "iterations", "iteration_seconds", "computation_seconds", "hidden_seconds", "exposed_seconds", "idle_seconds", "communication_seconds")),
            ("overlap", "by_collective", ("bucket", "seconds", "exposed_seconds")),
            ("spans", "by_name", ("count", "seconds")),
        ):  # fmt: skip
            tables = self.browser.evaluate(
                f"[...document.querySelectorAll('#{section} details table')].map((table) => [...table.tBodies[0].rows].map("
                "(row) => [...row.querySelectorAll('[data-value]')].map((one) => Number(one.dataset.value))))"
            )
            expected = [[[row[name] for name in columns] for row in run["trace"][field]] for run in self.runs]
            self.assertEqual(tables, expected, section)

    def test_timelines_draw_the_spans(self):
        self.browser.evaluate("document.querySelectorAll('.panel canvas')[2].focus()")
        for keys in ((), ("0",), ("0", "+", "+", "+", "ArrowRight"), ("ArrowDown",) * 100, ("+",) * 5):
            self.press(*keys)
            self.compare_with_spans(2)

    # Each span, gap and exposed part that is some pixels wide has its colour in its middle.
    def compare_with_spans(self, panel):
        trace, place = self.runs[panel]["trace"], self.browser.evaluate(PANEL % panel)
        exposed = {rank["rank"]: rank["exposed"] for rank in trace["by_rank"]}
        scale = place["field"] / (place["end"] - place["begin"])
        places, expected = [], []

        def see(begin, end, y, what):
            begin, end = max(begin, place["begin"]), min(end, place["end"])
            if (end - begin) * scale > 4:
                places.append([int(112 + ((begin + end) / 2 - place["begin"]) * scale), y])
                expected.append((what, place["colours"][what]))

        for row, lane in enumerate(trace["lanes"]):
            y = row * ROW - round(place["top"])
            if not 0 <= y <= place["height"] - ROW:
                continue
            before = place["begin"]
            for begin, end, activity in spans_of(lane, trace["names"]):
                see(before, begin, y + 3, "paper")
                see(begin, end, y + 3, activity)
                before = end
            if lane["lane"] == "compute":
                for begin, end, what in intervals_of(exposed[lane["rank"]]):
                    see(begin, end, y + ROW - 3, what)
        self.assertGreater(len(places), 20)
        found = self.browser.evaluate(PIXELS % (panel, json.dumps(places)))
        self.assertEqual([(what, pixel) for (what, _), pixel in zip(expected, found, strict=True)], expected)

    def test_fits_wide_and_narrow_in_light_and_dark(self):
        papers = set()
        for width in (1400, 400):
            for scheme in ("light", "dark"):
                self.browser.size(width, 900)
                self.browser.scheme(scheme)
                self.browser.evaluate(FRAMES)
                self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), width)
                paper = self.browser.evaluate(PANEL % 0)["colours"]["paper"]
                self.assertEqual(self.browser.evaluate(PIXELS % (0, "[[50, 2]]")), [paper])
                papers.add(paper)
        self.assertEqual(len(papers), 2)

    def test_timelines_obey_the_keyboard(self):
        self.browser.evaluate("document.getElementById('iteration').focus()")
        self.press("Tab")
        self.assertIn("Timeline of wfbp", self.browser.evaluate("document.activeElement.getAttribute('aria-label')"))
        begin, end = self.browser.evaluate(VIEW)
        self.press("+")
        in_begin, in_end = self.browser.evaluate(VIEW)
        self.assertAlmostEqual((in_end - in_begin) / (end - begin), 0.6, places=9)
        self.press("ArrowRight")
        self.assertGreater(self.browser.evaluate(VIEW)[0], in_begin)
        self.press("ArrowDown")
        self.assertEqual(self.browser.evaluate(SAID), "network")
        self.press("ArrowUp", "n")
        first = self.browser.evaluate(SAID)
        self.assertRegex(first, "rank 0, compute, iteration")
        self.press("n")
        self.assertNotEqual(self.browser.evaluate(SAID), first)
        self.press("p")
        self.assertEqual(self.browser.evaluate(SAID), first)
        self.press("0")
        begin, end = self.browser.evaluate(VIEW)
        self.browser.evaluate("document.querySelector('[aria-label=\"Zoom in\"]').focus()")
        self.press("Enter")
        in_begin, in_end = self.browser.evaluate(VIEW)
        self.assertAlmostEqual((in_end - in_begin) / (end - begin), 0.6, places=9)

    def test_prints_in_light_colours_as_wide_as_paper(self):
        self.browser.scheme("dark")
        self.browser.evaluate(FRAMES)
        pixel = PIXELS % (0, "[[50, 2]]")
        (dark,) = self.browser.evaluate(pixel)
        width = self.browser.evaluate("document.querySelector('.panel canvas').width")
        self.browser.evaluate(f"addEventListener('beforeprint', () => {{ window.printed = {pixel}; }})")
        printed = self.browser.call("Page.printToPDF")["data"]
        self.assertTrue(base64.b64decode(printed).startswith(b"%PDF"))
        self.assertEqual(self.browser.evaluate("window.printed"), ["#ffffff"])
        self.browser.evaluate(FRAMES)
        self.assertEqual(self.browser.evaluate(pixel), [dark])
        self.assertEqual(self.browser.evaluate("document.querySelector('.panel canvas').width"), width)
        self.browser.call("Emulation.setEmulatedMedia", media="print")
        self.browser.size(700, 900)
        self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), 700)
        self.browser.call("Emulation.setEmulatedMedia", media="")


if __name__ == "__main__":
    DEAR, CHROMIUM = os.path.abspath(sys.argv.pop(1)), sys.argv.pop(1)
    unittest.main()
