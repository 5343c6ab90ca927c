"""The reference of Python: pages from the docstrings of what `dear` exports. Sources are read, and not imported."""

import ast
import functools
import pathlib
import re
import typing

import markup

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDER = "reference/python"
WIDTH = 100
# Title and file of a page, with the modules of python/dear whose names it has. What comes from another module stands in OTHERS.
PAGES = {
    "Training": (
        "training",
        ["_distribute", "_model_parts", "_join", "_balance", "_batch_norm", "_tensor_norms", "_rounds", "_kfac"],
    ),
    "Groups and errors": ("groups", ["_version", "_C", "_backend_choice", "_distributed"]),
    "Watching and reports": ("watching", ["_watching", "_trace", "_report"]),
    "Checkpoints and ends": ("checkpoints", ["_checkpoint", "_checkpoints", "_checkpoint_exchange", "_stop"]),
    "Mixtures of experts": ("moe", ["_moe", "_moe_linears", "_moe_transformers"]),
    "Pipelines": ("pipelines", ["_pipeline"]),
    "AUC": ("auc", ["_auc", "_coda"]),
    "Simulate and plan": ("planning", ["_workload", "_simulation", "_planning", "_kfac_planning"]),
}
OTHERS = ("More names", "more")
FIRST_IN_SEARCH = "---\nsearch:\n  boost: 3\n---\n"
# Modules of their own, which `import dear` does not import.
MODULES = {"dear.lightning": "lightning/__init__.py", "dear.huggingface": "huggingface.py"}


class Name(typing.NamedTuple):
    name: str
    module: str  # the file that defines it, without its ending
    node: ast.AST


class Package:
    def __init__(self, root: pathlib.Path = ROOT) -> None:
        self.folder = root / "python" / "dear"
        self.bindings = root / "python" / "src"

    @functools.cache
    def tree(self, module: str) -> ast.Module | None:
        """Of "_join", "lightning/_fabric", or "_C", whose stub is read; None for what is no module of the package."""
        for file in (self.folder / f"{module}.py", self.folder / f"{module}.pyi", self.folder / module / "__init__.py"):
            if file.exists():
                return ast.parse(file.read_text(encoding="utf-8"))
        return None

    def exported(self, module: str = "__init__") -> list:
        """__all__ of a module."""
        for statement in self.tree(module).body:
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
                return ast.literal_eval(statement.value)
        return []

    def find(self, name: str, module: str) -> Name | None:
        """The class, function or value that `name` means in `module`, through its imports."""
        tree = self.tree(module)
        if tree is None:
            return None
        package = module.rpartition("/")[0] if module.count("/") else ""
        if module.endswith("/__init__"):
            package = module.removesuffix("/__init__")
        for statement in tree.body:
            if isinstance(statement, (ast.ClassDef, ast.FunctionDef)) and statement.name == name:
                return Name(name, module, statement)
            if isinstance(statement, (ast.Assign, ast.AnnAssign)):
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                    return Name(name, module, statement)
            if isinstance(statement, ast.ImportFrom) and (
                statement.level or (statement.module or "").startswith("dear")
            ):
                for alias in statement.names:
                    if (alias.asname or alias.name) == name:
                        source = (statement.module or "").removeprefix("dear.").replace(".", "/")
                        inside = f"{package}/{source}" if package and statement.level == 1 else source
                        return self.find(alias.name, inside or alias.name)
        return None

    @functools.cached_property
    def binding_docs(self) -> dict:
        """What the binding says of its functions and classes, by (class or "", name)."""
        found: dict = {}
        for file in sorted(self.bindings.glob("*.cpp")):
            text, owner = file.read_text(encoding="utf-8"), ""
            for call in re.finditer(r"(\.|\b)(def\w*|class_<[^()]*>\s*\w*|make_class)\s*\(", text):
                arguments = arguments_of_call(text, call.end())
                strings = [joined(argument) for argument in arguments]
                given = [one for one in strings if one is not None]
                if not given:
                    continue
                makes_class = call[2].startswith("class_")
                if makes_class:
                    owner = given[0]
                of_module = (
                    makes_class or call[2] == "make_class" or re.search(r"\bmodule$", text[: call.start()].rstrip())
                )
                if len(given) > 1 and strings[-1] is not None or call[2] == "make_class":
                    found.setdefault(("" if of_module else owner, given[0]), given[-1] if len(given) > 1 else "")
        return found


