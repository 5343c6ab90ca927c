"""Every option of every command, without a value, with an empty one, a huge one and a mistyped one; files that are nearly
right; the manual page and completion:  options_test.py PATH_OF_DEAR PATH_OF_WRITE_MUTANTS
"""

import concurrent.futures
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import typing
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "docs"))
import command_reference

DEAR = ""
WRITE_MUTANTS = ""
MOST_SECONDS = 60  # a test that hangs, on a machine that is busy; no measure of speed
MOST_BYTES = 512 * 2**20

WORKLOAD = {
    "format": "dear-workload",
    "version": 1,
    "name": "one layer",
    "update_seconds": 0.001,
    "tensors": [{"name": "weight", "elements": 5000, "dtype": "fp32"}],
    "layers": [{"name": "layer", "tensors": [0], "forward_seconds": 0.01, "backward_seconds": 0.02}],
}
JOB = ["--model", "model.json", "--cluster", "1gbit", "--ranks", "4"]
PIPELINE = ["--model", "gpt2", "--cluster", "two-sites"]
# What a command needs besides the option that is looked at.
NEEDED = {
    "dear simulate": JOB,
    "dear plan": JOB,
    "dear tune": JOB,
    "dear replay": ["--model", "model.json", "--workers", "2"],
    "dear launch": ["-n", "1", "--", "true"],
    "dear diagnose": ["."],
    "dear profile": ["model.json", "--input", "1x1", "--out", "out.json"],
    "dear simulate collective": ["--cluster", "1gbit", "--ranks", "4"],
    "dear pipeline plan": PIPELINE,
    "dear pipeline simulate": PIPELINE,
    "dear trace summary": ["model.json"],
    "dear report": ["model.json"],
    "dear models export": ["resnet50", "--out", "out.json"],
    "dear completion": ["bash"],
}
# Options whose value counts only beside another one.
TINY = ["--workers", "2", "--layers", "1", "--width", "16", "--heads", "2", "--context", "8", "--network", "1gbit"]
AT_ONCE = ["--network", "bandwidth=100gbit,latency=5us"]
# Calls of every command that has --json, and what is modelled in each.
RESULTS = [
    ("dear train", [*TINY, "--steps", "2"], ["communication"]),
    ("dear train", [*TINY, "--steps", "2", "--compare", "serial,dear"], ["communication"]),
    ("dear tune training", [*TINY, "--steps", "60"], ["communication"]),
    ("dear replay", ["--model", "model.json", "--workers", "2", "--iterations", "4"], ["computation"]),
    ("dear replay", ["--model", "model.json", "--workers", "2", "--iterations", "4", *AT_ONCE], ["computation", "communication"]),
    ("dear replay", ["--model", "resnet18", "--batch", "1", "--device", "h100", "--workers", "2", "--policy", "spd-kfac", "--iterations", "4", *AT_ONCE],
     ["computation", "communication"]),
    ("dear simulate", JOB, ["computation", "communication"]),
    ("dear simulate", [*JOB, "--rounds", "4"], ["computation", "communication"]),
    ("dear simulate", ["--model", "resnet18", "--cluster", "10gbe-64", "--policy", "spd-kfac"], ["computation", "communication"]),
    ("dear simulate collective", ["--cluster", "10gbe-64"], ["computation", "communication"]),
    ("dear plan", [*JOB, "--policy", "dear"], ["computation", "communication"]),
    ("dear plan", ["--model", "resnet18", "--cluster", "10gbe", "--ranks", "8", "--optimizer", "kfac"], ["computation", "communication"]),
    ("dear simulate", ["--model", "gpt2-s-moe", "--cluster", "p3dn-64", "--ranks", "8"], ["computation", "communication"]),
    ("dear plan", ["--model", "gpt2-s-moe", "--cluster", "p3dn-64", "--ranks", "8"], ["computation", "communication"]),
    ("dear pipeline plan", PIPELINE, ["computation", "communication"]),
    ("dear pipeline simulate", PIPELINE, ["computation", "communication"]),
    ("dear rounds run", ["--problem", "quadratic"], []),
    ("dear rounds run", ["--problem", "quadratic", "--workers", "2", *AT_ONCE], ["communication"]),
    ("dear edge plan", ["--groups", "3"], ["computation", "communication"]),
    ("dear edge run", ["--rounds", "2"], ["computation", "communication"]),
    ("dear edge train", ["--groups", "1", "--parameters", "500", "--iterations", "2"], ["computation", "communication"]),
    ("dear edge average", ["--ranks", "2", "--rounds", "2", "--elements", "10"], []),
    ("dear pipeline train", [*TINY[:-2], "--steps", "2"], []),
    ("dear tune", JOB, ["computation", "communication"]),
    ("dear bench collective", ["--ranks", "2", "--sizes", "4B", "--repeat", "1", "--rivals", "none"], []),
    ("dear bench links", ["--sizes", "16KiB,64KiB", "--repeat", "9", "--network", "bandwidth=100mbit,latency=50us"], ["communication"]),
    ("dear aggregate", ["--workers", "2", "--elements", "4K", "--steps", "2"], []),
    ("dear aggregate", ["--workers", "2", "--elements", "4K", "--steps", "2", *AT_ONCE], ["communication"]),
]  # fmt: skip
BESIDE = {
    "--every": ["--save", "saved"],
    "--keep": ["--save", "saved"],
    "--chunks": ["--grid", "1x2"],
    "--interfaces": ["--grid", "1x2"],
    **{name: ["--model", "moe-gpt", "--experts", "2"] for name in ("--capacity-factor", "--mixture-every", "--parts")},
    "--experts": ["--model", "moe-gpt"],
}
FREE = {"--name"}  # any text will do
HUGE = "9" * 400
MISTYPED = "model.json/zzz"  # no number and no name, and as a path within something that is no folder


