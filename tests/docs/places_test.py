"""Every path in the table of CONTRIBUTING.md that says where a new part goes exists:  places_test.py

In a path NAME stands for the new part: then the folder that it is to lie in must be there.
"""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SECTION = re.compile(r"^## Where a new part goes\n(.*?)^## ", re.MULTILINE | re.DOTALL)
LEAST_ROWS = 13


def rows() -> list:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return [line for line in SECTION.search(page)[1].splitlines() if line.startswith("| ")][1:]


class Places(unittest.TestCase):
    def test_exist(self):
        self.assertGreaterEqual(len(rows()), LEAST_ROWS)
        for row in rows():
            paths = [text for text in re.findall(r"`([^`]+)`", row) if "/" in text]
            with self.subTest(row=row.split("|")[1].strip()):
                self.assertTrue(paths)
            for path in paths:
                with self.subTest(row=row.split("|")[1].strip(), path=path):
                    there = ROOT / re.split(r"[^/]*NAME", path)[0]
                    self.assertTrue(there.exists(), f"there is no {path}")


if __name__ == "__main__":
    unittest.main()
