"""Holds docs/command.md to the command's own help:  command_reference.py DEAR [--write]

Between `<!-- help of COMMAND -->` and `<!-- end of help -->` the page has what `COMMAND --help` says, as a table. --write
brings these parts up to date; without it the page is compared, and a difference is an error. Every command of DEAR must
have its part there.
"""

import difflib
import pathlib
import re
import subprocess
import sys
import typing

PAGE = pathlib.Path(__file__).resolve().parent.parent.parent / "docs" / "command.md"
PART = re.compile(r"(<!-- help of (.+?) -->\n)(.*?)(<!-- end of help -->)", re.DOTALL)
# Marks of examples, see pages.py: docs.commands runs what has none. calls_test.py looks at the options of all.
MARKS = {
    "dear launch": "not run: the program is the reader's",
    "dear diagnose": "not run: the program is the reader's",
    "dear profile": "not run: the file is the reader's",
    "dear train": "not run: minutes",
    "dear tune training": "not run: minutes",
    "dear pipeline train": "not run: minutes",
    "dear trace summary": "needs torch",
    "dear replay": "not run: minutes",
    "dear bench collective": "not run: minutes",
    "dear bench links": "not run: the links are those of the machine",
    "dear aggregate": "not run: half a minute",
    "dear study paper": "not run: half a minute",
    "dear study partel": "not run: seconds, in the tests of the study",
    "dear study wireless": "not run: seconds, in the tests of the study",
    "dear study kfac": "not run: seconds, in the tests of the study",
    "dear study sparse": "not run: seconds, in the tests of the study",
    "dear study homomorphic": "not run: seconds, in the tests of the study",
    "dear study fusionllm": "not run: seconds, in the tests of the study",
    "dear study rounds": "not run: seconds, in the tests of the study",
    "dear study calibration": "not run: seconds, in the tests of the study",
    "dear man": "not run: needs man",
}
HELP_COLUMN = 30  # where the command's help puts descriptions


class Entry(typing.NamedTuple):
    head: str  # "--model M[,M...] ... REQUIRED"
    text: str


class Help(typing.NamedTuple):
    usage: str
    summary: str
    sections: dict  # "Options" -> entries
    footer: str


def read_help(text: str) -> Help:
    """The parts of what CLI11 prints."""
    before, _, rest = text.partition("Usage: ")
    usage, _, rest = rest.partition("\n")
    sections, footer, entries = {}, [], None
    lines = rest.splitlines()
    for line in lines:
        if re.fullmatch(r"(Positionals|Options|Subcommands):", line):
            entries = sections.setdefault(line[:-1], [])
        elif entries is not None and line.startswith(" " * HELP_COLUMN):
            entries[-1] = entries[-1]._replace(text=(entries[-1].text + " " + line.strip()).strip())
        elif entries is not None and line.startswith("  "):
            beside = line[HELP_COLUMN - 2 : HELP_COLUMN] == "  " and len(line) > HELP_COLUMN  # else below
            column = HELP_COLUMN if beside else len(line)
            entries.append(Entry(line[:column].strip(), line[column:].strip()))
        elif line.strip() or footer:
            entries = None
            footer.append(line)
    return Help(usage.strip(), before.strip(), sections, "\n".join(footer).strip())


def cell(text: str) -> str:
    """A table's cell: what Markdown or HTML would take for its own outside of code is escaped."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part.replace("|", "\\|") if part.startswith("`") else re.sub(r"([|<>*_\[\]])", r"\\\1", part) for part in parts)


def option_row(entry: Entry) -> str:
    names, _, value = entry.head.partition(" ")
    options = ", ".join(f"`{name}{' ' + value if value and name.startswith('--') else ''}`" for name in names.split(","))
    text, required = entry.text, ""
    if text.endswith("(required)"):
        text, required = text.removesuffix("(required)"), "required"
    default = re.search(r" \(default: ([^()]*)\)$", text)
    if default:
        text, required = text[: default.start()], f"`{default[1]}`"
    return f"| {options} | {required} | {cell(text.strip())} |"


def markdown(command: str, text: str) -> str:
    found = read_help(text)
    out = [f"{cell(found.summary[:1].upper() + found.summary[1:])}.\n", f"```text\n{found.usage}\n```\n"]
    commands = found.sections.get("Subcommands", [])
    if commands:
        out.append("| command | what it does |\n|---|---|")
        out += [f"| [`{command} {entry.head}`](#{(command + ' ' + entry.head).replace(' ', '-')}) | {cell(entry.text[:1].upper() + entry.text[1:])} |"
                for entry in commands]
        out.append("")
    rows = [option_row(entry) for entry in found.sections.get("Positionals", [])]
    rows += [option_row(entry) for entry in found.sections.get("Options", []) if not entry.head.startswith("-h,--help")]
    if rows:
        out.append("| option | default | meaning |\n|---|---|---|")
        out += rows
        out.append("")
    if found.footer:
        mark = f"<!-- {MARKS[command]} -->\n" if command in MARKS else ""
        out.append(re.sub(r"^For example: (.+)$", lambda call: f"{mark}```sh\n{call[1]}\n```", found.footer, flags=re.MULTILINE) + "\n")
    return "\n".join(out)


def help_of(dear: str, command: str) -> str:
    return subprocess.run([dear, *command.split()[1:], "--help"], capture_output=True, text=True, check=True).stdout


def all_commands(dear: str, command: str = "dear") -> list:
    inner = read_help(help_of(dear, command)).sections.get("Subcommands", [])
    return [command] + [name for entry in inner for name in all_commands(dear, f"{command} {entry.head}")]


def main() -> None:
    dear, *rest = sys.argv[1:]
    old = PAGE.read_text(encoding="utf-8")
    commands = all_commands(dear)
    named = [part[1] for part in PART.findall(old)]
    if sorted(named) != sorted(commands):
        sys.exit(f"docs/command.md has the help of {', '.join(named)}; the commands are {', '.join(commands)}")
    new = PART.sub(lambda part: f"{part[1]}\n{markdown(part[2], help_of(dear, part[2]))}\n{part[4]}", old)
    if "--write" in rest:
        PAGE.write_text(new, encoding="utf-8")
    elif new != old:
        sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), new.splitlines(True), "docs/command.md", "the command's help"))
        sys.exit("docs/command.md is not what the command's help says: run tests/docs/command_reference.py DEAR --write")


if __name__ == "__main__":
    main()
