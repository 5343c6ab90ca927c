#!/usr/bin/env python3
"""Checks the structure of the source tree.

  check_layers.py ROOT

- a folder includes and links only folders of storeys below, or before it in its own (ROOT/cmake/storeys.txt)
- ... and only those that its CMakeLists.txt links, directly or through another folder
- no class has a friend in another folder, and no source defines a function of a class of another folder
- a header has at most 200 lines, a source 400, a test 600, unless a comment `// size: reason` says why
- the headers that are installed (ROOT/cmake/public_headers.txt) exist, include only one another, and are all that the
  examples and the consumer's project include
- a folder has at most 6000 lines without its tests, a storey 20000; a class has at most 40 methods
- no folder or file is called utils, common, misc or helpers
- words that gave way to the field's terms do not come back: Attendance, RollCall, LastWords, Bulletin, OnStreams, ...

Prints one line per violation; exit code 1 when there is one.
"""

import pathlib
import re
import sys

from class_sizes import methods

SIZES = {"header": 200, "source": 400, "test": 600, "folder": 6000, "storey": 20000, "class": 40}
FORBIDDEN = {"util", "utils", "common", "misc", "helper", "helpers"}
# What stood for: participation, announcements, failure detection, a queue of completions or transfers, training on streams,
# the executor of updates, rebuilding, monitoring, the trainer.
GONE = re.compile(
    r"\b(Attendance|RollCall|LastWords|Bulletin|OnStreams|BesideExecutor|Anew|Watching|GradientCall|hand_in|in_between"
    r"|roll call|NamedLine|DirectLine|DataParallel::Impl)\b"
)
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
BESIDE = "studies"  # the storey that lies beside dear/
OF_TESTS = "testing"  # the storey that is no product, and the folders of tests
# Known, and to go: each is a beginning of a line that is not reported, and has to be there.
OPEN = []
INCLUDE = re.compile(r'^\s*#\s*include\s*["<](dear/[^"/>]+/[^"/>]+|studies/[^"/>]+)/[^">]*[">]')
INCLUDE_OF_HEADER = re.compile(r'^\s*#\s*include\s*["<]dear/([^">]+)[">]')
SIZE_REASON = re.compile(r"//\s*size:\s*\S+")
CMAKE_CALL = re.compile(r"\bdear_(library|module|program|test|mpi_test)\s*\(([^)]*)\)")
TARGET = re.compile(r"\b(?:dear_library\s*\(\s*|add_library\s*\(\s*dear_)(\w+)")
KEYWORDS = {"SOURCES", "USES", "LIBRARIES", "PRIVATE_LIBRARIES", "INTERNAL", "TIMEOUT", "LABELS", "REPEATS", "PLAIN", "HEADER"}
FRIEND = re.compile(r"^\s*friend (?:class|struct) (?:\w+::)*(\w+);")
CLASS = re.compile(r"^\s*(?:template <[^>]*>\s*)?(?:class|struct)\s+(?:\[\[\w+\]\]\s+)?((?:\w+::)*\w+)(?:\s+final)?\s*(?:[:{]|$)")
METHOD = re.compile(r"^[A-Za-z_][\w:<>,&*\s\[\]]*?\b(\w+)::~?\w+\([^;]*$")


def read_storeys(text):
    """[(storey, [folder, ...]), ...] from the lowest on."""
    lines = [line.split("#")[0].split() for line in text.splitlines()]
    return [(words[0], words[1:]) for words in lines if words]


def uses_in(cmake):
    """The targets after USES in the calls of a CMakeLists.txt."""
    found = set()
    for call in CMAKE_CALL.finditer(re.sub(r"#.*", "", cmake)):
        keyword = None
        for word in call.group(2).split():
            if word in KEYWORDS:
                keyword = word
            elif keyword == "USES":
                found.add(word)
    return found


