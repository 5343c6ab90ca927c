"""dear.simulate() and dear.plan() say what the commands say, as values and as pictures."""

import contextlib
import dataclasses
import io
import json
import os
import pathlib
import re
import subprocess
import tempfile
import threading
import unittest
import xml.etree.ElementTree

import dear_command

import dear


def command(*arguments: str) -> object:
    """What the command writes with --json, without the origin that each result has there."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "result.json"
        subprocess.run(
            [dear_command.program(), *arguments, "--json", path],
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=100,
        )
        results = json.loads(path.read_text())
    for result in results if isinstance(results, list) else [results]:
        for name in ("dear_version", "modelled"):
            del result[name]
    return results


@contextlib.contextmanager
def inside(folder: str):
    """contextlib.chdir of Python 3.11."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def tiny() -> dear.Workload:
    """Seconds on two ranks over a second an element: forward 2, backward 4."""
    return dear.Workload(
        name="tiny",
        tensors=(dear.Tensor("a", 2), dear.Tensor("b", 2)),
        layers=(dear.Layer("first", (0,), 1.0, 2.0), dear.Layer("second", (1,), 1.0, 2.0)),
    )


class PlanKfac(unittest.TestCase):
    def test_equals_the_command(self):
        plan = dear.plan_kfac("resnet50", "10gbe", ranks=8, policy=["d-kfac", "spd-kfac"], batch=16)
        self.assertEqual(
            [plan.to_dict()],
            command("plan", "--optimizer", "kfac", "--model", "resnet50", "--cluster", "10gbe", "--ranks", "8",
                    "--policy", "d-kfac,spd-kfac", "--batch", "16"),
        )  # fmt: skip
        self.assertLessEqual(plan.rows[0].iteration_seconds, plan.rows[-1].iteration_seconds)
        self.assertIn(plan.rows[0].policy, plan._repr_html_())

    def test_refuses_shapes_that_nobody_knows(self):
        with self.assertRaisesRegex(dear.ConfigError, "shapes"):
            dear.plan_kfac(tiny(), "10gbe", ranks=4)


