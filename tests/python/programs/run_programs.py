"""Runs programs one after another in this process, as `python PROGRAM OPTION...` would each:

  run_programs.py PROGRAM [OPTION...] [-- PROGRAM [OPTION...]]...

It spares tests the import of torch by every program. Before the output of each comes a line "== PROGRAM". Where the
variable DEAR_TEST_PORTS names as many ports, each program finds one of its own in MASTER_PORT.
"""

import itertools
import os
import runpy
import sys

words = sys.argv[1:]
ports = iter(filter(None, os.environ.get("DEAR_TEST_PORTS", "").split(",")))
for last, command in itertools.groupby(words, key="--".__eq__):
    if last:
        continue
    program, *options = command
    print(f"== {os.path.basename(program)}\n", end="", flush=True)
    os.environ.update({"MASTER_PORT": port} if (port := next(ports, "")) else {})
    sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
    sys.argv = [program, *options]
    runpy.run_path(program, run_name="__main__")
    del sys.path[0]
