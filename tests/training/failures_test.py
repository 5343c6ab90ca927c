"""Processes that are killed or stopped, at several moments: the rest ends, says why, and leaves nothing behind."""

import os
import signal
import uuid

import dear_processes
from dear_processes import Case, main, options

# So many steps that no test sees the end; policies take turns of 10, and the first steps have a line.
ENDLESS = ["--steps", 1000000, "--compare", "serial,wfbp,dear,dear-replicated"]
OUTPUTS = ["--json", "results.json", "--trace", "trace.json", "--profile", "profile.json"]
# What stands in the output then.
START = None  # the ranks' processes are there
MEETING = "training a GPT"  # all ranks have met; models are made and broadcast
FIRST_STEPS = "\nround 1 of 100000, serial: step 1 of 4000000,"
LATER = "\nround 3 of 100000, dear: step 100 of 4000000,"
RANKS = range(3)


class Failures(Case):
    def setUp(self):
        super().setUp()
        self.write("results.json", "of an earlier run")
        self.before = self.files()

    def started(self, moment, timeout):
        job = self.train(*ENDLESS, *OUTPUTS, "--workers", len(RANKS), "--timeout", timeout)
        if moment:
            job.read_until(moment)
        return job

    def end(self, job):
        ended = super().end(job)
        self.assertEqual(self.files(), self.before, "a file was written")
        return ended

    def check_kill(self, moment):
        """Long before the ranks' own deadline, which is beyond the test's."""
        for rank in RANKS:
            with self.subTest(rank=rank):
                job = self.started(moment, "3600s")
                os.kill(job.pid_of_rank(rank), signal.SIGKILL)
                ended = self.end(job)
                self.assertEqual(ended.returncode, 128 + signal.SIGKILL, ended)
                self.assertIn(f"dear train: rank {rank} was killed by signal 9", ended.stderr)

    def check_stop(self, moment):
        for rank in RANKS:
            with self.subTest(rank=rank):
                job = self.started(moment, "3s")
                os.kill(job.pid_of_rank(rank), signal.SIGSTOP)
                ended = self.end(job)
                self.assertEqual(ended.returncode, 1, ended)
                sentences = [line for line in ended.stderr.splitlines() if "did not come within" in line]
                self.assertTrue(sentences, ended)
                for sentence in sentences:
                    speaker, said = sentence.removeprefix("dear train: ").split(": ", 1)
                    self.assertIn(speaker, [f"rank {other}" for other in RANKS if other != rank])
                    self.assert_names(rank, said)


class Kill(Failures):
    def test_at_the_start(self):
        self.check_kill(START)

    def test_when_ranks_have_met(self):
        self.check_kill(MEETING)

    def test_in_the_first_steps(self):
        self.check_kill(FIRST_STEPS)

    def test_later(self):
        self.check_kill(LATER)


class Stop(Failures):
    def test_at_the_start(self):
        self.check_stop(START)

    def test_in_the_first_steps(self):
        self.check_stop(FIRST_STEPS)

    def test_later(self):
        self.check_stop(LATER)


class WithoutLauncher(Failures):
    """Nobody but the ranks themselves watches over the ranks."""

    def check(self, moment, rank, sent, timeout, reason):
        job = uuid.uuid4().hex
        environments = [{"RANK": r, "WORLD_SIZE": len(RANKS), "DEAR_RENDEZVOUS": job} for r in RANKS]
        changes = [*ENDLESS, *OUTPUTS, "--timeout", timeout]
        ranks = [self.train(*changes, environment=environment) for environment in environments]
        if moment:
            ranks[0].read_until(moment)
        ranks[rank].process.send_signal(sent)
        for other in RANKS:
            if other != rank:
                ended = self.end(ranks[other])
                self.assertEqual(ended.returncode, 1, ended)
                self.assertEqual(ended.stderr.count("\n"), 1, ended)
                self.assertRegex(ended.stderr, reason)
                self.assert_names(rank, ended.stderr.removeprefix(f"dear train: rank {other}: "))
        ranks[rank].kill()
        self.end(ranks[rank])

    def check_kill(self, moment, rank):
        with self.subTest(moment=moment, rank=rank):
            self.check(moment, rank, signal.SIGKILL, "3600s", "died|ended|left")

    def check_stop(self, moment, rank):
        with self.subTest(moment=moment, rank=rank):
            self.check(moment, rank, signal.SIGSTOP, "3s", "did not come within")

    def test_kill_in_the_first_steps(self):
        self.check_kill(FIRST_STEPS, 0)

    def test_kill_at_other_moments(self):
        # Who never came cannot be told from who has died.
        self.check(START, 1, signal.SIGKILL, "3s", "did not come within")
        self.check_kill(MEETING, 2)
        self.check_kill(LATER, 1)

    def test_stop_in_the_first_steps(self):
        self.check_stop(FIRST_STEPS, 0)

    def test_stop_at_other_moments(self):
        self.check_stop(START, 2)
        self.check_stop(LATER, 1)


class Launcher(Failures):
    """`dear train` is its own launcher."""

    def launched(self, moment):
        return self.started(moment, "3600s")

    def check(self, sent, code):
        for moment in (START, FIRST_STEPS):
            with self.subTest(moment=moment):
                job = self.launched(moment)
                for rank in RANKS:
                    job.pid_of_rank(rank)
                job.process.send_signal(sent)
                # An interrupted job writes what there is (interruptions_test.py).
                ended = Case.end(self, job) if sent == signal.SIGINT else self.end(job)
                self.assertEqual((ended.returncode, "rank" in ended.stderr), (code, False), ended)

    def test_sigkill_leaves_no_rank(self):
        self.check(signal.SIGKILL, -signal.SIGKILL)

    def test_sigint_ends_all(self):
        self.check(signal.SIGINT, 128 + signal.SIGINT)

    def test_sigterm_ends_all(self):
        self.check(signal.SIGTERM, 128 + signal.SIGTERM)


class UnderDearLaunch(Launcher):
    """`dear launch` starts it."""

    def launched(self, moment):
        train = [dear_processes.dear, "train", *options(*ENDLESS, *OUTPUTS, "--timeout", "3600s")]
        job = self.start(dear_processes.dear, "launch", "-n", len(RANKS), "--no-prefix", "--", *train)
        if moment:
            job.read_until(moment)
        return job


if __name__ == "__main__":
    main()