class Tree:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.storeys = read_storeys((self.root / "cmake" / "storeys.txt").read_text())
        self.levels = {}  # {folder as its path from ROOT: (storey, place in it)}
        for level, (storey, folders) in enumerate(self.storeys):
            paths = [f"studies/{f}" if storey == BESIDE else f"dear/{storey}/{f}" for f in folders] or [storey]
            for place, path in enumerate(paths):
                self.levels[path] = (level, place)
        self.folders = {name: self.root / name for name in self.levels if (self.root / name).is_dir()}
        self.texts = {
            name: {file: file.read_text().splitlines() for file in self.sources(path)}
            for name, path in self.folders.items()
        }
        makes = {
            name: "\n".join(cmake.read_text() for cmake in path.rglob("CMakeLists.txt"))
            for name, path in self.folders.items()
        }
        self.folder_of_target = {
            target: name for name, text in makes.items() for target in TARGET.findall(re.sub(r"#.*", "", text))
        }
        self.uses = {
            name: {self.folder_of_target[used] for used in uses_in(text) if used in self.folder_of_target} - {name}
            for name, text in makes.items()
        }
        self.folders_of_class = {}
        for name, files in self.texts.items():
            for file, lines in files.items():
                if self.of_tests(file, self.folders[name]):
                    continue
                for line, following in zip(lines, [*lines[1:], ""]):
                    match = CLASS.match(line)
                    if match and (line.rstrip()[-1] in "{}" or ":" in line or following.lstrip().startswith((":", "{"))):
                        self.folders_of_class.setdefault(match.group(1).split("::")[-1], set()).add(name)

    def reachable(self, folder):
        seen = set()
        waiting = [folder]
        while waiting:
            for used in self.uses.get(waiting.pop(), ()):
                if used not in seen:
                    seen.add(used)
                    waiting.append(used)
        return seen

    def name(self, path):
        return path.relative_to(self.root).as_posix()

    def of_tests(self, file, top):
        return "_test" in file.stem or OF_TESTS in file.relative_to(top).parts

    def sources(self, path):
        return sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES)

    def violations(self):
        yield from self.unknown_folders()
        yield from self.forbidden_names()
        yield from self.public_headers()
        of_storey = {}
        for folder in sorted(self.folders):
            yield from self.links(folder)
            product = 0
            for file, lines in self.texts[folder].items():
                yield from self.includes(folder, file, lines)
                yield from self.strangers(folder, file, lines)
                yield from self.size(file, lines)
                yield from self.gone_words(file, lines)
                if not self.of_tests(file, self.root):
                    product += len(lines)
                    yield from self.classes(file, lines)
            if product > SIZES["folder"]:
                yield (
                    f"{folder}: {product} lines without tests, a folder has at most {SIZES['folder']}; "
                    "find the two ideas in it"
                )
            storey = self.storeys[self.levels[folder][0]][0]
            of_storey[storey] = of_storey.get(storey, 0) + product
        for storey, lines in of_storey.items():
            if lines > SIZES["storey"]:
                yield f"{storey}: {lines} lines without tests, a storey has at most {SIZES['storey']}"

    def public_headers(self):
        listed = self.root / "cmake" / "public_headers.txt"
        public = {line for line in listed.read_text().splitlines() if line and not line.startswith("#")}
        for header in sorted(public):
            if not (self.root / "dear" / header).is_file():
                yield f"{self.name(listed)}: names dear/{header}, which is not there"
        users = [file for top in ("examples", "tests/consumer") for file in self.sources(self.root / top)]
        for file in [self.root / "dear" / header for header in sorted(public)] + users:
            if not file.is_file():
                continue
            for number, line in enumerate(file.read_text().splitlines(), 1):
                match = INCLUDE_OF_HEADER.match(line)
                if match and match.group(1) not in public:
                    yield (
                        f"{self.name(file)}:{number}: includes dear/{match.group(1)}, which is not installed; "
                        f"do without it, or add it to {self.name(listed)}"
                    )

    def unknown_folders(self):
        for top in (*(self.root / "dear").glob("*"), self.root / "studies"):
            for path in sorted(top.iterdir()) if top.is_dir() else ():
                if path.is_dir() and self.name(path) not in self.levels:
                    yield f"{self.name(path)}: in no storey; give it a place in cmake/storeys.txt"

    def forbidden_names(self):
        for top in ("dear", "studies", "bench", "examples", "tests", "scripts", "cmake", "docs", "python"):
            for path in sorted((self.root / top).rglob("*")):
                if path.name.split(".")[0] in FORBIDDEN:
                    yield f"{self.name(path)}: a name that says nothing; name the idea that the code is about"

    def links(self, folder):
        for used in sorted(self.uses[folder]):
            if self.levels[used] >= self.levels[folder]:
                yield f"{folder}/CMakeLists.txt: uses {used}, which is not below it"

    def includes(self, folder, file, lines):
        reachable = self.reachable(folder)
        for number, line in enumerate(lines, 1):
            match = INCLUDE.match(line)
            if not match or match.group(1) == folder:
                continue
            used = match.group(1)
            place = f"{self.name(file)}:{number}"
            if used not in self.levels:
                yield f"{place}: includes {used}, which is in no storey"
            elif self.levels[used] >= self.levels[folder]:
                yield f"{place}: {folder} includes {used}, which is not below it"
            elif used not in reachable:
                yield f"{place}: {folder} includes {used}, which its CMakeLists.txt does not use"

    def strangers(self, folder, file, lines):
        """Friends in other folders, and functions defined for their classes."""
        for number, line in enumerate(lines, 1):
            friend = FRIEND.match(line)
            if friend and folder not in self.folders_of_class.get(friend.group(1), {folder}):
                others = ", ".join(sorted(self.folders_of_class[friend.group(1)]))
                yield f"{self.name(file)}:{number}: a friend in another folder: {friend.group(1)} of {others}"
            method = METHOD.match(line) if file.suffix == ".cpp" else None
            if method and folder not in self.folders_of_class.get(method.group(1), {folder}):
                others = ", ".join(sorted(self.folders_of_class[method.group(1)]))
                yield f"{self.name(file)}:{number}: defines a function of {method.group(1)}, which is of {others}"

    def gone_words(self, file, lines):
        for number, line in enumerate(lines, 1):
            if word := GONE.search(line):
                yield f"{self.name(file)}:{number}: '{word.group()}' gave way to a term of the field: see check_layers.py"

    def classes(self, file, lines):
        for name, count in methods("\n".join(lines)):
            if count > SIZES["class"]:
                yield f"{self.name(file)}: {name} has {count} methods, a class has at most {SIZES['class']}; find the two in it"

    def size(self, file, lines):
        kind = "header" if file.suffix in (".h", ".cuh") else "test" if file.stem.endswith("_test") else "source"
        if len(lines) > SIZES[kind] and not any(SIZE_REASON.search(line) for line in lines):
            yield (
                f"{self.name(file)}: {len(lines)} lines, a {kind} has at most {SIZES[kind]}; "
                "divide it, or say why not in a comment `// size: reason`"
            )


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: check_layers.py ROOT")
    tree = Tree(sys.argv[1])
    found = list(tree.violations())
    violations = [line for line in found if not any(line.startswith(known) for known in OPEN)]
    violations += [f"is gone, take it out of OPEN: {known}" for known in OPEN if not any(line.startswith(known) for line in found)]
    for violation in violations:
        print(violation)
    print(f"{len(tree.folders)} folders in {len(tree.storeys)} storeys checked, {len(violations)} violations")
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    main()
