"""Mixtures of experts on the ranks of `dear train --model moe-gpt`: the same parameters, to the last bit, whatever hides their all-to-alls."""

import os
import signal
import uuid

from dear_processes import POLICIES, Case, main

MOE = ["--model", "moe-gpt", "--experts", 4, "--layers", 4, "--batch", 4]


class Mixtures(Case):
    def result(self, *changes):
        return self.results(*MOE, *changes)

    def test_overlaps_and_parts_change_no_bit(self):
        for gate in ("switch", "top2", "batch-prioritized"):
            found = {}
            for overlap, parts in (("none", 1), ("none", 4), ("experts", 2), ("lancet", 1), ("lancet", 2), ("lancet", 4)):
                run = self.result("--workers", 2, "--gate", gate, "--overlap", overlap, "--parts", parts)
                found[overlap, parts] = run["digest"]
                mixtures = run["mixtures"]
                self.assertEqual((mixtures["gate"], mixtures["overlap"], mixtures["parts"]), (gate, overlap, parts))
                # Two mixtures with two all-to-alls of each part in either pass.
                self.assertEqual(mixtures["all_to_alls_per_step"], 8 * parts)
                self.assertGreater(mixtures["sent_bytes_per_step"], 0)
            self.assertEqual(len(set(found.values())), 1, (gate, found))

    def test_neither_do_policies(self):
        rest = ["--workers", 2, "--overlap", "lancet", "--parts", 2]
        for optimizer in ("sgd", "adamw"):
            compared = self.result(*rest, "--compare", ",".join(POLICIES), "--optimizer", optimizer)["runs"]
            digests = {run["digest"] for run in compared}
            digests.add(self.result(*rest, "--fusion", "layer", "--optimizer", optimizer)["digest"])
            self.assertEqual(len(digests), 1, optimizer)

    def test_workers_share_out_what_one_has(self):
        # Places are of each worker's batch: without drops, and without the balance of each, one computes the same.
        rest = ["--capacity-factor", 4, "--optimizer", "sgd", "--steps", 3]
        alone = self.result(*rest, "--workers", 1, "--batch", 8)
        shared = self.result(*rest, "--workers", 2, "--batch", 4)
        self.assertEqual(shared["mixtures"]["dropped_share"], 0)
        for one, other in zip(alone["losses"], shared["losses"]):
            self.assertAlmostEqual(one, other, delta=1e-3)

    def test_a_modelled_network_carries_all_to_alls(self):
        self.result("--workers", 2, "--network", "bandwidth=1gbit,latency=3ms", "--trace", "trace.json")
        spans = [event for event in self.read_json("trace.json")["traceEvents"] if event["name"].startswith("all-to-all of ")]
        self.assertEqual(len(spans), 2 * 4 * 8)  # of 2 ranks, in 4 steps
        self.assertTrue(all(span["dur"] >= 3000 for span in spans), spans)

    def test_a_killed_worker_is_named(self):
        for overlap in ("none", "lancet"):
            endless = ["--steps", 1000000, "--overlap", overlap, "--parts", 2, "--timeout", "3600s"]
            job = self.train(*MOE, *endless, "--workers", 2)
            job.read_until("step 10 of")
            os.kill(job.pid_of_rank(1), signal.SIGKILL)
            ended = self.end(job)
            self.assertEqual(ended.returncode, 128 + signal.SIGKILL, ended)
            self.assertIn("dear train: rank 1 was killed by signal 9", ended.stderr)

    def test_a_killed_worker_is_named_by_all_others_where_nobody_started_them(self):
        job = uuid.uuid4().hex
        environments = [{"RANK": rank, "WORLD_SIZE": 3, "DEAR_RENDEZVOUS": job} for rank in range(3)]
        endless = ["--experts", 3, "--steps", 1000000, "--overlap", "lancet", "--parts", 2, "--timeout", "3600s"]
        ranks = [self.train(*MOE, *endless, environment=environment) for environment in environments]
        ranks[0].read_until("step 10 of")
        ranks[1].process.send_signal(signal.SIGKILL)
        for rank in (0, 2):
            ended = self.end(ranks[rank])
            self.assertEqual((ended.returncode, ended.stderr.count("\n")), (1, 1), ended)
            self.assertRegex(ended.stderr, "died|ended|left")
            self.assert_names(1, ended.stderr.removeprefix(f"dear train: rank {rank}: "))
        self.end(ranks[1])


if __name__ == "__main__":
    main()
