"""The reference of C++: pages from the headers that are installed, which cmake/public_headers.txt lists.

parse() reads what our headers are made of, not all of C++: comments of `//` before declarations, namespaces, classes, functions,
whose bodies are left out, and values.
"""

import pathlib
import re
import typing

import markup

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDER = "reference/cpp"
_TYPE = re.compile(
    r"^(?:template\s*<.*>\s*)?(class|struct|union|enum(?:\s+class)?)\s+(?:\[\[.*?\]\]\s*)?([\w:]+)", re.DOTALL
)
_NAMESPACE = re.compile(r"(?:inline\s+)?namespace\s*([\w:]*)\s*\{")
_ACCESS = re.compile(r"(public|protected|private)\s*:(?!:)")
_CLOSES = {"(": ")", "{": "}", "[": "]"}


class Declaration(typing.NamedTuple):
    text: str  # with its comments behind, without bodies of functions
    comment: list  # lines of the comment above it
    name: str  # of a type or function; "" for another
    kind: str  # "type", "function", "enum", "value"
    apart: bool  # a blank line, a comment or another access stands before it
    members: list  # of a class: those that are not private
    namespace: str


class Header(typing.NamedTuple):
    path: str  # below the root: dear/comm/group/group.h
    section: str
    includes: list
    about: list  # comments that stand before no declaration
    declarations: list


