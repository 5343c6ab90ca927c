"""PyTorch's side of bench/ddp: trains a multi-layer perceptron with DistributedDataParallel over Gloo.

ddp_mlp.cpp is the other side, and makes the same parameters and samples by the same arithmetic. Run by bench/ddp:
  ddp_mlp.py train OPTION...                on each rank, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set
  ddp_mlp.py compare OPTION... FILE FILE    the parameters that both sides wrote; prints JSON
"""

import argparse
import datetime
import json
import pathlib
import time

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

BATCHES = 4  # different ones, in turn
INPUTS, TARGETS = 1_000_000, 2_000_000
WORD = 0xFFFFFFFF
LONGEST_WAIT = datetime.timedelta(seconds=120)


def hashed(seed, shape, scale):
    """Elements of [-scale, scale): a hash of 32 bits, of which 24 become a fraction that fp32 holds exactly."""
    value = (torch.arange(torch.Size(shape).numel(), dtype=torch.int64) * 2654435761 + seed * 40503 + 12345) & WORD
    value ^= value >> 16
    value = value * 2246822519 & WORD
    value ^= value >> 13
    return (((value >> 8) - (1 << 23)).to(torch.float32) / (1 << 23) * scale).reshape(shape)


def make_model(options):
    layers = []
    for layer in range(options.layers):
        layers += [torch.nn.ReLU()] if layer else []
        layers.append(torch.nn.Linear(options.width, options.width))
    model = torch.nn.Sequential(*layers)
    with torch.no_grad():
        for seed, parameter in enumerate(model.parameters()):
            parameter.copy_(hashed(seed, parameter.shape, 0.0625))
    return model


def make_optimizer(options, model):
    if options.optimizer == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=1e-3)
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def make_samples(options, rank):
    shape = (options.batch, options.width)
    return [(hashed(INPUTS + rank * BATCHES + i, shape, 1), hashed(TARGETS + rank * BATCHES + i, shape, 1)) for i in range(BATCHES)]


def loss_of(model, samples):
    return torch.nn.functional.mse_loss(model(samples[0]), samples[1])


def compute_alone(options, samples):
    """Seconds of forwards and of backwards of a model that nobody reduces."""
    model = make_model(options)
    forward, backward = [], []
    for step in range(options.alone):
        begin = time.monotonic()
        loss = loss_of(model, samples[step % BATCHES])
        between = time.monotonic()
        loss.backward()
        forward.append(between - begin)
        backward.append(time.monotonic() - between)
        model.zero_grad(set_to_none=False)
    return forward, backward


def train(options):
    torch.set_num_threads(options.threads)
    distributed.init_process_group("gloo", timeout=LONGEST_WAIT)
    rank = distributed.get_rank()
    samples = make_samples(options, rank)
    distributed.barrier()
    forward, backward = compute_alone(options, samples)
    model = make_model(options)
    parallel = DistributedDataParallel(model, bucket_cap_mb=options.bucket_mib)
    optimizer = make_optimizer(options, model)
    distributed.barrier()
    steps, loss = [], 0
    for step in range(options.warm_up + options.steps):
        begin = time.monotonic()
        now = loss_of(parallel, samples[step % BATCHES])
        now.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step >= options.warm_up:
            steps.append(time.monotonic() - begin)
        loss = now.item()
    with open(f"{options.parameters}.{rank}", "wb") as file:
        for parameter in model.parameters():
            file.write(parameter.detach().contiguous().numpy().tobytes())
    if rank == 0:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"torch": torch.__version__.split("+", maxsplit=1)[0], "threads": torch.get_num_threads(),
                       "ranks": distributed.get_world_size(), "loss": loss, "forward": forward, "backward": backward, "steps": steps}, file)
    distributed.barrier()
    distributed.destroy_process_group()


def compare(options):
    """How far the files' parameters are from each other, as a part of how far training moved them."""
    one, other = (torch.frombuffer(bytearray(pathlib.Path(path).read_bytes()), dtype=torch.float32) for path in options.files)
    begin = torch.cat([parameter.detach().reshape(-1) for parameter in make_model(options).parameters()])
    same_size = one.numel() == other.numel() == begin.numel()
    moved = (one - begin).double().norm().item() if same_size else 0
    print(json.dumps({"same_size": same_size, "moved": moved, "same_bits": same_size and torch.equal(one, other),
                      "apart": (one - other).double().norm().item() / moved if moved else None}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "compare"])
    for name, value in (("layers", 12), ("width", 1024), ("batch", 128), ("steps", 30), ("warm-up", 10), ("alone", 10), ("threads", 1),
                        ("bucket-mib", 25)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--optimizer", choices=["sgd", "adamw"], default="sgd")
    parser.add_argument("--json")
    parser.add_argument("--parameters")
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    {"train": train, "compare": compare}[options.what](options)


main()
