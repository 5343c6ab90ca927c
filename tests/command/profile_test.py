"""`dear profile` as a user meets it:  profile_test.py PATH_OF_DEAR PATH_OF_WRITE_SCRIPTS"""

import json
import os
import subprocess
import sys
import unittest

import command_test

WRITE_SCRIPTS = ""
QUICK = ["--steps", "3", "--warm-up", "1", "--threads", "1"]


class Profile(command_test.Command):
    def setUp(self):
        super().setUp()
        subprocess.run([WRITE_SCRIPTS, self.folder.name], check=True)

    def read_json(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return json.load(file)

    def test_writes_a_workload_that_other_commands_read(self):
        output = self.succeed("profile", "net.pt", "--input", "2x3x8x8", "--out", "net.json", *QUICK)
        workload = self.read_json("net.json")
        self.assertEqual((workload["format"], workload["name"]), ("dear-workload", "net, 2x3x8x8"))
        self.assertEqual(
            [(tensor["name"], tensor["elements"], tensor["dtype"]) for tensor in workload["tensors"]],
            [("stem.weight", 108, "fp32"), ("body.weight", 180, "fp32"), ("head.weight", 35, "fp32")],
        )
        self.assertEqual([layer["name"] for layer in workload["layers"]], ["stem", "body", "head"])
        self.assertGreater(workload["update_seconds"], 0)
        for layer in workload["layers"]:
            self.assertGreater(layer["forward_seconds"], 0)
            self.assertGreater(layer["backward_seconds"], 0)
            self.assertIn(f"\n{layer['name']} ", output)
        for text in ("3 layers, 3 tensors, 323 parameters", "forward", "backward", "update", "net.json"):
            self.assertIn(text, output)

        (next_step,) = (line for line in output.splitlines() if line.startswith("next: dear "))
        self.assertIn("net, 2x3x8x8", self.succeed(*next_step.split()[2:]))
        self.succeed("simulate", "--model", "net.json", "--network", "1gbit", "--ranks", "4")
        self.succeed("replay", "--model", "net.json", "--workers", "1", "--iterations", "4", "--policy", "serial")

    def test_models_another_device(self):
        output = self.succeed("profile", "net.pt", "--input", "2x3x8x8", "--out", "net.json", "--device", "a100", "--dtype", "bf16", *QUICK)
        workload = self.read_json("net.json")
        self.assertEqual((workload["device"], workload["tensors"][0]["dtype"]), ("a100", "bf16"))
        self.assertIn("by the roofline of a100", output)
        self.succeed("plan", "--model", "net.json", "--cluster", "a100-100gbit-512", "--ranks", "8", "--policy", "dear")
        self.refuse("plan", "--model", "net.json", "--cluster", "10gbe-64", naming="--scale-compute", command="dear plan")
        self.succeed("plan", "--model", "net.json", "--cluster", "10gbe-64", "--policy", "dear", "--scale-compute", "4")
        for options, naming in ((["--device", "b200"], "b200"), (["--dtype", "bf16"], "--dtype"), (["--device", "a100", "--dtype", "int8"], "int8")):
            self.refuse("profile", "net.pt", "--input", "2x3x8x8", "--out", "x.json", *options, naming=naming, command="dear profile")

    def test_takes_integers_and_a_name(self):
        words = ["profile", "words.pt", "--input", "4x6:int64", "--out", "words.json", *QUICK]
        self.succeed(*words, "--range", "10", "--name", "my words", "--optimizer", "sgd")
        self.assertEqual(self.read_json("words.json")["name"], "my words")
        self.refuse(*words, "--range", "1000", naming="--range", command="dear profile")

    def test_refuses_what_it_cannot_measure(self):
        def refuse(*arguments, naming):
            self.refuse("profile", *arguments, *QUICK, naming=naming, command="dear profile")
            self.assertFalse(os.path.exists(self.path("out.json")), arguments)

        out = ["--out", "out.json"]
        self.write("text.pt", "not a model\n")
        refuse("none.pt", *out, naming="none.pt")
        refuse(".", *out, naming="'.'")
        refuse("text.pt", *out, naming="'text.pt' is no TorchScript")
        refuse("model.json", *out, naming="'model.json' is no TorchScript")
        refuse("bare.pt", "--input", "4", *out, naming="no parameters")
        refuse("frozen.pt", "--input", "4", *out, naming="requires_grad_")
        refuse("detached.pt", "--input", "4", *out, naming="no output of 'detached.pt'")
        refuse("net.pt", *out, naming="takes 1 tensor (x)")
        refuse("net.pt", "--input", "2x5x8x8", *out, naming="does not take these inputs")
        refuse("net.pt", "--input", "2x3x8x8:int64", *out, naming="does not take these inputs")

    def test_refuses_wrong_options(self):
        def refuse(*arguments, naming):
            self.refuse("profile", *arguments, naming=naming, command="dear profile")

        net = ["net.pt", "--input", "2x3x8x8"]
        out = ["--out", "out.json"]
        refuse(*out, naming="MODEL.pt")
        refuse(*net, naming="--out")
        refuse(*net, "--out", "no/such/folder.json", naming="no/such/folder.json")
        refuse("net.pt", "--input", "2,3", *out, naming="'2,3' is no shape")
        refuse("net.pt", "--input", "2x3:fp8", *out, naming="there is no type 'fp8'")
        refuse(*net, *out, "--optimizer", "lion", naming="lion")
        refuse(*net, *out, "--steps", "0", naming="--steps")
        refuse(*net, *out, "--warm-up", "0", naming="--warm-up")
        refuse(*net, *out, "--threads", "none", naming="none")
        refuse(*net, *out, "--name", "", naming="--name")
        refuse(*net, *out, "--colour", "blue", naming="--colour")


if __name__ == "__main__":
    command_test.DEAR = os.path.abspath(sys.argv.pop(1))
    WRITE_SCRIPTS = os.path.abspath(sys.argv.pop(1))
    unittest.main()
