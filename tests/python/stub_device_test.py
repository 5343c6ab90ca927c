"""Tensors of the stub device in Python, whose ranks are processes:  stub_device_test.py DEAR

Under `DEAR launch` this file is the program of each rank.
"""

import faulthandler
import os
import subprocess
import sys
import unittest

import dear_stub_device as stub
import stub_training
import torch
import torch.distributed as dist
from stub_registration import register
from torch import nn

import dear

RANKS = 2


class StubDevice(unittest.TestCase):
    def setUp(self) -> None:
        self.rank = dist.get_rank()
        stub.set_delays(seed=self.rank, largest_seconds=1e-4)

    def test_collectives(self) -> None:
        waits = stub.host_waits()
        x = torch.arange(4.0).to("stub", non_blocking=True) + self.rank
        dist.all_reduce(x)
        shard = torch.empty(2, device="stub")
        dist.reduce_scatter_tensor(shard, x)
        whole = torch.empty(4, device="stub")
        dist.all_gather_into_tensor(whole, shard)
        self.assertEqual(stub.host_waits(), waits)
        self.assertEqual(whole.tolist(), [2.0 * (2 * i + 1) for i in range(4)])

    def test_a_module_trains_as_on_the_cpu(self) -> None:
        results = []
        for device in ("cpu", "stub"):
            torch.manual_seed(1)
            model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to(device)
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
            for step in range(3):
                data = torch.sin(torch.arange(12.0) + 10 * step + self.rank).view(2, 6).to(device)
                model(data).square().mean().backward()
                for parameter in model.parameters():
                    dist.all_reduce(parameter.grad)
                optimizer.step()
                optimizer.zero_grad()
            results.append(torch.cat([parameter.detach().cpu().flatten() for parameter in model.parameters()]))
        self.assertTrue(torch.equal(*results))

    def test_the_choice_takes_the_library_of_the_device(self) -> None:
        from dear._backend_choice import choose, place_of_this_rank

        place = place_of_this_rank()
        self.assertEqual((place.accelerator, place.library), ("stub", "stub"))
        self.assertEqual(choose([place, place])[0], "cpu:gloo,stub:stub")


def main() -> int:
    if "RANK" not in os.environ:
        launched = [sys.argv[1], "launch", "-n", str(RANKS), sys.executable, "-B", __file__]
        return subprocess.run(launched).returncode
    faulthandler.dump_traceback_later(100, exit=True)
    register()
    torch.set_num_threads(1)
    said: list[str] = []
    dear.init_process_group(say=said.append)
    load = unittest.defaultTestLoader.loadTestsFromModule
    tests = unittest.TestSuite([load(sys.modules["__main__"]), load(stub_training)])
    if not unittest.TextTestRunner(verbosity=0, failfast=True).run(tests).wasSuccessful():
        os._exit(1)  # the other may be in a collective
    stub.finish()
    dist.destroy_process_group()
    return 0 if len(said) == (os.environ["RANK"] == "0") else 1


if __name__ == "__main__":
    sys.exit(main())
