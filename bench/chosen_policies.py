"""How far `--policy auto` is behind the fastest of the policies that it chooses from, which take turns with it:

    python3 bench/chosen_policies.py --dear build/release/dear --most-behind 3

Two models on three modelled networks, each by `dear train --compare`. Prints a row of a table for each case: how far auto is behind, and how far
the policy that it came to is in its own turns, which tells a wrong choice from computation that was disturbed in auto's turns. Fails where that policy
is further behind than --most-behind. Needs cores with nothing else to do.
"""

import argparse
import json
import os
import pathlib
import re
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
    print(
        "| model | network | "
        + " | ".join((*POLICIES, "auto"))
        + " | auto came to | behind the fastest: auto | that policy |"
    )
    print("|---|---|" + "---|" * (len(POLICIES) + 4))
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
                ended = subprocess.run(
                    command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
                )
                runs = json.loads(result.read_text(encoding="utf-8"))["runs"]
            took = {run["policy"]: run["iteration_seconds"]["median"] for run in runs}
            times = [took[policy] for policy in (*POLICIES, "auto")]
            # Rank 0 says each policy that comes into force.
            chosen_policy = re.findall(r"^dear: policy (\S+):", ended.stderr, re.MULTILINE)[-1]
            behind = [100 * (seconds / min(times[:-1]) - 1) for seconds in (times[-1], took[chosen_policy])]
            furthest = max(furthest, behind[1])
            shown = " | ".join(f"{1e3 * one:.1f}" for one in times)
            print(
                f"| `{model}` | {network} | {shown} | {chosen_policy} | {behind[0]:.1f} % | {behind[1]:.1f} % |",
                flush=True,
            )
    if chosen.most_behind is not None and furthest > chosen.most_behind:
        sys.exit(f"a policy that auto came to is {furthest:.1f} % behind, more than {chosen.most_behind} %")


if __name__ == "__main__":
    main()
