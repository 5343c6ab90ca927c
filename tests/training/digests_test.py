"""The same parameters, to the last bit, whatever hides the communication."""

import dear_processes
from dear_processes import POLICIES, Case, main, options

# More than 1 MiB and less than 25 MiB of parameters: several buckets with `1MiB`, one with `25MiB`.
MODEL = ["--layers", 3, "--width", 96]


class Digests(Case):
    def digest(self, *changes, policies=POLICIES):
        """The one of all policies."""
        runs = self.results("--compare", ",".join(policies), *changes)["runs"]
        digests = {run["policy"]: run["digest"] for run in runs}
        self.assertEqual(list(digests), policies)
        self.assertEqual(len(set(digests.values())), 1, (changes, digests))
        return runs[0]["digest"]


class EveryFusion:
    def check(self, workers):
        rest = [*MODEL, "--workers", workers, "--optimizer", self.optimizer]
        digests = {f: self.digest(*rest, "--fusion", f) for f in ("layer", "1MiB", "25MiB", "all")}
        self.assertEqual(len(set(digests.values())), 1, digests)

    def test_1_worker(self):
        self.check(1)

    def test_2_workers(self):
        self.check(2)

    def test_3_workers(self):
        self.check(3)

    def test_4_workers(self):
        self.check(4)


class Sgd(EveryFusion, Digests):
    optimizer = "sgd"


class AdamW(EveryFusion, Digests):
    optimizer = "adamw"


class Kfac(Digests):
    """Every strategy under every policy."""

    def check(self, workers):
        digests = {}
        for strategy in ("d-kfac", "mpd-kfac", "mpd-kfac-owner", "spd-kfac", "spd-kfac-owner"):
            chosen = ["--optimizer", "kfac", "--kfac", strategy, "--kfac-inverses", 2]
            digests[strategy] = self.digest(*chosen, "--workers", workers)
        self.assertEqual(len(set(digests.values())), 1, digests)

    def test_2_workers(self):
        self.check(2)

    def test_3_workers(self):
        self.check(3)


class Buckets(Digests):
    def buckets(self, *changes):
        """How many, by the trace of policy dear, and the digest."""
        digest = self.digest(*changes, "--trace", "trace.json", policies=["serial", "dear"])
        names = {event["name"] for event in self.read_json("trace-dear.json")["traceEvents"]}
        return sum(name.startswith("all-gather of parameters, bucket ") for name in names), digest

    def test_fusions_differ_in_buckets_and_not_in_digests(self):
        fusions = ["layer", "64KiB", "1MiB", "25MiB", "all"]
        found = [self.buckets(*MODEL, "--workers", 2, "--fusion", fusion) for fusion in fusions]
        counts = [count for count, _ in found]
        self.assertEqual(counts, sorted(counts, reverse=True))
        self.assertEqual(len(set(counts[:4])), 4, counts)
        self.assertEqual(counts[3:], [1, 1])
        self.assertEqual(len({digest for _, digest in found}), 1, found)

    def test_more_than_25_mib(self):
        large = ["--layers", 9, "--width", 256, "--workers", 2, "--steps", 2]
        (several, digest), (one, same_digest) = (self.buckets(*large, "--fusion", f) for f in ("25MiB", "all"))
        self.assertGreater(several, one)
        self.assertEqual(digest, same_digest)

    def test_a_modelled_network(self):
        network = ["--network", "bandwidth=10gbit,latency=20us"]
        for rest in (["--workers", 2, "--fusion", "layer"], ["--workers", 3, "--optimizer", "sgd"]):
            self.assertEqual(self.digest(*rest, *network), self.digest(*rest))

    def test_a_grid_adds_in_the_order_of_ranks_where_asked_to(self):
        plain = ["--workers", 4, "--steps", 10, "--fusion", "64KiB"]
        for grid in (["--grid", "2x2"], ["--grid", "2x2", "--algorithm", "round-robin", "--chunks", 5]):
            words = options(*plain, *grid, "--json", "grid.json")
            self.succeed(self.start(dear_processes.dear, "train", *words, "--reproducible"))
            self.assertEqual(self.read_json("grid.json")["digest"], self.results(*plain)["digest"], grid)

    def test_bound_workers(self):
        for bind in ("--bind", "--bind=true"):
            words = options("--workers", 2, "--json", "bound.json")
            self.succeed(self.start(dear_processes.dear, "train", *words, bind))
            self.assertEqual(self.read_json("bound.json")["digest"], self.results("--workers", 2)["digest"])

    def test_one_copy_of_the_parameters(self):
        for workers in (1, 2, 3):
            for policy in ("dear", "dear-eager"):
                plain = ["--workers", workers, "--policy", policy, "--steps", 20]
                for fusion in ("layer", "auto"):
                    words = options(*plain, "--fusion", fusion, "--json", "shared.json")
                    self.succeed(self.start(dear_processes.dear, "train", *words, "--one-copy"))
                    shared = self.read_json("shared.json")["digest"]
                    self.assertEqual(shared, self.results(*plain)["digest"], (workers, policy, fusion))

    def test_it_depends_on_what_it_should(self):
        changes = ([], ["--seed", 2], ["--optimizer", "sgd"], ["--lr", 0.002], ["--batch", 3], ["--workers", 1])
        digests = [self.results(*change)["digest"] for change in changes]
        self.assertEqual(len(set(digests)), len(digests), digests)


class Losses(Case):
    """Workers with small batches learn as one with the whole."""

    def check(self, optimizer):
        losses = {}
        for workers, batch in ((1, 12), (2, 6), (3, 4), (4, 3)):
            changes = ["--steps", 20, "--optimizer", optimizer, "--workers", workers, "--batch", batch]
            losses[workers] = self.results(*changes)["losses"]
            self.assertEqual(len(losses[workers]), 20)
            for step, (one, several) in enumerate(zip(losses[1], losses[workers])):
                self.assertAlmostEqual(one, several, delta=2e-4, msg=f"{workers} workers, step {step}")
        self.assertLess(losses[1][-1], losses[1][0] - 0.1, "nothing was learnt")

    def test_sgd(self):
        self.check("sgd")

    def test_adamw(self):
        self.check("adamw")


if __name__ == "__main__":
    main()
