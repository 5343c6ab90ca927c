"""The `dear` command as a user meets it:  command_test.py PATH_OF_DEAR"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

DEAR = ""

WORKLOAD = {
    "format": "dear-workload",
    "version": 1,
    "name": "four layers",
    "update_seconds": 0.001,
    "tensors": [{"name": f"weight.{i}", "elements": 500000, "dtype": "fp32"} for i in range(4)],
    "layers": [
        {"name": f"layer.{i}", "tensors": [i], "forward_seconds": 0.01, "backward_seconds": 0.02} for i in range(4)
    ],
}
SIMULATE = ["simulate", "--model", "model.json", "--network", "1gbit", "--ranks", "4"]


class Command(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.write("model.json", json.dumps(WORKLOAD))

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def dear(self, *arguments):
        return subprocess.run([DEAR, *arguments], cwd=self.folder.name, capture_output=True, text=True, check=False)

    def succeed(self, *arguments):
        done = self.dear(*arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def refuse(self, *arguments, naming, command):
        done = self.dear(*arguments)
        self.assertEqual(done.returncode, 2, done)
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertTrue(done.stderr.startswith(f"{command}: "), done.stderr)
        self.assertTrue(done.stderr.endswith(f" (see {command} --help)\n"), done.stderr)
        self.assertIn(naming, done.stderr)


class General(Command):
    def test_says_its_version(self):
        self.assertRegex(self.succeed("--version"), r"^dear \d+\.\d+\.\d+")

    def test_lists_its_commands(self):
        for command in ("train", "launch", "simulate", "trace"):
            self.assertIn(f"\n  {command} ", self.succeed("--help"))

    def test_every_command_has_help(self):
        for command in (["train"], ["launch"], ["simulate"], ["trace"], ["trace", "summary"]):
            self.assertIn("--help", self.succeed(*command, "--help"))

    def test_refuses_what_it_does_not_know(self):
        self.refuse(naming="subcommand", command="dear")
        self.refuse("teleport", naming="teleport", command="dear")
        self.refuse("--fast", naming="--fast", command="dear")
        self.refuse("trace", naming="subcommand", command="dear trace")


class Simulate(Command):
    def test_prints_a_table_and_says_that_it_is_modelled(self):
        output = self.succeed(*SIMULATE, "--policy", "serial,wfbp,dear", "--fusion", "layer")
        self.assertIn("modelled", output)
        lines = output.splitlines()
        header = next(i for i, line in enumerate(lines) if line.startswith("policy"))
        rows = [line.split() for line in lines[header + 1 :]]
        self.assertEqual([row[:3] for row in rows], [[p, "1gbit", "4"] for p in ("serial", "wfbp", "dear")])
        speed_ups = [float(row[-1]) for row in rows]
        self.assertEqual(speed_ups[0], 1)
        self.assertEqual(speed_ups, sorted(speed_ups))
        self.assertEqual(len({len(line) for line in lines[header:]}), 1, "columns are not aligned")

    def test_writes_json(self):
        networks = ["--network", "bandwidth=10gbit,latency=20us"]
        self.succeed(*SIMULATE, *networks, "--policy", "serial,dear", "--fusion", "layer", "--json", "out.json")
        with open(self.path("out.json"), encoding="utf-8") as file:
            results = json.load(file)
        self.assertEqual(
            [(r["cluster"], r["policy"]) for r in results],
            [(n, p) for n in ("1gbit", "bandwidth=10gbit,latency=20us") for p in ("serial", "dear")],
        )
        for result in results:
            self.assertEqual((result["model"], result["ranks"], result["fusion"]), ("four layers", 4, "layer"))
            exposed = result["exposed_communication_seconds"]
            self.assertAlmostEqual(result["iteration_seconds"], result["compute_seconds"] + exposed)
            self.assertGreaterEqual(result["iteration_seconds"], result["compute_seconds"])
            self.assertGreater(result["bound_seconds"], 0)

    def test_one_rank_communicates_nothing(self):
        self.succeed(
            "simulate", "--model", "model.json", "--network", "1gbit", "--ranks", "1", "--policy", "serial", "--json", "1.json"
        )
        with open(self.path("1.json"), encoding="utf-8") as file:
            self.assertAlmostEqual(json.load(file)[0]["exposed_communication_seconds"], 0)

    def test_writes_a_trace_that_trace_summary_reads(self):
        self.succeed(*SIMULATE, "--policy", "dear", "--fusion", "layer", "--trace", "trace.json")
        self.assertIn("modelled", self.succeed("trace", "summary", "trace.json"))

    def test_refuses_wrong_options_files_and_values(self):
        def refuse(*arguments, naming):
            self.refuse("simulate", *arguments, naming=naming, command="dear simulate")

        rest = ["--network", "1gbit", "--ranks", "4"]
        refuse(*rest, naming="--model")
        refuse("--model", "none.json", *rest, naming="none.json")
        self.write("broken.json", "{")
        refuse("--model", "broken.json", *rest, naming="broken.json")
        model = ["--model", "model.json"]
        refuse(*model, "--ranks", "4", naming="--network")
        refuse(*model, "--network", "carrier-pigeon", "--ranks", "4", naming="carrier-pigeon")
        refuse(*model, "--network", "1gbit", "--ranks", "0", naming="--ranks")
        refuse(*model, "--network", "1gbit", "--ranks", "many", naming="many")
        refuse(*model, *rest, "--policy", "hope", naming="hope")
        refuse(*model, *rest, "--fusion", "25", naming="25")
        refuse(*model, *rest, "--iterations", "1", naming="--iterations")
        refuse(*model, *rest, "--colour", "blue", naming="--colour")
        refuse(*model, *rest, "left over", naming="left over")
        refuse(*model, *rest, "--policy", "serial,dear", "--trace", "t.json", naming="--trace")
        refuse(*model, *rest, "--json", "no/such/folder.json", naming="no/such/folder.json")


class TraceSummary(Command):
    def test_refuses_what_is_no_trace(self):
        self.refuse("trace", "summary", naming="FILE", command="dear trace summary")
        self.refuse("trace", "summary", "none.json", naming="none.json", command="dear trace summary")
        self.refuse("trace", "summary", "model.json", naming="model.json", command="dear trace summary")


if __name__ == "__main__":
    DEAR = os.path.abspath(sys.argv.pop(1))
    unittest.main()