def arguments_of_call(text: str, at: int) -> list:
    """Texts of the arguments of the call whose bracket opened before `at`."""
    made, begin, depth = [], at, 0
    while depth >= 0:
        sign = text[at]
        if sign == '"':
            at += 1
            while text[at] != '"':
                at += 2 if text[at] == "\\" else 1
        elif sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
        if depth < 0 or (depth == 0 and sign == ","):
            made.append(text[begin:at].strip())
            begin = at + 1
        at += 1
    return made


def joined(argument: str) -> str | None:
    """The text of literals of C++ that stand side by side; None for another argument."""
    literal = r'"((?:[^"\\]|\\.)*)"'
    if not re.fullmatch(rf"(?:{literal}\s*)+", argument):
        return None
    return "".join(ast.literal_eval(f'"{part}"') for part in re.findall(literal, argument))


def signature(name: str, function: ast.FunctionDef, drop_first: bool, returns: bool = True) -> list:
    given = function.args
    if drop_first:
        given = ast.arguments(**{**{field: getattr(given, field) for field in given._fields}, "args": given.args[1:]})
        given.defaults = function.args.defaults[-len(given.args) :] if given.args else []
    result = f" -> {ast.unparse(function.returns)}" if function.returns and returns else ""
    line = f"{name}({ast.unparse(given)}){result}"
    if len(line) <= WIDTH:
        return [line]
    parts = []
    positional = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(positional) - len(given.defaults)) + list(given.defaults)
    for argument, default in zip(positional, defaults):
        parts.append(one_argument(argument, default))
    if given.vararg:
        parts.append("*" + ast.unparse(given.vararg))
    elif given.kwonlyargs:
        parts.append("*")
    parts += [one_argument(argument, default) for argument, default in zip(given.kwonlyargs, given.kw_defaults)]
    if given.kwarg:
        parts.append("**" + ast.unparse(given.kwarg))
    return [f"{name}(", *(f"    {part}," for part in parts), f"){result}"]


def one_argument(argument: ast.arg, default: ast.expr | None) -> str:
    text = ast.unparse(argument)
    if default is None:
        return text
    return f"{text} = {ast.unparse(default)}" if argument.annotation else f"{text}={ast.unparse(default)}"


def names_of(function: ast.FunctionDef | None) -> set:
    if function is None:
        return set()
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]
    return {argument.arg for argument in every}


def decorated(node: ast.AST) -> set:
    return {ast.unparse(one).split("(")[0] for one in getattr(node, "decorator_list", [])}


def fields(node: ast.ClassDef) -> list:
    """(declaration, docstring) of annotated attributes."""
    found = []
    for statement, after in zip(node.body, [*node.body[1:], None]):
        if isinstance(statement, ast.AnnAssign) and not ast.unparse(statement.target).startswith("_"):
            told = (
                isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
                and isinstance(after.value.value, str)
            )
            found.append((ast.unparse(statement), after.value.value if told else ""))
    return found


