"""scripts/gpu_check on the stub device, and its parts:  gpu_check_test.py SOURCES BUILD"""

import json
import subprocess
import sys
import tempfile
import time
import unittest
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import gpu_check
import report
import sessions
import setting  # noqa: F401  finds the modules of bench/rivals
from devices import hidden
from sessions import Outcome
from steps import BUILD, STEPS, Step

SOURCES, BUILD_FOLDER = (Path(argument) for argument in sys.argv[1:3])
NOT_HERE = ("it is for a device other than stub", "Python captures graphs of CUDA alone", "--build names")


def passed(step: str, **more: object) -> dict[str, object]:
    return {"name": step, "shows": "", "outcome": "passed", "seconds": 1.0, "figures": {}, **more}


class Sessions(unittest.TestCase):
    """Ranks that do what the name of a step says."""

    RANK = """
import json, os, signal, sys
def tell(outcome, why=""):
    os.write(int(sys.argv[1]), (json.dumps({"outcome": outcome, "why": why}) + "\\n").encode())
tell("passed")
for name in sys.argv[2:]:
    print("==", name, flush=True)
    if name == "hangs":
        signal.pause()
    if name == "dies":
        sys.exit(3)
    tell(*{"fails": ("failed", "it is wrong"), "lacks": ("not here", "it lacks")}.get(name, ("passed", "")))
"""

    def run_steps(self, *names: str, ranks: int = 1, seconds: float = 60.0) -> list[Outcome]:
        self.started: list[list[str]] = []

        def command(steps: Sequence[Step], rank: int, report_to: int) -> tuple[list[str], dict[str, str]]:
            left = [step.name for step in steps]
            self.started.append(left)
            # One rank alone does what a name says that begins with "one ".
            mine = [name.removeprefix("one ") if rank == 0 else name for name in left]
            return [sys.executable, "-S", "-c", self.RANK, str(report_to), *mine], {}

        steps = [Step(name, "", ranks=ranks, seconds=0.2 if "hangs" in name else 30) for name in names]
        with tempfile.TemporaryDirectory() as folder:
            return list(sessions.run(steps, command, Path(folder), time.monotonic() + seconds))

    def test_steps_that_pass_share_their_processes(self) -> None:
        found = self.run_steps("one", "lacks", "two")
        self.assertEqual([one.outcome for one in found], ["passed", "not here", "passed"])
        self.assertEqual(found[1].why, "it lacks")
        self.assertEqual(len(self.started), 1)

    def test_a_step_that_hangs_is_killed_and_the_next_begins_anew(self) -> None:
        found = self.run_steps("one", "hangs", "two")
        self.assertEqual([one.outcome for one in found], ["passed", "failed", "passed"])
        self.assertIn("rank 0 did not end within 0 s", found[1].why)
        self.assertTrue(found[1].hung)
        self.assertIn("== hangs", found[1].log)
        self.assertEqual(self.started, [["one", "hangs", "two"], ["two"]])

    def test_one_rank_that_hangs_is_named(self) -> None:
        found = self.run_steps("one hangs", "two", ranks=2)
        self.assertIn("rank 0 did not end", found[0].why)
        self.assertEqual(found[1].outcome, "passed")

    def test_a_step_that_fails_or_dies_says_so(self) -> None:
        found = self.run_steps("fails", "dies", "two")
        self.assertEqual([one.outcome for one in found], ["failed", "failed", "passed"])
        self.assertEqual(found[0].why, "it is wrong")
        self.assertEqual(found[1].why, "rank 0 ended with exit code 3")

    def test_what_there_is_no_time_for_is_not_run(self) -> None:
        (found,) = self.run_steps("one", seconds=0)
        self.assertEqual(found.outcome, "not run")


