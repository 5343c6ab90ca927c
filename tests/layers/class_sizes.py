"""Counts the methods of C++ classes, as far as a reader without a compiler can."""

import re
from collections.abc import Iterator

CLASS = re.compile(r"\b(?:class|struct)\s+(?:\[\[\w+\]\]\s+)?((?:\w+::)*\w+)(?:\s+final)?\s*(?::[^;{]*)?\{")
NO_METHOD = re.compile(r"(?:using|friend|typedef|static_assert|enum|struct|class|template <[^>]*> class)\b")


def _statements(text: str, begin: int) -> Iterator[str]:
    """What stands directly in the braces that open before `begin`, without inner braces."""
    depth, statement = 1, ""
    for letter in text[begin:]:
        if letter in "{}":
            depth += 1 if letter == "{" else -1
            if depth == 0:
                return
        if depth == 1 and letter in ";}":
            yield statement
            statement = ""
        elif depth == 1:
            statement += letter


def _is_method(statement: str, name: str) -> bool:
    statement = re.sub(r"^\s*(?:(?:public|private|protected)\s*:\s*)*", "", statement).strip()
    if NO_METHOD.match(statement):
        return False
    while (plain := re.sub(r"<[^<>]*>", "", statement)) != statement:
        statement = plain
    found = re.search(r"(~?\w+|operator\s*\S+?)\s*\(", statement if "operator" in statement else statement.split("=")[0])
    # Constructors, the destructor and what copies or moves come with every class.
    return found is not None and found.group(1).lstrip("~") != name and "operator=(" not in statement


def methods(text: str) -> Iterator[tuple[str, int]]:
    """Each class that a source defines, and how many methods it has."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    text = re.sub(r'"(?:\\.|[^"\\\n])*"', '""', text)
    for match in CLASS.finditer(text):
        if not re.search(r"\benum\s*$", text[: match.start()]):
            name = match.group(1)
            yield name, sum(_is_method(one, name.split("::")[-1]) for one in _statements(text, match.end()))
