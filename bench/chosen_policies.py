"""How far `--policy auto` is behind the fastest of the policies that it chooses from, which take turns with it:

    python3 bench/chosen_policies.py --dear build/release/dear --most-behind 3

Two models on three modelled networks, each by `dear train --compare`. Prints a row of a table for each case, and fails where auto is further
behind than --most-behind. Needs cores with nothing else to do: computation that is disturbed in one policy's turns counts as that policy's.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

POLICIES = ("wfbp", "dear", "dear-eager")
MODELS = ("--layers 4 --width 128", "--layers 2 --width 256")
NETWORKS = ("bandwidth=300mbit,latency=50us", "bandwidth=1gbit,latency=50us", "bandwidth=2gbit,latency=50us")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dear", default="build/release/dear")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--most-behind", type=float, metavar="PERCENT")
    chosen = parser.parse_args()

    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores\n")
    print("| model | network | " + " | ".join((*POLICIES, "auto")) + " | auto behind the fastest |")
    print("|---|---|" + "---|" * (len(POLICIES) + 2))
    furthest = -100.0
    for model in MODELS:
        for network in NETWORKS:
            with tempfile.TemporaryDirectory() as folder:
                result = pathlib.Path(folder, "train.json")
                command = [
                    chosen.dear,
                    "train",
                    "--workers",
                    "2",
                    "--compare",
                    ",".join((*POLICIES, "auto")),
                    "--steps",
                ]
                command += [
                    str(chosen.steps),
                    "--threads",
                    "1",
                    *model.split(),
                    "--network",
                    network,
                    "--json",
                    str(result),
                ]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                runs = json.loads(result.read_text(encoding="utf-8"))["runs"]
            took = {run["policy"]: run["iteration_seconds"]["median"] for run in runs}
            times = [took[policy] for policy in (*POLICIES, "auto")]
            behind = 100 * (times[-1] / min(times[:-1]) - 1)
            furthest = max(furthest, behind)
            shown = " | ".join(f"{1e3 * one:.1f}" for one in times)
            print(f"| `{model}` | {network} | {shown} | {behind:.1f} % |", flush=True)
    if chosen.most_behind is not None and furthest > chosen.most_behind:
        sys.exit(f"auto is {furthest:.1f} % behind, more than {chosen.most_behind} %")


if __name__ == "__main__":
    main()
