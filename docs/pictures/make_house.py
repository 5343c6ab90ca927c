"""Draws the storeys of dear/ and the way of a gradient:  make_house.py [--check]

The storeys and their folders come from cmake/storeys.txt, the arrows from USES in the CMakeLists.txt of their products.
Writes house-THEME.svg and gradient-THEME.svg beside this file. With --check it writes nothing, and fails when these
files would change. Either way it fails when a call of the way is not in the folder that is named for it, or when
ARCHITECTURE.md has the way otherwise.
"""

import pathlib
import re
import sys
import typing

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "layers"))
from check_layers import BESIDE, CMAKE_CALL, KEYWORDS, TARGET, read_storeys  # noqa: E402

# Storeys that are no room: each with what is said of it below the picture.
OUTSIDE = {
    "testing": "dear/testing is no product: tests of several storeys share it.",
    "studies": "studies/ stands on tools.",
    "python": "python/ binds systems, train, comm and tools.",
    "bench": "bench/ measures.",
}
CHARACTER = 7.3  # as wide as in most fonts that may be taken, in pixels at 12 px


class Room(typing.NamedTuple):
    row: int
    left: int  # in twelfths of the width
    right: int
    what: str


PLAN = {
    "tools": Room(0, 0, 12, "what is started: the command dear, replays and benchmarks"),
    "systems": Room(1, 0, 12, "related systems, live, and the trainings of the command"),
    "train": Room(2, 5, 12, "live training on libtorch"),
    "methods": Room(2, 0, 5, "what a related system plans"),
    "comm": Room(3, 7, 12, "groups of ranks, and what carries their bytes"),
    "predict": Room(3, 0, 7, "virtual time: simulate, plan, tune"),
    "schedule": Room(4, 0, 12, "steps, lanes, edges; who drives them"),
    "workload": Room(5, 0, 4, "layers, tensors, their times"),
    "platform": Room(5, 4, 12, "clusters, collectives as data, what they cost"),
    "base": Room(6, 0, 12, "words, files, processes and their launcher; no idea of training"),
}


class Call(typing.NamedTuple):
    call: str
    folder: str
    thread: str
    words: str
    next: tuple = ()  # rows that follow from it, if not the next one


THREADS = ("program", "group", "update")
WAY = (
    Call("BackwardPasses::gradient_arrived", "train/data_parallel", "program", "a hook of autograd calls it"),
    Call("Conductor::backward_done", "schedule/conductor", "program", "the layer has all its gradients"),
    Call("Frontier::complete", "schedule/graph", "program", "says what may start now"),
    Call("BucketWire::start", "comm/buckets", "program", "makes a request for the bucket"),
    Call("Group::issue", "comm/group", "program", "queues it"),
    Call("Backend::run", "comm/group", "group", "ranks meet; each reduces its shard"),
    Call("Conductor::ended", "schedule/conductor", "group", "the reduction is done", (9,)),
    Call("Conductor::commit", "schedule/conductor", "program", "step(): gradients are final", (9,)),
    Call("BucketUpdates::update", "train/engine", "update", "the optimiser updates the shard"),
    Call("Conductor::wait_parameters", "schedule/conductor", "program", "before the next forward reads"),
)
LAST_ARROW = "all-gather, as in 3 to 7"


class Theme(typing.NamedTuple):
    text: str
    faint: str
    line: str
    fills: dict


STOREYS = (
    "command",
    "tools",
    "systems",
    "train",
    "methods",
    "comm",
    "predict",
    "schedule",
    "workload",
    "platform",
    "base",
)
THEMES = {
    "light": Theme(
        "#1f2328",
        "#57606a",
        "#656d76",
        dict(
            zip(
                STOREYS,
                (
                    "#f3cfc6",
                    "#f6d9b8",
                    "#d9d7f7",
                    "#cfe3fd",
                    "#e6d5f5",
                    "#c9ead3",
                    "#f9dfe6",
                    "#fbe8a6",
                    "#d6ecec",
                    "#dce3c8",
                    "#e4e7eb",
                ),
            )
        ),
    ),
    "dark": Theme(
        "#e6edf3",
        "#b1bac4",
        "#9198a1",
        dict(
            zip(
                STOREYS,
                (
                    "#5e2f27",
                    "#5e4222",
                    "#37336b",
                    "#1f4173",
                    "#47316b",
                    "#1f5233",
                    "#632c42",
                    "#5c4a10",
                    "#1d4f52",
                    "#454d25",
                    "#373e47",
                ),
            )
        ),
    ),
}


def product_uses(cmake: str) -> set:
    """The targets after USES of what is no test."""
    found = set()
    for call in CMAKE_CALL.finditer(re.sub(r"#.*", "", cmake)):
        words = call[2].split()
        if "test" in call[1] or "testing" in words[0]:
            continue
        keyword = None
        for word in words:
            if word in KEYWORDS:
                keyword = word
            elif keyword == "USES":
                found.add(word)
    return found


