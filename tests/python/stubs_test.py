"""The stub of the extension module says what the module has, and the other way round."""

import ast
import pathlib
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


def is_public(name: str) -> bool:
    return not name.startswith("_") or name == "__version__"


def own(thing: object) -> set[str]:
    return {name for name in vars(thing) if is_public(name)}


class Stub(unittest.TestCase):
    def test_names_all_that_the_module_has(self):
        stub = members(ast.parse((pathlib.Path(dear.__file__).parent / "_C.pyi").read_text()).body)
        self.assertEqual(set(stub), own(dear._C))
        for name, statement in stub.items():
            thing = getattr(dear._C, name)
            if isinstance(statement, ast.ClassDef) and not issubclass(thing, Exception):
                with self.subTest(name=name):
                    self.assertEqual(set(members(statement.body)), own(thing))

    def test_package_says_that_it_is_typed(self):
        self.assertTrue((pathlib.Path(dear.__file__).parent / "py.typed").exists())


if __name__ == "__main__":
    unittest.main()