class Writer:
    def __init__(self, package: Package, pages: dict, documents: typing.Callable[[str], str]) -> None:
        self.package = package
        self.pages = pages  # by name, without `dear.`
        self.documents = documents

    def link(self, name: str) -> str:
        if name.startswith("docs/"):
            return self.documents(name)
        bare = name.removeprefix("dear.").removesuffix("()").split(".")[0]
        known = bare in self.pages and (name.startswith("dear.") or bare[0].isupper())
        return f"{self.pages[bare]}.md#dear.{bare}" if known else ""

    def told(self, text: str | None, names: typing.Container = ()) -> list:
        if not text:
            return []
        first, *others = text.expandtabs().split("\n")
        depth = min((len(line) - len(line.lstrip()) for line in others if line.strip()), default=0)
        lines, in_arguments = [], False
        for line in [first, *(line[depth:] for line in others)]:
            if line.strip() == "Args:":
                in_arguments = True
                continue
            in_arguments = in_arguments and (not line.strip() or line.startswith("    "))
            lines.append(line[4:] if in_arguments else line)
        return markup.prose(lines, self.link, names, "python")

    def function(
        self, name: str, node: ast.FunctionDef, owner: str = "", heading: str = "##", doc: str | None = None
    ) -> list:
        full = f"{owner}.{name}" if owner else f"dear.{name}"
        marks = decorated(node)
        title = name if owner else full
        lines = [f"{heading} {markup.code(title)} {{#{full}}}", ""]
        if marks & {"property", "functools.cached_property"}:
            lines += markup.block([f"{name}: {ast.unparse(node.returns)}" if node.returns else name], "python")
        else:
            drop = bool(owner) and "staticmethod" not in marks
            shown = signature(name if owner else full, node, drop)
            shown = [
                f"@{mark}" for mark in sorted(marks & {"classmethod", "staticmethod", "contextlib.contextmanager"})
            ] + shown
            lines += markup.block(shown, "python")
        return lines + self.told(doc or ast.get_docstring(node, clean=False), names_of(node))

    def members(self, found: Name, seen: set) -> list:
        """(module, node) of public methods, those that private classes of the package hand down too."""
        node, made = found.node, []
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef) and statement.name not in seen:
                seen.add(statement.name)
                setter = any(mark.endswith((".setter", ".deleter")) for mark in decorated(statement))
                if not statement.name.startswith("_") and not setter:
                    made.append((found, statement))
        for base in node.bases:
            text = ast.unparse(base).split("[")[0]
            if "." in text and not text.startswith("_"):
                continue  # of another package
            handed = self.package.find(text.split(".")[-1], "_C" if text.startswith("_C.") else found.module)
            if handed and isinstance(handed.node, ast.ClassDef) and handed.name not in self.pages:
                made += self.members(handed, seen)
        return made

    def class_(self, name: str, found: Name, doc: str, prefix: str = "dear") -> list:
        node = found.node
        full = f"{prefix}.{name}"
        lines = [f"## class {markup.code(full)} {{#{full}}}", ""]
        make = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)
        bases = [ast.unparse(base) for base in node.bases]
        attributes = fields(node)
        if make:
            lines += markup.block(signature(full, make, True, returns=False), "python")
        elif any("dataclass" in mark for mark in decorated(node)) or "NamedTuple" in " ".join(bases):
            lines += markup.block([f"class {full}:", *(f"    {text}" for text, _ in attributes)], "python")
            attributes = [one for one in attributes if one[1]]
        else:
            lines += markup.block([f"class {full}({', '.join(bases)})" if bases else f"class {full}"], "python")
        known = names_of(make) | {text.split(":")[0] for text, _ in fields(node)}
        lines += self.told(doc or ast.get_docstring(node, clean=False), known)
        public = [base for base in bases if base in self.pages]
        if public:
            lines += [
                "Derives from " + ", ".join(f"[`dear.{base}`]({self.link('dear.' + base)})" for base in public) + ".",
                "",
            ]
        bare = [text for text, told in attributes if not told]
        if bare:
            lines += markup.block(bare, "python")
        for text, told in attributes:
            if told:
                lines += markup.block([text], "python") + self.told(told)
        for owner, method in self.members(found, set()):
            told = self.package.binding_docs.get((owner.name, method.name)) if owner.module == "_C" else None
            if told is None and not ast.get_docstring(method) and owner.module != "_C":
                continue  # a method of a base class of others, which it does as told there
            lines += self.function(method.name, method, full, "###", told)
        return lines

    def one(self, name: str, found: Name | None, prefix: str = "dear") -> list:
        bound = found is not None and found.module == "_C"
        doc = self.package.binding_docs.get(("", name), "") if bound else ""
        if found is not None and isinstance(found.node, ast.ClassDef):
            return self.class_(name, found, doc, prefix)
        if found is not None and isinstance(found.node, ast.FunctionDef):
            return self.function(name, found.node, doc=doc)
        # Underscores at both ends of an anchor in braces would be emphasis.
        lines = [f'<span id="{prefix}.{name}"></span>', "", f"## {markup.code(f'{prefix}.{name}')}", ""]
        if name == "__version__":
            return [*lines, "The version of DeAR, as a string.", ""]
        return lines + (markup.block([ast.unparse(found.node)], "python") if found else [])


