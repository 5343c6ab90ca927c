"""`dear train --save`: a job that ended, was told to end, or was killed goes on where it was."""

import os
import signal

import dear_processes
from dear_processes import Case, main, options

ENDLESS = ("--steps", 1_000_000, "--save", "saved", "--every", 2, "--fusion", "layer")


class Checkpoints(Case):
    def resume(self, *changes):
        return self.start(dear_processes.dear, "train", *options(*changes), "--resume")

    def resumed(self, *changes):
        self.succeed(self.resume(*changes, "--json", "resumed.json"))
        return self.read_json("resumed.json")

    def saved(self):
        return sorted(os.listdir(self.path("saved")))

    def test_a_job_goes_on_to_the_bit(self):
        whole = self.results("--workers", 2, "--steps", 9)
        self.succeed(self.train("--workers", 2, "--steps", 5, "--save", "saved", "--every", 2))
        self.assertEqual(self.saved(), ["step-00000004.pt", "step-00000005.pt"])
        run = self.resumed("--workers", 2, "--steps", 9, "--save", "saved", "--policy", "wfbp")
        self.assertEqual((run["digest"], run["losses"]), (whole["digest"], whole["losses"][5:]))
        again = self.end(self.resume("--workers", 2, "--steps", 9, "--save", "saved"))
        self.assertEqual(again.returncode, 2)
        self.assertIn("9", again.stderr)
        for workers in (1, 3):
            other = self.resumed("--workers", workers, "--steps", 11, "--save", "saved", "--keep", 9)
            self.assertEqual(len(other["losses"]), 2)
            os.remove(self.path("saved/step-00000011.pt"))

    def test_a_job_with_kfac_goes_on_with_its_factors(self):
        kfac = ["--workers", 2, "--optimizer", "kfac", "--kfac-factors", 2, "--kfac-inverses", 4]
        whole = self.results(*kfac, "--steps", 9)
        self.succeed(self.train(*kfac, "--steps", 5, "--save", "saved"))
        run = self.resumed(*kfac, "--steps", 9, "--save", "saved", "--kfac", "mpd-kfac")
        self.assertEqual((run["digest"], run["losses"]), (whole["digest"], whole["losses"][5:]))

    def test_sigterm_to_one_rank_saves_and_ends_all_with_code_0(self):
        job = self.train("--workers", 2, *ENDLESS)
        job.read_until("step 10")
        os.kill(job.pid_of_rank(1), signal.SIGTERM)
        output = self.succeed(job)
        self.assertIn("SIGTERM came", output)
        step = int(output.split("saved step ")[1].split()[0])
        self.assertIn(f"step-{step:08}.pt", self.saved())
        resumed = self.resume("--workers", 2, *ENDLESS)
        resumed.read_until(f"resumed at step {step} ")
        resumed.process.terminate()  # the launcher, which passes it on
        self.succeed(resumed)

    def test_a_killed_job_goes_on(self):
        job = self.train("--workers", 2, *ENDLESS)
        job.read_until("step 10")
        job.kill()
        job.wait_until_gone()
        resumed = self.resume("--workers", 2, *ENDLESS)
        resumed.read_until("resumed at step ")
        resumed.process.terminate()
        self.succeed(resumed)
        self.assertEqual([name for name in self.saved() if not name.startswith("step-")], [])

    def test_results_are_written_where_the_last_checkpoint_cannot_be(self):
        os.makedirs(self.path("saved/step-00000003.pt/in the way"))
        ended = self.end(self.train("--workers", 2, "--steps", 3, "--save", "saved", "--json", "unsaved.json"))
        self.assertEqual(ended.returncode, 1, ended)
        self.assertRegex(ended.stderr, "rank 0.*step-00000003.pt")
        run = self.read_json("unsaved.json")
        self.assertEqual(len(run["losses"]), 3)
        self.assertIn(run["unsaved"], ended.stderr)

    def test_what_cannot_be_is_refused(self):
        for changes, reason in (
            (["--every", 5], "--save"),
            (["--save", "saved", "--every", 0], "--every"),
            (["--save", "saved", "--keep", 0], "--keep"),
            (["--save", "saved", "--compare", "serial,dear"], "--compare"),
            (["--save", "text.txt"], "text.txt"),
        ):
            ended = self.end(self.train("--workers", 1, *changes))
            self.assertEqual(ended.returncode, 2, ended)
            self.assertIn(reason, ended.stderr)


if __name__ == "__main__":
    main()
