"""Comments of C++ and docstrings of Python as Markdown of the site."""

import re
import typing

# In the order in which they are tried: code as it is, an address, a page, a call, a qualified name, an option, a name.
_TOKEN = re.compile(
    r"(?P<code>`[^`]+`)"
    r"|(?P<address>https?://[^\s)>]+[^\s)>.,;:])"
    r"|(?P<page>\bdocs/[\w/]+\.md\b)"
    r"|(?P<name>(?<![\w/.])(?:"
    r"~?\w+(?:(?:::|\.)~?\w+)*\(\)"
    r"|[A-Za-z_]\w*(?:::~?\w+)+"
    r"|(?:dear|torch)(?:\.\w+)+"
    r"|--[a-z][\w-]*"
    r"|[A-Za-z]\w*_\w+|_\w+|[A-Za-z]\w*_\b"
    r"))"
)
_SPECIAL = re.compile(r"([\\`*_{}\[\]#])")
_ITEM = re.compile(r"^[-*] ")


def escape(text: str) -> str:
    text = _SPECIAL.sub(r"\\\1", text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def inline(text: str, link: typing.Callable[[str], str] = lambda name: "") -> str:
    """A sentence: names become code, and what `link` knows an address for (else it returns "") becomes a link."""
    parts, end = [], 0
    for token in _TOKEN.finditer(text):
        parts.append(escape(text[end : token.start()]))
        end = token.end()
        if token["code"]:
            shown, target = token["code"], link(token["code"].strip("`"))
        elif token["address"]:
            shown, target = escape(token["address"]), token["address"]
        else:
            shown, target = code(token[0]), link(token[0])
        parts.append(f"[{shown}]({target})" if target else shown)
    parts.append(escape(text[end:]))
    text = "".join(parts)
    # A line that begins like a list or a heading would become one.
    return re.sub(r"^(\d+)\. ", r"\1\\. ", re.sub(r"^([-+>=]) ", r"\\\1 ", text))


def block(lines: typing.Iterable[str], language: str) -> list:
    return ["", f"```{language}", *lines, "```", ""]


def prose(
    lines: list,
    link: typing.Callable[[str], str] = lambda name: "",
    names: typing.Container = (),
    language: str = "text",
) -> list:
    """Lines as they stand in a comment or docstring, without what marks them as one.

    A blank line ends a paragraph. Lines that are indented are shown as they are. "- " begins an item, and so does "name: ",
    where `names` has the name; lines that are indented go on with it.
    """
    made: list = []
    paragraph: list = []
    item = False
    shown: list = []

    def flush() -> None:
        nonlocal item
        if paragraph:
            made.append(("- " if item else "") + inline(" ".join(paragraph), link))
            if not item:
                made.append("")
        paragraph.clear()

    def flush_shown() -> None:
        while shown and not shown[-1]:
            shown.pop()
        if shown:
            depth = min(len(line) - len(line.lstrip()) for line in shown if line)
            made.extend(block([line[depth:] for line in shown], language))
        shown.clear()

    for line in lines:
        line = line.rstrip()
        begins = re.match(r"^((?:\*{0,2}\w+)(?:, \*{0,2}\w+)*): +", line)
        named = begins is not None and all(name.strip("* ") in names for name in begins[1].split(","))
        if not line.strip():
            flush()
            if shown:
                shown.append("")
            elif item:
                made.append("")
            item = False
        elif line.startswith("  ") and not item:
            flush()
            shown.append(line)
        elif named or _ITEM.match(line):
            flush_shown()
            flush()
            if not item and made and made[-1]:
                made.append("")
            item = True
            if named:
                paragraph.append(
                    ", ".join(f"`{name.strip()}`" for name in begins[1].split(",")) + ": " + line[begins.end() :]
                )
            else:
                paragraph.append(line[2:])
        elif item and not line.startswith(" "):
            flush()
            made.append("")
            item = False
            paragraph.append(line)
        else:
            flush_shown()
            paragraph.append(line.strip())
    flush_shown()
    flush()
    return made + [""]
