"""How `dear train` ends where it was interrupted, or cannot go on: with what there is, and one line."""

import re
import signal
import subprocess

import dear_processes
from dear_processes import Case, main, options, outside_of_launchers

ENDLESS = ("--steps", 1_000_000)


class Interruptions(Case):
    def interrupted(self, job, moment):
        """The steps after which the job says that it was interrupted, and its output."""
        job.read_until(moment)
        job.process.send_signal(signal.SIGINT)
        ended = self.end(job)
        self.assertEqual((ended.returncode, ended.stderr), (130, ""), ended)
        said = re.search(r"^interrupted after ([\d,]+) of 1,000,000 steps", ended.stdout, re.MULTILINE)
        self.assertTrue(said, ended.stdout)
        return int(said[1].replace(",", "")), ended.stdout

    def test_one_run_reports_and_writes_what_there_is(self):
        for workers in (1, 2):
            with self.subTest(workers=workers):
                job = self.train("--workers", workers, *ENDLESS, "--json", "run.json", "--trace", "trace.json")
                steps, output = self.interrupted(job, "dear: step 10 ")
                run = self.read_json("run.json")
                self.assertEqual((run["steps"], len(run["losses"])), (steps, steps))
                self.assertIn(run["digest"], output)
                iterations = {span["args"]["iteration"] for span in self.read_json("trace.json")["traceEvents"] if span["ph"] == "X"}
                self.assertIn(steps - 2, iterations)

    def test_a_comparison_ends_with_a_whole_round(self):
        job = self.train("--workers", 2, *ENDLESS, "--compare", "serial,dear", "--json", "runs.json")
        steps, output = self.interrupted(job, "round 1 of")
        runs = self.read_json("runs.json")["runs"]
        self.assertEqual([run["steps"] for run in runs], [steps, steps])
        self.assertEqual(len({run["digest"] for run in runs}), 1)
        self.assertIn("speed-up", output)

    def test_a_job_that_saves_can_go_on(self):
        saving = ("--workers", 2, "--save", "saved")
        steps, _ = self.interrupted(self.train(*saving, *ENDLESS), "dear: step 10 ")
        output = self.succeed(self.start(dear_processes.dear, "train", *options(*saving, "--steps", steps + 2), "--resume"))
        self.assertIn(f"resumed at step {steps} ", output)


class OneLine(Case):
    def fail(self, code, *words, stdout=subprocess.DEVNULL):
        done = subprocess.run([dear_processes.dear, "train", *words], cwd=self.folder, env=outside_of_launchers(), text=True, check=False,
                              stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, timeout=dear_processes.LIMIT)  # fmt: skip
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        return done.stderr

    def test_says_that_a_loss_is_no_number(self):
        for workers in (1, 2):
            said = self.fail(1, *options("--workers", workers, "--optimizer", "sgd", "--lr", "1e30", "--json", f"{workers}.json"))
            self.assertRegex(said, r"loss of policy dear is (no number|infinite) .*--lr")
            self.assertEqual(self.read_json(f"{workers}.json")["steps"], 4)

    def test_says_once_what_all_workers_say(self):
        saving = options("--workers", 3, "--save", "saved", "--steps", 2)
        self.succeed(self.start(dear_processes.dear, "train", *saving))
        self.assertIn("ask for more", self.fail(2, *saving, "--resume"))

    def test_says_that_its_output_is_lost(self):
        for workers in (1, 2):
            with open("/dev/full", "w", encoding="utf-8") as full:
                self.assertIn("No space left", self.fail(1, *options("--workers", workers), stdout=full))


if __name__ == "__main__":
    main()
