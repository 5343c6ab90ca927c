"""The `dear` command as a user meets it:  command_test.py PATH_OF_DEAR"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

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
REPLAY = ["replay", "--model", "model.json", "--workers", "2", "--iterations", "4"]
AGGREGATE = ["aggregate", "--workers", "2", "--elements", "64K", "--steps", "3"]


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

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def dear(self, *arguments):
        return subprocess.run([DEAR, *arguments], cwd=self.folder.name, capture_output=True, text=True, check=False)

    def succeed(self, *arguments):
        done = self.dear(*arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def study(self, name, *arguments):
        """The names of the files that a study writes, while it says how long it takes and how far it is."""
        done = self.dear("study", name, *arguments, "--out", name)
        self.assertEqual(done.returncode, 0, done)
        begin, *progress = done.stderr.splitlines()
        self.assertEqual(begin, f"dear study {name}: takes seconds")
        self.assertRegex(progress[-1], r"^\w+: (\d+) of \1, took ")
        written = sorted(os.path.basename(path) for path in done.stdout.split())
        self.assertEqual(sorted(os.listdir(self.path(name))), written)
        return written

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
        for command in ("train", "launch", "profile", "replay", "simulate", "plan", "pipeline", "rounds", "edge", "tune", "study", "models", "clusters", "trace", "report", "bench", "aggregate"):
            self.assertIn(f"\n  {command} ", self.succeed("--help"))

    def test_every_command_has_help(self):
        for command in (["train"], ["launch"], ["simulate"], ["trace"], ["trace", "summary"], ["bench"], ["bench", "collective"]):
            self.assertIn("--help", self.succeed(*command, "--help"))

    def test_says_when_its_output_is_lost(self):
        for arguments in (["models"], ["--help"], ["launch", "-n", "1", "echo"]):
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([DEAR, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual(done.returncode, 1, done)
            self.assertIn("No space left on device", done.stderr)

    def test_refuses_what_it_does_not_know(self):
        self.refuse(naming="command is missing", command="dear")
        self.refuse("teleport", naming="teleport", command="dear")
        self.refuse("--fast", naming="--fast", command="dear")
        self.refuse("trace", naming="command is missing", command="dear trace")
        self.refuse("bench", naming="command is missing", command="dear bench")


class Simulate(Command):
    def test_prints_a_table_and_says_that_it_is_modelled(self):
        output = self.succeed(*SIMULATE, "--policy", "serial,wfbp,dear", "--fusion", "layer")
        self.assertIn("modelled", output)
        lines = output.splitlines()
        header = next(i for i, line in enumerate(lines) if line.startswith("model"))
        rows = [re.split("  +", line) for line in lines[header + 1 :]]
        expected = [["four layers", "1gbit", policy, "4"] for policy in ("serial", "wfbp", "dear")]
        self.assertEqual([row[:4] for row in rows], expected)
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

    def test_plays_compressions_beside_dense_gradients(self):
        arguments = [*SIMULATE, "--policy", "dear", "--compress", "top-k:0.02,ef", "--compress", "fp16", "--codec", "none"]
        output = self.succeed(*arguments, "--json", "out.json")
        self.assertIn("compression", output)
        self.assertIn("the codec takes no time", output)
        with open(self.path("out.json"), encoding="utf-8") as file:
            dense, top, half = json.load(file)
        self.assertNotIn("compression", dense)
        self.assertEqual((top["compression"], half["compression"]), ("top-k:0.02,ef", "fp16"))
        self.assertLess(half["iteration_seconds"], dense["iteration_seconds"])
        self.assertGreater(top["memory_bytes"], dense["memory_bytes"])
        self.assertIn("by the roofline of a100", self.succeed("simulate", "--model", "resnet50", "--device", "a100",
                      "--cluster", "10gbe-64", "--policy", "dear", "--compress", "fp16"))  # fmt: skip
        self.succeed(*SIMULATE, "--policy", "dear", "--compress", "fp16", "--codec", "none", "--trace", "trace.json")
        with open(self.path("trace.json"), encoding="utf-8") as file:
            self.assertIn("encode bucket 0", file.read())

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
        refuse(*model, "--ranks", "4", naming="--cluster")
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
        refuse(*model, *rest, "--compress", "zip", naming="zip")
        refuse(*model, *rest, "--policy", "fsdp", "--compress", "fp16", naming="fsdp")
        refuse(*model, *rest, "--compress", "fp16", "--codec", "fast", naming="fast")
        refuse(*model, *rest, "--compress", "fp16", "--codec", "roofline", naming="device")
        for density in ("0", "1.5", "much"):
            refuse(*model, *rest, "--compress", "sketch", "--union-density", density, naming="density")
        refuse(*model, *rest, "--compress", "fp16,dense-below=100000000", naming="fp32")


PLAN = ["plan", *SIMULATE[1:]]



class SimulateCollective(Command):
    """One collective alone, by several algorithms."""

    CLUSTER = ["simulate", "collective", "--cluster", "themis-2d-sw-sw-1024", "--bytes", "1GB"]

    def test_says_how_much_of_each_dimension_is_used(self):
        out = self.succeed(*self.CLUSTER, "--algorithm", "baseline,themis-fifo,themis", "--json", "out.json", "--plot", "out.svg")
        self.assertIn("1024 ranks, 16 x dim1, 64 x dim2", out)
        with open(self.path("out.json"), encoding="utf-8") as file:
            runs = json.load(file)["runs"]
        self.assertEqual([run["algorithm"] for run in runs], ["baseline", "themis-fifo", "themis"])
        self.assertLess(runs[2]["seconds"], runs[0]["seconds"])
        self.assertGreater(runs[2]["utilisation"], 0.9)
        xml.etree.ElementTree.parse(self.path("out.svg"))

    def test_writes_a_timeline(self):
        self.succeed(*self.CLUSTER, "--algorithm", "themis", "--trace", "trace.json")
        with open(self.path("trace.json"), encoding="utf-8") as file:
            self.assertIn("dim2", file.read())

    def test_refuses_what_it_cannot_have(self):
        for arguments, naming in (
            (("--algorithm", "thetis"), "themis-scf"),
            (("--operation", "broadcast"), "reduce-scatter"),
            (("--bytes", "0B"), "--bytes"),
            (("--chunks", "0"), "--chunks"),
            (("--trace", "t.json"), "--algorithm"),
            (("--algorithm", "ring", "--trace", "t.json"), "no phases"),
            (("--plot", "a", "--json", "a"), "--plot"),
        ):
            self.refuse(*self.CLUSTER, *arguments, naming=naming, command="dear simulate collective")
        self.refuse("simulate", "collective", naming="--cluster", command="dear simulate collective")
        self.refuse("simulate", naming="--model", command="dear simulate")


class ScheduleFile(Command):
    def read_json(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return json.load(file)

    def test_what_is_planned_is_what_is_simulated(self):
        output = self.succeed(*PLAN, "--schedule", "schedule.json", "--json", "plan.json")
        schedule = self.read_json("schedule.json")
        self.assertEqual((schedule["model"], schedule["cluster"], schedule["ranks"]), ("four layers", "1gbit", 4))
        names = [name for bucket in schedule["buckets"] for name in bucket]
        self.assertEqual(names, [tensor["name"] for tensor in WORKLOAD["tensors"]])
        self.assertIn(f"schedule of {schedule['policy']}: schedule.json", output)

        self.succeed(*SIMULATE, "--schedule", "schedule.json", "--json", "out.json")
        (simulated,) = self.read_json("out.json")
        (answer,) = self.read_json("plan.json")
        (row,) = (row for row in answer["rows"] if row["policy"] == schedule["policy"])
        self.assertEqual(row["buckets"], len(schedule["buckets"]))
        self.assertEqual((simulated["policy"], simulated["fusion"]), (row["policy"], "schedule.json"))
        self.assertEqual(simulated["iteration_seconds"], row["iteration_seconds"])

    def test_buckets_are_those_of_the_file(self):
        schedule = {"format": "dear-schedule", "version": 1, "model": "m", "cluster": "c", "ranks": 2, "policy": "wfbp"}
        seconds = []
        for buckets in ([[0], [1], [2], [3]], [[0, 1, 2, 3]]):
            named = [[f"weight.{i}" for i in bucket] for bucket in buckets]
            self.write("by_hand.json", json.dumps(schedule | {"buckets": named}))
            fusion = "layer" if len(buckets) == 4 else "all"
            self.succeed(*SIMULATE, "--schedule", "by_hand.json", "--json", "by_hand.out")
            self.succeed(*SIMULATE, "--policy", "wfbp", "--fusion", fusion, "--json", "same.out")
            seconds += [self.read_json(name)[0]["iteration_seconds"] for name in ("by_hand.out", "same.out")]
        self.assertEqual(seconds[0::2], seconds[1::2])
        self.assertLess(seconds[0], seconds[2])

    def test_refusals(self):
        def refuse(*arguments, naming):
            self.refuse(*arguments, naming=naming, command=f"dear {arguments[0]}")

        refuse(*PLAN, "--ranks", "8", "--schedule", "s.json", naming="--schedule writes one schedule")
        refuse(*PLAN, "--network", "10gbe", "--schedule", "s.json", naming="--schedule")
        self.assertFalse(os.path.exists(self.path("s.json")))
        refuse(*SIMULATE, "--schedule", "none.json", naming="none.json")
        refuse(*SIMULATE, "--schedule", "model.json", naming="model.json: not a schedule file")
        self.succeed(*PLAN, "--schedule", "s.json")
        for option, value in (("--policy", "dear"), ("--fusion", "layer")):
            refuse(*SIMULATE, "--schedule", "s.json", option, value, naming="leave --policy and --fusion out")
        with open(self.path("s.json"), encoding="utf-8") as file:
            text = file.read()
        self.write("s.json", text.replace("weight.3", "weight.4"))
        refuse(*SIMULATE, "--schedule", "s.json", naming="s.json: buckets[")
        refuse(*SIMULATE, "--schedule", "s.json", naming="'four layers' has no tensor 'weight.4'")


class Rounds(Command):
    SMALL = ("rounds", "run", "--clients", "6", "--dimension", "20", "--condition", "100")

    def test_counts_what_is_sent_to_the_same_bits_on_any_number_of_ranks(self):
        found = []
        for workers in (1, 3):
            out = self.succeed(*self.SMALL, "--workers", str(workers), "--algorithm", "scaffnew,compressed-scaffnew,tamuna",
                               "--absence", "0.05", "--json", "rounds.json", "--plot", "rounds.svg")  # fmt: skip
            result = json.loads(self.read("rounds.json"))
            self.assertEqual((result["clients"], result["dimension"], result["ranks"]), (6, 20, workers))
            for run in result["runs"]:
                self.assertEqual(run["end"], "reached", run["algorithm"])
                self.assertRegex(out, rf"(?m)^{run['algorithm']} .* {run['rounds']:,} ")
                self.assertEqual(run["reals_up"], run["rounds"] * -(-run["owners"] * 20 // run["cohort"]))
                self.assertLess(run["largest_control_sum"], 1e-12)
                self.assertIn(run["algorithm"], self.read("rounds.svg"))
                sent = [run.pop(name) for name in ("bytes_sent_by_rank_0", "bytes_gathered_by_rank_0", "seconds")]
                self.assertEqual(sent[0] > 0, workers > 1)
            found.append(result["runs"])
        self.assertEqual(found[0], found[1])

    def test_says_where_averages_stall_and_what_auc_is_reached(self):
        self.assertRegex(self.succeed(*self.SMALL, "--algorithm", "local-sgd"), r"(?m)^local-sgd .* stalled ")
        self.succeed("rounds", "run", "--problem", "auc", "--batch", "4", "--local-steps", "8,64", "--json", "auc.json")
        result = json.loads(self.read("auc.json"))
        self.assertEqual([(run["algorithm"], run["steps_a_round"]) for run in result["runs"]],
                         [("coda", 8), ("coda", 64), ("codasca", 8), ("codasca", 64)])  # fmt: skip
        for run in result["runs"]:
            self.assertAlmostEqual(run["auc"], result["auc_at_optimum"], delta=2e-3)

    def test_are_simulated_beside_the_fastest_policy(self):
        out = self.succeed(*SIMULATE, "--policy", "serial,wfbp", "--rounds", "1,8", "--json", "cases.json")
        policies, rounds = [], []
        for case in json.loads(self.read("cases.json")):
            (rounds if case["policy"] == "rounds" else policies).append(case)
        self.assertEqual([(case["steps_a_round"], case["averaging"]) for case in rounds], [(1, "waits"), (1, "overlaps"), (8, "waits"), (8, "overlaps")])
        fastest = min(case["iteration_seconds"] for case in policies)
        for case in rounds:
            self.assertAlmostEqual(case["speed_up"] * case["iteration_seconds"], fastest)
        self.assertRegex(out, r"(?m)^four layers on 1gbit: rounds (are as fast as|gain at most) ")
        for arguments, naming in ((("--rounds", "0"), "--rounds"), (("--rounds", "8", "--detail", "flows"), "--detail does not go with --rounds"),
                                  (("--rounds", "8", "--policy", "spd-kfac"), "--rounds does not go with K-FAC")):  # fmt: skip
            self.refuse(*SIMULATE, *arguments, naming=naming, command="dear simulate")

    def test_refuses_what_cannot_be(self):
        for arguments, naming in (
            (("--problem", "logit"), "there is no problem 'logit'"),
            (("--algorithm", "gd", "--cohort", "3"), "--cohort counts for"),
            (("--cohort", "7"), "a cohort of 7 of 6 clients"),
            (("--owners", "1"), "control variates would never change"),
            (("--chi", "2"), "above"),
            (("--gamma", "100"), "diverges"),
            (("--positive", "0.3"), "--positive"),
            (("--workers", "7"), "dealt to 7 ranks"),
        ):
            with self.subTest(arguments=arguments):
                self.refuse(*self.SMALL, *arguments, naming=naming, command="dear rounds run")


class Edge(Command):
    def test_plans_with_a_proof_that_its_own_numbers_bear_out(self):
        out = self.succeed("edge", "plan", "--groups", "3", "--workers", "2", "--json", "plan.json", "--output", "groups.json")
        self.assertRegex(out, r"(?m)^Proof: no plan with the freedom of joint is more than ")
        result, groups = json.loads(self.read("plan.json")), json.loads(self.read("groups.json"))
        seconds = {}
        for plan in result["plans"]:
            self.assertEqual(sum(plan["blocks"]), 1_000_000)
            seconds[plan["scheme"]] = plan["iteration_seconds"]
            slowest = 0.0
            for block, workers, bands in zip(plan["real_blocks"], groups["groups"], plan["bandwidth"], strict=True):
                for worker, band in zip(workers, bands, strict=True):
                    if block > 0:
                        bits = block * groups["bits_per_parameter"]
                        slowest = max(slowest, block * worker["cycles_per_parameter"] / worker["frequency_hz"] +
                                      bits / (band["down_hz"] * worker["efficiency_down"]) + bits / (band["up_hz"] * worker["efficiency_up"]))  # fmt: skip
            self.assertAlmostEqual(slowest, plan["iteration_seconds"], delta=1e-9 * slowest)
        self.assertLess(seconds["joint"], min(seconds["parameters"], seconds["bandwidth"]))
        self.assertLess(max(seconds["parameters"], seconds["bandwidth"]), seconds["equal"])
        self.assertAlmostEqual(seconds["bandwidth-then-parameters"], seconds["bandwidth"])
        self.succeed("edge", "plan", "groups.json", "--scheme", "joint", "--json", "again.json")
        self.assertAlmostEqual(json.loads(self.read("again.json"))["plans"][0]["iteration_seconds"], seconds["joint"])

    def test_trains_on_ranks_as_planned_and_as_one_process(self):
        for model in (["--parameters", "3000"], ["--model", "network", "--hidden", "20"]):
            arguments = ("edge", "train", "--groups", "2", "--workers", "2", "--iterations", "4", *model, "--json", "train.json")
            out = self.succeed(*arguments)
            self.assertIn("times what the plan says", out)
            result = json.loads(self.read("train.json"))
            self.assertEqual((len(result["seconds"]), len(result["losses"]), len(result["worker_seconds"])), (4, 5, 2))
            self.assertLessEqual(result["difference"], 1e-10)
            self.assertLess(result["losses"][-1], result["losses"][0])
            self.assertGreaterEqual(min(result["seconds"]), 0.999 * result["planned_seconds"])

    def test_averages_on_ranks_as_one_process(self):
        out = self.succeed("edge", "average", "--ranks", "4", "--rounds", "6", "--elements", "50", "--json", "average.json")
        self.assertIn("4 ranks, vectors of 50 elements", out)
        gossip, cells = json.loads(self.read("average.json"))
        self.assertEqual((gossip["method"], cells["method"]), ("gossip", "hierarchical"))
        for before, after in zip([1, *gossip["left"]], gossip["left"]):
            self.assertLessEqual(after, gossip["left_at_most_in_a_round"] * before + 1e-15)
        self.assertLess(cells["left"][2], 1e-20)  # two rounds in cells, then all
        self.assertLessEqual(max(gossip["difference"], cells["difference"]), 1e-12)

    def test_refuses_ranks_that_cannot_be(self):
        for command, arguments, naming in (
            ("train", ["--groups", "40", "--workers", "2"], "81 ranks"),
            ("train", ["--model", "tree"], "tree"),
            ("train", ["--step-size", "0"], "--step-size"),
            ("train", ["--samples", "2", "--workers", "3"], "2 samples"),
            ("train", ["--json", "nowhere/x.json"], "nowhere"),
            ("average", ["--ranks", "65"], "--ranks"),
            ("average", ["--method", "rumour"], "rumour"),
            ("average", ["--graph", "star"], "star"),
            ("average", ["--cells", "9"], "--cells"),
        ):
            self.refuse("edge", command, *arguments, naming=naming, command=f"dear edge {command}")
        done = self.dear("edge", "train", "--groups", "1", "--parameters", "500", "--iterations", "3", "--step-size", "1e300")
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("lower --step-size", done.stderr)

    def test_trains_to_the_same_bits_and_traces_each_round(self):
        traces = []
        for _ in range(2):
            out = self.succeed("edge", "run", "--scheduler", "random,bc-bn2", "--rounds", "12", "--csv", "trace.csv", "--json", "run.json", "--plot", "run.svg")
            traces.append(self.read("trace.csv"))
        self.assertEqual(*traces)
        self.assertRegex(out, r"(?m)^bc-bn2 +mean +12 ")
        lines = traces[0].splitlines()
        self.assertEqual(lines[0], "run,round,seconds,participants,bits_up,channel_uses,joules,mean_age,loss,accuracy")
        self.assertEqual(len(lines), 1 + 2 * 13)
        for run in json.loads(self.read("run.json"))["runs"]:
            self.assertEqual([len(one["participants"]) for one in run["rounds"]], [0] + 12 * [4])
            self.assertEqual(run["rounds"][-1]["bits_up"], 12 * 4 * 210 * 32)
        self.assertIn("bc-bn2", self.read("run.svg"))

    def test_refuses_what_cannot_be(self):
        for arguments, naming in (
            (("plan", "--scheme", "jiont"), "did you mean joint"),
            (("plan", "--groups", "0"), "--groups"),
            (("plan", "--deadline", "1ms", "--scheme", "joint"), "longer than the deadline"),
            (("run", "--scheduler", "bn3"), "there is no scheduler 'bn3'"),
            (("run", "--cohort", "30"), "--cohort"),
            (("run", "--aggregator", "over-the-air", "--threshold", "0"), "infinite power"),
            (("run", "--bandwidth", "10"), "--bandwidth: '10'"),
            (("run", "--csv", "a", "--json", "a"), "--csv"),
        ):
            with self.subTest(arguments=arguments):
                self.refuse("edge", *arguments, naming=naming, command=f"dear edge {arguments[0]}")


class Pipeline(Command):
    PLAN = ("pipeline", "plan", "--model", "resnet101", "--cluster", "two-sites")
    SIMULATE = ("pipeline", "simulate", "--model", "resnet101", "--cluster", "two-sites")

    def test_says_who_holds_what_and_why_it_takes_so_long(self):
        out = self.succeed(*self.PLAN, "--json", "answer.json", "--picture", "plan.svg")
        answer = json.loads(self.read("answer.json"))
        self.assertEqual((answer["model"], answer["cluster"], answer["modelled"]), ("resnet101", "two-sites", ["computation", "communication"]))
        for stage in answer["stages_of_plan"]:
            self.assertRegex(out, rf"(?m)^{stage['stage']} +{stage['device']} +{stage['site']} +{re.escape(stage['first_operator'])} +{stage['operators']} ")
        for link in answer["links"]:
            self.assertIn(f"\n{link['from']} - {link['to']} ", out)
        self.assertEqual(len(answer["rivals"]), 8)
        seconds = [rival["iteration_seconds"] for rival in answer["rivals"]]
        self.assertEqual(seconds, sorted(seconds))
        for sentence in answer["why"] + answer["verdict"]:
            self.assertIn(sentence + "\n", out)
        picture = xml.etree.ElementTree.fromstring(self.read("plan.svg"))
        text = " ".join("".join(one.itertext()) for one in picture.iter("{http://www.w3.org/2000/svg}text"))
        for stage in answer["stages_of_plan"]:
            self.assertRegex(text, rf"{stage['operators']} operators? from {re.escape(stage['first_operator'])},")

    def test_takes_its_plan_back(self):
        self.succeed(*self.PLAN, "--compress", "ada-top-k", "--output", "plan.json", "--json", "answer.json")
        self.succeed(*self.SIMULATE, "--plan", "plan.json", "--json", "back.json", "--trace", "trace.json", "--timeline", "t.svg", "--picture", "p.svg")
        answer, (back,) = json.loads(self.read("answer.json")), json.loads(self.read("back.json"))
        for field in ("iteration_seconds", "bubble", "sent_bytes", "peak_bytes", "stages", "micro_batches"):
            self.assertEqual(answer[field], back[field])
        self.assertIn("network: modelled: two-sites", self.succeed("trace", "summary", "trace.json"))

    def test_takes_a_plan_back_after_an_edit_or_says_why_not(self):
        self.succeed(*self.PLAN, "--output", "plan.json")
        plan = json.loads(self.read("plan.json"))
        plan["stages"][1]["operators"].insert(0, plan["stages"][0]["operators"].pop())
        plan["stages"][0]["warm_up"] = 8
        self.write("moved.json", json.dumps(plan))
        self.assertIn("moved.json", self.succeed(*self.SIMULATE, "--plan", "plan.json,moved.json"))

        def edited(change):
            other = json.loads(json.dumps(plan))
            change(other)
            self.write("edited.json", json.dumps(other))
            return (*self.SIMULATE, "--plan", "edited.json")

        for change, naming in (
            (lambda p: p["stages"][0]["operators"].pop(), "comes next"),
            (lambda p: p["stages"][0].update(device="c9"), "has no device 'c9'"),
            (lambda p: p["stages"][0].update(device=p["stages"][1]["device"]), "out of turn"),
            (lambda p: p["stages"][3].update(warm_up=9), "warm-up"),
            (lambda p: p.update(schedule="1f2b"), "1f1b"),
            (lambda p: p.update(micro_batches=0), "micro-batches of 0"),
            (lambda p: p.update(micro_batches=7), "the 7 micro-batches"),
            (lambda p: p.update(model="gpt2"), "not of 'resnet101'"),
            (lambda p: p.update(format="dear-operators"), "dear-pipeline-plan"),
        ):
            with self.subTest(naming=naming):
                self.refuse(*edited(change), naming=naming, command="dear pipeline simulate")
        self.refuse(*self.SIMULATE, "--plan", "no.json", naming="no.json", command="dear pipeline simulate")
        self.refuse(*self.SIMULATE, "--plan", "plan.json", "--schedule", "gpipe", naming="--schedule", command="dear pipeline simulate")

    def test_compares_planners_schedules_and_compressions(self):
        out = self.succeed(*self.SIMULATE, "--planner", "op-fence,equal-work", "--schedule", "gpipe,zb-h1", "--compress", "none,top-k",
                           "--micro-batches", "4,8", "--json", "all.json", "--plot", "all.svg")  # fmt: skip
        cases = json.loads(self.read("all.json"))
        self.assertEqual(len(cases), 16)
        for case in cases:
            self.assertAlmostEqual(case["speed_up"] * case["iteration_seconds"], cases[0]["iteration_seconds"])
        self.assertEqual(out.count("\nresnet101  two-sites"), 16)
        self.assertIn("equal-work, zb-h1, top-k, 100", self.read("all.svg"))

    def test_lists_shows_and_draws_clusters(self):
        listed = self.succeed("pipeline", "clusters")
        for name in ("two-sites", "three-sites", "fusionllm-48"):
            self.assertIn(f"\n{name} ", listed)
        shown = self.succeed("pipeline", "clusters", "--devices", "6", "--sites", "2", "--inside", "1gbit", "--between", "10mbit..20mbit", "--latency",
                             "5ms", "--tflops", "10,20", "--memory", "8GiB", "--seed", "3", "--output", "drawn.json")  # fmt: skip
        self.assertRegex(shown, r"site1 +3 +20 TFLOP/s +8 GiB +")
        cluster = json.loads(self.read("drawn.json"))
        self.assertEqual([len(cluster["devices"]), cluster["name"]], [6, "6-devices-2-sites-seed-3"])
        self.assertEqual(self.succeed("pipeline", "clusters", "--cluster", "drawn.json").splitlines(), shown.splitlines()[:5])
        self.succeed("pipeline", "plan", "--model", "gpt2", "--cluster", "drawn.json")

    def test_refuses_wrong_options(self):
        for command, arguments, naming in (
            ("plan", ("--model", "gpt2"), "--cluster"),
            ("plan", ("--model", "gpt-2", "--cluster", "two-sites"), "did you mean gpt2"),
            ("plan", ("--model", "gpt2", "--cluster", "10gbe-64"), "two-sites"),
            ("plan", ("--model", "model.json", "--cluster", "two-sites"), "dear-operators"),
            ("plan", ("--model", "gpt2", "--cluster", "model.json"), "dear-pair-cluster"),
            ("plan", ("--model", "gpt2", "--cluster", "two-sites", "--micro-batches", "3", "--batch", "8"), "3 micro-batches"),
            ("plan", ("--model", "gpt2", "--cluster", "two-sites", "--ratio", "0"), "ratio"),
            ("plan", ("--model", "gpt2", "--cluster", "two-sites", "--compress", "top-kk"), "did you mean top-k"),
            ("plan", ("--model", "gpt2", "--cluster", "two-sites", "--seed", "1"), "drawn"),
            ("plan", ("--model", "gpt2", "--cluster", "two-sites", "--picture", "plan.jpg"), ".svg"),
            ("plan", ("--model", "gpt-1t", "--cluster", "two-sites"), "alone needs more memory"),
            ("simulate", ("--model", "gpt2", "--cluster", "two-sites", "--schedule", "gpipe,1f1b", "--trace", "t.json"), "--trace"),
            ("clusters", ("--output", "c.json"), "--devices"),
            ("clusters", ("--cluster", "two-sites", "--sites", "2"), "--sites does not go with --cluster"),
            ("clusters", ("--devices", "2", "--sites", "3"), "3 sites"),
            ("clusters", ("--between", "9mbit..8mbit"), "no range"),
            ("clusters", ("--inside", "fast"), "--inside"),
        ):
            with self.subTest(arguments=arguments):
                self.refuse("pipeline", command, *arguments, naming=naming, command=f"dear pipeline {command}")


class Plan(Command):
    def test_says_what_to_use_and_why(self):
        out = self.succeed("plan", "--model", "model.json", "--cluster", "1gbit", "--ranks", "4", "--json", "plan.json")
        self.assertIn("Everything below is modelled", out)
        with open(self.path("plan.json"), encoding="utf-8") as file:
            (answer,) = json.load(file)
        self.assertEqual((answer["model"], answer["cluster"], answer["ranks"]), ("four layers", "1gbit", 4))
        seconds = [row["iteration_seconds"] for row in answer["rows"]]
        self.assertEqual(seconds, sorted(seconds))
        self.assertEqual(len(seconds), 14)
        for row in answer["rows"]:
            parts = [row[part + "_seconds"] for part in ("compute", "overlap", "fusion", "start_up")]
            self.assertAlmostEqual(sum(parts), row["iteration_seconds"])
            self.assertIn(row["policy"], out)
        for sentence in answer["verdict"]:
            self.assertIn(sentence, out)
        self.assertEqual(len(answer["sensitivities"]), 4)

    def test_names_what_it_leaves_out_and_draws_the_rest(self):
        out = self.succeed(*PLAN, "--policy", "dear,fsdp", "--accumulate", "3", "--plot", "plan.svg", "--json", "plan.json")
        self.assertIn("Left out: fsdp, because", out)
        with open(self.path("plan.json"), encoding="utf-8") as file:
            (answer,) = json.load(file)
        self.assertEqual([one["policy"] for one in answer["left_out"]], ["fsdp"])
        self.assertEqual(([row["policy"] for row in answer["rows"]], answer["rows"][0]["runs"]), (["dear"], True))
        with open(self.path("plan.svg"), encoding="utf-8") as file:
            self.assertIn("dear, to use", file.read())

    def test_says_what_it_searches_where_asked(self):
        done = self.dear(*PLAN, "--policy", "wfbp,dear", "--progress")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stderr.count("\n"), 2)
        self.assertIn("1 of 2 searched, next dear", done.stderr)
        self.assertNotIn("searched", done.stdout)

    def test_plans_exported_models_on_their_own_device_only(self):
        out = self.succeed("models", "export", "resnet18", "--device", "a100", "--batch", "8", "--out", "r.json")
        self.assertIn("resnet18 on a100", out)
        plan = ("plan", "--model", "r.json", "--policy", "dear")
        self.assertIn("on a100, read from r.json", self.succeed(*plan, "--cluster", "a100-100gbit-512", "--ranks", "8"))
        self.refuse(*plan, "--cluster", "10gbe-64", naming="has times of a100", command="dear plan")
        self.assertIn("multiplied by 3", self.succeed(*plan, "--cluster", "10gbe-64", "--scale-compute", "3"))
        for factor, naming in (("0", "--scale-compute"), ("-1", "--scale-compute"), ("nan", "nan"), ("fast", "fast")):
            self.refuse(*plan, "--cluster", "10gbe-64", "--scale-compute", factor, naming=naming, command="dear plan")
        self.refuse("models", "export", "resnet51", "--out", "x.json", naming="resnet51", command="dear models export")
        self.refuse("models", "export", "resnet18", "--out", "no/x.json", naming="no/x.json", command="dear models export")

    def test_says_from_which_bandwidth_on_a_compression_pays(self):
        arguments = [*PLAN, "--compress", "fp16", "--compress", "random-block:0.02,ef", "--codec", "none"]
        out = self.succeed(*arguments, "--json", "plan.json")
        with open(self.path("plan.json"), encoding="utf-8") as file:
            (answer,) = json.load(file)
        self.assertEqual([row["compression"] for row in answer["compressed"]], ["fp16", "random-block:0.02,ef"])
        self.assertEqual(len(answer["rows"]), 14)
        for row in answer["compressed"]:
            self.assertIn(row["compression"], out)
            self.assertLess(row["iteration_seconds"], row["dense_iteration_seconds"])
            self.assertTrue(row["pays_below_bits_per_second"] is None or row["pays_below_bits_per_second"] > 1e9)

    def test_refuses_wrong_options(self):
        for arguments, naming in (
            (["--network", "1gbit", "--ranks", "4"], "--model"),
            (["--model", "model.json", "--cluster", "10gbe-64", "--ranks", "6"], "no part of 6 ranks"),
            (["--model", "model.json", "--cluster", "10gbe-64", "--policy", "best"], "best"),
            (["--model", "model.json", "--cluster", "10gbe-64", "--batch", "8"], "a workload file"),
            (["--model", "llama-7b", "--cluster", "10gbe-64", "--policy", "dear", "--compress", "fp16"], "fp32"),
            (["--model", "model.json", "--cluster", "10gbe-64", "--policy", "fsdp", "--compress", "fp16"], "fsdp"),
            (["--model", "model.json", "--cluster", "10gbe-64", "--compress", "top-k:2"], "2"),
        ):
            self.refuse("plan", *arguments, naming=naming, command="dear plan")

    def test_lists_models_and_clusters(self):
        models = self.succeed("models")
        for name in ("resnet50", "bert-large", "rtx2080ti", "h100"):
            self.assertIn(name, models)
        clusters = self.succeed("clusters")
        for name in ("10gbe-64", "h100-400gbit-131072", "131072"):
            self.assertIn(name, clusters)

    def test_writes_the_study_of_sparse_communication(self):
        self.study("sparse", "--quick", "--seeds", "1")
        with open(self.path("sparse/results.json"), encoding="utf-8") as file:
            results = json.load(file)
        self.assertEqual(results["seeds"], 1)
        for statement in results["statements"]:
            self.assertLessEqual(statement["held"] + statement["undecided"], statement["cases"], statement)
        xml.etree.ElementTree.parse(self.path("sparse/speed.svg"))

    def test_refuses_a_study_of_sparse_communication(self):
        self.refuse("study", "sparse", "--seeds", "0", naming="--seeds", command="dear study sparse")
        self.write("file", "")
        done = self.dear("study", "sparse", "--quick", "--out", "file/folder")
        self.assertEqual((done.returncode, done.stdout), (2, ""), done)
        self.assertIn("file/folder", done.stderr)

    def test_writes_the_study_of_themis(self):
        self.study("themis", "--quick", "--pictures", "pdf,png")
        xml.etree.ElementTree.parse(self.path("themis/iterations.svg"))
        for ending, begin in (("pdf", b"%PDF-"), ("png", b"\x89PNG")):
            with open(self.path(f"themis/iterations.{ending}"), "rb") as file:
                self.assertTrue(file.read().startswith(begin), ending)
        self.refuse("study", "themis", "--pictures", "gif", naming="gif", command="dear study themis")
        self.write("figures.json", "{}")
        self.refuse("study", "themis", "--published", "figures.json", naming="figures.json", command="dear study themis")

    def test_writes_the_study_of_lancet(self):
        self.study("lancet", "--quick")
        for picture in ("gains", "passes", "paces"):
            xml.etree.ElementTree.parse(self.path(f"lancet/{picture}.svg"))
        self.write("figures.json", "{}")
        self.refuse("study", "lancet", "--published", "figures.json", naming="figures.json", command="dear study lancet")

    def test_writes_the_study_of_fusionllm(self):
        self.study("fusionllm", "--quick")
        for picture in ("bandwidths", "topologies", "schedules", "losses"):
            xml.etree.ElementTree.parse(self.path(f"fusionllm/{picture}.svg"))
        with open(self.path("fusionllm/results.json"), encoding="utf-8") as file:
            results = json.load(file)
        for statement in results["statements"]:
            judged = statement["held"] + statement["undecided"] + statement["not_comparable"]
            self.assertLessEqual(judged, statement["cases"], statement)
        self.write("figures.json", "{}")
        self.refuse("study", "fusionllm", "--published", "figures.json", naming="figures.json", command="dear study fusionllm")

    def test_writes_the_study_of_rounds(self):
        done = self.dear("study", "rounds", "--quick", "--out", "rounds")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(done.stderr.splitlines()[0], "dear study rounds: takes seconds")
        self.assertEqual(len(done.stdout.split()), 13)
        for picture in ("tamuna/reals", "tamuna/gains", "tamuna/owners", "coda/auc", "coda/drift", "diloco/losses", "diloco/steps"):
            xml.etree.ElementTree.parse(self.path(f"rounds/{picture}.svg"))
        for folder in ("rounds/tamuna", "rounds/coda", "rounds/diloco"):
            self.assertIn("| statement | what we saw | verdict |", self.read(f"{folder}/README.md"))
            self.assertEqual(json.loads(self.read(f"{folder}/results.json"))["modelled"], ["communication"])
        self.write("figures.json", "{}")
        self.refuse("study", "rounds", "--published", "figures.json", naming="figures.json", command="dear study rounds")
        self.refuse("study", "rounds", "--seeds", "0", naming="--seeds", command="dear study rounds")

    def test_plans_rounds_where_links_are_slow(self):
        base = ("plan", "--model", "resnet50", "--network", "bandwidth=100mbit,latency=10ms", "--ranks", "4", "--policy", "dear")
        out = self.succeed(*base, "--json", "plan.json")
        [answer] = json.loads(self.read("plan.json"))
        rounds = answer["rounds"]
        self.assertIn(rounds["verdict"], out)
        self.assertIn(f"hidden from {rounds['hidden_from_steps']} steps a round on", out)
        for row in rounds["rows"]:
            hidden = row["steps_a_round"] >= rounds["hidden_from_steps"]
            self.assertEqual(row["overlapped_seconds"] == rounds["compute_seconds"], hidden)
            self.assertRegex(out, rf"(?m)^ +{row['steps_a_round']} ")
        self.assertNotIn("Rounds send less", self.succeed("plan", "--model", "resnet50", "--cluster", "10gbe-64", "--policy", "dear"))

    def test_simulates_kfac(self):
        text = self.succeed("simulate", "--model", "resnet50", "--cluster", "100gbib", "--ranks", "16", "--policy", "d-kfac,spd-kfac", "--json", "kfac.json")
        self.assertIn("dealt inverses", text)
        with open(self.path("kfac.json"), encoding="utf-8") as file:
            self.assertEqual([row["policy"] for row in json.load(file)], ["d-kfac", "spd-kfac"])
        base = ("simulate", "--cluster", "100gbib", "--ranks", "16")

        def refuse(*arguments, naming):
            self.refuse(*base, *arguments, naming=naming, command="dear simulate")

        refuse("--model", "model.json", "--policy", "spd-kfac", naming="shapes")
        refuse("--model", "resnet50", "--policy", "dear,spd-kfac", naming="--policy")
        refuse("--model", "resnet50", "--policy", "spd-kfac", "--detail", "flows", naming="--detail")
        refuse("--model", "resnet50", "--policy", "spd-kfac", "--compress", "top-k:0.01,ef", naming="--compress")
        refuse("--model", "resnet50", "--policy", "spd-kfac", "--factor-every", "3", "--inverse-every", "4", naming="inverses")
        refuse("--model", "resnet50", "--inverse-every", "4", naming="--inverse-every")
        for option, value in (("--schedule", "schedule.json"), ("--optimizer-states", "2"), ("--seed", "3"),
                              ("--repetitions", "2"), ("--iterations", "8"), ("--placement", "packed"),
                              ("--codec", "none"), ("--union-density", "0.1")):  # fmt: skip
            refuse("--model", "resnet50", "--policy", "spd-kfac", option, value, naming=option)
        refuse("--model", "resnet50", "--policy", "spdkfac", naming="spd-kfac")
        self.succeed(*base, "--model", "resnet18", "--policy", "spd-kfac", "--trace", "trace.json")
        summary = self.succeed("trace", "summary", "trace.json")
        self.assertIn("dear simulate, policy spd-kfac, 16 ranks", summary)
        self.assertIn("other computation", summary)

    def test_replays_kfac(self):
        base = ("replay", "--model", "resnet18", "--batch", "1", "--device", "h100", "--workers", "2", "--policy", "spd-kfac", "--iterations", "4")
        text = self.succeed(*base, "--network", "bandwidth=100gbit,latency=5us", "--json", "kfac.json", "--trace", "trace.json")
        self.assertIn("replayed / simulated", text)
        with open(self.path("kfac.json"), encoding="utf-8") as file:
            self.assertGreater(json.load(file)[0]["iteration_seconds"]["median"], 0)
        with open(self.path("trace.json"), encoding="utf-8") as file:
            self.assertIn("inverse of A of conv1", file.read())
        self.refuse(*base, naming="--network", command="dear replay")
        for option, value in (("--compress", "top-k:0.01,ef"), ("--codec", "none"), ("--union-density", "0.1"), ("--scale-compute", "0.5")):
            self.refuse(*base, "--network", "1gbit", option, value, naming=option, command="dear replay")

    def test_plans_kfac(self):
        base = ("plan", "--model", "resnet50", "--cluster", "10gbe", "--ranks", "8", "--optimizer", "kfac")
        text = self.succeed(*base, "--json", "answer.json")
        self.assertIn("Use ", text)
        with open(self.path("answer.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)[0]["ranks"], 8)
        self.refuse(*base, "--policy", "dear", naming="dear", command="dear plan")
        self.refuse(*base, "--schedule", "schedule.json", naming="--schedule", command="dear plan")
        self.refuse(*base, "--optimizer-states", "2", naming="--optimizer-states", command="dear plan")
        self.refuse("plan", "--model", "resnet50", "--cluster", "10gbe-64", "--policy", "spd-kfac", naming="--optimizer kfac", command="dear plan")

    def test_simulates_mixtures_of_experts(self):
        base = ("simulate", "--cluster", "p3dn-64", "--ranks", "16")
        text = self.succeed(*base, "--model", "gpt2-s-moe", "--overlap", "experts,dw", "--json", "moe.json", "--plot", "moe.svg")
        self.assertIn("12 layers, 6 of them with 32 experts", text)
        with open(self.path("moe.json"), encoding="utf-8") as file:
            self.assertEqual([row["overlap"] for row in json.load(file)], ["experts", "dw"])
        xml.etree.ElementTree.parse(self.path("moe.svg"))
        self.succeed(*base, "--model", "gpt2-s-moe", "--overlap", "lancet", "--trace", "trace.json")
        self.assertIn("dear simulate, gpt2-s-moe, overlap lancet, 16 ranks", self.succeed("trace", "summary", "trace.json"))

        def refuse(*arguments, naming):
            self.refuse(*base, *arguments, naming=naming, command="dear simulate")

        for option, value in (("--policy", "dear"), ("--fusion", "25MiB"), ("--algorithm", "ring"), ("--compress", "top-k:0.01,ef"), ("--jobs", "2"),
                              ("--schedule", "schedule.json"), ("--detail", "flows"), ("--accumulate", "2"), ("--iterations", "8"),
                              ("--jitter", "0.1"), ("--scale-compute", "2"), ("--factor-fusion", "rule")):  # fmt: skip
            refuse("--model", "gpt2-s-moe", option, value, naming=option)
        refuse("--model", "gpt2-s-moe", "--checkpoint-activations", naming="--checkpoint-activations")
        refuse("--model", "gpt2-s-moe,resnet50", naming="resnet50")
        refuse("--model", "gpt2-s-moe", "--trace", "trace.json", naming="--overlap")
        refuse("--model", "gpt2-s-moe", "--overlap", "tutel", naming="tutel")
        refuse("--model", "gpt2-s-moe", "--gate", "top2", naming="top2")
        refuse("--model", "gpt2-s-moe", "--capacity-factor", "0", naming="capacity factor")
        refuse("--model", "deepseek-moe-16b", naming="give one")
        for option, value in (("--overlap", "lancet"), ("--gate", "switch"), ("--capacity-factor", "1")):
            refuse("--model", "resnet50", option, value, naming=option)

    def test_plans_mixtures_of_experts(self):
        base = ("plan", "--model", "gpt2-s-moe", "--cluster", "p3dn-64", "--ranks", "8")
        text = self.succeed(*base, "--json", "answer.json", "--plot", "answer.svg")
        self.assertIn("of an iteration waits for all-to-alls with lancet", text)
        with open(self.path("answer.json"), encoding="utf-8") as file:
            [answer] = json.load(file)
        self.assertEqual(sorted(row["overlap"] for row in answer["rows"]), ["dw", "experts", "lancet", "partition", "unoptimised"])
        xml.etree.ElementTree.parse(self.path("answer.svg"))
        for option, value in (("--policy", "dear"), ("--schedule", "schedule.json"), ("--optimizer", "kfac"), ("--optimizer-states", "1")):
            self.refuse(*base, option, value, naming=option, command="dear plan")

    def test_refuses_mixtures_of_experts_where_no_tokens_travel(self):
        for command in (["models", "export", "gpt2-s-moe", "--out", "moe.json"], ["tune", "--model", "gpt2-s-moe", "--cluster", "10gbe-64"],
                        ["replay", "--model", "gpt2-s-moe", "--workers", "2"]):  # fmt: skip
            self.refuse(*command, naming="all-to-alls", command="dear " + " ".join(command[: 1 + (command[1] == "export")]))
        self.assertIn("deepseek-moe-16b", self.succeed("models"))

    # The folders' own tests compute these studies, for half a minute.
    def test_refuses_studies_before_they_are_computed(self):
        self.write("file", "")
        for study in ("paper", "kfac"):
            self.refuse("study", study, "--out", "file/folder", naming="file/folder", command=f"dear study {study}")
        self.write("figures.json", "{}")
        self.refuse("study", "kfac", "--published", "figures.json", naming="figures.json", command="dear study kfac")

    def test_writes_the_study_of_homomorphic_compression(self):
        self.study("homomorphic", "--quick", "--seeds", "1")
        with open(self.path("homomorphic/results.json"), encoding="utf-8") as file:
            results = json.load(file)
        self.assertEqual(results["seeds"], 1)
        for statement in results["statements"]:
            self.assertLessEqual(statement["held"] + statement["undecided"], statement["cases"], statement)
        xml.etree.ElementTree.parse(self.path("homomorphic/throughput.svg"))

    # docs/simulator.md shows what it prints otherwise.
    def test_refuses_a_calibration_without_figures(self):
        done = self.dear("study", "calibration", "--published", "nowhere.json")
        self.assertEqual(done.returncode, 2, done)
        self.assertIn("nowhere.json", done.stderr)


TUNE = ["tune", *SIMULATE[1:]]


class Tune(Command):
    def test_tries_sizes_and_writes_what_it_found(self):
        output = self.succeed(*TUNE, "--json", "tune.json", "--plot", "tune.svg", "--seed", "3")
        self.assertIn("modelled", output)
        with open(self.path("tune.json"), encoding="utf-8") as file:
            tuned = json.load(file)
        self.assertEqual((tuned["on"], tuned["policy"], tuned["method"], tuned["ranks"]), ("simulation", "dear", "bayesian", 4))
        self.assertLessEqual(len(tuned["trials"]), 10)
        self.assertIn(tuned["choice"]["candidate"], [trial["candidate"] for trial in tuned["trials"]])
        self.assertGreaterEqual(tuned["choice"]["true_seconds"], tuned["optimum"]["true_seconds"])
        xml.etree.ElementTree.parse(self.path("tune.svg"))

    def test_methods_differ_and_a_seed_repeats_itself(self):
        for method in ("bayesian", "grid"):
            arguments = [*TUNE, "--method", method, "--trials", "4", "--prior", "--planned"]
            self.assertEqual(self.succeed(*arguments), self.succeed(*arguments))

    def test_refuses_wrong_options(self):
        def refuse(*arguments, naming):
            self.refuse(*TUNE, *arguments, naming=naming, command="dear tune")

        refuse("--method", "guessing", naming="guessing")
        self.refuse("tune", "--cluster", "1gbit", naming="--model", command="dear tune")
        self.refuse("tune", "--model", "resnet50", naming="--cluster", command="dear tune")
        refuse("--policy", "hope", naming="hope")
        refuse("--trials", "0", naming="--trials")
        refuse("--noise", "-1", naming="--noise")
        refuse("--network", "10gbe", naming="one job")
        refuse("--json", "no/such/folder.json", naming="--json")
        refuse("--plot", "", naming="--plot")


class Replay(Command):
    def test_measures_beside_what_is_simulated(self):
        out = self.succeed(*REPLAY, "--network", "1gbit", "--fusion", "layer", "--json", "replay.json")
        self.assertIn("Computation is timed, not done", out)
        with open(self.path("replay.json"), encoding="utf-8") as file:
            rows = json.load(file)
        self.assertEqual([row["policy"] for row in rows], ["serial", "wfbp", "dear"])
        for row in rows:
            self.assertEqual((row["model"], row["ranks"], row["fusion"]), ("four layers", 2, "layer"))
            self.assertGreaterEqual(row["iteration_seconds"]["median"], row["compute_seconds"] * (1 - 1e-9))
            self.assertGreater(row["simulated_seconds"], 0)
            self.assertIn("1gbit", row["network"])
        self.assertAlmostEqual(rows[0]["compute_seconds"], 0.121)

    def test_writes_a_trace_of_all_ranks(self):
        self.succeed(*REPLAY, "--policy", "dear", "--trace", "trace.json")
        summary = self.succeed("trace", "summary", "trace.json")
        self.assertIn("dear replay, policy dear, 2 ranks", summary)
        self.assertIn("iterations: 4", summary)

    def test_takes_what_was_planned(self):
        self.succeed("plan", "--model", "model.json", "--cluster", "1gbit", "--ranks", "2", "--policy", "dear",
                     "--schedule", "s.json")
        self.assertIn("dear", self.succeed(*REPLAY, "--schedule", "s.json"))

    def test_refuses_what_cannot_be(self):
        def refuse(*options, naming):
            self.refuse(*REPLAY, *options, naming=naming, command="dear replay")

        refuse("--policy", "fsdp", naming="can only be simulated")
        refuse("--policy", "hope", naming="choose one of")
        refuse("--backend", "pigeon", naming="no backend 'pigeon'")
        refuse("--trace", "t.json", naming="give one --policy")
        refuse("--policy", "dear", "--trace", "t.json", "--json", "t.json", naming="same file")
        refuse("--schedule", "s.json", "--fusion", "all", naming="leave --policy and --fusion out")
        refuse("--timeout", "0s", naming="--timeout is 0")
        refuse("--predict", "nowhere", naming="nowhere")
        refuse("--json", "no/such/folder.json", naming="cannot write")


class Aggregate(Command):
    def test_measures_both_ways_and_writes_json(self):
        out = self.succeed(*AGGREGATE, "--network", "1gbit", "--json", "out.json")
        self.assertIn("aggregating 2 gradients of 65536 elements", out)
        self.assertIn("throughput ratio", out)
        with open(self.path("out.json"), encoding="utf-8") as file:
            result = json.load(file)
        self.assertEqual((result["workers"], result["elements"], result["exact"]), (2, 65536, False))
        self.assertEqual(result["dense_exchanges"], 0)
        self.assertGreater(result["peeling_rounds"], 1)
        self.assertEqual(result["dense"]["bytes_received"], 4 * 65536)
        self.assertLess(3 * result["sketch"]["bytes_sent"], result["dense"]["bytes_sent"])
        self.assertGreater(result["throughput_ratio"], 0)
        self.assertIn("1gbit", result["network"])

    def test_proves_that_exact_sums_are_the_same_bits(self):
        self.assertIn("the same bits", self.succeed(*AGGREGATE, "--exact", "--seed", "7", "--backend", "shm"))

    def test_refuses_what_cannot_be(self):
        def refuse(*options, naming):
            self.refuse("aggregate", *options, naming=naming, command="dear aggregate")

        refuse("--workers", "0", naming="--workers")
        refuse("--workers", "1000", naming="--workers")
        refuse("--elements", "0", naming="--elements")
        refuse("--elements", "many", naming="'many'")
        refuse("--density", "0", naming="--density")
        refuse("--density", "nan", naming="--density")
        refuse("--steps", "0", naming="--steps")
        refuse("--network", "string", naming="string")
        refuse("--backend", "pigeon", naming="no backend 'pigeon'")
        refuse("--timeout", "0s", naming="--timeout is 0")
        refuse("--json", "no/such/folder.json", naming="cannot write")

    def test_refuses_another_number_of_workers_than_a_launcher_started(self):
        done = self.dear("launch", "-n", "3", DEAR, "aggregate", "--workers", "3")
        self.assertEqual(done.returncode, 2, done)
        self.assertIn("has started 3 ranks", done.stderr)

    def test_says_what_failed_where_a_modelled_network_is_too_slow(self):
        done = self.dear(*AGGREGATE, "--network", "bandwidth=1kbit,latency=1ms", "--timeout", "1s")
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("modelled network", done.stderr)


class TraceSummary(Command):
    def test_refuses_what_is_no_trace(self):
        self.refuse("trace", "summary", naming="FILE", command="dear trace summary")
        self.refuse("trace", "summary", "none.json", naming="none.json", command="dear trace summary")
        self.refuse("trace", "summary", "model.json", naming="model.json", command="dear trace summary")


BENCH = ["bench", "collective", "--ranks", "2", "--sizes", "4B,64KiB", "--repeat", "2"]


class BenchCollective(Command):
    def test_measures_backends_and_rivals_and_writes_what_is_asked_for(self):
        files = ["--json", "out.json", "--plot", "out.svg", "--cluster", "cluster.json"]
        output = self.succeed(*BENCH, "--rivals", "memcpy", *files)
        lines = output.splitlines()
        header = next(i for i, line in enumerate(lines) if line.startswith("size"))
        self.assertIn("busbw GB/s", lines[header])
        self.assertEqual(len({len(line) for line in lines[header : header + 5]}), 1, "columns are not aligned")
        self.assertIn("load", output)
        self.assertIn("alpha", output)

        with open(self.path("out.json"), encoding="utf-8") as file:
            results = json.load(file)
        self.assertEqual(
            [(r["backend"], r["operation"], r["dtype"], r["ranks"], r["bytes"], r["verified"]) for r in results],
            [
                (backend, "reduce-scatter+all-gather", "fp32", 2, size, True)
                for size in (4, 65536)
                for backend in ("shm", "memcpy")
            ],
        )
        for result in results:
            seconds = result["seconds"]
            self.assertEqual(set(seconds), {"median", "p10", "p90"})
            self.assertTrue(0 < seconds["p10"] <= seconds["median"] <= seconds["p90"])
            self.assertAlmostEqual(result["busbw_bytes_per_second"] * seconds["median"] / result["bytes"], 1)
            self.assertEqual(len(result), 10)

        svg = xml.etree.ElementTree.parse(self.path("out.svg")).getroot()
        self.assertEqual(svg.tag, "{http://www.w3.org/2000/svg}svg")
        lines = svg.findall("{http://www.w3.org/2000/svg}polyline")
        self.assertEqual(len(lines), 2 * 2)  # each once more in the legend

        modelled = self.succeed("simulate", "--model", "model.json", "--network", "cluster.json", "--ranks", "4")
        self.assertIn("shm, 2 ranks", modelled)

    def test_measures_other_operations_and_dtypes(self):
        output = self.succeed(*BENCH, "--operation", "all-to-all", "--dtype", "uint8", "--rivals", "none")
        self.assertIn("all-to-all of uint8", output)
        self.assertNotIn("memcpy", output)

    def test_refuses_wrong_options_and_values_before_it_measures(self):
        def refuse(*arguments, naming):
            self.refuse(*BENCH, *arguments, naming=naming, command="dear bench collective")

        self.refuse("bench", "collective", "--ranks", "0", naming="--ranks", command="dear bench collective")
        self.refuse("bench", "collective", "--ranks", "two", naming="two", command="dear bench collective")
        self.refuse("bench", "collective", "--sizes", "big", naming="'big'", command="dear bench collective")
        refuse("--backend", "pigeon", naming="pigeon")
        refuse("--rivals", "pigeon", naming="pigeon")
        refuse("--operation", "gather", naming="gather")
        refuse("--dtype", "fp8", naming="fp8")
        refuse("--json", "no/such/folder.json", naming="no/such/folder.json")
        refuse("--cluster", ".", naming="folder")
        refuse("--colour", "blue", naming="--colour")

    def test_refuses_files_that_are_no_clusters(self):
        self.write("cluster.json", '{"format": "dear-cluster", "version": 1, "name": "x", "ranks": 2, "link": {}}')
        network = ["--network", "cluster.json", "--ranks", "2"]
        self.refuse(
            "simulate", "--model", "model.json", *network, naming="link.alpha_seconds: missing", command="dear simulate"
        )


LINKS = ["bench", "links", "--workers", "3", "--sizes", "16KiB,64KiB", "--repeat", "9"]
SLOW = ["--network", "bandwidth=100mbit,latency=50us"]  # so that larger messages take longer on a busy machine as well


class BenchLinks(Command):
    def test_writes_a_cluster_that_other_commands_take_as_a_network(self):
        files = ["--output", "links.json", "--json", "out.json", "--name", "here"]
        output = self.succeed(*LINKS, *SLOW, *files, "--flops", "1e12,2e12,3e12", "--memory", "1GiB")
        for part in ("bandwidth", "latency", "from 2", "to 2", "cluster file: links.json", "network: modelled"):
            self.assertIn(part, output)
        with open(self.path("links.json"), encoding="utf-8") as file:
            cluster = json.load(file)
        self.assertEqual((cluster["format"], cluster["name"]), ("dear-pair-cluster", "here"))
        self.assertEqual([device["flops_per_second"] for device in cluster["devices"]], [1e12, 2e12, 3e12])
        with open(self.path("out.json"), encoding="utf-8") as file:
            results = json.load(file)
        self.assertEqual(results["modelled"], ["communication"])
        self.assertEqual([(link["from"], link["to"]) for link in results["links"]], [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)])
        for link in results["links"]:
            self.assertEqual(cluster["bytes_per_second"][link["from"]][link["to"]], link["bytes_per_second"])
            self.assertEqual([trip["bytes"] for trip in link["round_trips"]], [1, 16384, 65536])

        self.refuse(*LINKS, "--network", "links.json", "--backend", "shm", naming="shm", command="dear bench links")
        self.refuse("bench", "links", "--workers", "2", "--network", "links.json", naming="3 devices", command="dear bench links")

    def test_refuses_wrong_options_before_it_measures(self):
        for arguments, naming in [
            (["--workers", "1"], "--workers"),
            (["--sizes", "1KiB"], "--sizes"),
            (["--flops", "1,2,3"], "--flops"),
            (["--memory", "lots"], "lots"),
            (["--output", "no/such/folder.json"], "no/such/folder.json"),
            (["--network", "none.json"], "none.json"),
        ]:
            self.refuse("bench", "links", *arguments, naming=naming, command="dear bench links")


if __name__ == "__main__":
    DEAR = os.path.abspath(sys.argv.pop(1))
    unittest.main()
