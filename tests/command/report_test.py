"""`dear report`: the page holds what its files hold, and asks for nothing:  report_test.py PATH_OF_DEAR"""

import html.parser
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

DEAR = ""


class Page(html.parser.HTMLParser):
    """The data of a page, its elements by name, and what it would ask a network for."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.requests, self.data, self.policy = {}, [], None, ""
        self._in_data = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.elements[tag] = self.elements.get(tag, 0) + 1
        self._in_data = attributes.get("id") == "data"
        self.requests += [attributes[name] for name in ("src", "href", "action", "data") if name in attributes]
        if attributes.get("http-equiv") == "Content-Security-Policy":
            self.policy = attributes["content"]

    def handle_data(self, data):
        if self._in_data:
            self.data = json.loads(data)
            self._in_data = False


def spans(rank, slow):
    """Six iterations of 20 ms: forward and backward, and a collective behind them; times in microseconds."""
    events = [
        {"ph": "M", "name": "thread_name", "pid": rank, "tid": i, "args": {"name": lane}}
        for i, lane in enumerate(("compute", "network"))
    ]
    for i in range(6):
        for name, activity, lane, begin, end in (
            ("forward a", "forward", 0, 0, 4000 * slow),
            ("backward a", "backward", 0, 4000 * slow, 10000 * slow),
            ("reduce-scatter bucket 0", "communication", 1, 9000 * slow, 19000),
        ):
            events.append({"ph": "X", "name": name, "cat": activity, "pid": rank, "tid": lane, "ts": 20000 * i + begin, "dur": end - begin,
                           "args": {"activity": activity, "iteration": i, "step": 0}})  # fmt: skip
    return events


def trace(title, slow_of_ranks):
    events = [event for rank, slow in enumerate(slow_of_ranks) for event in spans(rank, slow)]
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"format": "dear-trace", "version": 1, "title": title, "network": ""},
    }


METRICS = {
    "rank": 0,
    "ranks": 2,
    "iteration": 0,
    "steps": 1,
    "seconds": 0.5,
    "exposed_seconds": 0.1,
    "communication_seconds": 0.2,
    "overlap": 0.5,
}


class Report(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, name, content):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(content if isinstance(content, str) else json.dumps(content))

    def read(self, name):
        with open(os.path.join(self.folder, name), encoding="utf-8") as file:
            return file.read()

    def dear(self, *arguments):
        return subprocess.run([DEAR, *arguments], cwd=self.folder, capture_output=True, text=True, check=False)

    def succeed(self, *arguments):
        done = self.dear(*arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        return done.stdout

    def page(self, *runs):
        self.assertEqual(self.succeed("report", *runs, "--out", "page.html"), "page.html\n")
        return Page(self.read("page.html"))

    def refuse(self, *runs, naming, out="page.html"):
        done = self.dear("report", *runs, "--out", out)
        self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), done)
        self.assertRegex(done.stderr, rf"^dear report: .*{naming}.* \(see dear report --help\)\n$")

    def test_asks_for_nothing(self):
        self.write("run.json", trace("</script><img src=x>", [1, 1]))
        page = self.page("run.json")
        self.assertTrue(page.policy.startswith("default-src 'none';"), page.policy)
        self.assertNotIn("connect-src", page.policy)
        self.assertEqual([one for one in page.requests if not one.startswith(("#", "data:"))], [])
        self.assertNotIn("img", page.elements)
        self.assertEqual(page.data["runs"][0]["trace"]["title"], "</script><img src=x>")

    def test_holds_the_numbers_of_a_simulation(self):
        for policy in ("wfbp", "dear"):
            self.succeed("simulate", "--model", "resnet50", "--cluster", "10gbe-64", "--policy", policy, "--iterations", "10", "--trace", f"{policy}.json", "--json", f"{policy}.result.json")  # fmt: skip
        page = self.page("wfbp.json", "wfbp=wfbp.result.json", "dear.json", "dear=dear.result.json")
        self.assertEqual([run["name"] for run in page.data["runs"]], ["wfbp", "dear"])
        for run in page.data["runs"]:
            (result,) = json.loads(self.read(f"{run['name']}.result.json"))
            self.assertEqual(run["results"], [result])
            summary = run["trace"]["summary"]
            self.assertAlmostEqual(summary["iteration_seconds"], result["iteration_seconds"], delta=1e-8)
            # A result counts an update on a lane of its own as computation, a trace what of it is waited for as exposed.
            beside = summary["update_seconds"] if run["name"] == "dear" else 0
            least = result["exposed_communication_seconds"]
            self.assertGreaterEqual(summary["exposed_communication_seconds"], least - 1e-8)
            self.assertLessEqual(summary["exposed_communication_seconds"], least + beside + 1e-8)
            text = self.succeed("trace", "summary", f"{run['name']}.json")
            hidden = re.search(r"hidden +(\d+) %", text).group(1)
            self.assertEqual(f"{100 * summary['hidden_fraction']:.0f}", hidden)

    # Of the middle iterations, by hand from spans().
    def test_breaks_down_by_rank(self):
        self.write("run.json", trace("by hand", [1, 1, 1.5]))
        run = self.page("run.json").data["runs"][0]["trace"]
        for rank, (computation, hidden, exposed, idle) in zip(
            run["by_rank"], [(9, 1, 9, 1), (9, 1, 9, 1), (13.5, 1.5, 4, 1)], strict=True
        ):
            self.assertEqual(rank["iterations"], 4)
            for name, milliseconds in (
                ("computation", computation),
                ("hidden", hidden),
                ("exposed", exposed),
                ("idle", idle),
                ("iteration", 20),
            ):
                self.assertAlmostEqual(rank[f"{name}_seconds"], milliseconds / 1e3, places=9, msg=name)
        self.assertEqual([one["rank"] for one in run["stragglers"]], [2])
        self.assertAlmostEqual(run["stragglers"][0]["slowdown"], 1.5, places=9)
        (collective,) = run["by_collective"]
        self.assertEqual((collective["name"], collective["bucket"]), ("reduce-scatter bucket 0", 0))
        self.assertAlmostEqual(collective["seconds"], (10 + 10 + 5.5) / 3e3, places=9)
        self.assertAlmostEqual(collective["exposed_seconds"], (9 + 9 + 4) / 3e3, places=9)

    def test_spans_are_those_of_the_trace(self):
        whole = trace("by hand", [1, 1.5])
        self.write("run.json", whole)
        run = self.page("run.json").data["runs"][0]["trace"]
        found = []
        for lane in run["lanes"]:
            numbers, begin, iteration = lane["spans"], 0, 0
            for i in range(0, len(numbers), 4):
                begin, iteration = begin + numbers[i], iteration + numbers[i + 3]
                name, activity = run["names"][numbers[i + 2]]
                found.append((lane["rank"], lane["lane"], name, activity, iteration, begin, numbers[i + 1]))
        lanes = ("compute", "network")
        expected = [
            (
                e["pid"],
                lanes[e["tid"]],
                e["name"],
                e["cat"],
                e["args"]["iteration"],
                round(1000 * e["ts"]),
                round(1000 * e["dur"]),
            )
            for e in whole["traceEvents"]
            if e["ph"] == "X"
        ]
        self.assertEqual(sorted(found), sorted(expected))

    def test_takes_metrics_ranks_in_files_of_their_own_and_any_results(self):
        for rank in (0, 1):
            self.write(f"{rank}.json", {**trace("a rank", []), "traceEvents": spans(rank, 1)})
        self.write("run.jsonl", "".join(json.dumps({**METRICS, "iteration": i}) + "\n" for i in range(3)))
        self.write("results.json", {"dear_version": "0.1.0", "modelled": [], "cases": [{"a": 1.25}]})
        one, other = self.page("x=0.json", "x=1.json", "x=run.jsonl", "results.json").data["runs"]
        self.assertEqual(one["trace"]["summary"]["ranks"], 2)
        self.assertEqual([line["iteration"] for line in one["metrics"][0]], [0, 1, 2])
        self.assertEqual(other["results"], json.loads(self.read("results.json")))

    def test_takes_traces_of_torch_profiler(self):
        events = [{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 0, "dur": 60}, {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 0, "tid": 20, "ts": 40, "dur": 40}]  # fmt: skip
        for rank in (0, 1):
            self.write(f"k{rank}.json", {"schemaVersion": 1, "distributedInfo": {"rank": rank}, "traceEvents": events})
        summary = self.page("k=k0.json", "k=k1.json").data["runs"][0]["trace"]["summary"]
        self.assertEqual(summary["ranks"], 2)
        self.assertAlmostEqual(summary["exposed_communication_seconds"], 20e-6, places=12)
        self.assertAlmostEqual(summary["hidden_fraction"], 0.5, places=9)

    def test_refuses_what_no_report_is_made_of(self):
        self.write("run.json", trace("a run", [1]))
        text = self.read("run.json")
        self.write("cut.json", text[: len(text) // 2])
        self.write("empty.json", "")
        self.write("words.json", "words")
        self.write("workload.json", {"format": "dear-workload"})
        os.mkdir(os.path.join(self.folder, "folder"))
        self.refuse("missing.json", naming="missing.json")
        self.refuse("folder", naming="folder")
        self.refuse("cut.json", naming="cut.json: parse error")
        self.refuse("empty.json", naming="empty.json: it is empty")
        self.refuse("words.json", naming="words.json: parse error")
        self.refuse("workload.json", naming="it is of format dear-workload")
        self.refuse("run.json", "run.json", naming="run 'run' has a trace of rank 0 already")
        self.refuse("=run.json", naming="the name of its run is empty")
        self.assertFalse(os.path.exists(os.path.join(self.folder, "page.html")))

    def test_refuses_places_that_it_cannot_write(self):
        self.write("run.json", trace("a run", [1]))
        self.write("other.html", "<html>somebody's</html>")
        self.refuse("run.json", out="none/page.html", naming="none/page.html")
        self.refuse("run.json", out="run.json", naming="run.json")
        self.refuse("run.json", out=".", naming="folder")
        self.refuse("run.json", out="other.html", naming="exists and is no page")
        done = self.dear("report", "run.json")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--out", done.stderr)
        self.page("run.json")
        self.page("run.json")  # in place of the first


if __name__ == "__main__":
    DEAR = os.path.abspath(sys.argv.pop(1))
    unittest.main()
