"""The pairs of examples/python/migrate/ print the same losses, and docs/migrate.md shows how they differ.

migrations_test.py DEAR [unittest's arguments]
migrations_test.py --write      writes the differences into the page
"""

import difflib
import pathlib
import re
import socket
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "training"))
import dear_processes

PAGE = ROOT / "docs" / "migrate.md"
PAIRS = ROOT / "examples" / "python" / "migrate"
# Horovod does not run with this PyTorch: what comes after it is compared with DistributedDataParallel, of which the pair
# has the same optimiser and scheduler.
BEFORE = {
    "ddp_after": "ddp_before",
    "fsdp2_after": "fsdp2_before",
    "zero_after": "zero_before",
    "horovod_after": "ddp_before",
}


def free_ports(count: int) -> str:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ",".join(map(str, ports))


def difference(pair: str) -> str:
    before, after = (
        PAIRS.joinpath(f"{pair}_{side}.py").read_text(encoding="utf-8").splitlines()[2:] for side in ("before", "after")
    )
    lines = difflib.unified_diff(before, after, n=1, lineterm="")
    return "".join(line.rstrip() + "\n" for line in lines if not line.startswith(("---", "+++", "@@")))


def with_differences(text: str) -> str:
    """The page, with each block of `diff` as the pair that was named last before it differs."""

    def replaced(found: re.Match) -> str:
        pair = re.findall(r"migrate/(\w+)_before\.py", text[: found.start()])[-1]
        return f"```diff\n{difference(pair)}```\n"

    return re.sub(r"```diff\n.*?```\n", replaced, text, flags=re.DOTALL)


class Pairs(dear_processes.Case):
    def losses(self, output: str) -> dict[str, dict[tuple[str, str], float]]:
        """By program: {(rank, step): loss}. Programs follow one another, the lines of their ranks do not."""
        found: dict[str, dict[tuple[str, str], float]] = {}
        for name, rank, step, loss in re.findall(r"(\w+\.py) rank (\d+) step (\d+) loss (\S+)", output):
            found.setdefault(name.removesuffix(".py"), {})[rank, step] = float(loss)
        return found

    def test_print_the_same_losses(self):
        names = sorted({*BEFORE, *BEFORE.values()})
        programs = [word for name in names for word in ("--", PAIRS / f"{name}.py")][1:]
        shared = {"WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": 1,
                  "DEAR_TEST_PORTS": free_ports(len(names))}  # fmt: skip
        jobs = [
            self.start(
                sys.executable,
                HERE / "run_programs.py",
                *programs,
                environment=shared | {"RANK": rank, "LOCAL_RANK": rank},
            )
            for rank in (0, 1)
        ]
        output = ""
        for job in jobs:
            ended = job.end()  # torch leaves a folder for temporary files
            job.wait_until_gone()
            self.assertEqual(ended.returncode, 0, ended)
            output += ended.stdout
        losses = self.losses(output)
        for after, before in BEFORE.items():
            with self.subTest(pair=after):
                self.assertEqual(len(losses[before]), 24)
                self.assertEqual(losses[after].keys(), losses[before].keys())
                for key, loss in losses[before].items():
                    self.assertAlmostEqual(losses[after][key] / loss, 1, delta=1e-5)

    def test_differ_as_the_page_says(self):
        text = PAGE.read_text(encoding="utf-8")
        self.assertEqual(text, with_differences(text), "run tests/python/programs/migrations_test.py --write")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(with_differences(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        dear_processes.main()
