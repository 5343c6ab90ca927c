#!/usr/bin/env python3
"""Checks the structure of the source tree.

  check_layers.py ROOT

- a folder includes only folders on lower lines of the ladder (ROOT/cmake/ladder.txt)
- ... and only those that its CMakeLists.txt links, directly or through another folder
- a header has at most 200 lines, a source 400, a test 600, unless a comment `// size: reason` says why
- the headers that are installed (ROOT/cmake/public_headers.txt) exist, include only one another, and are all that the
  examples and the consumer's project include
- a folder has at most 6000 lines without its tests
- no folder or file is called utils, common, misc or helpers

Prints one line per violation; exit code 1 when there is one.
"""

import pathlib
import re
import sys

SIZES = {"header": 200, "source": 400, "test": 600, "folder": 6000}
FORBIDDEN = {"util", "utils", "common", "misc", "helper", "helpers"}
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]dear/([^"/>]+)/[^">]*[">]')
INCLUDE_OF_HEADER = re.compile(r'^\s*#\s*include\s*["<]dear/([^">]+)[">]')
SIZE_REASON = re.compile(r"//\s*size:\s*\S+")
CMAKE_CALL = re.compile(r"\bdear_(library|module|program|test)\s*\(([^)]*)\)")
KEYWORDS = {"SOURCES", "USES", "LIBRARIES", "PRIVATE_LIBRARIES", "INTERNAL", "TIMEOUT", "LABELS"}


def read_ladder(text):
    """{folder: level}"""
    levels = {}
    for line in text.splitlines():
        words = line.split("#")[0].split()
        for folder in words[1:]:
            levels[folder] = int(words[0])
    return levels


def uses_in(cmake):
    """The folders after USES in the calls of a CMakeLists.txt."""
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
        self.levels = read_ladder((self.root / "cmake" / "ladder.txt").read_text())
        self.folders = {}
        for folder in self.levels:
            for path in (self.root / "dear" / folder, self.root / folder):
                if path.is_dir():
                    self.folders[folder] = path
        # A library may be a part of its folder: cli_core is of cli.
        self.uses = {
            folder: {
                used
                for cmake in path.rglob("CMakeLists.txt")
                for name in uses_in(cmake.read_text())
                for used in (name, name.split("_")[0])
                if used in self.levels and used != folder
            }
            for folder, path in self.folders.items()
        }

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

    def sources(self, path):
        return sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES)

    def violations(self):
        yield from self.unknown_folders()
        yield from self.forbidden_names()
        yield from self.public_headers()
        for folder, path in sorted(self.folders.items()):
            yield from self.links(folder, path)
            product = 0
            for file in self.sources(path):
                lines = file.read_text().splitlines()
                yield from self.includes(folder, file, lines)
                yield from self.size(file, lines)
                if "_test" not in file.stem and "testing" not in file.relative_to(path).parts:
                    product += len(lines)
            if product > SIZES["folder"]:
                yield (
                    f"{self.name(path)}: {product} lines without tests, a folder has at most {SIZES['folder']}; "
                    "find the two ideas in it"
                )

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
        for path in sorted((self.root / "dear").iterdir()):
            if path.is_dir() and path.name not in self.levels:
                yield f"{self.name(path)}: not on the ladder; give it a line in cmake/ladder.txt"

    def forbidden_names(self):
        for top in ("dear", "bench", "examples", "tests", "scripts", "cmake", "docs", "python"):
            for path in sorted((self.root / top).rglob("*")):
                if path.name.split(".")[0] in FORBIDDEN:
                    yield f"{self.name(path)}: a name that says nothing; name the idea that the code is about"

    def links(self, folder, path):
        for used in sorted(self.uses[folder]):
            if self.levels[used] >= self.levels[folder]:
                yield f"{self.name(path)}/CMakeLists.txt: uses {used}, which is not on a lower line of the ladder"

    def includes(self, folder, file, lines):
        reachable = self.reachable(folder)
        for number, line in enumerate(lines, 1):
            match = INCLUDE.match(line)
            if not match or match.group(1) == folder:
                continue
            used = match.group(1)
            place = f"{self.name(file)}:{number}"
            if used not in self.levels:
                yield f"{place}: includes dear/{used}, which is not on the ladder"
            elif self.levels[used] >= self.levels[folder]:
                yield f"{place}: {folder} includes {used}, which is not on a lower line of the ladder"
            elif used not in reachable:
                yield f"{place}: {folder} includes {used}, which its CMakeLists.txt does not use"

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
    violations = list(tree.violations())
    for violation in violations:
        print(violation)
    print(f"{len(tree.folders)} folders of the ladder checked, {len(violations)} violations")
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    main()
