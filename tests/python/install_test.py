"""`pip install .` into a fresh virtual environment, then the command that it brings and README's example.

    install_test.py SOURCES BUILD

The wheel takes what BUILD has (cmake/pack.cmake), so nothing is compiled. PyTorch is that of this python: a .pth file
makes it a part of the new environment. pip takes scikit-build-core from PyPI.
"""

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import tempfile
import unittest
from typing import ClassVar

SOURCES = pathlib.Path(sys.argv[1])
BUILD = pathlib.Path(sys.argv[2])


def environment() -> dict[str, str]:
    """That of a user: nothing points to this build or to another python."""
    return {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "DEAR_PYTHON", "VIRTUAL_ENV")
    }


class Installed(unittest.TestCase):
    folder: ClassVar[tempfile.TemporaryDirectory[str]]
    home: ClassVar[pathlib.Path]

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.home = pathlib.Path(cls.folder.name)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", cls.home / "env"], check=True)
        torch = importlib.util.find_spec("torch")
        assert torch is not None and torch.origin is not None
        packages = pathlib.Path(torch.origin).parents[1]
        site = cls.home / "env" / pathlib.Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
        (site / "torch_of_another.pth").write_text(f"{packages}\n")

    def pip(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                *(sys.executable, "-m", "pip", "--python", self.home / "env/bin/python"),
                *("--disable-pip-version-check", "install", *arguments),
                *("-C", f"cmake.define.DEAR_BUILT={BUILD}", "-C", f"build-dir={self.home / 'build'}"),
            ],
            cwd=self.home, env=environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip

    def run_in(self, *command: str) -> str:
        done = subprocess.run(
            [self.home / "env/bin" / command[0], *command[1:]],
            cwd=self.home, env=environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        return done.stdout

    def test_package_works_as_the_pages_say(self):
        done = self.pip(str(SOURCES))
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        with self.subTest("what the wheel holds"):
            self.check_wheel()
        with self.subTest("the command"):
            version = self.run_in("python", "-c", "import dear; print(dear.__version__)").strip()
            self.assertRegex(self.run_in("dear", "--version"), rf"\Adear {re.escape(version)}( |\n)")
            # By its module, which needs PyTorch.
            self.run_in("dear", "train", "--workers", "2", "--steps", "3", "--layers", "1")
        with self.subTest("README's example"):
            (self.home / "example.py").write_text(self.example())
            self.run_in("dear", "launch", "-n", "2", str(self.home / "env/bin/python"), "example.py")
        with self.subTest("an editable one takes its place"):
            done = self.pip("-e", str(SOURCES))
            self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
            told = self.run_in("python", "-c", "import dear; print(dear.__file__, dear.init().size)")
            self.assertEqual(told.split(), [str(SOURCES / "python/dear/__init__.py"), "1"])
            self.assertRegex(self.run_in("dear", "--version"), rf"\Adear {re.escape(version)}( |\n)")

    def check_wheel(self):
        told = json.loads(self.run_in(
            "python", "-c",
            "import importlib.metadata as m, json; d = m.distribution('dear'); "
            "print(json.dumps([[str(f) for f in d.files], d.requires, d.read_text('WHEEL')]))",
        ))  # fmt: skip
        files, requires, wheel = told
        release = re.search(r'torch_release = "(.*)"', (BUILD / "python/dear/_version.py").read_text())[1]
        self.assertEqual(requires, [f"torch=={release}.*", "greenlet>=3"])
        self.assertIn(f"Tag: cp{sys.version_info.major}{sys.version_info.minor}-", wheel)
        for pattern in (
            r"dear/_C\..*\.so", r"dear/_C\.pyi", r"dear/py\.typed", r"dear/_version\.py", r"dear/bin/dear",
            r"dear/lib[^/]*/dear/libdear_training\.so", r".*/LICENSE",
        ):  # fmt: skip
            self.assertTrue(any(re.fullmatch(pattern, file) for file in files), f"no {pattern} in {files}")
        self.assertFalse([file for file in files if re.search(r"include/|\.a$|_test|\.in$", file)])

    def example(self) -> str:
        """The first program under the heading Python."""
        readme = (SOURCES / "README.md").read_text()
        found = re.search(r"^## Python$.*?^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
        self.assertIsNotNone(found, "README.md has no program under `## Python`")
        return found[1]

    def test_without_torch_a_sentence_says_what_to_do(self):
        bare = self.home / "bare"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
        done = subprocess.run(
            [sys.executable, "-m", "pip", "--python", bare / "bin/python", "install", "--no-deps", str(SOURCES)],
            cwd=self.home, env=environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr + done.stdout, "has no PyTorch.*pip install torch")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