class Simulate(unittest.TestCase):
    def test_names_what_takes_mixtures_of_experts(self):
        for call in (
            lambda: dear.simulate("gpt2-s-moe", "10gbe", ranks=4),
            lambda: dear.plan("gpt2-s-moe", "10gbe", ranks=4),
        ):
            with self.assertRaisesRegex(dear.ConfigError, "only `dear simulate` and `dear plan` take it"):
                call()

    def test_names_what_takes_policies_of_kfac(self):
        with self.assertRaisesRegex(dear.ConfigError, "plan_kfac"):
            dear.simulate("resnet50", "10gbe", ranks=4, policy=["spd-kfac"])

    def test_equals_the_command(self):
        self.assertEqual(
            dear.simulate(["resnet50", "bert-base"], "10gbe-64", ranks=[16, 64], policy=["wfbp", "dear"]).to_dict(),
            command("simulate", "--model", "resnet50,bert-base", "--cluster", "10gbe-64", "--ranks", "16,64",
                    "--policy", "wfbp,dear"),
        )  # fmt: skip

    def test_equals_the_command_with_every_option(self):
        simulation = dear.simulate(
            "bert-base", "10gbe", ranks=8, policy="dear", fusion="planned", algorithm="halving-doubling",
            detail="blocks", iterations=8, jitter=0.1, repetitions=2, seed=7, optimizer_states=2, device="v100",
            batch=4, size=32, dtype="fp16",
        )  # fmt: skip
        self.assertEqual(
            simulation.to_dict(),
            command("simulate", "--model", "bert-base", "--cluster", "10gbe", "--ranks", "8", "--policy", "dear",
                    "--fusion", "planned", "--algorithm", "halving-doubling", "--detail", "blocks", "--iterations", "8",
                    "--jitter", "0.1", "--repetitions", "2", "--seed", "7", "--optimizer-states", "2", "--device",
                    "v100", "--batch", "4", "--size", "32", "--dtype", "fp16"),
        )  # fmt: skip
        self.assertGreater(simulation[0].iteration_seconds_half_width, 0)

    def test_equals_the_command_for_several_jobs(self):
        self.assertEqual(
            dear.simulate("resnet18", "10gbe", ranks=2, policy="wfbp", detail="flows", jobs=2, placement="packed")
            .to_dict(),
            command("simulate", "--model", "resnet18", "--cluster", "10gbe", "--ranks", "2", "--policy", "wfbp",
                    "--detail", "flows", "--jobs", "2", "--placement", "packed"),
        )  # fmt: skip

    def test_is_a_sequence_of_cases(self):
        simulation = dear.simulate(tiny(), "bandwidth=8gbit,latency=50us", ranks=2)
        self.assertEqual([case.policy for case in simulation], ["serial", "wfbp", "dear"])
        self.assertEqual(simulation[-1], simulation.cases[2])
        case = simulation[0]
        self.assertAlmostEqual(case.iteration_seconds, case.compute_seconds + case.exposed_communication_seconds)
        self.assertEqual(case.buckets, len(dear.simulate(tiny(), "10gbe", ranks=2, policy="serial")))
        with self.assertRaises(AttributeError):
            case.ranks = 3

    def test_shows_itself(self):
        simulation = dear.simulate(tiny(), "10gbe", ranks=2, policy=["wfbp", "dear"])
        table = simulation._repr_html_()
        self.assertEqual(xml.etree.ElementTree.fromstring(f"<div>{table}</div>").tag, "div")
        self.assertIn("wfbp", table)
        self.assertIn("modelled", table)
        xml.etree.ElementTree.fromstring(simulation._repr_svg_())
        self.assertNotIn("_C", repr(simulation))

    def test_draws_timelines(self):
        simulation = dear.simulate(tiny(), "10gbe", ranks=2, policy=["wfbp", "dear"], iterations=10)
        with tempfile.TemporaryDirectory() as folder:
            simulation.save_plot(f"{folder}/bars.png")
            self.assertTrue(pathlib.Path(folder, "bars.png").read_bytes().startswith(b"\x89PNG"))
            with self.assertRaisesRegex(dear.ConfigError, "svg, .pdf or .png"):
                simulation.save_plot(f"{folder}/bars")
        picture = simulation.timeline(-1, first_iteration=2, iterations=1)
        xml.etree.ElementTree.fromstring(picture._repr_svg_())
        self.assertIn("policy dear", picture.svg)
        self.assertIn("forward first, iteration 2", picture.svg)
        self.assertNotIn("iteration 3", picture.svg)
        with tempfile.TemporaryDirectory() as folder:
            picture.save(f"{folder}/timeline.svg")
            simulation.save_trace(f"{folder}/trace.json", 0)
            summary = subprocess.run(
                [dear_command.program(), "trace", "summary", f"{folder}/trace.json"],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
        self.assertIn("wfbp", summary.stdout)
        with self.assertRaisesRegex(dear.ConfigError, "iteration 99"):
            simulation.timeline(first_iteration=99)
        with self.assertRaises(IndexError):
            simulation.timeline(2)

    def test_refuses_as_the_cpp_side_does(self):
        for options, word in (
            ({"model": "resnet51"}, "resnet51"),
            ({"cluster": "11gbe"}, "11gbe"),
            ({"policy": "fastest"}, "fastest"),
            ({"fusion": "wide"}, "wide"),
            ({"ranks": 6}, "6 ranks"),
            ({"ranks": 2**20, "jobs": 2**20}, "ranks at most"),
            ({"jobs": 0}, "0 jobs"),
            ({"iterations": 3}, "iterations"),
            ({"jitter": -0.5}, "jitter"),
            ({"repetitions": 0}, "repetitions"),
            ({"optimizer_states": -1}, "optimiser"),
            ({"batch": -1}, "batch"),
            ({"model": "none.json"}, "none.json"),
            ({"model": tiny(), "dtype": "fp16"}, "dtype"),
            ({"schedule": "none.json"}, "none.json"),
            ({"schedule": "none.json", "policy": "dear"}, "leave policy"),
        ):
            with self.subTest(options=options), self.assertRaisesRegex(dear.ConfigError, word):
                dear.simulate(**{"model": "resnet50", "cluster": "10gbe-64"} | options)

    def test_releases_the_interpreter(self):
        """Another thread runs while the simulation does: it ends before the simulation is awaited."""
        other = threading.Thread(target=dear.simulate, args=("bert-large", "10gbe-64"))
        other.start()
        self.assertEqual(dear.simulate(tiny(), "10gbe", ranks=2, policy="dear")[0].policy, "dear")
        other.join()

    def test_lists_the_names_there_are(self):
        self.assertIn("resnet50", dear.models())
        self.assertIn("10gbe-64", dear.clusters())
        self.assertIn("dear", dear.policies())


class Plan(unittest.TestCase):
    def test_equals_the_command(self):
        policies = ["wfbp", "ddp", "dear"]
        plan = dear.plan("resnet50", "10gbe-64", policy=policies, algorithm="ring")
        [answer] = command("plan", "--model", "resnet50", "--cluster", "10gbe-64", "--policy", ",".join(policies),
                           "--algorithm", "ring")  # fmt: skip
        self.assertEqual(plan.to_dict(), answer)
        self.assertEqual(plan.choice, plan.rows[plan.best])
        parts = ("compute", "overlap", "fusion", "start_up", "interference")
        for row in plan.rows:
            self.assertAlmostEqual(sum(getattr(row, f"{part}_seconds") for part in parts), row.iteration_seconds)

    def test_plans_accumulated_and_checkpointed(self):
        options = {"policy": ["wfbp", "dear", "fsdp"], "ranks": 16}
        plan = dear.plan("gpt2", "10gbe-64", accumulate=4, checkpoint_activations=True, **options)
        [answer] = command("plan", "--model", "gpt2", "--cluster", "10gbe-64", "--policy", "wfbp,dear,fsdp", "--ranks", "16",
                           "--accumulate", "4", "--checkpoint-activations")  # fmt: skip
        self.assertEqual(plan.to_dict(), answer)
        self.assertEqual([one.policy for one in plan.left_out], ["fsdp"])
        self.assertIsNotNone(plan.gain)
        self.assertEqual(plan.gain.over, "wfbp")
        usual = dear.plan("gpt2", "10gbe-64", **options)
        self.assertLess(plan.choice.memory_bytes, usual.choice.memory_bytes)
        xml.etree.ElementTree.fromstring(plan.plot())

    def test_scales_to_another_device_or_refuses(self):
        job = dataclasses.replace(tiny(), device="cpu, 4 threads")
        self.assertEqual(dear.Workload.from_json(job.to_json()), job)
        for ask in (dear.plan, dear.simulate):
            with self.assertRaisesRegex(dear.ConfigError, "rtx2080ti"):
                ask(job, "10gbe-64", policy="dear")
        self.assertEqual(dear.plan(job, "10gbe-64", policy="dear", scale_compute=0.5).choice.compute_seconds, 3)

    def test_shows_itself(self):
        table = dear.plan(tiny(), "10gbe", ranks=2, policy=["wfbp", "dear"])._repr_html_()
        xml.etree.ElementTree.fromstring(f"<div>{table}</div>")
        self.assertIn("what it waits for", table)
        self.assertIn("bold", table)

    def test_writes_the_schedule_that_a_simulation_takes(self):
        plan = dear.plan(tiny(), "10gbe", ranks=2, policy="dear")
        with tempfile.TemporaryDirectory() as folder:
            plan.save_schedule(f"{folder}/schedule.json")
            [case] = dear.simulate(tiny(), "10gbe", ranks=2, schedule=f"{folder}/schedule.json")
        self.assertEqual((case.policy, case.buckets), ("dear", plan.choice.buckets))

    def test_refuses_as_the_cpp_side_does(self):
        with self.assertRaisesRegex(dear.ConfigError, "say how many"):
            dear.plan("resnet50", "10gbe")
        with self.assertRaisesRegex(dear.ConfigError, "fits"):
            dear.plan("llama-70b", "10gbe-64", policy="dear", device="v100", dtype="fp16").schedule()


class Compression(unittest.TestCase):
    def test_of_a_simulation_equals_the_command(self):
        compress = ["top-k:0.02,ef", "fp16"]
        simulation = dear.simulate("resnet50", "10gbe-64", policy=["wfbp", "dear"], compress=compress)
        self.assertEqual(
            simulation.to_dict(),
            command("simulate", "--model", "resnet50", "--cluster", "10gbe-64", "--policy", "wfbp,dear",
                    "--compress", compress[0], "--compress", compress[1]),
        )  # fmt: skip
        self.assertEqual([case.compression for case in simulation], 2 * ["", *compress])
        self.assertGreater(simulation[1].codec_seconds, 0)
        table = simulation._repr_html_()
        xml.etree.ElementTree.fromstring(f"<div>{table}</div>")
        self.assertIn("<th", table)
        self.assertIn("compression", table)
        self.assertNotIn("compression", dear.simulate("resnet50", "10gbe-64", policy="dear")._repr_html_())

    def test_of_a_plan_equals_the_command(self):
        plan = dear.plan("resnet50", "10gbe-64", policy=["wfbp", "dear"], compress="random-block:0.01", codec="none")
        [answer] = command("plan", "--model", "resnet50", "--cluster", "10gbe-64", "--policy", "wfbp,dear",
                           "--compress", "random-block:0.01", "--codec", "none")  # fmt: skip
        self.assertEqual(plan.to_dict(), answer)
        [row] = plan.compressed
        self.assertIsInstance(row, dear.CompressedRow)
        self.assertEqual(row.codec_seconds, 0)
        self.assertLess(row.iteration_seconds, row.dense_iteration_seconds)
        self.assertEqual(dear.plan("resnet50", "10gbe-64", policy="dear").compressed, ())

    def test_of_rounds_equals_the_command(self):
        arguments = ("--model", "resnet50", "--cluster", "geo-1gbit-32", "--policy", "dear")
        [answer] = command("plan", *arguments)
        plan = dear.plan("resnet50", "geo-1gbit-32", policy="dear")
        self.assertEqual(plan.to_dict(), answer)
        assert plan.rounds is not None
        self.assertEqual(plan.rounds.policy, "dear")
        for row in plan.rounds.rows:
            hidden = row.steps_a_round >= plan.rounds.hidden_from_steps
            self.assertEqual(row.overlapped_seconds == plan.rounds.compute_seconds, hidden)
            self.assertIsInstance(row, dear.PlannedRound)
        self.assertIsNone(dear.plan("resnet50", "10gbe-64", policy="dear").rounds)

    def test_refuses_what_cannot_be(self):
        for wrong in ({"compress": "zip"}, {"compress": "fp16", "codec": "fast"}, {"union_density": 2.0}):
            with self.subTest(wrong), self.assertRaises(dear.ConfigError):
                dear.simulate(tiny(), "10gbe", ranks=2, **wrong)
        with self.assertRaisesRegex(dear.ConfigError, "fsdp"):
            dear.simulate("resnet50", "10gbe-64", policy="fsdp", compress="fp16")
        with self.assertRaisesRegex(dear.ConfigError, "fp32"):
            dear.plan("llama-7b", "10gbe-64", policy="dear", compress="fp16")


class Workloads(unittest.TestCase):
    def test_survive_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "job.json"
            tiny().save(path)
            self.assertEqual(dear.Workload.load(path), tiny())
            self.assertEqual(dear.simulate(path, "10gbe", ranks=2).cases, dear.simulate(tiny(), "10gbe", ranks=2).cases)
        self.assertEqual(dear.Workload.from_json(tiny().to_json()), tiny())
        self.assertEqual(dear.Workload.from_dict(tiny().to_dict()), tiny())

    def test_are_those_of_models_by_name(self):
        workload = dear.Workload.of_model("resnet50", device="v100", batch=32)
        self.assertEqual(workload.bytes, 102228128)
        self.assertGreater(workload.backward_seconds, workload.forward_seconds)
        self.assertEqual(tiny().forward_seconds, 2)
        self.assertIn("resnet50", workload._repr_html_())

    def test_that_cannot_be_are_refused(self):
        fields = tiny().to_dict()
        fields["tensors"][0]["elements"] = "two"
        with self.assertRaisesRegex(dear.ConfigError, "elements"):
            dear.Workload.from_dict(fields)
        for path in ("nowhere.json", "/dev/zero", "."):
            with self.subTest(path), self.assertRaisesRegex(dear.ConfigError, path):
                dear.Workload.load(path)
        none = dear.Workload(name="none", tensors=(), layers=())
        with self.assertRaisesRegex(dear.ConfigError, "layer"):
            dear.simulate(none, "10gbe", ranks=2)


class Files(unittest.TestCase):
    def test_a_file_that_cannot_be_written_is_named_and_leaves_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            for path in (f"{folder}/absent/file.json", folder):
                for save in (tiny().save, dear.Trace("{}").save):
                    with self.subTest(path=path), self.assertRaises(dear.ConfigError) as caught:
                        save(path)
                    self.assertIn(path, str(caught.exception))
            self.assertEqual(os.listdir(folder), [])


class Page(unittest.TestCase):
    def test_programs_run_as_they_stand(self):
        page = (pathlib.Path(__file__).parents[2] / "docs/python.md").read_text()
        [section] = re.findall(r"^## Simulate and plan$(.*?)^## ", page, re.MULTILINE | re.DOTALL)
        programs = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
        self.assertGreater(len(programs), 1)
        for program in programs:
            with tempfile.TemporaryDirectory() as folder, inside(folder), self.subTest(program=program):
                with contextlib.redirect_stdout(io.StringIO()):
                    exec(compile(program, "docs/python.md", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    unittest.main()
