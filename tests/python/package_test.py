"""The package as it is imported, its errors, and the command that it brings."""

import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import unittest

import torch

import dear


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-B", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        env=os.environ | environment,
    )


# What the script `dear` runs.
DEAR = ("-c", "import dear_command; dear_command.main()")


class Import(unittest.TestCase):
    def test_another_release_of_torch_is_refused_with_a_remedy(self):
        with tempfile.TemporaryDirectory() as folder:
            fake = pathlib.Path(folder) / "torch"
            fake.mkdir()
            (fake / "__init__.py").write_text('__version__ = "1.99.0"\n')
            told = run("-c", "import dear", PYTHONPATH=f"{folder}:{os.environ['PYTHONPATH']}")
        last = told.stderr.strip().splitlines()[-1]
        self.assertRegex(last, r"^ImportError: .*1\.99\.0.*pip install")
        release = ".".join(torch.__version__.split(".")[:2])
        self.assertIn(f"compiled with PyTorch {release}", last)

    def test_leaves_what_only_shards_need_alone(self):
        heavy = {"torch.distributed.checkpoint", "torch.distributed.tensor", "sympy"}
        told = run(
            "-c",
            "import sys, torch; before = set(sys.modules)\n"
            f"import dear; print({heavy} & (set(sys.modules) - before) or 'none')",
        )
        self.assertEqual(told.stdout, "none\n", told.stderr)

    def test_says_its_version(self):
        self.assertRegex(dear.__version__, r"^\d+\.\d+\.\d+$")
        self.assertEqual(dear.__version__, dear._C.__version__)

    def test_what_is_exported_is_documented(self):
        for name in dear.__all__:
            self.assertTrue(getattr(dear, name).__doc__, name)


class Errors(unittest.TestCase):
    def test_form_a_tree_that_meets_pythons(self):
        for error in (
            dear.ConfigError,
            dear.ScheduleError,
            dear.MismatchError,
            dear.TransportError,
            dear.TimeoutError,
        ):
            self.assertTrue(issubclass(error, dear.Error))
            self.assertEqual(error.__module__, "dear")
            self.assertEqual(str(pickle.loads(pickle.dumps(error("what and why")))), "what and why")
        self.assertTrue(issubclass(dear.Error, RuntimeError))
        self.assertTrue(issubclass(dear.ConfigError, ValueError))
        self.assertTrue(issubclass(dear.TimeoutError, TimeoutError))

    def test_carry_the_message_of_the_cpp_side(self):
        with self.assertRaisesRegex(dear.ConfigError, "abacus.*shm"):
            dear.init(backend="abacus")

    def test_wrong_types_are_pythons_own_errors(self):
        with self.assertRaises(TypeError):
            dear.init(backend=3)


class Groups(unittest.TestCase):
    def test_without_a_launcher_there_is_one_rank(self):
        group = dear.init()
        self.assertEqual((group.rank, group.size, group.backend), (0, 1, "single"))
        self.assertIn("rank 0", repr(group))

    def test_are_made_of_process_groups(self):
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        self.addCleanup(torch.distributed.destroy_process_group)
        group = dear._C.group_on(torch.distributed.group.WORLD, timeout=5)
        self.assertEqual((group.rank, group.size), (0, 1))
        with self.assertRaises(TypeError):
            dear._C.group_on(None)

    def test_several_ranks_meet_in_shared_memory(self):
        told = run(
            *DEAR, "launch", "-n", "2", sys.executable, "-c",
            "import dear; g = dear.init(); print(g.rank, g.size, g.backend)",
        )  # fmt: skip
        self.assertEqual(told.returncode, 0, told.stderr)
        for line in ("0 2 shm", "1 2 shm"):
            self.assertIn(line, told.stdout)

    def test_of_a_grid(self):
        script = """
import dear, torch
group = dear.init(grid="2x2", reproducible=True)
model = torch.nn.Linear(3, 2)
model, optimizer = dear.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1), process_group=group)
model(torch.full((1, 3), float(group.rank))).sum().backward()
optimizer.step()
print(repr(group), [round(float(bias), 6) for bias in model.bias])
"""
        told = run(*DEAR, "launch", "-n", "4", sys.executable, "-c", script)
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertEqual(told.stdout.count("grid 2x2"), 4, told.stdout)
        self.assertEqual(len({line.split("[")[-1] for line in told.stdout.splitlines()}), 1, told.stdout)

    def test_refuse_a_grid_that_cannot_be(self):
        for arguments, words in (
            ({"grid": "2x2"}, "2x2"),
            ({"grid": "2y2"}, "2y2"),
            ({"grid": "1x1", "algorithm": "thetis"}, "themis-scf"),
            ({"interfaces": ["eth0"]}, "grid"),
        ):
            with self.assertRaisesRegex(dear.ConfigError, words):
                dear.init(**arguments)


class Command(unittest.TestCase):
    def test_is_the_command_of_this_version(self):
        self.assertTrue(run("-m", "dear", "--version").stdout.startswith(f"dear {dear.__version__} ("))

    def test_starts_without_loading_torch(self):
        told = run("-X", "importtime", *DEAR)
        self.assertNotIn("torch", told.stderr)

    def test_gives_its_exit_code_and_message(self):
        told = run(*DEAR, "plan", "--model", "resnet51", "--cluster", "10gbe-64")
        self.assertEqual(told.returncode, 2)
        self.assertRegex(told.stderr, "^dear plan: .*resnet51")

    def test_is_the_process_that_signals_reach(self):
        script = "import os, signal, sys; print(os.getppid(), flush=True); signal.pause()"
        with subprocess.Popen(
            [sys.executable, *DEAR, "launch", "-n", "1", sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as launch:
            assert launch.stdout is not None
            self.assertTrue(launch.stdout.readline())  # the rank runs
            launch.send_signal(signal.SIGTERM)
            self.assertEqual(launch.wait(timeout=60), 128 + signal.SIGTERM)


if __name__ == "__main__":
    unittest.main()
