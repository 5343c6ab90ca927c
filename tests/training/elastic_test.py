"""dear::Elastic: a rank that is killed is given up, another takes its place, and each sample is used once an epoch.

elastic_test.py DEAR COUNTED_SAMPLES
"""

import re
import subprocess
import sys
import tempfile
import unittest

from two_hosts import launch_on_two_hosts

DEAR, PROGRAM = sys.argv[1:3]


class Elastic(unittest.TestCase):
    def trained(self, kind, *options):
        """How many ranks there were at the end, the bias of the model, and what the launcher said."""
        with tempfile.TemporaryDirectory() as folder:
            job = subprocess.run(
                [DEAR, "launch", *options, "--no-prefix", "--", PROGRAM, folder, kind],
                capture_output=True,
                text=True,
                timeout=200,
            )
        return self.result(job)

    def result(self, job):
        self.assertEqual(job.returncode, 0, job)
        said = set(job.stdout.splitlines())
        self.assertEqual(len(said), 1, job)
        found = re.fullmatch(r"ranks (\d) steps 24 off by 0e\+00 bias (.*)", said.pop())
        self.assertIsNotNone(found, job)
        return int(found[1]), float.fromhex(found[2]), job.stderr

    def test_others_go_on_and_learn_the_same(self):
        ranks, calm, _ = self.trained("calm", "-n", "3")
        self.assertEqual(ranks, 3)
        for kind, options in (("shrunk", []), ("replaced", ["--restarts", "1"])):
            with self.subTest(kind):
                ranks, bias, said = self.trained(kind, "--elastic", "1:3", *options)
                self.assertEqual(ranks, 3 if kind == "replaced" else 2, said)
                self.assertAlmostEqual(bias, calm, delta=1e-12)
                self.assertIn("it goes on with 2 ranks", said)
        with self.subTest("two hosts"), tempfile.TemporaryDirectory() as folder:
            options = ["--no-prefix", "--elastic", "1:3", "--restarts", "1"]
            ranks, bias, said = self.result(
                launch_on_two_hosts(DEAR, (2, 1), options, [PROGRAM, folder, "replaced"])
            )
            self.assertEqual(ranks, 3, said)
            self.assertAlmostEqual(bias, calm, delta=1e-12)
            self.assertIn("it goes on with 2 ranks", said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
