#!/usr/bin/env python3
"""`dear train` under an mpirun ends with the parameters that it ends with on shared memory.

  digest_test.py DEAR MPIRUN IMPLEMENTATION"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

RANKS = 4
TRAIN = ["train", "--steps", "6", "--layers", "2", "--width", "32", "--batch", "2", "--threads", "1", "--reproducible"]


def run(command, folder):
    result = pathlib.Path(folder) / "result.json"
    environment = {**os.environ, "XDG_CACHE_HOME": folder}
    ended = subprocess.run([*command, "--json", str(result)], env=environment, capture_output=True, text=True, timeout=240)
    if ended.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")
    return json.loads(result.read_text()), ended.stdout


def digest_of(result):
    runs = result["runs"] if "runs" in result else [result]
    return runs[0]["digest"]


def main():
    dear, mpirun, implementation = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        expected, _ = run([dear, *TRAIN, "--workers", str(RANKS)], folder)
        found, output = run([mpirun, implementation, str(RANKS), dear, *TRAIN, "--backend", "mpi"], folder)
        chosen, chosen_output = run([mpirun, implementation, str(RANKS), dear, *TRAIN], folder)
    assert "backend mpi: as asked for" in output, output
    assert "backend shm: all 4 ranks" in chosen_output, chosen_output
    assert digest_of(found) == digest_of(expected), (found, expected)
    assert digest_of(chosen) == digest_of(expected), (chosen, expected)


main()
