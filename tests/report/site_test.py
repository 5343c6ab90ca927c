"""The first page of a site of static files in Chromium:  site_test.py PATH_OF_INDEX PATH_OF_CHROMIUM"""

import os
import sys
import unittest
from urllib.parse import unquote, urlsplit

from devtools import FRAMES, Browser

INDEX = CHROMIUM = ""
# Of text and of what is behind it.
CONTRAST = """(() => {
  const light = (colour) => { const [r, g, b] = colour.match(/[0-9.]+/g).slice(0, 3).map((one) => one / 255).map((one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = [document.body, document.documentElement].map((one) => getComputedStyle(one).backgroundColor).find((one) => !/, 0\\)$/.test(one));
  const canvas = matchMedia('(prefers-color-scheme: dark)').matches && getComputedStyle(document.documentElement).colorScheme.includes('dark') ? 'rgb(18, 18, 18)' : 'rgb(255, 255, 255)';
  const both = [light(getComputedStyle(document.body).color), light(behind ?? canvas)].sort((a, b) => b - a);
  return (both[0] + 0.05) / (both[1] + 0.05);
})()"""


class Site(unittest.TestCase):
    def setUp(self):
        self.browser = Browser(CHROMIUM)
        self.addCleanup(self.browser.close)

    def test_first_page_is_whole_and_readable(self):
        for width in (1400, 400):
            for scheme in ("light", "dark"):
                with self.subTest(width=width, scheme=scheme):
                    self.browser.size(width, 900)
                    self.browser.scheme(scheme)
                    self.browser.open(INDEX)
                    self.browser.evaluate(FRAMES)
                    self.assertEqual(self.browser.faults(), [])
                    folder = f"file://{os.path.dirname(INDEX)}/"
                    self.assertEqual(
                        [one for one in self.browser.requests() if not one.startswith((folder, "data:"))], []
                    )
                    self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), width)
                    self.assertGreaterEqual(self.browser.evaluate(CONTRAST), 4.5)

    def test_links_to_its_files_lead_somewhere(self):
        self.browser.open(INDEX)
        links = [
            urlsplit(one)
            for one in self.browser.evaluate("[...document.querySelectorAll('a[href]')].map((one) => one.href)")
        ]
        paths = {unquote(one.path) for one in links if one.scheme == "file"}
        self.assertNotEqual(paths, set())
        self.assertEqual([path for path in sorted(paths) if not os.path.exists(path)], [])


if __name__ == "__main__":
    INDEX, CHROMIUM = os.path.abspath(sys.argv.pop(1)), sys.argv.pop(1)
    unittest.main()
