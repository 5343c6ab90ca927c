"""FILE PROGRAM: backend gloo in programs that link libtorch, which shows symbols of a newer Gloo."""

import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import unittest

LIMIT = 120  # seconds; only a test that fails waits so long
OURS = re.compile(r"/(libdear_gloo\.so|libgloo\.so[.0-9]*)$")
BINDING = re.compile(r"binding file (\S+) \[\d+\] to (\S+) \[\d+\]: \S+ symbol `(\w+)'")

program = ""


def run_ranks(size, **more):
    with socket.socket() as reserved:  # nobody else is given the port, on any address, while this lives
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("", 0))
        environment = dict(os.environ, WORLD_SIZE=str(size), LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", MASTER_ADDR="127.0.0.1",
                           MASTER_PORT=str(reserved.getsockname()[1]), OMP_NUM_THREADS="1", **more)
        ranks = [subprocess.Popen([program], env=dict(environment, RANK=str(rank)), stdout=subprocess.PIPE, text=True)
                 for rank in range(size)]
        try:
            return [rank.communicate(timeout=LIMIT)[0] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()


class BesideLibtorch(unittest.TestCase):
    def test_ranks_add_up_tensors(self):
        self.assertEqual(run_ranks(3), ["ok\n"] * 3)

    def test_no_symbol_of_gloo_is_bound_to_the_copy_in_libtorch(self):
        with tempfile.TemporaryDirectory() as folder:
            said = run_ranks(2, LD_DEBUG="bindings", LD_DEBUG_OUTPUT=f"{folder}/rank")
            self.assertEqual(said, ["ok\n"] * 2)
            traces = list(pathlib.Path(folder).iterdir())
            self.assertEqual(len(traces), 2)
            ours = 0
            for trace in traces:
                with open(trace, errors="replace") as lines:
                    for line in lines:
                        binding = BINDING.search(line)
                        if not binding:
                            continue
                        user, owner, symbol = binding.groups()
                        if "4gloo" in symbol:
                            self.assertEqual(OURS.search(user) is None, OURS.search(owner) is None, line)
                            ours += OURS.search(user) is not None
            self.assertGreater(ours, 100)  # they were seen at all


if __name__ == "__main__":
    program = os.path.abspath(sys.argv.pop(1))
    unittest.main()
