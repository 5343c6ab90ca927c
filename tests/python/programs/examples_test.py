"""The programs of examples/python/ train the same with one rank and with two:  examples_test.py DEAR [unittest's arguments]"""

import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "training"))
import dear_processes

EXAMPLES = ROOT / "examples" / "python"
PROGRAMS = {
    "digits": ["--steps", 48, "--report", 12],
    "chargpt": ["--steps", 8, "--report", 2, "--layers", 1, "--width", 32, "--context", 32, "--characters", 20000],
    "muon": ["--steps", 8, "--report", 2, "--layers", 1, "--width", 32, "--context", 32, "--characters", 20000],
    "moe": ["--steps", 8, "--report", 2, "--layers", 1, "--width", 32, "--context", 32, "--parts", 2],
    "pipeline": ["--steps", 8, "--report", 2, "--layers", 1, "--width", 32, "--context", 32],
    "rounds": ["--steps", 16, "--report", 4, "--layers", 1, "--width", 32, "--context", 32, "--every", 4, "--delay", 1],
    "gpt2": ["--steps", 8, "--report", 2, "--layers", 1, "--width", 32, "--context", 32],
}
LAUNCH = [sys.executable, HERE / "run_programs.py"]


class Programs(dear_processes.Case):
    def losses(self, ranks: int, names: list[str]) -> dict[str, list[float]]:
        programs = [word for name in names for word in ("--", EXAMPLES / f"{name}.py", *PROGRAMS[name])]
        launcher = [] if ranks == 1 else [dear_processes.dear, "launch", "-n", ranks, "--"]
        job = self.start(*launcher, *LAUNCH, *programs[1:], environment={"OMP_NUM_THREADS": "1"})
        ended = job.end()  # torch leaves a folder for temporary files
        job.wait_until_gone()
        self.assertEqual(ended.returncode, 0, ended)
        found: dict[str, list[float]] = {}
        mine = [line for line in ended.stdout.splitlines() if not line.startswith("[1]")]  # rank 1 may be ahead
        for line in mine:
            if begin := re.search(r"== (\w+)\.py", line):
                found.setdefault(name := begin[1], [])
            elif loss := re.search(r"loss ([\d.]+)", line):
                found[name].append(float(loss[1]))
            elif summary := re.search(r"(\d+) ranks", line):
                self.assertEqual(int(summary[1]), ranks)
        return found

    def check(self, names: list[str], alone: list[str]) -> None:
        """Losses fall, and those of `alone` do not depend on the number of ranks."""
        together, by_one = self.losses(2, names), self.losses(1, alone)
        for name in names:
            with self.subTest(program=name):
                self.assertEqual(len(together[name]), 4)
                self.assertLess(together[name][-1], together[name][0])
        for name, losses in by_one.items():
            with self.subTest(program=name):
                for one, other in zip(losses, together[name], strict=True):
                    self.assertAlmostEqual(one, other, delta=1e-4)


class Examples(Programs):
    def test_digits_and_chargpt(self):
        self.check(["digits", "chargpt"], ["digits", "chargpt"])

    def test_moe_and_rounds(self):
        for name, losses in self.losses(2, ["moe", "rounds"]).items():
            with self.subTest(program=name):
                self.assertEqual(len(losses), 4)
                self.assertLess(losses[-1], losses[0])

    def test_pipeline(self):
        self.check(["pipeline"], ["pipeline"])

    def test_without_what_it_needs_a_program_says_so(self):
        # None in sys.modules: the import fails as if nothing were installed.
        code = f"import sys, runpy; sys.modules['transformers'] = None; runpy.run_path(r'{EXAMPLES / 'gpt2.py'}', run_name='__main__')"
        ended = self.end(self.start(sys.executable, "-c", code))
        self.assertEqual(ended.returncode, 1, ended)
        self.assertEqual(ended.stderr.count("\n"), 1, ended)
        self.assertIn("pip install", ended.stderr)


class Frameworks(Programs):
    def test_finetuning(self):
        PROGRAMS["finetune_gpt2"] = PROGRAMS["gpt2"]
        self.check(["finetune_gpt2"], ["finetune_gpt2"])

    def test_lightning(self):
        """Lightning starts the second process itself."""
        found = []
        for ranks in (1, 2):
            program = [EXAMPLES / "lightning_digits.py", "--devices", ranks, "--steps", 48, "--report", 12]
            job = self.start(sys.executable, "-B", *program, environment={"OMP_NUM_THREADS": "1"})
            ended = job.end()
            job.wait_until_gone()
            self.assertEqual(ended.returncode, 0, ended)
            self.assertIn(f", {ranks} ranks", ended.stdout)
            found.append([float(one) for one in re.findall(r"loss ([\d.]+)", ended.stdout)])
        self.assertEqual(len(found[0]), 4)
        self.assertLess(found[0][-1], found[0][0])
        for one, other in zip(*found, strict=True):
            self.assertAlmostEqual(one, other, delta=2e-4)


class MoreExamples(Programs):
    def test_muon_and_gpt2(self):
        self.check(["muon", "gpt2"], ["muon"])


if __name__ == "__main__":
    dear_processes.main()