class House:
    """Folders by storey, and which storeys a storey uses, directly."""

    def __init__(self) -> None:
        self.folders = dict(read_storeys((ROOT / "cmake" / "storeys.txt").read_text(encoding="utf-8")))
        unknown = set(self.folders) ^ (set(PLAN) | set(OUTSIDE))
        if unknown:
            sys.exit(f"{', '.join(sorted(unknown))}: in only one of cmake/storeys.txt and PLAN, OUTSIDE of {__file__}")
        texts, storey_of = {}, {}
        for storey, folders in self.folders.items():
            top = ROOT / storey if storey == BESIDE or not folders else ROOT / "dear" / storey
            makes = [make for folder in folders or ["."] for make in (top / folder).rglob("CMakeLists.txt")]
            texts[storey] = "\n".join(make.read_text(encoding="utf-8") for make in makes)
            for target in TARGET.findall(re.sub(r"#.*", "", texts[storey])):
                storey_of[target] = storey
        self.uses = {}
        for storey, text in texts.items():
            self.uses[storey] = {storey_of[target] for target in product_uses(text) if target in storey_of} - {storey}

    def reaches(self, storey: str) -> set:
        return self.uses[storey].union(*(self.reaches(used) for used in self.uses[storey]))

    def arrows(self) -> list:
        """(from, to) between rooms, without those that others imply."""
        found = []
        for storey in PLAN:
            implied = set().union(*(self.reaches(used) for used in self.uses[storey]))
            found += [(storey, used) for used in PLAN if used in self.uses[storey] - implied]
        return found


class Picture:
    def __init__(self, width: float, height: float, title: str, theme: Theme) -> None:
        self.theme = theme
        self.lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
            f'height="{height:.0f}" font-family="Helvetica, Arial, sans-serif" font-size="12" fill="{theme.text}">',
            f"<title>{title}</title>",
            '<defs><marker id="tip" markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto">'
            f'<path d="M0 0L9 4L0 8z" fill="{theme.line}"/></marker></defs>',
        ]

    def text(self, x: float, y: float, words: str, more: str = "") -> None:
        self.lines.append(f'<text x="{x:.1f}" y="{y:.1f}" {more}>{words}</text>')

    def box(self, x: float, y: float, wide: float, high: float, storey: str) -> None:
        self.lines.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}" rx="4" '
            f'fill="{self.theme.fills[storey]}"/>'
        )

    def line(self, points: list, more: str = 'marker-end="url(#tip)"') -> None:
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        self.lines.append(f'<path d="M{path}" stroke="{self.theme.line}" stroke-width="1.3" fill="none" {more}/>')

    def done(self) -> str:
        return "\n".join([*self.lines, "</svg>"]) + "\n"


def wrapped(words: list, wide: float) -> list:
    lines = [""]
    for word in words:
        longer = f"{lines[-1]}   {word}".strip()
        if lines[-1] and len(longer) * CHARACTER > wide:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def draw_house(house: House, theme: Theme) -> str:
    width, margin, gap, pad, line = 860.0, 6.0, 26.0, 12.0, 17.0
    sides = {
        storey: (margin + (width - 2 * margin) * room.left / 12, margin + (width - 2 * margin) * room.right / 12)
        for storey, room in PLAN.items()
    }
    sides = {
        storey: (left + (5 if PLAN[storey].left else 0), right - (5 if PLAN[storey].right < 12 else 0))
        for storey, (left, right) in sides.items()
    }
    names = {storey: wrapped(house.folders[storey], sides[storey][1] - sides[storey][0] - 2 * pad) for storey in PLAN}
    rows = max(room.row for room in PLAN.values()) + 1
    heights = [
        max(31 + line * (1 + len(names[s])) for s, room in PLAN.items() if room.row == row) for row in range(rows)
    ]
    tops = [margin + sum(heights[:row]) + gap * row for row in range(rows)]
    bottoms = {s: tops[room.row] + heights[room.row] for s, room in PLAN.items()}
    notes = [
        "An arrow says: uses. Arrows that others imply are left out; none points upward.",
        OUTSIDE["testing"],
        " ".join(OUTSIDE[storey] for storey in house.folders if storey in OUTSIDE and storey != "testing"),
    ]
    picture = Picture(width, tops[-1] + heights[-1] + 20 + line * len(notes), "The storeys of dear/", theme)
    for storey, room in PLAN.items():
        left, right = sides[storey]
        picture.box(left, tops[room.row], right - left, bottoms[storey] - tops[room.row], storey)
        y = tops[room.row] + 20
        picture.text(left + pad, y, storey, 'font-weight="bold" font-size="14"')
        for number, words in enumerate([room.what, *names[storey]]):
            colour = f'fill="{theme.faint}"' if number else ""
            picture.text(left + pad, y + line * (1 + number), words, f'{colour} xml:space="preserve"')
    for upper, lower in house.arrows():
        left, right = max(sides[upper][0], sides[lower][0]), min(sides[upper][1], sides[lower][1])
        top = tops[PLAN[lower].row]
        if top - bottoms[upper] > gap + 0.1 or top <= bottoms[upper]:
            sys.exit(f"{upper} uses {lower}, which does not lie in the row below it in PLAN of {__file__}")
        # Two rooms that both use the same two cannot lie above both: the arrow to the one beside is slanted.
        start = end = (left + right) / 2
        if left >= right:
            start, end = sorted((right - 2 * pad, left + 2 * pad), reverse=sides[upper] > sides[lower])
        picture.line([(start, bottoms[upper] + 2), (end, top - 2)])
    for number, note in enumerate(notes):
        picture.text(margin, tops[-1] + heights[-1] + 22 + line * number, note, f'fill="{theme.faint}"')
    return picture.done()