class Option(typing.NamedTuple):
    command: str
    name: str
    value: str  # "" for a flag


def options_of(command: str) -> list:
    found = []
    for entry in command_reference.read_help(command_reference.help_of(DEAR, command)).sections.get("Options", []):
        names, _, value = entry.head.partition(" ")
        found += [Option(command, name, value) for name in names.split(",") if name not in ("-h", "--help", "--version")]
    return found


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))


class Calls(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        (pathlib.Path(self.folder.name) / "model.json").write_text(json.dumps(WORKLOAD), encoding="utf-8")

    def run_dear(self, arguments: list, limited: bool = False) -> subprocess.CompletedProcess:
        return subprocess.run([DEAR, *arguments], cwd=self.folder.name, capture_output=True, text=True, check=False,
                              timeout=MOST_SECONDS, stdin=subprocess.DEVNULL, preexec_fn=limit_memory if limited else None)  # fmt: skip

    def fault_of(self, arguments: list) -> str:
        """What is wrong with how the call is refused; "" where it is refused with one sentence and code 2."""
        try:
            done = self.run_dear(arguments)
        except subprocess.TimeoutExpired:
            return "does not end"
        if done.returncode != 2:
            return f"code {done.returncode}: {done.stdout[-200:]}{done.stderr[-300:]}"
        if done.stdout or done.stderr.count("\n") != 1 or not done.stderr[:-1].isprintable() or len(done.stderr) > 2000:
            return f"no one sentence: {done.stdout[-200:]!r} {done.stderr[-500:]!r}"
        return ""

    def refuse_all(self, calls: list) -> None:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            faults = pool.map(self.fault_of, calls)
        wrong = [f"dear {' '.join(call)[:200]}\n    {fault}" for call, fault in zip(calls, faults) if fault]
        self.assertFalse(wrong, "\n".join(wrong))


class Options(Calls):
    def test_of_every_command_refuse_what_is_no_value(self) -> None:
        calls = []
        for command in command_reference.all_commands(DEAR):
            words = command.split()[1:]
            for option in options_of(command):
                if not option.value:
                    continue
                rest = BESIDE.get(option.name, []) + needed(command, option.name)
                calls += [[*words, option.name, "", *rest], [*words, option.name + "=", *rest]]
                if option.name not in FREE:
                    calls += [[*words, option.name, bad, *rest] for bad in (HUGE, MISTYPED)]
        self.assertGreater(len(calls), 400)
        self.refuse_all(calls)

    def test_that_are_mistyped_are_named_with_the_one_that_was_meant(self) -> None:
        for command in command_reference.all_commands(DEAR):
            names = [option.name for option in options_of(command) if option.name.startswith("--")]
            if not names:
                continue
            wrong = names[-1][:-1] + "qq"
            done = self.run_dear([*command.split()[1:], wrong])
            self.assertEqual(done.returncode, 2, done)
            self.assertIn(f"there is no option {wrong}", done.stderr)
            self.assertRegex(done.stderr, "did you mean --")

    def test_that_hold_nothing_but_commas_or_are_below_zero_are_refused(self) -> None:
        self.refuse_all([["simulate", "--ranks", ",", *needed("dear simulate", "--ranks")], ["simulate", "--policy", ",,", *JOB],
                         ["train", "--seed", "-1"], ["aggregate", "--seed", "-1"]])  # fmt: skip

    def test_that_name_the_same_file_are_refused(self) -> None:
        self.refuse_all([["simulate", *JOB, "--json", "out.svg", "--plot", "./out.svg"], ["plan", *JOB, "--json", "out", "--schedule", "./out"],
                         ["train", "--json", "out", "--trace", "./out"], ["tune", *JOB, "--json", "out.svg", "--plot", "./out.svg"],
                         ["bench", "collective", "--json", "out.svg", "--plot", "./out.svg"],
                         ["bench", "links", "--json", "out.json", "--output", "./out.json"],
                         ["rounds", "run", "--json", "out.svg", "--plot", "./out.svg"], ["edge", "run", "--csv", "out", "--json", "./out"],
                         ["replay", "--model", "model.json", "--json", "out", "--trace", "./out"]])  # fmt: skip

    def test_draw_svg_pdf_and_png_and_nothing_else(self) -> None:
        commands = [["simulate", *JOB], ["plan", *JOB], ["tune", *JOB], ["simulate", "collective", "--cluster", "10gbe-64"],
                    ["bench", "collective"], ["train", "--compare-compression", "dense fp16"], ["tune", "training"]]  # fmt: skip
        self.refuse_all([[*command, "--plot", "picture.jpg"] for command in commands])
        done = self.run_dear(["train", "--compare-compression", "dense fp16", "--plot", "picture"])
        self.assertIn("--plot: cannot draw 'picture'", done.stderr)
        self.assertIn(".svg, .pdf or .png", done.stderr)
        for ending, begin in (("pdf", b"%PDF-"), ("png", b"\x89PNG")):
            path = os.path.join(self.folder.name, f"bars.{ending}")
            self.assertEqual(self.run_dear(["simulate", *JOB, "--policy", "dear", "--plot", path]).returncode, 0)
            with open(path, "rb") as file:
                self.assertTrue(file.read().startswith(begin))

    def test_whose_files_cannot_be_written_in_the_end_are_failures(self) -> None:
        for command in (["simulate", *JOB, "--policy", "dear"], ["plan", *JOB, "--policy", "dear"]):
            done = self.run_dear([*command, "--json", "/dev/full"])
            self.assertEqual(done.returncode, 1, done)
            self.assertIn("/dev/full", done.stderr)

    def test_name_what_was_meant(self) -> None:
        for arguments, meant in (
            (["simulat"], "simulate"),
            (["train", "--policy", "dera"], "dear"),
            (["train", "--optimizer", "adamv"], "adamw"),
            (["train", "--backend", "gooo"], "gloo"),
            (["simulate", "--model", "resnet5", "--cluster", "1gbit", "--ranks", "4"], "resnet50"),
            (["simulate", "--model", "model.json", "--cluster", "10gbe-46"], "10gbe-64"),
            (["plan", *JOB, "--optimizer", "sdg"], "sgd"),
        ):
            done = self.run_dear(arguments)
            self.assertEqual(done.returncode, 2, done)
            self.assertRegex(done.stderr, f"did you mean {meant}\\?")


def needed(command: str, option: str) -> list:
    words = list(NEEDED.get(command, []))
    if option in words:
        at = words.index(option)
        del words[at : at + 2]
    if option == "--network" and "--cluster" in words:
        at = words.index("--cluster")
        del words[at : at + 2]
    return words


class Results(Calls):
    def test_of_every_command_say_which_version_wrote_them_and_what_is_modelled(self) -> None:
        version = self.run_dear(["--version"]).stdout
        number = version.split()[1]
        having = {option.command for command in command_reference.all_commands(DEAR) for option in options_of(command) if option.name == "--json" and command != "dear diagnose"}
        self.assertEqual({command for command, _, _ in RESULTS}, having)
        for command, arguments, modelled in RESULTS:
            if "PyTorch: none" in version and command in ("dear train", "dear tune training"):
                continue
            with self.subTest(command=command, arguments=arguments):
                self.check([*command.split()[1:], *arguments, "--json", "result.json"], "result.json", number, modelled)
        self.check(["study", "themis", "--quick", "--out", "study"], "study/results.json", number, ["computation", "communication"])

    def check(self, call: list, path: str, number: str, modelled: list) -> None:
        done = self.run_dear(call)
        self.assertEqual(done.returncode, 0, done)
        results = json.loads((pathlib.Path(self.folder.name) / path).read_text())
        for result in results if isinstance(results, list) else [results]:
            self.assertEqual((result["dear_version"], result["modelled"]), (number, modelled), call)
            self.assertGreater(len(result), 2)


class Help(Calls):
    def test_of_every_command_has_an_example_that_it_takes(self) -> None:
        for command in command_reference.all_commands(DEAR):
            text = command_reference.help_of(DEAR, command)
            self.assertLessEqual(max(len(line) for line in text.splitlines() if "http" not in line and "For example" not in line), 100, command)
            inner = command_reference.read_help(text).sections.get("Subcommands")
            if inner and command not in ("dear simulate", "dear tune", "dear models"):  # which do something themselves
                continue
            self.assertIn("For example: ", text, command)
            self.assertIn(command, text.rpartition("For example: ")[2], command)

    def test_says_what_the_build_has(self) -> None:
        self.assertRegex(self.run_dear(["--version"]).stdout, r"^dear \d+\.\d+\.\d+.*\nPyTorch: .+\nMPI: .+\nGloo: .+\n$")

    def test_the_manual_page_has_every_command_and_option(self) -> None:
        page = self.run_dear(["man"]).stdout.replace("\\-", "-")
        for command in command_reference.all_commands(DEAR)[1:]:
            self.assertIn(f".SS {command}\n", page)
        for option in options_of("dear train"):
            self.assertIn(option.name, page)
        if shutil.which("man"):
            shown = subprocess.run(["man", "--warnings", "-l", "-"], input=self.run_dear(["man"]).stdout, capture_output=True, text=True, check=False)
            self.assertEqual((shown.returncode, shown.stderr), (0, ""))


class Completion(Calls):
    def complete(self, *words: str) -> list:
        """What bash offers for the last word."""
        script = self.run_dear(["completion", "bash"]).stdout
        quoted = " ".join(f"'{word}'" for word in words)
        script += f"\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _dear; printf '%s\\n' \"${{COMPREPLY[@]}}\"\n"
        done = subprocess.run(["bash", "-u"], input=script, capture_output=True, text=True, check=False, cwd=self.folder.name)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.split()

    def test_in_bash_offers_commands_options_and_names(self) -> None:
        self.assertEqual(self.complete("dear", "si"), ["simulate"])
        self.assertIn("--workers", self.complete("dear", "train", "--"))
        self.assertEqual(self.complete("dear", "trace", "sum"), ["summary"])
        self.assertIn("dear-eager", self.complete("dear", "train", "--policy", "dear"))
        self.assertIn("model.json", self.complete("dear", "simulate", "--model", "mod"))
        self.assertIn("resnet50", self.complete("dear", "simulate", "--model", "res"))
        self.assertEqual(self.complete("dear", "train", "--workers", ""), [])
        self.assertIn("model.json", self.complete("dear", "train", "--json", ""))

    def test_in_zsh_is_a_script_of_zsh(self) -> None:
        script = self.run_dear(["completion", "zsh"]).stdout
        self.assertTrue(script.startswith("#compdef dear\n"))
        if shutil.which("zsh"):
            done = subprocess.run(["zsh", "-n"], input=script, capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))