class Unreadable(ValueError):
    """A header that parse() cannot read: its place is in the message."""


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.includes: list = []
        self.about: list = []

    def end_of_line(self, at: int) -> int:
        end = self.text.find("\n", at)
        return len(self.text) if end < 0 else end

    def behind_comment(self, at: int) -> int:
        """Behind the comment that stands on the same line, if one does."""
        rest = re.compile(r"[ \t]*//.*").match(self.text, at)
        return rest.end() if rest else at

    def skip_quoted(self, at: int) -> int:
        """Behind the string, character or comment that begins at `at`; `at` where none begins."""
        text = self.text
        if text.startswith("//", at):
            return self.end_of_line(at)
        if text.startswith("/*", at):
            return text.index("*/", at) + 2
        raw = re.compile(r'R"([^(]*)\(').match(text, at)
        if raw:
            return text.index(f'){raw[1]}"', at) + len(raw[1]) + 2
        quote = text[at]
        # A quote between digits parts thousands.
        if quote == '"' or (quote == "'" and not text[at - 1].isalnum()):
            end = at + 1
            while text[end] != quote:
                end += 2 if text[end] == "\\" else 1
            return end + 1
        return at

    def behind_balanced(self, at: int) -> int:
        """Behind what closes the bracket at `at`."""
        open_ones = [_CLOSES[self.text[at]]]
        at += 1
        while open_ones:
            if at >= len(self.text):
                raise Unreadable(f"line {self.text.count(chr(10), 0, self.at) + 1}: a bracket is never closed")
            after = self.skip_quoted(at)
            if after != at:
                at = after
                continue
            if self.text[at] in _CLOSES:
                open_ones.append(_CLOSES[self.text[at]])
            elif self.text[at] == open_ones[-1]:
                open_ones.pop()
            at += 1
        return at

    def scope(self, namespace: str, access: str) -> list:
        """The declarations up to the brace that closes the scope, or the end; `access` is "" in a namespace."""
        found: list = []
        comment: list = []
        shown, apart = access, True
        text = self.text
        while True:
            begin = self.at
            while self.at < len(text) and text[self.at].isspace():
                self.at += 1
            lines = text.count("\n", begin, self.at)
            if lines > 1:
                apart = True
                if comment and not access:
                    self.about += [*comment, ""]
                    comment = []
            if self.at >= len(text):
                return found
            if text.startswith("//", self.at):
                end = self.end_of_line(self.at)
                line = text[self.at : end]
                self.at = end
                if lines == 0 and found and not comment:
                    found[-1] = found[-1]._replace(text=f"{found[-1].text}  {line}")
                elif not re.match(r"// (size|NOLINT)", line):
                    comment.append(re.sub(r"^// ?", "", line))
            elif text[self.at] == "#":
                end = self.end_of_line(self.at)
                while text[end - 1] == "\\":
                    end = self.end_of_line(end + 1)
                include = re.match(r'#include "(.*)"', text[self.at : end])
                if include:
                    self.includes.append(include[1])
                self.at = end
            elif text[self.at] == "}":
                self.at += 1
                return found
            elif text[self.at] == ";":
                self.at += 1
            elif access and (label := _ACCESS.match(text, self.at)):
                shown, apart = label[1], True
                self.at = label.end()
            elif inner := _NAMESPACE.match(text, self.at):
                if comment:
                    self.about += [*comment, ""]
                    comment = []
                self.at = inner.end()
                within = self.scope(f"{namespace}::{inner[1]}".strip(":"), "")
                if inner[1] not in ("", "detail"):
                    found += within
                self.at = self.behind_comment(self.at)
                apart = True
            else:
                one = self.declaration(namespace, comment, apart or bool(comment))
                if shown != "private" and not re.match(r"friend\b", one.text):
                    found.append(one)
                else:
                    self.at = self.behind_comment(self.at)
                comment, apart = [], False

    def declaration(self, namespace: str, comment: list, apart: bool) -> Declaration:
        text, begin = self.text, self.at
        at, assigned, called = begin, False, False
        depth_of_template = 0
        while True:
            if at >= len(text):
                raise Unreadable(f"line {text.count(chr(10), 0, begin) + 1}: a declaration without an end")
            after = self.skip_quoted(at)
            if after != at:
                at = after
                continue
            sign = text[at]
            if sign == "<" and re.search(r"(?:template\s*|\w)$", text[begin:at]) and not assigned:
                depth_of_template += 1
            elif sign == ">" and text[at - 1] != "-" and depth_of_template:
                depth_of_template -= 1
            elif sign == "=" and depth_of_template == 0 and not re.search(r"operator\W*$", text[begin:at]):
                assigned = True
            elif sign in "([":
                called = called or sign == "("
                at = self.behind_balanced(at)
                continue
            elif sign == ";":
                self.at = at + 1
                return self.made(text[begin : at + 1], namespace, comment, apart, called)
            elif sign == ":" and called and not assigned and text[at + 1] != ":" and text[at - 1] != ":":
                head = text[begin:at].rstrip()
                at = self.behind_initialisers(at + 1)
                self.at = self.behind_balanced(at)
                return self.made(head + ";", namespace, comment, apart, called)
            elif sign == "{":
                head = text[begin:at].rstrip()
                kind = _TYPE.match(head)
                if kind and not called and not assigned:
                    return self.type_with_body(head, kind, at, namespace, comment, apart)
                if called and not assigned:
                    self.at = self.behind_balanced(at)
                    return self.made(head + ";", namespace, comment, apart, called)
                at = self.behind_balanced(at)
                continue
            at += 1

    def behind_initialisers(self, at: int) -> int:
        """The brace that opens the body of a constructor."""
        while True:
            while self.text[at] not in "({":
                at += 1
            at = self.behind_balanced(at)
            while self.text[at].isspace() or self.text.startswith("...", at):
                at += 3 if self.text[at] == "." else 1
            if self.text[at] != ",":
                return at

    def type_with_body(
        self, head: str, kind: re.Match, at: int, namespace: str, comment: list, apart: bool
    ) -> Declaration:
        if kind[1].startswith("enum"):
            end = self.behind_balanced(at)
            whole = self.text[self.at : end] + ";"
            self.at = self.text.index(";", end) + 1
            return Declaration(whole, comment, kind[2], "enum", apart, [], namespace)
        self.at = at + 1
        empty = self.text[at + 1 : self.behind_balanced(at) - 1].strip() == ""
        members = self.scope(namespace, "private" if kind[1] == "class" else "public")
        self.at = self.text.index(";", self.at) + 1
        return Declaration(head + " {};" if empty else head, comment, kind[2], "type", apart, members, namespace)

    def made(self, text: str, namespace: str, comment: list, apart: bool, called: bool) -> Declaration:
        kind = _TYPE.match(text)
        if kind and not called:
            return Declaration(text, comment, "", "value", apart, [], namespace)
        name = ""
        if called and not re.match(r"(using|TORCH_ARG|static_assert)\b", text):
            before = re.sub(r"^template\s*<[^()]*?>\s*(?=[\w\[])", "", text)
            named = re.search(r"(operator\s*(?:\(\)|[^\s\w(]+|\w+)|~?\w+)\s*\(", before.replace("[[nodiscard]]", ""))
            name = named[1] if named else ""
        return Declaration(text, comment, name, "function" if name else "value", apart, [], namespace)


