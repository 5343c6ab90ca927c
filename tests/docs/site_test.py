"""The site of scripts/docs: it builds, every link of it leads somewhere, and it asks no network:  site_test.py

Exits with 77, which ctest takes for skipped, where the tools of requirements-docs.txt are not installed.
"""

import html.parser
import json
import pathlib
import re
import sys
import tempfile
import typing
import unittest
import urllib.parse

import built_site
import cpp_reference
import make_pages
import python_reference

SKIPPED = 77

# What a browser fetches by itself.
FETCHED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "srcset",
    "video": "src",
    "audio": "src",
    "embed": "src",
    "object": "data",
}
FETCHED_LINKS = {"stylesheet", "icon", "preload", "preconnect", "dns-prefetch", "manifest", "modulepreload", "prefetch"}
LEFT_MARKDOWN = re.compile(r"\]\([^)\s]+\)|```|^\| .* \|$|\{#", re.MULTILINE)


class Page(html.parser.HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set = set()
        self.repeated: list = []  # ids that stand on two elements
        self.links: list = []  # (line, target) of what a reader follows
        self.fetched: list = []  # of what a browser fetches
        self.words: list = []  # text outside of code, scripts and styles
        self.code = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list) -> None:
        given = dict(attributes)
        if given.get("id"):
            if given["id"] in self.ids:
                self.repeated.append(given["id"])
            self.ids.add(given["id"])
        line = self.getpos()[0]
        if tag == "a" and given.get("href"):
            self.links.append((line, given["href"]))
        if given.get(FETCHED.get(tag, "")):
            self.fetched.append((line, given[FETCHED[tag]]))
        if tag == "link" and given.get("href"):
            kinds = set(given.get("rel", "").split())
            (self.fetched if kinds & FETCHED_LINKS else self.links).append((line, given["href"]))
        if tag in ("code", "pre", "script", "style"):
            self.code += 1

    def handle_endtag(self, tag: str) -> None:
        if tag in ("code", "pre", "script", "style"):
            self.code -= 1

    def handle_data(self, data: str) -> None:
        if not self.code:
            self.words.append(data)


def is_elsewhere(target: str) -> bool:
    return bool(urllib.parse.urlsplit(target).scheme or urllib.parse.urlsplit(target).netloc)


class Site(unittest.TestCase):
    maxDiff = None
    folder: typing.ClassVar[tempfile.TemporaryDirectory]

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.site = built_site.build(cls.folder.name)
        cls.pages = {file: Page(file.read_text(encoding="utf-8")) for file in sorted(cls.site.rglob("*.html"))}

    def place(self, file: pathlib.Path, line: int) -> str:
        return f"{file.relative_to(self.site)}:{line}"

    def test_every_link_leads_to_a_file_and_an_anchor_of_the_site(self):
        found, wrong = 0, []
        for file, page in self.pages.items():
            if file.name == "404.html":
                continue  # its links begin at the root of a server
            for line, target in [*page.links, *page.fetched]:
                if is_elsewhere(target):
                    continue
                found += 1
                path, _, anchor = target.partition("#")
                there = (file.parent / urllib.parse.unquote(path.partition("?")[0])).resolve() if path else file
                if there.is_dir():
                    wrong.append(
                        f"{self.place(file, line)}: {target} is a folder, which shows nothing without a server"
                    )
                elif not there.is_file() or not there.is_relative_to(self.site):
                    wrong.append(f"{self.place(file, line)}: there is no {target}")
                elif anchor and there in self.pages and urllib.parse.unquote(anchor) not in self.pages[there].ids:
                    wrong.append(f"{self.place(file, line)}: {target} has no such heading")
        self.assertEqual(wrong, [])
        self.assertGreater(found, 10_000)

    def test_an_anchor_stands_once_on_a_page(self):
        wrong = [
            f"{file.relative_to(self.site)}: {name}" for file, page in self.pages.items() for name in page.repeated
        ]
        self.assertEqual(wrong, [])

    def test_a_page_fetches_nothing_from_elsewhere(self):
        wrong = [
            self.place(file, line) + ": " + target
            for file, page in self.pages.items()
            for line, target in page.fetched
            if is_elsewhere(target)
        ]
        for sheet in self.site.rglob("*.css"):
            wrong += [
                f"{sheet.name}: {target}"
                for target in re.findall(
                    r"(?:url\(|@import)\s*[\"']?(https?:[^)\"']*)", sheet.read_text(encoding="utf-8")
                )
            ]
        for picture in self.site.rglob("*.svg"):
            text = picture.read_text(encoding="utf-8")
            wrong += [
                f"{picture.name}: {target}" for target in re.findall(r"(?:href=|url\()[\"']?(https?:[^)\"']*)", text)
            ]
        self.assertEqual(wrong, [])

    def test_every_page_of_the_project_is_in_the_navigation(self):
        reached = set()
        for file, page in self.pages.items():
            for _, target in page.links:
                path = target.partition("#")[0]
                if path and not is_elsewhere(target):
                    reached.add((file.parent / urllib.parse.unquote(path)).resolve())
        for source in make_pages.project_pages():
            made = self.site / re.sub(r"(^|/)README\.html$", r"\1index.html", source.removesuffix(".md") + ".html")
            with self.subTest(page=source):
                self.assertIn(made, self.pages)
                self.assertIn(made, reached)

    def test_references_have_every_public_name_and_header(self):
        ids = {
            name
            for file, page in self.pages.items()
            if file.is_relative_to(self.site / python_reference.FOLDER)
            for name in page.ids
        }
        missed = [name for name in python_reference.Package().exported() if f"dear.{name}" not in ids]
        self.assertEqual(missed, [])
        for path, _ in cpp_reference.public_headers():
            with self.subTest(header=path):
                file = self.site / cpp_reference.FOLDER / (cpp_reference.page_of(path).removesuffix(".md") + ".html")
                self.assertIn(
                    f"#include <{path}>",
                    re.sub(r"<[^>]+>", "", file.read_text(encoding="utf-8")).replace("&lt;", "<").replace("&gt;", ">"),
                )

    def test_no_markdown_is_left(self):
        wrong = []
        for file, page in self.pages.items():
            left = LEFT_MARKDOWN.search("".join(page.words))
            if left:
                wrong.append(f"{file.relative_to(self.site)}: {left[0]}")
        self.assertEqual(wrong, [])

    def test_the_search_knows_pages_and_references(self):
        text = (self.site / "search" / "search_index.js").read_text(encoding="utf-8")
        entries = json.loads(text.removeprefix("var __index = "))["docs"]
        places = {entry["location"] for entry in entries}
        for place in (
            "docs/training.html",
            "reference/python/training.html#dear.distribute",
            "reference/cpp/comm.group.group.html#group",
        ):
            with self.subTest(place=place):
                self.assertIn(place, places)
        self.assertTrue((self.site / "iframe-worker.js").exists())


if __name__ == "__main__":
    if missing := built_site.missing_tools():
        print(f"site_test.py: skipped, because {missing}")
        sys.exit(SKIPPED)
    unittest.main()