class Files(Calls):
    def test_that_are_nearly_right_are_read_or_refused(self) -> None:
        listed = subprocess.run([WRITE_MUTANTS, self.folder.name, "120"], capture_output=True, text=True, check=True)
        calls = [line.split("\t")[1:] for line in listed.stdout.splitlines()]
        self.assertEqual(len(calls), 120)
        for call in calls:
            done = self.run_dear(call, limited=True)
            self.assertIn(done.returncode, (0, 2), (call, done.stderr))
            if done.returncode == 2:
                self.assertRegex(done.stderr, re.compile(r"\A[^\n\x00-\x1f\x7f]+\n\Z"), call)

    def test_that_are_none_are_refused(self) -> None:
        sparse = pathlib.Path(self.folder.name) / "sparse"
        with sparse.open("wb") as file:
            file.truncate(2**31)
        os.mkfifo(sparse.with_name("pipe"))
        readers = [
            ["simulate", "--cluster", "1gbit", "--ranks", "4", "--model"],
            ["simulate", "--model", "model.json", "--cluster"],
            ["simulate", *JOB, "--schedule"],
            ["pipeline", "plan", "--cluster", "two-sites", "--model"],
            ["pipeline", "plan", "--model", "gpt2", "--cluster"],
            ["pipeline", "simulate", *PIPELINE, "--plan"],
            ["trace", "summary"],
            ["study", "calibration", "--published"],
            ["study", "kfac", "--convergence"],
            ["train", "--data"],
            ["train", "--schedule"],
        ]
        special = ["/dev/zero", "/dev/full", str(sparse), "pipe", ".", "no-such-file"]
        # A folder is text, to learn from.
        self.refuse_all([[*reader, path] for reader in readers for path in special if (reader[-1], path) != ("--data", ".")])


if __name__ == "__main__":
    DEAR, WRITE_MUTANTS = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
