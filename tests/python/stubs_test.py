"""The stub of the extension module says what the module has, and the other way round."""

import ast
import pathlib
import re
import unittest

import dear._C

import dear


def members(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    """The public names that a stub, or a class of it, defines."""
    found: dict[str, ast.stmt] = {}
    for statement in body:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef):
            found[statement.name] = statement
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            found[statement.target.id] = statement
    return {name: statement for name, statement in found.items() if is_public(name)}


def classes(statement: ast.stmt) -> dict[str, ast.stmt]:
    """The methods of a class, its constructor too; nothing of another statement."""
    if not isinstance(statement, ast.ClassDef):
        return {}
    return {one.name: one for one in statement.body if isinstance(one, ast.FunctionDef)}


def is_public(name: str) -> bool:
    return not name.startswith("_") or name == "__version__"


def own(thing: object) -> set[str]:
    return {name for name in vars(thing) if is_public(name)}


def arguments_in_stub(function: ast.FunctionDef) -> list[str]:
    given = function.args
    return [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs) if argument.arg != "self"]


def arguments_of(function: object) -> list[str] | None:
    """By the signature that pybind11 writes into the documentation; None for a property, which has none."""
    signature = re.match(r"\w+\((.*)\) -> ", (function.__doc__ or "").strip())
    return re.findall(r"(\w+): ", signature[1].removeprefix("self: ")) if signature else None


class Stub(unittest.TestCase):
    def test_names_all_that_the_module_has(self):
        stub = members(ast.parse((pathlib.Path(dear.__file__).parent / "_C.pyi").read_text()).body)
        self.assertEqual(set(stub), own(dear._C))
        for name, statement in stub.items():
            thing = getattr(dear._C, name)
            if isinstance(statement, ast.ClassDef) and not issubclass(thing, Exception):
                with self.subTest(name=name):
                    self.assertEqual(set(members(statement.body)), own(thing))

    def test_names_arguments_as_the_module_does(self):
        stub = members(ast.parse((pathlib.Path(dear.__file__).parent / "_C.pyi").read_text()).body)
        compared = 0
        for owner, statements in (
            (dear._C, stub),
            *((getattr(dear._C, n), classes(s)) for n, s in stub.items()),
        ):
            for name, statement in statements.items():
                arguments = arguments_of(getattr(owner, name))
                if isinstance(statement, ast.FunctionDef) and arguments is not None:
                    with self.subTest(owner=owner, name=name):
                        self.assertEqual(arguments_in_stub(statement), arguments)
                        compared += 1
        self.assertGreater(compared, 20)

    def test_package_says_that_it_is_typed(self):
        self.assertTrue((pathlib.Path(dear.__file__).parent / "py.typed").exists())


if __name__ == "__main__":
    unittest.main()
