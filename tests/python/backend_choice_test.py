"""Which backend a job gets that names none:  backend_choice_test.py DEAR

Under `DEAR launch` this file is the program of each rank.
"""

import os
import subprocess
import sys
import unittest

import torch
import torch.distributed as dist
from dear._backend_choice import Place, choose

import dear

RANKS = 2


def gpus(host: str, *devices: str, library: str = "nccl") -> Place:
    return Place(host, "cuda", devices, library)


class Choice(unittest.TestCase):
    def test_without_accelerators_it_is_ours(self):
        backend, reason = choose([Place("a"), Place("a"), Place("b")])
        self.assertEqual(backend, "cpu:dear")
        self.assertIn("no rank", reason)

    def test_a_device_for_each_rank_gets_its_library(self):
        all_seen = [gpus("a", "0", "1"), gpus("a", "0", "1"), gpus("b", "0", "1"), gpus("b", "0", "1")]
        one_seen = [gpus("a", "x"), gpus("a", "y")]
        for places in (all_seen, one_seen, one_seen[:1]):
            self.assertEqual(choose(places)[0], "cpu:dear,cuda:nccl")
        other = Place("a", "xpu", ("0",), "xccl")
        self.assertEqual(choose([other])[0], "cpu:dear,xpu:xccl")

    def test_a_library_that_pytorch_does_not_know_has_the_only_place(self):
        backend, reason = choose([Place("a", "npu", ("0",), "hccl")])
        self.assertEqual(backend, "cpu:gloo,npu:hccl")
        self.assertIn("hccl", reason)

    def test_ranks_that_share_a_device_go_through_gloo(self):
        backend, reason = choose([gpus("a", "0", "1"), gpus("a", "0", "1"), gpus("b", "0"), gpus("b", "0")])
        self.assertEqual(backend, "cpu:dear,cuda:gloo")
        self.assertIn("rank 2", reason)
        self.assertIn("1 cuda device for 2", reason)

    def test_a_rank_without_library_is_named(self):
        backend, reason = choose([gpus("a", "0"), gpus("b", "0", library="")])
        self.assertEqual(backend, "cpu:dear,cuda:gloo")
        self.assertIn("rank 1", reason)

    def test_unlike_ranks_meet_on_the_cpu(self):
        for odd in (Place("b"), Place("b", "xpu", ("0",), "xccl")):
            backend, reason = choose([gpus("a", "0"), odd])
            self.assertEqual(backend, "cpu:dear")
            self.assertIn("rank 1", reason)


class Job(unittest.TestCase):
    """On ranks that have no GPU."""

    def tearDown(self):
        dist.destroy_process_group()

    def test_it_is_chosen_and_said_once(self):
        said: list[str] = []
        dear.init_process_group(say=said.append)
        group = dist.group.WORLD._get_backend(torch.device("cpu"))
        self.assertEqual(group.group.backend, "shm")
        total = torch.ones(3)
        dist.all_reduce(total)
        self.assertTrue(torch.equal(total, torch.full((3,), float(RANKS))))
        self.assertEqual(group.carried, 1)
        self.assertEqual(len(said), 1 if dist.get_rank() == 0 else 0)
        for sentence in said:
            self.assertIn("backend cpu:dear", sentence)
            self.assertIn("1 host", sentence)


class Named(unittest.TestCase):
    def tearDown(self):
        dist.destroy_process_group()

    def test_a_name_is_taken_as_it_is(self):
        said: list[str] = []
        store = dist.HashStore()
        dear.init_process_group("gloo", store=store, rank=0, world_size=1, say=said.append)
        self.assertEqual(dist.get_backend(), "gloo")
        self.assertEqual(said, [])

    def test_a_world_of_one_chooses_too(self):
        said: list[str] = []
        dear.init_process_group(store=dist.HashStore(), rank=0, world_size=1, say=said.append)
        self.assertIn("1 rank on 1 host", said[0])


def main() -> int:
    if "RANK" in os.environ:
        return 0 if unittest.main(defaultTest="Job", argv=sys.argv[:1], exit=False).result.wasSuccessful() else 1
    here = unittest.main(defaultTest=("Choice", "Named"), argv=sys.argv[:1], exit=False)
    launched = [sys.argv[1], "launch", "-n", str(RANKS), sys.executable, "-B", __file__]
    return subprocess.run(launched).returncode if here.result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
