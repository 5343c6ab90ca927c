"""A page of `dear report` in Chromium:  browser_test.py PATH_OF_DEAR PATH_OF_CHROMIUM"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

from devtools import FRAMES, Browser

DEAR = CHROMIUM = ""


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        for policy in ("wfbp", "dear"):
            cls.dear("simulate", "--model", "resnet18", "--cluster", "10gbe-64", "--policy", policy, "--trace", f"{policy}.json", "--json", f"{policy}.result.json")  # fmt: skip
        cls.dear(
            "report", "wfbp.json", "wfbp=wfbp.result.json", "dear.json", "dear=dear.result.json", "--out", "page.html"
        )
        cls.browser = Browser(CHROMIUM)
        cls.addClassCleanup(cls.browser.close)

    @classmethod
    def dear(cls, *arguments):
        subprocess.run([DEAR, *arguments], cwd=cls.folder, check=True, capture_output=True)

    def setUp(self):
        self.browser.call(
            "Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False
        )
        self.browser.open(os.path.join(self.folder, "page.html"))
        self.browser.evaluate("document.getElementById('timelines').scrollIntoView()")
        self.browser.evaluate(FRAMES)

    def test_opens_without_an_error_and_asks_for_nothing(self):
        self.assertEqual(
            self.browser.parameters("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"), []
        )
        self.assertEqual(len(self.browser.parameters("Network.requestWillBeSent")), 1)  # the page itself

    def test_shows_the_numbers_of_its_files(self):
        shown = set(
            self.browser.evaluate(
                "[...document.querySelectorAll('#results [data-value]')].map((one) => Number(one.dataset.value))"
            )
        )
        for policy in ("wfbp", "dear"):
            with open(os.path.join(self.folder, f"{policy}.result.json"), encoding="utf-8") as file:
                (result,) = json.load(file)
            numbers = {value for value in result.values() if isinstance(value, (int, float))}
            self.assertEqual(numbers - shown, set())

    def test_fits_wide_and_narrow_in_light_and_dark(self):
        papers = set()
        for width in (1280, 390):
            for scheme in ("light", "dark"):
                self.browser.call(
                    "Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=1, mobile=False
                )
                self.browser.call(
                    "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
                )
                self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), width)
                papers.add(self.browser.evaluate("getComputedStyle(document.body).backgroundColor"))
        self.assertEqual(len(papers), 2)

    def test_timelines_obey_the_keyboard(self):
        length = (
            "(() => { const view = document.querySelector('#timelines > div').view; return [view.begin, view.end]; })()"
        )
        press = "document.querySelector('.panel canvas').dispatchEvent(new KeyboardEvent('keydown', {key: '%s', bubbles: true}))"
        begin, end = self.browser.evaluate(length)
        self.browser.evaluate(press % "+")
        in_begin, in_end = self.browser.evaluate(length)
        self.assertAlmostEqual((in_end - in_begin) / (end - begin), 0.6, places=9)
        self.browser.evaluate(press % "ArrowRight")
        self.assertGreater(self.browser.evaluate(length)[0], in_begin)
        self.browser.evaluate(press % "n")
        self.assertRegex(
            self.browser.evaluate("document.querySelector('.panel .said').textContent"), "rank 0, compute, iteration"
        )


if __name__ == "__main__":
    DEAR, CHROMIUM = os.path.abspath(sys.argv.pop(1)), sys.argv.pop(1)
    unittest.main()
