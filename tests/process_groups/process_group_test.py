"""FILE FOLDER_OF_MODULE [unittest's arguments]: groups of DeAR on process groups of torch.distributed (Gloo).

Every test starts ranks: processes that run this file with the name of a function below.
"""

import os
import signal
import subprocess
import sys
import tempfile
import unittest

LIMIT = 200  # seconds; only a test that fails waits so long


# What a rank does. `module` is the one in C++; the result goes to standard output.


def collectives(module, dist, rank):
    import torch

    said = [module.check_collectives(dist.group.WORLD)]
    said.append(module.check_reproducible_sums(dist.group.WORLD._get_backend(torch.device("cpu"))))
    for first in range(dist.get_world_size()):
        said.append(module.leave_first(dist.group.WORLD, rank == first))
    tensor = torch.ones(3)
    dist.all_reduce(tensor)  # the process group is as good as before
    said.append("ok" if tensor.tolist() == [dist.get_world_size()] * 3 else str(tensor))
    return " ".join(said)


def refusals(module, dist, rank):
    return module.take(None)


def different_counts(module, dist, rank):
    return module.ask_for_different_counts(dist.group.WORLD)


def killed(module, dist, rank):
    return module.reduce_until_killed(dist.group.WORLD, 3 if rank == 1 else -1)


def stopped(module, dist, rank):
    return module.wait_for_stopped(dist.group.WORLD, rank == 1)


def be_rank(folder, what, place, rank, size):
    import torch.distributed as dist

    sys.path.insert(0, folder)
    import process_group_in_test as module

    dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=size)
    print(globals()[what](module, dist, rank), flush=True)
    os._exit(0)  # a process group whose peers are gone ends with complaints


class Ranks(unittest.TestCase):
    def run_ranks(self, what, size=3, stopped=()):
        with tempfile.TemporaryDirectory() as place:
            command = [sys.executable, "-B", __file__, folder, "--rank", what, f"{place}/store"]
            environment = dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
            ranks = [subprocess.Popen([*command, str(rank), str(size)], env=environment, stdout=subprocess.PIPE, text=True)
                     for rank in range(size)]
            try:
                said = {rank: process.communicate(timeout=LIMIT)[0].strip()
                        for rank, process in enumerate(ranks) if rank not in stopped}
            finally:
                for process in ranks:
                    process.kill()
                    process.wait()
                    process.stdout.close()
            return said, [process.returncode for process in ranks]


class Collectives(Ranks):
    def test_every_collective_and_who_leaves_first(self):
        said, _ = self.run_ranks("collectives")
        self.assertEqual(set(said.values()), {" ".join(["ok"] * 6)})

    def test_no_process_group(self):
        said, _ = self.run_ranks("refusals", size=1)
        self.assertRegex(said[0], "^ConfigError: .*process group")


class Failures(Ranks):
    def test_different_counts_are_named_on_every_rank(self):
        said, _ = self.run_ranks("different_counts")
        for text in said.values():
            self.assertRegex(text, "rank 1.*10000[01]")

    def test_a_killed_rank_is_named_by_all(self):
        said, codes = self.run_ranks("killed")
        self.assertEqual(codes[1], -signal.SIGKILL)
        for rank in (0, 2):
            self.assertRegex(said[rank], "^TransportError.*rank 1")

    def test_a_stopped_rank_is_a_timeout_that_names_it(self):
        said, _ = self.run_ranks("stopped", stopped=(1,))
        for rank in (0, 2):
            self.assertRegex(said[rank], "^(Timeout|Transport)Error.*rank 1")


if __name__ == "__main__":
    folder = os.path.abspath(sys.argv.pop(1))
    if sys.argv[1:2] == ["--rank"]:
        what, place, rank, size = sys.argv[2:]
        be_rank(folder, what, place, int(rank), int(size))
    unittest.main()
