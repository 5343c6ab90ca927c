"""The first page of the site of scripts/docs in Chromium:  site_in_browser_test.py PATH_OF_CHROMIUM

Exits with 77, which ctest takes for skipped, where Chromium or the tools of requirements-docs.txt are not installed.
"""

import os
import pathlib
import sys
import tempfile
import unittest
from urllib.parse import unquote, urlsplit

from devtools import FRAMES, Browser

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "docs"))
import built_site  # noqa: E402

SKIPPED = 77
CHROMIUM = ""
# Of text and of what is behind it.
CONTRAST = """(() => {
  const light = (colour) => { const [r, g, b] = colour.match(/[0-9.]+/g).slice(0, 3).map((one) => one / 255).map((one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = [document.body, document.documentElement].map((one) => getComputedStyle(one).backgroundColor).find((one) => !/, 0\\)$/.test(one));
  const canvas = matchMedia('(prefers-color-scheme: dark)').matches && getComputedStyle(document.documentElement).colorScheme.includes('dark') ? 'rgb(18, 18, 18)' : 'rgb(255, 255, 255)';
  const both = [light(getComputedStyle(document.body).color), light(behind ?? canvas)].sort((a, b) => b - a);
  return (both[0] + 0.05) / (both[1] + 0.05);
})()"""


# Resolves with the links of what the search has found, once it has.
FOUND = """new Promise((done) => {
  const look = () => { const links = [...document.querySelectorAll('.md-search-result__link')].map((one) => one.href);
    if (links.length) done(links); else requestAnimationFrame(look); };
  look();
})"""


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.index = str(built_site.build(folder.name) / "index.html")

    def setUp(self):
        self.browser = Browser(CHROMIUM)
        self.addCleanup(self.browser.close)

    def asks_no_network(self):
        self.assertEqual(self.browser.faults(), [])
        folder = f"file://{os.path.dirname(self.index)}/"
        self.assertEqual([one for one in self.browser.requests() if not one.startswith((folder, "data:", "blob:"))], [])

    def test_first_page_is_whole_and_readable(self):
        papers = set()
        for width in (1400, 400):
            for scheme in ("light", "dark"):
                with self.subTest(width=width, scheme=scheme):
                    self.browser.size(width, 900)
                    self.browser.scheme(scheme)
                    self.browser.open(self.index)
                    self.browser.evaluate(FRAMES)
                    self.asks_no_network()
                    broken = (
                        "[...document.images].filter((one) => !one.complete || !one.naturalWidth).map((one) => one.src)"
                    )
                    self.assertEqual(self.browser.evaluate(broken), [])
                    self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), width)
                    self.assertGreaterEqual(self.browser.evaluate(CONTRAST), 4.5)
                    papers.add(self.browser.evaluate("getComputedStyle(document.body).backgroundColor"))
        self.assertEqual(len(papers), 2)

    def test_search_finds_pages_that_are_there(self):
        for width in (1400, 400):
            with self.subTest(width=width):
                self.browser.size(width, 900)
                self.browser.open(self.index)
                self.browser.evaluate("document.querySelector('[data-md-component=search-query]').focus()")
                self.browser.call("Input.insertText", text="reduce-scatter")
                links = [urlsplit(one) for one in self.browser.evaluate(FOUND)]
                self.assertEqual([one.path for one in links if not os.path.exists(unquote(one.path))], [])
                self.asks_no_network()

    def test_links_to_its_files_lead_somewhere(self):
        self.browser.open(self.index)
        links = [
            urlsplit(one)
            for one in self.browser.evaluate("[...document.querySelectorAll('a[href]')].map((one) => one.href)")
        ]
        paths = {unquote(one.path) for one in links if one.scheme == "file"}
        self.assertNotEqual(paths, set())
        self.assertEqual([path for path in sorted(paths) if not os.path.exists(path)], [])


if __name__ == "__main__":
    CHROMIUM = sys.argv.pop(1)
    missing = built_site.missing_tools()
    if not os.path.exists(CHROMIUM):
        missing = "Chromium is not installed: it is Debian's package chromium"
    if missing:
        print(f"site_in_browser_test.py: skipped, because {missing}")
        sys.exit(SKIPPED)
    unittest.main()