def summary(lines: list) -> str:
    """The first sentence of what was written for a name."""
    fenced = False
    for line in lines[1:]:
        if line.startswith("```"):
            fenced = not fenced
        elif line and not fenced and not line.startswith(("#", "-", "Derives from")):
            return re.split(r"(?<=[^.]\.) (?=[A-Z`\[])|:$", line)[0]
    return ""


def write(
    folder: pathlib.Path, documents: typing.Callable[[str], str] = lambda page: "", root: pathlib.Path = ROOT
) -> list:
    """Writes the pages into `folder`. Returns [(title, page)] for the navigation."""
    package = Package(root)
    folder.mkdir(parents=True, exist_ok=True)
    page_of_module = {module: file for file, modules in PAGES.values() for module in modules}
    found = {name: package.find(name, "__init__") for name in package.exported()}
    pages = {name: page_of_module.get(one.module if one else "", OTHERS[1]) for name, one in found.items()}
    writer = Writer(package, pages, documents)
    titles = {file: title for title, (file, _) in PAGES.items()} | {OTHERS[1]: OTHERS[0]}
    index = [
        "# Python",
        "",
        "What `import dear` exports. The texts are the docstrings of the package; [the guide](../../docs/python.md) says how the parts are used together.",
        "",
    ]
    made = []
    for file, title in titles.items():
        # In the order of the modules, so that what belongs together stands together.
        order = next((modules for name, modules in PAGES.values() if name == file), [])
        names = [name for name in found if pages[name] == file]
        names.sort(
            key=lambda name: (
                order.index(found[name].module) if found[name] and found[name].module in order else -1,
                getattr(found[name].node if found[name] else None, "lineno", 0),
            )
        )
        if not names:
            continue
        lines = [f"# {title}", ""]
        index += [f"## {title}", "", "| name | what it is |", "|---|---|"]
        for name in names:
            one = writer.one(name, found[name])
            lines += one
            index.append(f"| [`dear.{name}`]({file}.md#dear.{name}) | {summary(one).replace('|', '&#124;')} |")
        index.append("")
        (folder / f"{file}.md").write_text(FIRST_IN_SEARCH + "\n".join(lines), encoding="utf-8")
        made.append((title, f"{file}.md"))
    for module, file in MODULES.items():
        name = file.removesuffix(".py")
        lines = [f"# {module}", "", *writer.told(ast.get_docstring(package.tree(name), clean=False))]
        for exported in package.exported(name):
            lines += writer.one(exported, package.find(exported, name), module)
        (folder / f"{module}.md").write_text("\n".join(lines), encoding="utf-8")
        index += [
            f"## {module}",
            "",
            f"[`{module}`]({module}.md), a module of its own: {', '.join(f'`{one}`' for one in package.exported(name))}.",
            "",
        ]
        made.append((module, f"{module}.md"))
    (folder / "index.md").write_text("\n".join(index), encoding="utf-8")
    return made
