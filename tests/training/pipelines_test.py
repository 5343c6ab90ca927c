"""`dear pipeline train`: the losses of one worker, on several, in shared memory and over modelled links; plans that are edited; ranks that die."""

import json
import os
import signal

import dear_processes
from dear_processes import Case, main, options

TINY = options("--batch", 8)[:-2]  # without --sample


class Pipelines(Case):
    def train(self, *changes):
        changes = [str(change) for change in changes]
        usual = dict(zip(TINY[::2], TINY[1::2])) | ({} if "--plan" in changes else {"--micro-batches": "4"})
        words = usual | dict(zip(changes[::2], changes[1::2]))
        return self.start(
            dear_processes.dear, "pipeline", "train", *(word for option in words.items() for word in option)
        )

    def result(self, *changes):
        ended = self.end(self.train(*changes, "--json", "run.json"))
        self.assertEqual((ended.returncode, ended.stderr), (0, ""), ended)
        self.assertIn("times what the plan says", ended.stdout)
        return self.read_json("run.json")

    def assert_close(self, one, other):
        self.assertEqual(len(one["losses"]), len(other["losses"]))
        for a, b in zip(one["losses"], other["losses"]):
            self.assertAlmostEqual(a, b, delta=1e-4)

    def test_workers_learn_what_one_learns(self):
        alone = self.result("--workers", 1)
        self.assertEqual((len(alone["losses"]), alone["modelled"], alone["sent_bytes_per_step"]), (4, [], 0))
        for workers, *changes in (
            (2, "--schedule", "1f1b"),
            (2, "--schedule", "gpipe"),
            (2, "--schedule", "interleaved"),
            (2, "--schedule", "zb-h1"),
            (4, "--replicas", 2),
        ):
            shared = self.result("--workers", workers, *changes)
            self.assertEqual(len(shared["stages"]), 4 if "interleaved" in changes else 2)
            self.assertGreater(shared["sent_bytes_per_step"], 0)
            self.assertGreater(shared["predicted_seconds"], 0)
            self.assert_close(alone, shared)

    def test_modelled_links_are_planned_for_and_plans_go_both_ways(self):
        between = ["--devices", 4, "--sites", 2, "--inside", "1gbit", "--between", "50mbit", "--latency", "1ms"]
        self.succeed(self.start(dear_processes.dear, "pipeline", "clusters", *between, "--output", "sites.json"))
        dense = self.result("--workers", 4, "--network", "sites.json", "--output", "plan.json", "--trace", "trace.json")
        self.assertEqual(dense["modelled"], ["communication"])
        self.assert_close(self.result("--workers", 1), dense)
        names = {event["name"] for event in self.read_json("trace.json")["traceEvents"]}
        self.assertIn("forward stage 3, micro-batch 3", names)
        plan = self.read_json("plan.json")
        plan["schedule"] = "gpipe"
        for stage in plan["stages"]:
            stage.pop("warm_up")
        self.write("edited.json", json.dumps(plan))
        edited = self.result("--workers", 4, "--network", "sites.json", "--plan", "edited.json")
        self.assertEqual((edited["plan"]["schedule"], edited["stages"]), ("gpipe", dense["stages"]))
        self.assert_close(dense, edited)
        smaller = self.result("--workers", 4, "--network", "sites.json", "--compress", "ada-top-k", "--ratio", 20)
        self.assertLess(smaller["sent_bytes_per_step"], dense["sent_bytes_per_step"])

    def test_a_killed_worker_is_named(self):
        job = self.train("--workers", 3, "--steps", 1000000, "--timeout", "3600s")
        job.read_until("step 10 of")
        os.kill(job.pid_of_rank(1), signal.SIGKILL)
        ended = self.end(job)
        self.assertEqual(ended.returncode, 128 + signal.SIGKILL, ended)
        self.assertIn("rank 1 was killed by signal 9", ended.stderr)

    def test_goes_on_from_a_checkpoint_on_other_workers(self):
        whole = self.result("--workers", 2, "--steps", 7, "--clip", 0.5)
        self.result("--workers", 2, "--steps", 4, "--clip", 0.5, "--save", "saved", "--every", 3)
        self.assertEqual(sorted(os.listdir(self.path("saved")))[-2:], ["step-00000003.pt", "step-00000004.pt"])
        resumed = self.start_resuming(
            "--workers", 3, "--steps", 7, "--clip", 0.5, "--save", "saved", "--json", "run.json"
        )
        self.assertIn("resumed at step 4 from saved", self.succeed(resumed))
        run = self.read_json("run.json")
        self.assertEqual((run["resumed_at"], run["steps"]), (4, 3))
        for found, expected in zip(run["losses"], whole["losses"][4:]):
            self.assertAlmostEqual(found, expected, delta=1e-4)
        free = self.result("--workers", 2, "--steps", 7)
        self.assertNotAlmostEqual(free["losses"][-1], whole["losses"][-1], delta=1e-3)
        ended = self.end(self.start_resuming("--workers", 3, "--steps", 7, "--save", "saved"))
        self.assertEqual(ended.returncode, 2, ended)
        self.assertIn("ask for more", ended.stderr)

    def start_resuming(self, *changes):
        usual = dict(zip(TINY[::2], TINY[1::2])) | {"--micro-batches": "4"}
        words = usual | dict(zip(changes[::2], map(str, changes[1::2])))
        return self.start(
            dear_processes.dear, "pipeline", "train", "--resume", *(word for option in words.items() for word in option)
        )

    def test_a_signal_ends_it_after_a_step(self):
        job = self.train("--workers", 2, "--steps", 1000000, "--save", "saved")
        job.read_until("step 10 of")
        os.kill(job.pid_of_rank(1), signal.SIGTERM)
        output = self.succeed(job)
        self.assertRegex(output, "SIGTERM came: saving after step [0-9]+, and ending")
        self.assertEqual(len(os.listdir(self.path("saved"))), 1)
        job = self.train("--workers", 2, "--steps", 1000000)
        job.read_until("step 10 of")
        job.process.send_signal(signal.SIGINT)
        ended = self.end(job)
        self.assertEqual(ended.returncode, 130, ended)
        self.assertIn("of 1000000 steps", ended.stdout)
        self.assertIn("times what the plan says", ended.stdout)

    def test_bad_input_is_one_sentence(self):
        for changes, naming in (
            (("--micro-batches", 3), "3 micro-batches do not divide"),
            (("--micro-batches", 0), "--micro-batches"),
            (("--replicas", 3), "--replicas"),
            (("--schedule", "1f2b"), "did you mean 1f1b"),
            (("--stages-per-worker", 2), "--stages-per-worker"),
            (("--network", "1gbit"), "one link for all"),
            (("--network", "two-sites"), "two-sites"),
            (("--plan", "no.json"), "no.json"),
            (("--compress", "top"), "did you mean top-k"),
            (("--ratio", 0), "--ratio"),
            (("--heads", 5), "--heads"),
            (("--optimizer", "adan"), "did you mean adam"),
            (("--lr", "inf"), "--lr"),
            (("--plan", "no.json", "--micro-batches", 4), "--micro-batches does not go with --plan"),
            (("--trace", "no/where.json"), "--trace"),
            (("--clip", 0), "--clip is 0"),
            (("--clip", "nan"), "--clip is nan"),
            (("--every", 3), "name their folder, too, with --save"),
        ):
            with self.subTest(changes=changes):
                ended = self.end(self.train("--workers", 2, *changes))
                self.assertEqual((ended.returncode, ended.stderr.count("\n")), (2, 1), ended)
                self.assertIn(naming, ended.stderr)


if __name__ == "__main__":
    main()
