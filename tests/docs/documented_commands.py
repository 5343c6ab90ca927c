"""Runs the commands of README.md and docs/*.md as they stand:  documented_commands.py DEAR [--with torch] [--with mpi] [PAGE...]

Each page has a scratch folder of its own, with the folders of the repository that commands read, and the folder of DEAR
first on PATH. A block's output must be what the page shows; a line "..." there stands for any lines. A block that is
not to be run says why: see pages.py.
"""

import argparse
import difflib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import pages

LINKED = ("examples", "docs", "dear", "bench", "scripts", "cmake")
LONGEST_SECONDS = 120


def environment(dear: pathlib.Path, folder: pathlib.Path) -> dict:
    """The caller's, without what would make this process a rank of some job, or a terminal's width matter."""
    kept = {name: value for name, value in os.environ.items()
            if not re.match("(RANK|WORLD_SIZE|LOCAL_|MASTER_|OMPI_|PMI|MPI_|SLURM_|TORCHELASTIC_|DEAR_)", name)}
    return {**kept, "PATH": f"{dear.parent}:{kept.get('PATH', '')}", "HOME": str(folder), "LC_ALL": "C.UTF-8",
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def comparable(lines: list, numbers_vary: bool) -> list:
    """Lines without trailing blanks and empty lines at the end; with `numbers_vary` columns may be wider, and
    digests and units of times differ, too."""
    cut = [line.rstrip() for line in lines]
    if numbers_vary:
        cut = [re.sub(r"\b[0-9a-f]{16,}\b", "DIGEST", line) for line in cut]
        cut = [re.sub(" +", " ", re.sub(r"[-+]?\d[\d,]*(\.\d+)?(e[-+]?\d+)?", "N", line)) for line in cut]
        cut = [re.sub(r"\bN (ns|us|ms|s|min)\b", "N s", line) for line in cut]
    while cut and not cut[-1]:
        cut.pop()
    return cut


def matches(shown: list, printed: list) -> bool:
    if not shown:
        return not printed
    if shown[0] == "...":
        return any(matches(shown[1:], printed[start:]) for start in range(len(printed) + 1))
    return bool(printed) and shown[0] == printed[0] and matches(shown[1:], printed[1:])


class Runner:
    def __init__(self, dear: pathlib.Path, features: set):
        self.dear, self.features = dear, features
        self.errors: list = []
        self.ran = 0

    def run_page(self, page: pathlib.Path) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for linked in LINKED:
                if (pages.ROOT / linked).exists():
                    (folder / linked).symlink_to(pages.ROOT / linked)
            for block in pages.read_blocks(page):
                self.run_block(block, folder)

    def run_block(self, block: pages.Block, folder: pathlib.Path) -> None:
        if block.language not in pages.LANGUAGES:
            self.errors.append(f"{block.place}: name the block's language, one of {', '.join(pages.LANGUAGES)}")
            return
        for mark, value in block.marks.items():
            if mark not in pages.MARKS:
                self.errors.append(f"{block.place}: unknown mark '{mark}'")
            elif mark in ("not run", "file") and not value:
                self.errors.append(f"{block.place}: the mark '{mark}' says nothing")
        if "file" in block.marks:
            (folder / block.marks["file"]).write_text(block.text, encoding="utf-8")
        if block.language not in ("console", "sh") or "not run" in block.marks:
            return
        needs = {mark.removeprefix("needs ") for mark in block.marks if mark.startswith("needs ")}
        if not needs <= self.features:
            return
        for step in pages.steps_of(block):
            if not self.run_step(block, step, folder):
                return  # what follows may need it

    def run_step(self, block: pages.Block, step: pages.Step, folder: pathlib.Path) -> bool:
        place = f"{block.page}:{step.line}: `{step.command}`"
        try:
            done = subprocess.run(["bash", "-c", step.command], cwd=folder, env=environment(self.dear, folder), stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            self.errors.append(f"{place} took longer than {LONGEST_SECONDS} s: mark its block 'not run', with the reason")
            return False
        self.ran += 1
        if done.returncode != 0:
            self.errors.append(f"{place} ended with exit code {done.returncode}:\n{done.stdout}")
            return False
        if block.language == "sh":
            return True
        vary = "numbers vary" in block.marks
        shown, printed = comparable(step.output, vary), comparable(done.stdout.splitlines(), vary)
        if not matches(shown, printed):
            difference = "\n".join(difflib.unified_diff(shown, printed, "the page", "the command", lineterm=""))
            self.errors.append(f"{place} prints something else:\n{difference}")
        return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dear", type=pathlib.Path)
    parser.add_argument("pages", nargs="*", help="names of pages; all by default")
    parser.add_argument("--with", dest="features", action="append", default=[], choices=["torch", "mpi"])
    options = parser.parse_intermixed_args()
    dear = options.dear.resolve()
    if not shutil.which(str(dear)):
        parser.error(f"there is no command {dear}")
    chosen = [pathlib.Path(page).resolve() for page in options.pages] or pages.commanded_pages()

    runner = Runner(dear, set(options.features))
    for page in chosen:
        runner.run_page(page)
    if runner.ran == 0:
        runner.errors.append("no command was found in these pages")
    if runner.errors:
        sys.exit("\n\n".join(runner.errors))
    print(f"{runner.ran} commands of {len(chosen)} pages")


if __name__ == "__main__":
    main()
