"""The site of scripts/docs in a folder of its own, for tests that look at it."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TOOLS = ROOT / ".venv-docs"
sys.path.insert(0, str(ROOT / "docs" / "site"))
import make_pages  # noqa: E402


def missing_tools() -> str:
    """Why the site cannot be built, "" where it can."""
    wanted, installed = ROOT / "requirements-docs.txt", TOOLS / "requirements-docs.txt"
    if installed.exists() and installed.read_bytes() == wanted.read_bytes():
        return ""
    return "the tools of requirements-docs.txt are not in .venv-docs: run scripts/docs once"


def build(folder: str) -> pathlib.Path:
    """The site below the folder. AssertionError with what MkDocs says where it does not build, or warns."""
    here = pathlib.Path(folder).resolve()  # without its last link, which may lead through /tmp
    configuration = make_pages.write(here / "pages", here / "site")
    built = subprocess.run(
        [TOOLS / "bin" / "python", "-B", "-m", "mkdocs", "build", "--quiet", "--config-file", configuration],
        capture_output=True,
        text=True,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )
    if built.returncode != 0 or built.stderr.strip():
        raise AssertionError(f"MkDocs does not build the site:\n{built.stdout}{built.stderr}")
    return here / "site"