def draw_way(theme: Theme) -> str:
    wide, between, high, gap, top = 300.0, 14.0, 58.0, 24.0, 34.0
    width = len(THREADS) * (wide + between)
    picture = Picture(width, top + len(WAY) * (high + gap) - gap + 8, "The way of a gradient under policy dear", theme)

    def left(thread: str) -> float:
        return between / 2 + THREADS.index(thread) * (wide + between)

    def y(row: int) -> float:
        return top + row * (high + gap)

    for thread in THREADS:
        rows = [row for row, call in enumerate(WAY) if call.thread == thread]
        label = f"{thread} lane's thread" if thread == "update" else f"{thread}'s thread"
        picture.text(left(thread) + wide / 2, 20, label, 'text-anchor="middle" font-weight="bold"')
        middle = left(thread) + wide / 2
        picture.line([(middle, y(min(rows))), (middle, y(max(rows)))], 'stroke-dasharray="2 5" stroke-opacity="0.7"')
    for row, call in enumerate(WAY):
        x = left(call.thread)
        picture.box(x, y(row), wide, high, call.folder.split("/")[0])
        picture.text(x + 10, y(row) + 18, f"{row + 1}   {call.call}", 'font-weight="bold"')
        picture.text(x + 28, y(row) + 34, call.folder, f'fill="{theme.faint}"')
        picture.text(x + 28, y(row) + 50, call.words)
    for row, call in enumerate(WAY[:-1]):
        for after in call.next or (row + 2,):
            start, end = left(call.thread) + wide / 2, left(WAY[after - 1].thread) + wide / 2
            bend = y(row) + high + gap / 2
            points = [(start, y(row) + high + 1), (start, bend), (end, bend), (end, y(after - 1) - 2)]
            picture.line(points)
    last = y(len(WAY) - 1)
    picture.text(left("group") + wide / 2, last - gap / 2 - 4, LAST_ARROW, f'text-anchor="middle" fill="{theme.faint}"')
    return picture.done()


def wrong_calls() -> list:
    """What is said of the way and does not hold."""
    found = []
    architecture = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| `([^`]+)` \| `([^`]+)` \| (\w+) \|", architecture, flags=re.MULTILINE)
    told = [(call, folder, thread) for _, call, folder, thread in rows]
    if told != [(call.call, call.folder, call.thread) for call in WAY]:
        found.append("the table of ARCHITECTURE.md has other calls, folders or threads than WAY")
    for call in WAY:
        owner, method = call.call.split("::")[-2:]
        declared = re.compile(rf"(?:class|struct) (?:\w+::)*{owner}\b[^;]*\{{.*?\b{method}\(", re.DOTALL)
        defined = re.compile(rf"\b{owner}::{method}\(")
        files = [file for file in (ROOT / "dear" / call.folder).glob("*.*") if "_test." not in file.name]
        texts = [(file.suffix, file.read_text(encoding="utf-8")) for file in files]
        if not any((defined if suffix == ".cpp" else declared).search(text) for suffix, text in texts):
            found.append(f"{call.call} is not in dear/{call.folder}")
    return found


def main() -> None:
    house = House()
    wrong = wrong_calls()
    stale = []
    for name, theme in THEMES.items():
        for what, picture in (("house", draw_house(house, theme)), ("gradient", draw_way(theme))):
            file = HERE / f"{what}-{name}.svg"
            if "--check" not in sys.argv[1:]:
                file.write_text(picture, encoding="utf-8")
            elif not file.exists() or file.read_text(encoding="utf-8") != picture:
                stale.append(file.name)
    if stale:
        wrong.append(f"{', '.join(stale)} in docs/pictures would change: run docs/pictures/make_house.py")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
