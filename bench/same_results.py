#!/usr/bin/env python3
"""Compares what two builds of the command compute, byte for byte: digests of training, simulated times, plans, JSON, traces, pictures.

  bench/same_results.py BEFORE AFTER      two files `dear`, each in its build folder

For a change that is to change nothing, such as a move. What names a build (its version, the time that a training took) is left out.
Prints a line for each command; exit code 1 where one differs.
"""

import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

MODELS = ["resnet50", "bert-base", "densenet201"]
TRAIN = "train --layers 2 --width 64 --batch 2 --context 32 --sample 0 --fusion 256KiB --json out.json"
COMMANDS = [
    *(f"simulate --model {model} --cluster 10gbe --ranks 4,16,64 --policy {policies} --json out.json"
      for model in MODELS for policies in ("serial,wfbp,dear,dear-replicated,dear-eager", "ddp,horovod,bytescheduler,mg-wfbp,fsdp,zero-1")),
    *(f"simulate --model resnet50 --cluster 10gbe --ranks 16 --policy {policy} --trace trace.json" for policy in ("wfbp", "dear", "spd-kfac")),
    *(f"simulate --model resnet50 --cluster 10gbe --ranks 8 --policy wfbp,dear --detail {detail} --json out.json"
      for detail in ("flows", "blocks")),
    "simulate --model resnet50 --cluster 10gbe --ranks 16 --policy d-kfac,mpd-kfac,spd-kfac --json out.json",
    *(f"simulate --model bert-base --cluster 10gbe --ranks 16 --policy dear --codec roofline --compress {scheme} --json out.json"
      for scheme in ("top-k:0.01,ef", "sketch", "fp16", "low-rank:2")),
    "simulate collective --cluster themis-2d-sw-sw-1024 --algorithm baseline,themis --json out.json",
    *(f"plan --model {model} --cluster {cluster} --ranks 16 --json out.json --schedule schedule.json"
      for model in MODELS for cluster in ("10gbe", "100gbib")),
    "plan --model resnet50 --cluster 10gbe --ranks 16 --optimizer kfac --json out.json",
    "models export resnet50 --out out.json",
    "models", "clusters",
    "study paper --out .", "study themis --quick --out .", "study kfac --out .", "study lancet --quick --out .", "study fusionllm --quick --out .", "study rounds --quick --out .",
    "study calibration",
    *(f"{TRAIN} --steps 12 --workers {ranks} --policy {policy}"
      for ranks in (1, 2, 3) for policy in ("serial", "wfbp", "dear", "dear-replicated", "dear-eager")),
    *(f"{TRAIN} --steps 8 --workers 2 --optimizer {optimizer}" for optimizer in ("sgd", "lamb", "lars", "kfac", "adagrad")),
    *(f"{TRAIN} --steps 8 --workers 2 --compress {scheme}"
      for scheme in ("top-k:0.05,ef", "sketch", "sketch,exact", "fp16", "low-rank:2", "random-k:0.1")),
    f"{TRAIN} --steps 8 --workers 4 --grid 2x2 --reproducible",
    f"{TRAIN} --steps 8 --workers 2 --backend gloo --reproducible",
    f"{TRAIN} --steps 8 --workers 2 --one-copy",
]  # fmt: skip
# Of a training's JSON, what its bits say; its times differ from run to run.
OF_TRAINING = ("policy", "losses", "parameter_digest", "digest", "parameters_sha256", "bytes_sent", "buckets", "steps")


def settled(name, content):
    """What has to be the same of a file."""
    if not name.endswith(".json"):
        return content
    try:
        document = json.loads(content)
    except ValueError:
        return content
    if isinstance(document, dict):
        document.pop("dear_version", None)
        if "losses" in document:
            document = {key: value for key, value in document.items() if key in OF_TRAINING or "sha" in key or "digest" in key}
    return json.dumps(document)


def results(program, command):
    """{file: digest} of a command in an empty folder; what it prints is one, unless it trains."""
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run([program, *command.split()], cwd=folder, capture_output=True, text=True, timeout=600)
        said = run.stdout if command.split()[0] != "train" else ""
        found = {"exit code": str(run.returncode), "stdout": said}
        if run.returncode != 0:
            found["stderr"] = run.stderr
        for path in sorted(pathlib.Path(folder).rglob("*")):
            if path.is_file():
                found[path.name] = settled(path.name, path.read_text())
    return {name: hashlib.sha256(text.encode()).hexdigest()[:16] if name != "exit code" else text for name, text in found.items()}


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    before, after = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:])
    differ = failed = 0
    for command in COMMANDS:
        one, other = results(before, command), results(after, command)
        wrong = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
        failed += one["exit code"] != "0"
        differ += bool(wrong)
        state = f"DIFFERS in {', '.join(wrong)}" if wrong else "same" + ("" if one["exit code"] == "0" else ", refused by both")
        print(f"{state}: dear {command} ({len(one) - 2} files)", flush=True)
    print(f"{len(COMMANDS)} commands: {differ} differ, {failed} are refused")
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