def parse(text: str, path: str = "", section: str = "") -> Header:
    reader = _Reader(text)
    try:
        declarations = reader.scope("", "")
    except (IndexError, ValueError) as error:
        raise Unreadable(f"{path}: {error}") from error
    return Header(path, section, reader.includes, reader.about, declarations)


def public_headers(root: pathlib.Path = ROOT) -> list:
    """(path below the root, section) in the order of cmake/public_headers.txt."""
    found, section, first = [], "", True
    for line in (root / "cmake" / "public_headers.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            section = "" if first else line[1:].strip()
            first = False
        elif line.strip():
            found.append((f"dear/{line.strip()}", section))
    return found


def read_headers(root: pathlib.Path = ROOT) -> list:
    return [parse((root / path).read_text(encoding="utf-8"), path, section) for path, section in public_headers(root)]


def page_of(path: str) -> str:
    """dear/comm/group/group.h has the page comm.group.group.md of FOLDER."""
    return path.removeprefix("dear/").removesuffix(".h").replace("/", ".") + ".md"


def anchor(name: str) -> str:
    return re.sub(r"[^\w-]", "-", name.lower())


def all_names(headers: list) -> dict:
    """The page and anchor of each type, by its name."""
    found: dict = {}
    for header in headers:
        for one in header.declarations:
            if one.kind in ("type", "enum"):
                found.setdefault(one.name, f"{page_of(header.path)}#{anchor(one.name)}")
    return found


def dedented(text: str, depth: int) -> list:
    """The first line stands where its declaration began; the others lose up to `depth` spaces."""
    first, *others = text.split("\n")
    return [first, *(re.sub(rf"^ {{0,{depth}}}", "", line).rstrip() for line in others)]


def says_nothing_within(one: Declaration) -> bool:
    """Whether it is a type whose members have no comments: it is shown as one."""
    return bool(one.members) and not any(member.comment or member.members for member in one.members)


def shown_whole(one: Declaration, depth: int) -> list:
    lines = [one.text + " {", *([" public:"] if one.text.startswith("class") else [])]
    for number, member in enumerate(one.members):
        lines += [""] if number and member.apart else []
        first, *others = dedented(member.text, depth + 2)
        lines += [f"  {first}", *(f"  {line}" for line in others)]
    return [*lines, "};"]


def shown(chunk: list, depth: int) -> list:
    if says_nothing_within(chunk[0]):
        return shown_whole(chunk[0], depth)
    return [line for each in chunk for line in dedented(each.text, depth)]


def chunks(declarations: list) -> list:
    """Declarations that stand together, without a blank line or a comment between them."""
    made: list = []
    for one in declarations:
        alone = one.kind in ("type", "enum")
        if made and not one.apart and not alone and made[-1][-1].kind not in ("type", "enum"):
            made[-1].append(one)
        else:
            made.append([one])
    return made


def titles_of(chunk: list) -> list:
    """The functions of a chunk, but for those that are as in any class."""
    plain = [each for each in chunk if each.kind == "function" and each.name]
    told = [
        each for each in plain if not each.name.startswith("~") and not re.search(r"= (?:delete|default);", each.text)
    ]
    return list(dict.fromkeys(each.name for each in told or plain))


def own_anchor(name: str, taken: set) -> str:
    """The anchor of a name, with a number where it is taken."""
    made, count = anchor(name), 1
    while made in taken:
        count += 1
        made = f"{anchor(name)}-{count}"
    taken.add(made)
    return made


def members_of(one: Declaration, link: typing.Callable, depth: int, taken: set) -> list:
    lines: list = []
    bare: list = []

    def flush() -> None:
        if bare:
            lines.extend(markup.block(bare, "cpp"))
            bare.clear()

    for chunk in chunks(one.members):
        first = chunk[0]
        whole = says_nothing_within(first)
        if not first.comment and (whole or not first.members):
            bare += ([""] if bare and first.apart else []) + shown(chunk, depth)
            continue
        flush()
        names = titles_of(chunk)
        if names and depth == 2:
            lines += [
                f"### {', '.join(markup.code(name) for name in names)} {{#{own_anchor(f'{one.name}-{names[0]}', taken)}}}",
                "",
            ]
        lines += markup.block(shown(chunk, depth), "cpp")
        lines += markup.prose(first.comment, link)
        if first.members and not whole:
            inner = members_of(first, link, depth + 2, taken)
            lines += ['<div class="members" markdown>', "", *inner, "", "</div>", ""]
    flush()
    return lines


def write_page(header: Header, names: dict, pages: dict, documents: typing.Callable[[str], str]) -> str:
    def link(name: str) -> str:
        if name.startswith("docs/"):
            return documents(name)
        first = name.removeprefix("dear::").split("::")[0].removesuffix("()")
        target = names.get(first, "")
        return target.removeprefix(page_of(header.path)) if target else ""

    lines = [f"# {header.path.removeprefix('dear/')}", "", *markup.block([f"#include <{header.path}>"], "cpp")]
    lines += markup.prose(header.about, link)
    namespace, taken = None, set()
    for chunk in chunks(header.declarations):
        first = chunk[0]
        if first.namespace != namespace:
            namespace = first.namespace
            lines += [f"In namespace `{namespace}`:" if namespace else "In no namespace:", ""]
        titles = titles_of(chunk)
        if first.kind in ("type", "enum"):
            word = _TYPE.match(first.text)
            lines += [f"## {word[1]} {markup.code(first.name)} {{#{own_anchor(first.name, taken)}}}", ""]
        elif titles:
            lines += [f"## {', '.join(markup.code(name) for name in titles)} {{#{own_anchor(titles[0], taken)}}}", ""]
        elif first.comment:
            value = re.search(r"(\w+)(?:\s*=|\s*\{|;)", first.text)
            lines += [f"## {markup.code(value[1])}" if value else "## Values", ""]
        lines += markup.block(shown(chunk, 0), "cpp")
        lines += markup.prose(first.comment, link)
        if first.members and not says_nothing_within(first):
            lines += members_of(first, link, 2, taken)
    included = [f"[{path.removeprefix('dear/')}]({pages[path]})" for path in header.includes if path in pages]
    if included:
        lines += ["## Includes", "", ", ".join(included), ""]
    return "\n".join(lines)


def write(
    folder: pathlib.Path, documents: typing.Callable[[str], str] = lambda page: "", root: pathlib.Path = ROOT
) -> list:
    """Writes the pages into `folder`. Returns (section, [(title, page)]) for the navigation."""
    headers = read_headers(root)
    names = all_names(headers)
    pages = {header.path: page_of(header.path) for header in headers}
    folder.mkdir(parents=True, exist_ok=True)
    sections: dict = {}
    for header in headers:
        (folder / page_of(header.path)).write_text(write_page(header, names, pages, documents), encoding="utf-8")
        sections.setdefault(header.section, []).append(header)
    index = [
        "# C++",
        "",
        "The headers that `cmake --install` installs, each with the types and functions that it declares. The texts are the comments of the headers.",
        "",
    ]
    index += markup.block(
        ["find_package(dear 0.1 REQUIRED)", "target_link_libraries(program PRIVATE dear::dear)"], "cmake"
    )
    for section, members in sections.items():
        index += [f"## {section}", "", "| header | declares |", "|---|---|"]
        for header in members:
            named = dict.fromkeys(
                one.name for one in header.declarations if one.name and not one.name.startswith("operator")
            )
            linked = [
                f"[`{name}`]({names[name]})" if names.get(name, "").startswith(page_of(header.path)) else f"`{name}`"
                for name in named
            ]
            index.append(f"| [{header.path.removeprefix('dear/')}]({page_of(header.path)}) | {', '.join(linked)} |")
        index.append("")
    (folder / "index.md").write_text("\n".join(index), encoding="utf-8")
    return [
        (section, [(header.path.removeprefix("dear/"), page_of(header.path)) for header in members])
        for section, members in sections.items()
    ]