class Libraries(unittest.TestCase):
    """Steps that name no library go over the best that has been seen to work."""

    def libraries(self, **outcomes: Outcome) -> dict[str, str]:
        def run(steps: Sequence[Step], *_: object) -> list[Outcome]:
            return [outcomes.get(step.name, Outcome(step, "passed")) for step in steps]

        names = ("two-ranks-stub", "two-ranks-gloo", "two-ranks-nccl", "policies", "amp", "world-of-one")
        options = Namespace(seconds=60, out=Path(), quick=True)
        check = gpu_check.Check(options, "cuda", Path())
        with mock.patch.object(sessions, "run", run):
            return {one.step.name: one.library for one in check.run([step for step in STEPS if step.name in names])}

    def test_nccl_where_two_ranks_can(self) -> None:
        found = self.libraries()
        self.assertEqual((found["policies"], found["amp"], found["world-of-one"]), ("nccl", "nccl", "nccl"))
        self.assertEqual(found["two-ranks-stub"], "")

    def test_gloo_where_they_cannot(self) -> None:
        nccl = next(step for step in STEPS if step.name == "two-ranks-nccl")
        found = self.libraries(**{nccl.name: Outcome(nccl, "not here")})
        self.assertEqual((found["policies"], found["amp"], found["world-of-one"]), ("gloo", "gloo", "nccl"))

    def test_gloo_once_a_step_has_hung(self) -> None:
        policies = next(step for step in STEPS if step.name == "policies")
        found = self.libraries(policies=Outcome(policies, "failed", hung=True))
        self.assertEqual((found["policies"], found["amp"]), ("nccl", "gloo"))


class Reports(unittest.TestCase):
    TEXT = f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n"

    def test_a_page_lists_what_has_not_run(self) -> None:
        page = report.page(
            self.TEXT, report.Result({"GPU": "one"}, [passed("amp", figures={"waits": 2, "host, ms": 1.5})])
        )
        self.assertEqual(
            page,
            report.page(page, report.Result({"GPU": "one"}, [passed("amp", figures={"waits": 2, "host, ms": 1.5})])),
        )
        self.assertIn("- GPU: one", page)
        self.assertIn("| amp | autocast in bf16 | passed |  | 1.0 | waits 2; host 1.50 ms |", page)
        self.assertEqual(page.count(report.NOT_RUN), len(report.of_a_gpu()) - 1)
        self.assertTrue(page.startswith("before\n") and page.endswith("\nafter\n"))

    def test_a_page_without_its_marks_is_refused(self) -> None:
        with self.assertRaisesRegex(report.BadResult, "put these two lines back"):
            report.page("before", report.Result({}, []))

    def test_files_that_are_no_results_are_refused(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for text in ("", "[]", '{"machine": {}}', '{"machine": {}, "steps": [{"outcome": "good"}]}'):
                path = Path(folder, "result.json")
                path.write_text(text)
                with self.assertRaisesRegex(report.BadResult, "is no result"):
                    report.read(path)
            with self.assertRaisesRegex(report.BadResult, "cannot be read"):
                report.read(Path(folder, "none.json"))

    def test_kernels_of_nccl_that_others_hide(self) -> None:
        def kernel(name: str, begin: float, end: float) -> dict[str, object]:
            return {"cat": "kernel", "name": name, "ts": begin, "dur": end - begin}

        trace = [
            kernel("gemm", 0, 10),
            kernel("ncclDevKernel_AllGather", 5, 25),
            kernel("add", 8, 12),
            kernel("mul", 20, 30),
        ]
        trace.append({"cat": "cpu_op", "name": "aten::add", "ts": 0, "dur": 90})
        self.assertEqual(hidden(trace), (20e-6, 12e-6))
        self.assertEqual(hidden([]), (0, 0))


class OnTheStubDevice(unittest.TestCase):
    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-B", str(SOURCES / "tests/gpu/gpu_check.py"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def test_wrong_options_are_refused(self) -> None:
        for arguments, says in {
            ("--steps", "none"): "there is no step 'none'",
            ("--device", "none"): "invalid choice",
            ("--build", "/none"): "there is no package dear in '/none/python'",
        }.items():
            found = self.command("--device", "stub", *arguments)
            self.assertEqual(found.returncode, 2)
            self.assertIn(says, found.stderr)
            self.assertEqual(found.stderr.count("\n"), 1, found.stderr)

    def test_the_page_shows_the_result_that_is_kept(self) -> None:
        found = self.command("--check-page")
        self.assertEqual((found.returncode, found.stderr), (0, ""))

    def test_every_step(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            found = self.command("--device", "stub", "--quick", "--build", str(BUILD_FOLDER), "--out", folder)
            result = report.read(Path(folder, "result.json"))
        self.assertEqual(found.returncode, 0, found.stderr + json.dumps(result.steps, indent=1))
        self.assertEqual([one["name"] for one in result.steps], [step.name for step in (BUILD, *STEPS)])
        for one in result.steps:
            with self.subTest(one["name"]):
                if one["outcome"] == "passed":
                    self.assertTrue(one["figures"])
                else:
                    self.assertTrue(one["outcome"] == "not here" and one["why"].startswith(NOT_HERE), one)
        self.assertEqual(result.machine["device"], "stub")
        self.assertEqual(found.stdout, report.table(result) + "\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
