#!/usr/bin/env python3
"""`dear bench collective` as the ranks of an mpirun.

  bench_test.py DEAR MPIRUN IMPLEMENTATION"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

RANKS = 3
BENCH = ["bench", "collective", "--sizes", "4B,64KiB", "--repeat", "2", "--timeout", "30s"]
PAIR = "reduce-scatter+all-gather"
# TCP between the ranks of one host, as it is between hosts.
OVER_TCP = {
    "openmpi": {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "tcp,self", "OMPI_MCA_btl_tcp_if_include": "lo"},
    "mpich": {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self"},
}


class Launched(unittest.TestCase):
    dear = mpirun = implementation = ""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_bench(self, *options, environment=()):
        command = [self.mpirun, self.implementation, str(RANKS), self.dear, *BENCH, *options]
        environment = {**os.environ, "XDG_CACHE_HOME": self.folder, **dict(environment)}
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=240, check=False
        )

    def results(self, *options):
        ended = self.run_bench(*options, "--json", "results.json")
        self.assertEqual(ended.returncode, 0, ended)
        self.assertEqual(ended.stdout.count("medians of 2 repetitions"), 1, ended.stdout)
        with open(os.path.join(self.folder, "results.json"), encoding="utf-8") as file:
            return json.load(file)

    def test_the_mpi_below_is_a_rival(self):
        results = self.results("--backend", "mpi", "--rivals", f"{self.implementation},memcpy")
        self.assertEqual(
            [(row["backend"], row["operation"]) for row in results],
            2 * [("mpi", PAIR), (self.implementation, PAIR), (self.implementation, "all-reduce"), ("memcpy", PAIR)],
        )
        for row in results:
            self.assertTrue(row["verified"], row)
            self.assertEqual(row["ranks"], RANKS)
            self.assertGreater(row["seconds"]["median"], 0)

    def test_the_choice_is_measured_and_fitted(self):
        results = self.results("--rivals", "none", "--cluster", "here.json")
        self.assertEqual([row["backend"] for row in results], ["auto", "auto"])
        with open(os.path.join(self.folder, "here.json"), encoding="utf-8") as file:
            self.assertIn("alpha", file.read())

    def test_sums_in_the_order_of_ranks(self):
        for backend in ("mpi", "auto"):
            results = self.results("--backend", backend, "--rivals", "none", "--reproducible")
            self.assertEqual([row["verified"] for row in results], [True, True])

    def test_jobs_over_tcp_end_well(self):
        for _ in range(10):
            ended = self.run_bench("--backend", "mpi", "--rivals", "none", environment=OVER_TCP[self.implementation])
            self.assertEqual(ended.returncode, 0, ended)

    def test_bad_options_end_all_ranks(self):
        for options, naming in (
            (["--ranks", "2"], "--ranks is for ranks"),
            (["--backend", "pigeon"], "--backend: there is no 'pigeon'"),
            (["--rivals", "gloo-own", "--backend", "mpi"], "--rivals: gloo-own"),
        ):
            # MPICH's mpiexec loses, now and then, all that was said by ranks which fail at once, whatever they run.
            for _ in range(20):
                ended = self.run_bench(*options)
                self.assertNotEqual(ended.returncode, 0)
                if ended.stdout + ended.stderr:
                    break
            self.assertIn(naming, ended.stdout + ended.stderr)


if __name__ == "__main__":
    Launched.dear, Launched.mpirun, Launched.implementation = sys.argv[1:4]
    unittest.main(argv=sys.argv[:1])
