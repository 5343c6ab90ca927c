"""Writes the sources of the site into a folder, with a configuration for MkDocs:  make_pages.py FOLDER [--site OUT]

Below FOLDER: pages/, in which the project's pages lie as they do in the repository, with the references beside them and a page for
each source that a page has a link to; and mkdocs.json. OUT is where MkDocs is to write the site.
"""

import argparse
import fnmatch
import json
import os
import pathlib
import re
import shutil
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))
import cpp_reference  # noqa: E402
import python_reference  # noqa: E402

FENCE = re.compile(r"^(```+).*?^\1\s*$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"^<!--.*?-->[ \t]*\n", re.MULTILINE | re.DOTALL)
PICTURE = re.compile(
    r'<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="([^"]+)">\s*<img alt="([^"]*)" src="([^"]+)">\s*</picture>'
)
LINK = re.compile(r"(`[^`\n]*`)|\]\(([^)\s]+)\)")
LANGUAGES = {".cpp": "cpp", ".h": "cpp", ".py": "python", ".json": "json"}
PICTURES = (".svg", ".png")


class Misplaced(Exception):
    """A page, or a line of the navigation, that does not fit the other."""


def project_pages(root: pathlib.Path = ROOT) -> list:
    """Below the root."""
    pages = [*root.glob("*.md"), *(root / "docs").rglob("*.md"), *(root / "examples").rglob("*.md")]
    return sorted(page.relative_to(root).as_posix() for page in pages)


def read_navigation(text: str, pages: list) -> list:
    """[(group, [page])] by navigation.txt; "" is the group of a page that stands in none. Misplaced where a page stands nowhere, or a line has none."""
    groups: list = []
    named = {line.strip() for line in text.splitlines() if line.startswith("  ") and "*" not in line}
    taken: set = set()
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        if not line.startswith(" ") and line.strip() not in pages:
            groups.append((line.strip(), []))
            continue
        pattern = line.strip()
        found = [pattern] if pattern in pages or pattern.startswith("reference/") else []
        if "*" in pattern:
            depth = pattern.count("/")
            found = [
                page
                for page in pages
                if fnmatch.fnmatch(page, pattern) and page.count("/") == depth and page not in named
            ]
        if not found:
            raise Misplaced(f"docs/site/navigation.txt names {pattern}, and there is no such page")
        if line.startswith(" "):
            groups[-1][1].extend(page for page in found if page not in taken)
        else:
            groups.append(("", found))
        taken.update(found)
    missed = [page for page in pages if page not in taken]
    if missed:
        raise Misplaced(
            f"{', '.join(missed)}: give it a line in docs/site/navigation.txt, which has the order of the site's pages"
        )
    return groups


def title_of(text: str) -> str:
    heading = re.search(r"^# +(.+?)\s*(?:\{#.*\})?$", text, re.MULTILINE)
    return heading[1].replace("`", "") if heading else ""


class Pages:
    def __init__(self, folder: pathlib.Path, root: pathlib.Path = ROOT) -> None:
        self.folder = folder
        self.root = root
        self.pages = project_pages(root)
        self.sources: dict = {}  # page, by the file or folder that it shows

    def write(self, page: str, text: str) -> None:
        file = self.folder / page
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def target(self, page: str, link: str) -> str:
        """What a link of a page becomes on the site."""
        if "://" in link or link.startswith(("#", "mailto:")):
            return link
        path, mark, anchor = link.partition("#")
        file = os.path.normpath(os.path.join(os.path.dirname(page), path)).replace(os.sep, "/")
        there = self.root / file
        if there.is_dir() and f"{file}/README.md" in self.pages:
            shown = f"{file}/README.md"
        elif file.endswith(".md") or not there.exists():
            return link
        elif file.endswith(PICTURES) or (file.startswith("docs/") and not file.endswith(".py")):
            (self.folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(there, self.folder / file)
            return link
        else:
            shown = self.show(file)
        return os.path.relpath(shown, os.path.dirname(page) or ".").replace(os.sep, "/") + mark + anchor

    def show(self, file: str) -> str:
        """The page of a source, or of a folder of sources."""
        there = self.root / file
        if file in self.sources:
            return self.sources[file]
        shown = self.sources[file] = f"{file}/index.md" if there.is_dir() else f"{file}.md"
        if there.is_dir():
            lines = [f"# {file}", ""]
            inside = [one for one in sorted(there.iterdir()) if not one.name.startswith((".", "__pycache__"))]
            for one in inside:
                below = self.show(f"{file}/{one.name}")
                lines.append(f"- [{one.name}{'/' if one.is_dir() else ''}]({os.path.relpath(below, file)})")
            self.write(shown, "\n".join(lines) + "\n")
        else:
            language = "cmake" if there.name == "CMakeLists.txt" else LANGUAGES.get(there.suffix, "text")
            text = there.read_text(encoding="utf-8")
            fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
            options = "search:\n  exclude: true"
            self.write(shown, f"---\n{options}\n---\n# {file}\n\n{fence}{language}\n{text.rstrip()}\n{fence}\n")
        return shown

    def convert(self, page: str, text: str) -> str:
        def prose(part: str) -> str:
            part = COMMENT.sub("", part)
            part = PICTURE.sub(r"![\2](\3#only-light)\n![\2](\1#only-dark)", part)
            return LINK.sub(lambda link: link[1] or f"]({self.target(page, link[2])})", part)

        made, end = [], 0
        for fence in FENCE.finditer(text):
            made += [prose(text[end : fence.start()]), fence[0]]
            end = fence.end()
        return "".join([*made, prose(text[end:])])


def write(folder: pathlib.Path, site: pathlib.Path, root: pathlib.Path = ROOT) -> pathlib.Path:
    """Returns the file of the configuration."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = Pages(folder / "pages", root)
    groups = read_navigation((root / "docs/site/navigation.txt").read_text(encoding="utf-8"), pages.pages)
    titles = {}
    for page in pages.pages:
        text = pages.convert(page, (root / page).read_text(encoding="utf-8"))
        titles[page] = title_of(text)
        pages.write(page, text)

    def document(page: str) -> str:
        return f"../../{page}" if page in pages.pages else ""

    python = python_reference.write(pages.folder / python_reference.FOLDER, document, root)
    cpp = cpp_reference.write(pages.folder / cpp_reference.FOLDER, document, root)
    inside = {
        f"{python_reference.FOLDER}/index.md": {
            "Python": [
                f"{python_reference.FOLDER}/index.md",
                *({title: f"{python_reference.FOLDER}/{page}"} for title, page in python),
            ]
        },
        f"{cpp_reference.FOLDER}/index.md": {
            "C++": [
                f"{cpp_reference.FOLDER}/index.md",
                *(
                    {section: [{title: f"{cpp_reference.FOLDER}/{page}"} for title, page in members]}
                    for section, members in cpp
                ),
            ]
        },
    }
    nav = []
    for group, members in groups:
        entries = [inside.get(page) or {titles[page]: page} for page in members]
        nav += [{group: entries}] if group else entries
    for file, name in (("site.css", "site.css"), ("worker.js", "iframe-worker.js")):
        shutil.copyfile(HERE / file, pages.folder / name)
    configuration = json.loads((HERE / "mkdocs.json").read_text(encoding="utf-8"))
    configuration |= {
        "docs_dir": str(pages.folder.resolve()),
        "site_dir": str(site.resolve()),
        "nav": nav,
        "hooks": [str(HERE / "hooks.py")],
    }
    file = folder / "mkdocs.json"
    file.write_text(json.dumps(configuration, indent=1), encoding="utf-8")
    return file


def main() -> None:
    options = argparse.ArgumentParser(description="Writes the sources of the site, and a configuration for MkDocs.")
    options.add_argument("folder", type=pathlib.Path)
    options.add_argument("--site", type=pathlib.Path, required=True, help="where MkDocs is to write")
    chosen = options.parse_args()
    try:
        write(chosen.folder, chosen.site)
    except (Misplaced, cpp_reference.Unreadable) as error:
        sys.exit(f"make_pages.py: {error}")


if __name__ == "__main__":
    main()
