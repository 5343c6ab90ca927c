"""What `dear train` prints and writes, and what it refuses."""

import json
import os
import xml.etree.ElementTree

import dear_processes
from dear_processes import POLICIES, Case, main

ORIGIN = ["dear_version", "modelled"]  # of a result, not of the runs within one
KEYS = [
    "policy", "workers", "steps", "network", "fusion", "optimizer", "gradients", "losses", "step_seconds",
    "iteration_seconds", "compute_seconds",
    "exposed_communication_seconds", "characters_per_second", "digest",
]  # fmt: skip


class Outputs(Case):
    def dear(self, *arguments):
        return self.succeed(self.start(dear_processes.dear, *arguments))

    def check_run(self, run, **expected):
        tuned = run["fusion"].startswith("auto") and run["workers"] > 1
        self.assertEqual([key for key in run if key not in ORIGIN], KEYS + ["tuning"] * tuned)
        self.assertEqual([type(seconds) for seconds in run["step_seconds"]], [float] * run["steps"])
        self.assertEqual({key: run[key] for key in expected}, expected)
        self.assertEqual([type(run[key]) for key in ("workers", "steps")], [int, int])
        self.assertEqual([type(loss) for loss in run["losses"]], [float] * run["steps"])
        spread = run["iteration_seconds"]
        self.assertEqual(sorted(spread), ["median", "p10", "p90"])
        self.assertTrue(0 < spread["p10"] <= spread["median"] <= spread["p90"], spread)
        self.assertTrue(0 < run["compute_seconds"] <= spread["p90"], run)
        self.assertTrue(0 <= run["exposed_communication_seconds"] <= spread["p90"], run)
        self.assertGreater(run["characters_per_second"], 0)
        self.assertRegex(run["digest"], "^[0-9a-f]{64}$")

    def test_one_policy_on_a_modelled_network(self):
        network = "bandwidth=40mbit,latency=50us"  # so slow that some of it is exposed on a busy machine as well
        files = ["--json", "run.json", "--trace", "trace.json", "--profile", "profile.json", "--metrics", "metrics.jsonl"]
        output = self.succeed(self.train("--workers", 2, "--network", network, "--fusion", "layer", *files))
        run = self.read_json("run.json")
        modelled = {"policy": "dear", "workers": 2, "steps": 4, "fusion": "layer", "optimizer": "adamw"}
        self.check_run(run, **modelled, network=run["network"])
        self.assertRegex(run["network"], "^modelled: .*50")
        self.assertGreater(run["exposed_communication_seconds"], 0)
        self.assertIn("\nnetwork: modelled, ", output)
        self.assertIn(f"\nparameters: SHA-256 {run['digest']}\n", output)
        self.assertEqual(output.count("\ndear: step "), 4)
        for name in ("run.json", "trace.json", "profile.json", "metrics.jsonl"):
            self.assertIn(name, output)
        metrics = [json.loads(line) for line in open(self.path("metrics.jsonl"), encoding="utf-8")]
        self.assertEqual([line["iteration"] for line in metrics], [0, 1, 2, 3])
        self.assertGreater(min(line["bytes"] for line in metrics), 0)

        trace = self.read_json("trace.json")
        spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
        self.assertEqual({span["pid"] for span in spans}, {0, 1})
        self.assertLessEqual({"forward", "backward", "update", "communication"}, {span["cat"] for span in spans})
        self.assertRegex(trace["otherData"]["network"], "^modelled")
        summary = self.dear("trace", "summary", "trace.json")
        self.assertIn("ranks: 2\niterations: 3\n", summary)
        self.assertRegex(summary, "\nnetwork: modelled")

        simulate = ["simulate", "--model", "profile.json", "--network", "1gbit", "--ranks", "64"]
        self.dear(*simulate, "--policy", ",".join(POLICIES), "--json", "simulated.json")
        predictions = self.read_json("simulated.json")
        self.assertEqual([prediction["policy"] for prediction in predictions], POLICIES)
        for prediction in predictions:
            self.assertGreaterEqual(prediction["iteration_seconds"], prediction["compute_seconds"])

    def test_gradients_that_travel_compressed(self):
        output = self.succeed(self.train("--workers", 2, "--compress", "top-k:0.02,ef", "--json", "run.json"))
        run = self.read_json("run.json")
        gradients = run["gradients"]
        self.check_run(run, policy="dear", workers=2)
        self.assertEqual(gradients["compression"], "top-k:0.02,ef")
        self.assertLess(gradients["bytes_per_step"], gradients["dense_bytes_per_step"] / 2)
        self.assertGreater(gradients["residual_norm"], 0)
        self.assertRegex(output, "\ngradients: top-k:0.02,ef, .* times less")

        compared = ["--compare-compression", "dense bf16 random-block:0.1,ef sketch", "--json", "all.json"]
        output = self.succeed(self.train("--workers", 2, "--policy", "wfbp", *compared, "--plot", "all.svg"))
        runs = self.read_json("all.json")["runs"]
        names = [run["gradients"]["compression"] for run in runs]
        self.assertEqual(names, ["dense", "bf16", "random-block:0.1,ef", "sketch"])
        self.assertEqual(runs[0]["losses"], runs[3]["losses"])
        self.assertEqual({run["policy"] for run in runs}, {"wfbp"})
        for name in names:
            self.assertRegex(output, f"\n{name} ")
        picture = xml.etree.ElementTree.parse(self.path("all.svg")).getroot()
        self.assertLessEqual(set(names), {text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")})

    def test_buckets_are_tuned_and_what_was_learned_is_read_again(self):
        job = ["--workers", 2, "--network", "bandwidth=1gbit,latency=50us", "--layers", 4, "--width", 64, "--heads", 2]
        job += ["--context", 16, "--batch", 2]
        files = ["--json", "tuned.json", "--plot", "tuned.svg", "--schedule", "tuned_schedule.json"]
        files += ["--tuning-cache", "cache.json"]
        tune = ["tune", "training", "--data", "text.txt", *job, "--steps", 400, "--start", "64KiB", *files]
        output = self.dear(*[str(word) for word in tune])
        tuned = self.read_json("tuned.json")
        self.assertEqual((tuned["on"], tuned["policy"], tuned["ranks"]), ("training", "dear", 2))
        self.assertTrue(tuned["settled"], output)
        self.assertIn(tuned["choice"]["candidate"], [trial["candidate"] for trial in tuned["trials"]])
        self.assertIn(f"\nbuckets: {tuned['choice']['candidate']} (", output)
        xml.etree.ElementTree.parse(self.path("tuned.svg"))
        (learned,) = self.read_json("cache.json")["jobs"]
        self.assertEqual(learned["choice"], tuned["choice"]["candidate"])

        chosen = self.results(*job, "--steps", 15, "--schedule", "tuned_schedule.json")
        again = self.results(*job, "--steps", 15, "--tuning-cache", "cache.json")
        self.check_run(again, fusion="auto", digest=chosen["digest"])
        self.assertEqual(len(self.read_json("tuned_schedule.json")["buckets"]), tuned["choice"]["buckets"])

    def test_the_loop_of_profile_plan_and_train(self):
        usual = self.results("--workers", 2, "--profile", "profile.json", "--policy", "serial")
        tensors = [tensor["name"] for tensor in self.read_json("profile.json")["tensors"]]
        plan = ["plan", "--model", "profile.json", "--cluster", "1gbit", "--ranks", "2", "--policy", ",".join(POLICIES)]
        self.dear(*plan, "--schedule", "schedule.json")
        schedule = self.read_json("schedule.json")
        self.assertEqual([name for bucket in schedule["buckets"] for name in bucket], tensors)
        planned = self.results("--workers", 2, "--schedule", "schedule.json")
        self.check_run(planned, policy=schedule["policy"], workers=2, fusion="schedule.json", digest=usual["digest"])

        by_hand = schedule | {"policy": "dear", "buckets": [tensors[1::2], tensors[::2]], "chunk_bytes": [0, 10000]}
        for policy in ("dear", "dear-eager"):  # which cuts buckets
            self.write("by_hand.json", json.dumps(by_hand | {"policy": policy}))
            run = self.results("--workers", 2, "--schedule", "by_hand.json", "--trace", "trace.json")
            self.check_run(run, policy=policy, fusion="by_hand.json", digest=usual["digest"])
            names = {event["name"] for event in self.read_json("trace.json")["traceEvents"]}
            gathered = {name for name in names if name.startswith("all-gather of parameters, bucket ")}
            if policy == "dear":
                self.assertEqual(len(gathered), 2, gathered)
            else:
                self.assertGreater(len(gathered), 2, gathered)
                self.assertTrue(any(name.endswith(", bytes 0 to 10000") for name in gathered), gathered)

    def test_one_worker(self):
        self.check_run(self.results("--workers", 1), policy="dear", workers=1, steps=4, network="")

    def test_a_comparison(self):
        compare = ["--compare", ",".join(POLICIES), "--workers", 2, "--network", "10gbe", "--sample", 30, "--steps", 20]
        output = self.succeed(self.train(*compare, "--json", "runs.json"))
        found = self.read_json("runs.json")
        self.assertEqual(list(found), [*ORIGIN, "runs", "comparison"])
        for run, policy in zip(found["runs"], POLICIES, strict=True):
            self.check_run(run, policy=policy, workers=2, steps=20, network=found["runs"][0]["network"])
        self.assertEqual(len({run["digest"] for run in found["runs"]}), 1)
        comparison = found["comparison"]
        self.assertEqual(list(comparison), ["first", "rounds", "counted_rounds", "quiet", "remark", "speed_up"])
        self.assertEqual([comparison[key] for key in ("first", "rounds", "counted_rounds")], ["serial", 2, 1])
        self.assertEqual([one["policy"] for one in comparison["speed_up"]], POLICIES)
        first = comparison["speed_up"][0]
        self.assertEqual([first[key] for key in ("median", "q1", "q3")], [1, 1, 1])
        computed = [run["compute_seconds"] for run in found["runs"]]
        self.assertEqual(comparison["quiet"], max(computed) <= 1.1 * min(computed))
        self.assertEqual(comparison["quiet"], comparison["remark"] == "")

        lines = output.splitlines()
        header = next(i for i, line in enumerate(lines) if line.startswith("policy "))
        rows = [line.split() for line in lines[header + 1 : header + 1 + len(POLICIES)]]
        self.assertEqual([(row[0], row[-1]) for row in rows], [(policy, "yes") for policy in POLICIES])
        rest = lines[header + 1 + len(POLICIES) :]
        self.assertRegex(rest.pop(0), "2 each; the first .* speed-up over serial ")
        self.assertEqual(["?" in row for row in rows], [not comparison["quiet"]] * len(POLICIES))
        if not comparison["quiet"]:
            self.assertEqual(rest.pop(0), comparison["remark"])
        self.assertRegex(rest.pop(0), "^network: modelled, ")
        self.assertIn("\n30 characters from the model trained last:\n", output)
        self.assertIn("\nround 1 of 2, serial: step 1 of 80,", output)
        self.assertIn("\nround 2 of 2, serial: step 80 of 80,", output)  # the second round runs backwards

    def test_a_comparison_tunes_and_records_each_policy_by_itself(self):
        compare = ["--compare", "serial,dear", "--workers", 2, "--steps", 40, "--layers", 4, "--width", 64]
        files = ["--json", "runs.json", "--trace", "trace.json", "--profile", "profile.json"]
        output = self.succeed(self.train(*compare, *files))
        runs = self.read_json("runs.json")["runs"]
        self.assertEqual([run["fusion"] for run in runs], ["auto", "auto"])
        self.assertEqual(runs[0]["digest"], runs[1]["digest"])
        for run in runs:
            self.assertGreater(len(run["tuning"]["trials"]), 0)
            name = f"trace-{run['policy']}.json"
            self.assertIn(f"\ntrace of policy {run['policy']}, all ranks: {name} ", output)
            summary = self.dear("trace", "summary", name)
            self.assertIn(f"policy {run['policy']}, 2 ranks", summary)
            # A policy that gathers under the next forward has no whole iteration at its last step.
            self.assertIn(f"ranks: 2\niterations: {21 if run['policy'] == 'serial' else 20}\n", summary)
        self.assertIn("\nprofile of policy dear, rank 0: profile.json ", output)
        self.assertGreater(len(self.read_json("profile.json")["layers"]), 4)
        self.assertNotIn("trace.json", os.listdir(self.folder))

    def test_a_policy_compared_with_itself(self):
        files = ["--json", "runs.json", "--trace", "trace.json", "--profile", "profile.json"]
        self.succeed(self.train("--compare", "dear,serial,dear", "--workers", 2, *files))
        self.assertEqual([run["policy"] for run in self.read_json("runs.json")["runs"]], ["dear", "serial", "dear"])
        written = {name for name in os.listdir(self.folder) if name.endswith(".json")}
        self.assertEqual(written, {"runs.json", "trace-dear.json", "trace-serial.json", "profile.json"})

    def test_a_real_network_is_not_called_modelled(self):
        output = self.succeed(self.train("--workers", 2, "--trace", "trace.json"))
        self.assertIn("\nnetwork: real, shm, 2 ranks on this host\n", output)
        self.assertIn("network: real, not modelled\n", self.dear("trace", "summary", "trace.json"))

    def test_a_folder_of_text_in_the_order_of_names(self):
        one_file = self.results()["digest"]
        with open(self.path("text.txt"), encoding="utf-8") as file:
            text = file.read()
        os.mkdir(self.path("folder"))
        self.write("folder/b", text[1000:])
        self.write("folder/a", text[:1000])
        self.assertEqual(self.results("--data", "folder")["digest"], one_file)

    def test_files_of_an_earlier_run_are_replaced(self):
        self.write("run.json", "x" * 100000)
        self.succeed(self.train("--json", "run.json"))
        self.check_run(self.read_json("run.json"))


class Refusals(Case):
    """Exit code 2, one line that names what is wrong, nothing printed or written."""

    def refuse(self, *changes, naming, environment=None):
        with self.subTest(changes=changes, environment=environment):
            before = self.files()
            ended = self.end(self.train("--workers", 3, *changes, environment=environment))
            self.check(ended, naming)
            self.assertEqual(self.files(), before)

    def check(self, ended, naming):
        self.assertEqual((ended.returncode, ended.stdout), (2, ""), ended)
        self.assertRegex(ended.stderr, r"^dear train: .*\n\Z")
        for word in naming:
            self.assertIn(word, ended.stderr)

    def test_values(self):
        self.refuse("--policy", "hope", naming=["--policy", "hope", *POLICIES])
        self.refuse("--compare", "serial,hope", naming=["--compare", "hope", *POLICIES])
        self.refuse("--compare", "serial,dear", "--policy", "dear", naming=["--compare", "--policy"])
        self.refuse("--compare", ",".join(["dear"] * 17), naming=["--compare", "17", "16"])
        self.refuse("--fusion", "25", naming=["--fusion", "25", "MiB"])
        self.refuse("--fusion", "auto=25", naming=["--fusion", "25", "MiB"])
        self.refuse("--fusion", "25MiB", "--tuning-cache", "c.json", naming=["--tuning-cache", "--fusion"])
        self.refuse("--tuning-cache", "/nowhere/c.json", naming=["--tuning-cache", "/nowhere"])
        self.refuse("--tuning-cache", "c.json", "--json", "c.json", naming=["--tuning-cache", "--json", "same file"])
        self.refuse("--optimizer", "luck", naming=["--optimizer", "luck", "adamw"])
        self.refuse("--network", "carrier-pigeon", naming=["--network", "carrier-pigeon", "1gbit"])
        self.refuse("--network", "bandwidth=1gbit,latency=soon", naming=["--network", "soon"])
        self.refuse("--workers", 0, naming=["--workers", "0"])
        self.refuse("--workers", -1, naming=["--workers", "-1"])
        self.refuse("--workers", "many", naming=["--workers", "many"])
        self.refuse("--steps", 0, naming=["--steps", "0"])
        self.refuse("--compress", "top-j:0.01", naming=["--compress", "top-j", "top-k"])
        self.refuse("--compress", "top-k:2", naming=["--compress", "2"])
        self.refuse("--compress", "bf16", "--policy", "dear-eager", naming=["--compress", "dear-eager", "wfbp"])
        self.refuse("--compress", "bf16", "--compare-compression", "dense bf16", naming=["--compare-compression"])
        self.refuse("--compare-compression", " ", naming=["--compare-compression", "1 to 16"])
        self.refuse("--compare-compression", "dense luck", naming=["--compare-compression", "luck"])
        self.refuse("--compare-compression", "dense bf16", "--compare", "dear,wfbp", naming=["--compare"])
        self.refuse("--plot", "loss.svg", naming=["--plot", "--compare-compression"])
        self.refuse("--heads", 3, naming=["--heads", "3", "--width", "32"])
        self.refuse("--lr", "nan", naming=["--lr", "nan"])
        self.refuse("--timeout", "5", naming=["--timeout", "5"])
        self.refuse("--colour", "blue", naming=["--colour"])

    def test_data(self):
        self.refuse("--data", "none.txt", naming=["--data", "none.txt", "No such file"])
        self.refuse("--data", "/dev/null", naming=["--data", "/dev/null"])
        # A regular file whose beginning nobody can read, not even root: no memory lies at address 0.
        self.refuse("--data", "/proc/self/mem", naming=["/proc/self/mem"])
        self.write("short.txt", "To be, or not")
        self.refuse("--data", "short.txt", naming=["--data", "short.txt", "13 characters", "18", "--context"])
        self.refuse("--data", "tmp", naming=["--data", "tmp"])

    def test_schedules(self):
        self.refuse("--schedule", "none.json", naming=["--schedule", "none.json", "No such file"])
        self.refuse("--schedule", "text.txt", naming=["--schedule", "text.txt"])
        schedule = {"format": "dear-schedule", "version": 1, "model": "m", "cluster": "c", "ranks": 2, "policy": "dear"}
        self.write("s.json", json.dumps(schedule | {"buckets": [["none.weight"]]}))
        for option, value in (("--policy", "dear"), ("--compare", "dear"), ("--fusion", "all")):
            self.refuse("--schedule", "s.json", option, value, naming=["--schedule", "leave --policy"])
        ended = self.end(self.train("--workers", 2, "--schedule", "s.json"))
        self.assertEqual(ended.returncode, 2, ended)
        self.assertIn("s.json: buckets[0][0]: ", ended.stderr)
        self.assertIn("'none.weight'", ended.stderr)
        self.write("s.json", json.dumps(schedule | {"policy": "fsdp", "buckets": [["none.weight"]]}))
        self.refuse("--schedule", "s.json", naming=["--schedule", "s.json", "fsdp", "can only be simulated", *POLICIES])

    def test_output_files(self):
        for option in ("--json", "--trace", "--profile"):
            self.refuse(option, "no/such/folder", naming=[option, "no/such/folder", "No such file"])
            self.refuse(option, "text.txt/file", naming=[option, "text.txt/file"])
            self.refuse(option, "tmp", naming=[option, "tmp", "folder"])
            self.refuse(option, "", naming=[option])
        self.refuse("--json", "one", "--trace", "one", naming=["--json", "--trace"])
        compare = ["--compare", "serial,dear", "--trace", "one.json"]
        self.refuse(*compare, "--json", "one-dear.json", naming=["--json", "--trace"])
        os.mkdir(self.path("one-serial.json"))
        self.refuse(*compare, naming=["--trace", "one-serial.json", "folder"])

    def test_environments(self):
        two = {"RANK": 0, "WORLD_SIZE": 2, "MASTER_PORT": 29500}
        self.refuse(environment=two, naming=["rank 0", "--workers", "3", "torchrun", "2"])
        self.refuse(environment={"RANK": 0}, naming=["WORLD_SIZE", "RANK"])
        self.refuse(environment={"WORLD_SIZE": 2}, naming=["WORLD_SIZE", "RANK"])
        self.refuse(environment={"RANK": 2, "WORLD_SIZE": 2}, naming=["RANK", "2"])
        self.refuse(environment={"RANK": "first", "WORLD_SIZE": 2}, naming=["RANK", "first"])
        alone = self.train(environment=two | {"LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1})
        self.check(self.end(alone), naming=["rank 0", "torchrun", "Gloo", "MASTER_ADDR"])


if __name__ == "__main__":
    main()
