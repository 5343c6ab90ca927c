"""A trace of many ranks, as large as a user's, from the trace of one that `dear simulate --trace` writes."""

import json
import random
import subprocess


def write_trace(dear: str, path: str, model: str, ranks: int, iterations: int) -> int:
    """Each rank is slower by a part of its own. Returns the number of spans."""
    subprocess.run(
        [dear, "simulate", "--model", model, "--cluster", "10gbe-64", "--policy", "dear", "--iterations", str(iterations), "--trace", path],
        check=True, capture_output=True,
    )  # fmt: skip
    with open(path, encoding="utf-8") as file:
        trace = json.load(file)
    draw = random.Random(1)
    events = []
    for rank in range(ranks):
        slower = 1 + draw.uniform(0, 0.05)
        for event in trace["traceEvents"]:
            mine = {**event, "pid": rank}
            if event["ph"] == "X":
                begin, end = (round(slower * time, 3) for time in (event["ts"], event["ts"] + event["dur"]))
                mine |= {"ts": begin, "dur": round(end - begin, 3)}
            events.append(mine)
    with open(path, "w", encoding="utf-8") as file:
        json.dump({**trace, "traceEvents": events}, file)
    return sum(event["ph"] == "X" for event in events)
