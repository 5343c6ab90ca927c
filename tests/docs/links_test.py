"""Every link between the project's pages leads somewhere, and README.md stays short:  links_test.py"""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import pages

MOST_LINES_OF_README = 250


class Links(unittest.TestCase):
    def test_lead_to_files_and_headings_that_exist(self):
        found = 0
        for page in pages.all_pages():
            for line, target in pages.links(page):
                if "://" in target or target.startswith("mailto:"):
                    continue
                found += 1
                with self.subTest(place=f"{page.relative_to(pages.ROOT)}:{line}", target=target):
                    file, _, anchor = target.partition("#")
                    path = page.parent / file if file else page
                    self.assertTrue(path.exists(), f"there is no file {file}")
                    if anchor:
                        self.assertIn(anchor, pages.anchors(path))
        self.assertGreater(found, 0)

    def test_every_page_is_reached_from_the_readme(self):
        seen, waiting = set(), [pages.ROOT / "README.md"]
        while waiting:
            page = waiting.pop().resolve()
            if page in seen or page.suffix != ".md" or not page.exists():
                continue
            seen.add(page)
            waiting += [page.parent / target.partition("#")[0] for _, target in pages.links(page) if "://" not in target]
        missed = [str(page.relative_to(pages.ROOT)) for page in pages.commanded_pages() if page.resolve() not in seen]
        self.assertEqual(missed, [])


class Readme(unittest.TestCase):
    def test_is_short(self):
        lines = (pages.ROOT / "README.md").read_text(encoding="utf-8").splitlines()
        self.assertLess(len(lines), MOST_LINES_OF_README)


if __name__ == "__main__":
    unittest.main()
