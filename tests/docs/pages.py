"""The project's pages as data: fenced blocks with their marks, headings, links.

A mark is an invisible comment on a line of its own before a fence, blank lines between them allowed:
    <!-- not run: REASON -->      nothing of the block is run
    <!-- needs torch -->          run only where DeAR was built with PyTorch
    <!-- needs mpi -->            run only where DeAR was built with Open MPI
    <!-- numbers vary -->         numbers of the output are compared as if all were the same
    <!-- file: NAME -->           what the block holds is written to NAME, for the commands that follow on the page
"""

import pathlib
import re
import typing

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LANGUAGES = ("console", "sh", "cpp", "cmake", "json", "python", "diff", "text")
MARKS = ("not run", "needs torch", "needs mpi", "numbers vary", "file")

_FENCE = re.compile(r"^(```+)\s*(\S*)\s*$")
_MARK = re.compile(r"^<!-- ([^:>]+?)(?:: (.*?))? -->$")


class Block(typing.NamedTuple):
    page: str
    line: int  # of the fence, from 1
    language: str
    marks: dict
    lines: list

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def text(self) -> str:
        return "".join(line + "\n" for line in self.lines)


class Step(typing.NamedTuple):
    """A command of a block, and the lines of output that follow it there."""

    line: int
    command: str
    output: list


def commanded_pages(root: pathlib.Path = ROOT) -> list:
    """Those whose commands are run: README.md and the pages of docs/."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def all_pages(root: pathlib.Path = ROOT) -> list:
    """All that a reader can follow links in."""
    return [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md")), *sorted((root / "examples").rglob("*.md"))]


def read_blocks(page: pathlib.Path, root: pathlib.Path = ROOT) -> list:
    """The fenced blocks of a page. ValueError for a fence that is not closed."""
    name = str(page.relative_to(root))
    blocks, marks, opened = [], {}, None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        fence = _FENCE.match(line)
        if opened is not None:
            if fence and fence[2] == "" and fence[1] == opened[0]:
                blocks.append(Block(name, opened[1], opened[2], marks, opened[3]))
                opened, marks = None, {}
            else:
                opened[3].append(line)
        elif fence:
            opened = (fence[1], number, fence[2], [])
        elif mark := _MARK.match(line):
            marks = {**marks, mark[1]: mark[2] or ""}
        elif line.strip():
            marks = {}
    if opened is not None:
        raise ValueError(f"{name}:{opened[1]}: this block is never closed")
    return blocks


def steps_of(block: Block) -> list:
    """`console`: commands stand behind "$ ", output between them. `sh`: every line is a command."""
    steps = []
    for number, line in enumerate(block.lines, start=block.line + 1):
        continued = steps and steps[-1].command.endswith("\\") and not steps[-1].output
        if continued:
            steps[-1] = steps[-1]._replace(command=steps[-1].command[:-1] + line.strip())
        elif block.language == "sh" and (not line.strip() or line.startswith("#")):
            continue
        elif block.language == "sh":
            steps.append(Step(number, line, []))
        elif line.startswith("$ "):
            steps.append(Step(number, line[2:], []))
        elif steps:
            steps[-1].output.append(line)
        else:
            raise ValueError(f"{block.page}:{number}: a block of console starts with a command behind '$ '")
    return steps


def without_code(text: str) -> str:
    text = re.sub(r"^```.*?^```\s*$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(page: pathlib.Path) -> set:
    """What GitHub makes of a page's headings: lower case, words joined by hyphens; repeated ones are numbered."""
    found: set = set()
    fenced = re.sub(r"^```.*?^```\s*$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#{1,6} +(.+?) *$", fenced, flags=re.MULTILINE):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        base = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        name, count = base, 0
        while name in found:
            count += 1
            name = f"{base}-{count}"
        found.add(name)
    return found


def links(page: pathlib.Path) -> list:
    """(line, target) of every link and picture."""
    found = []
    text = re.sub(r"^```.*?^```\s*$", lambda block: "\n" * block[0].count("\n"), page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for number, line in enumerate(text.splitlines(), start=1):
        line = re.sub(r"`[^`]*`", "code", line)
        for target in re.findall(r"\]\(([^)\s]+)\)", line) + re.findall(r'(?:src|srcset|href)="([^"]+)"', line):
            found.append((number, target))
    return found
