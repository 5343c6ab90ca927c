"""Every call of dear that a page shows, run or not, is one that the command knows:  calls_test.py DEAR

Commands and options are those of the command's help; models, devices and clusters, in blocks, are files or names that it lists.
"""

import itertools
import pathlib
import re
import shlex
import subprocess
import sys
import typing
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import command_reference
import pages

DEAR = ""
LISTED = {"--model": "dear models", "--device": "dear models", "--cluster": "dear clusters"}
LISTED_OF_PIPELINES = {**LISTED, "--cluster": "dear pipeline clusters"}
NETWORKS = {"1gbit", "10gbe", "100gbib"}  # which --cluster takes, too


class Call(typing.NamedTuple):
    command: str  # "dear trace summary"
    options: list  # pairs of a name and the word behind it, or ""
    rest: list  # other words


def calls_of(line: str, commands: list) -> list:
    """The calls of dear in a line of a shell. ValueError for quotation marks that are not closed."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found = []
    for separates, words in itertools.groupby(lexer, lambda word: not word.strip("();<>|&")):
        called = list(itertools.dropwhile(lambda word: word != "dear", () if separates else words))
        if called:
            command = called.pop(0)
            while called and f"{command} {called[0]}" in commands:
                command += f" {called.pop(0)}"
            found.append(split_call(command, called))
    return found


def split_call(command: str, words: list) -> Call:
    options, rest = [], []
    for at, word in enumerate(words):
        follows = words[at + 1] if at + 1 < len(words) else ""
        if word == "--":
            break
        if re.match("--?[a-z]", word):
            name, equals, value = word.partition("=")
            options.append((name, value if equals else follows))
        else:
            rest.append(word)
            if command == "dear launch" and at > 0 and not words[at - 1].startswith("-"):
                break  # the program, with options of its own
    return Call(command, options, rest)


class Known:
    """What the command says of itself."""

    def __init__(self, dear: str):
        self.commands = command_reference.all_commands(dear)
        helps = {command: command_reference.read_help(command_reference.help_of(dear, command)) for command in self.commands}
        self.options = {
            command: {name for entry in found.sections.get("Options", []) for name in entry.head.partition(" ")[0].split(",")}
            for command, found in helps.items()
        }
        self.inner = {command for command, found in helps.items() if "Subcommands" in found.sections}
        self.names = {}
        for command in {*LISTED.values(), *LISTED_OF_PIPELINES.values()}:
            listed = subprocess.run([dear, *command.split()[1:]], capture_output=True, text=True, check=True).stdout
            self.names[command] = {line.split()[0] for line in listed.splitlines() if line}

    def faults(self, line: str, in_block: bool) -> list:
        found = []
        for call in calls_of(line, self.commands):
            if call.command in self.inner and call.rest and re.fullmatch("[a-z]+", call.rest[0]) and not call.options:
                found.append(f"{call.command} has no command {call.rest[0]}")
            listed = LISTED_OF_PIPELINES if call.command.startswith("dear pipeline") else LISTED
            for name, value in call.options:
                if name not in self.options[call.command]:
                    found.append(f"{call.command} has no option {name}")
                elif in_block and name in listed:
                    words = [one for one in value.split(",") if re.fullmatch(r"[a-z0-9][a-z0-9-]*", one)]
                    found += [f"{listed[name]} has no {one}" for one in words if one not in self.names[listed[name]] | NETWORKS]
        return found


class Calls(unittest.TestCase):
    known: Known

    @classmethod
    def setUpClass(cls) -> None:
        cls.known = Known(DEAR)

    def test_of_the_pages_are_known(self) -> None:
        seen = 0
        for page in [pages.ROOT / "README.md", *sorted((pages.ROOT / "docs").rglob("*.md")), *sorted((pages.ROOT / "examples").rglob("*.md"))]:
            blocks = [block for block in pages.read_blocks(page) if block.language in ("console", "sh")]
            shown = [(f"{block.page}:{step.line}", step.command, True) for block in blocks for step in pages.steps_of(block)]
            text = re.sub(r"^```.*?^```\s*$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
            shown += [(page.name, code, False) for code in re.findall(r"`(dear [^`]*)`", text)]
            for place, line, in_block in shown:
                with self.subTest(place=place, line=line):
                    seen += 1
                    self.assertEqual(self.known.faults(line, in_block), [])
        self.assertGreater(seen, 100)

    def test_that_are_not_known_are_found(self) -> None:
        for line, fault in (
            ("dear simulate collective --size 1GiB", "no option --size"),
            ("mpirun -n 2 dear train --worker 2", "no option --worker"),
            ("dear trace sumary run.json", "no command sumary"),
            ("dear simulate --cluster themis-3d-sw-sw-sw-hetero", "dear clusters has no themis-3d-sw-sw-sw-hetero"),
            ("dear train --trace a.json && dear plan --model=resnet51", "dear models has no resnet51"),
        ):
            self.assertIn(fault, "".join(self.known.faults(line, True)))
        self.assertEqual(self.known.faults("dear launch -n 4 -- ./program --an-option-of-its-own", True), [])
        self.assertEqual(self.known.faults("dear launch -n 4 python train.py --epochs 3 | tee log", True), [])


if __name__ == "__main__":
    DEAR = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
