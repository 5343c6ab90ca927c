"""What programs watch while they train: hooks on buckets, metrics of each step."""

from __future__ import annotations

import gc
import importlib.util
import json
import pathlib
import pickle
import tempfile
from collections import defaultdict

import torch

import dear

from .registry import RANK, WORLD, behaviour, mlp, plain, refuses, same, sgd, square, together


def trained(**options):
    """What a case registers on it comes before the first step."""
    model = mlp()
    return dear.distribute(model, sgd(model), **{"fusion": "layer", **options})


def steps(model, optimizer, count=4):
    for step in range(count):
        square(model, step, RANK).backward()
        optimizer.step()
    model.synchronize()


def rounded(model):
    """Plain PyTorch: every rank's gradient rounded to 16 bits before the average is taken."""

    def hook(parameter):
        parameter.grad = parameter.grad.bfloat16().float()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(hook)
    return model


@behaviour(
    "test_ddp_comm_hook_*, test_fp16_compress_wrapper, test_powerSGD_ddp_comm_hook_*",
    "hooks that compress gradients",
    "compression= for those that DDP has, register_bucket_hook() for one's own",
)
def compressing_hooks() -> None:
    for policy in dear.training_policies():
        model, optimizer = trained(policy=policy)
        model.register_bucket_hook(lambda bucket: bucket.flat.copy_(bucket.flat.bfloat16()))
        steps(model, optimizer)
        same(model, plain(lambda: rounded(mlp())))
    for compression in ("bf16", "fp16", "low-rank:2,ef"):
        assert together(mlp, compression=compression).statistics()["iterations"] == 4


@behaviour(
    "test_ddp_comm_hook_register_just_once, test_ddp_hook_parity_allreduce",
    "hooks before the reduction and after it, by the names of parameters, with other buckets meanwhile",
    "register_bucket_hook()",
)
def bucket_hooks() -> None:
    model, optimizer = trained()
    seen = defaultdict(int)

    def before(bucket):
        for name, values in bucket.tensors.items():
            assert values.shape == dict(model.module.named_parameters())[name].shape
            seen[name] += 1
        bucket.flat.mul_(4)

    def after(bucket):
        assert bucket.flat.numel() >= sum(values.numel() for values in bucket.tensors.values())
        bucket.flat.div_(4)

    handles = [model.register_bucket_hook(before), model.register_bucket_hook(after, when="after")]
    for step in range(4):
        square(model, step, RANK).backward()
        optimizer.step()
        if step == 1:
            model.regroup("all")
    same(model, plain(mlp))
    assert set(seen.values()) == {4}
    for handle in handles:
        handle.remove()
        handle.remove()
    square(model, 4, RANK).backward()
    optimizer.step()
    assert set(seen.values()) == {4}
    refuses(dear.ConfigError, lambda: model.register_bucket_hook(before, when="now"), "before", "after")
    refuses(dear.ConfigError, lambda: model.register_bucket_hook(7), "int")  # type: ignore[arg-type]


@behaviour(
    "test_ddp_comm_hook_future_passing_cpu (errors)",
    "a hook that raises ends the step on every rank, with its exception on one and its message on the others",
    "refused",
)
def failing_hook() -> None:
    for when in ("before", "after"):
        model, optimizer = trained(process_group=torch.distributed.new_group())

        def hook(bucket):
            if RANK == 1 and bucket.iteration == 1:
                raise LookupError("no noise")

        model.register_bucket_hook(hook, when=when)

        def train(model=model, optimizer=optimizer):
            steps(model, optimizer)

        expected = LookupError if RANK == 1 else dear.TransportError
        refuses(expected, train, "no noise")
        refuses(expected, model.close, "no noise")
        del model, optimizer, train
        gc.collect()  # who pickles meets a failure as long as the training that failed is there


@behaviour(
    "test_ddp_logging_data_cpu, test_ddp_get_bucket_sizes (while training)",
    "numbers of each step, to a callback, a file of JSON lines or TensorBoard",
    "on_step(), write_metrics(), TensorBoard",
)
def metrics() -> None:
    class Writer:
        def __init__(self):
            self.scalars = defaultdict(list)

        def add_scalar(self, name, value, step):
            self.scalars[name].append((step, value))

    model, optimizer = trained(policy="wfbp")  # sends all within a step
    writer = Writer()
    seen: list[dear.StepMetrics] = []
    model.on_step(seen.append)
    model.on_step(dear.TensorBoard(writer), every=2, ranks="reduced")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "metrics.jsonl"
        handle = model.write_metrics(path)
        steps(model, optimizer)
        handle.remove()
        lines = [json.loads(line) for line in path.read_text().splitlines()] if RANK == 0 else []
        refuses(dear.ConfigError, lambda: model.write_metrics(f"{folder}/none/metrics.jsonl"), "none/metrics.jsonl")
        if importlib.util.find_spec("tensorboard") is None:
            refuses(dear.ConfigError, lambda: dear.TensorBoard(folder), "pip install tensorboard")
        elif RANK == 0:
            board = dear.TensorBoard(folder)
            board(seen[0])
            board.writer.close()
            assert list(pathlib.Path(folder).glob("events.out.tfevents*"))
    assert [one.iteration for one in seen] == [0, 1, 2, 3]
    assert [one.rank for one in seen] == [RANK] * 4
    assert len(seen[1].buckets) == 3
    assert seen[1].bytes == sum(seen[1].buckets) * 2 * (WORLD - 1) / WORLD
    assert [line["iteration"] for line in lines] == ([0, 1, 2, 3] if RANK == 0 else [])
    assert [step for step, _ in writer.scalars["dear/seconds"]] == ([1, 3] if RANK == 0 else [])
    assert all(value > 0 for _, value in writer.scalars["dear/seconds/max"])
    refuses(dear.ConfigError, lambda: model.on_step(seen.append, every=0), "every 0 steps")
    refuses(dear.ConfigError, lambda: dear.TensorBoard(7), "add_scalar")

    def stop(metrics):
        if metrics.iteration == 4:
            raise StopIteration("enough")

    model.on_step(stop)
    refuses(StopIteration, lambda: steps(model, optimizer, 1), "enough")
    steps(model, optimizer, 1)
    assert model.statistics()["iterations"] == 6


@behaviour(
    "(users) NaN on one rank spreads to all, and nobody knows whose it was",
    "a gradient that is not finite is named by rank, tensor and elements, and ends the step or gives it up",
    "check_gradients=",
)
def checks() -> None:
    def overflow(model, step, rank):
        return square(model, step, rank) * (float("inf") if rank == 1 and step == 2 else 1)

    names = ("rank 1", "', layer", "iteration 2")
    group = torch.distributed.new_group()
    refuses(dear.Error, lambda: together(mlp, overflow, process_group=group, check_gradients="error"), *names)

    model, optimizer = trained(check_gradients="skip")
    found = []
    model.on_step(lambda metrics: found.append(metrics.nonfinite))
    for step in range(4):
        overflow(model, step, RANK).backward()
        optimizer.step()
    reference = mlp()
    chosen = sgd(reference)
    for step in (0, 1, 3):
        chosen.zero_grad()
        gradients = []
        for rank in range(WORLD):
            reference.zero_grad()
            square(reference, step, rank).backward()
            gradients.append([parameter.grad.clone() for parameter in reference.parameters()])
        for parameter, *one in zip(reference.parameters(), *gradients):
            parameter.grad = sum(one[1:], one[0]) / WORLD
        chosen.step()
    same(model, reference)
    assert found[:2] == ["", ""] and "rank 1" in found[2] and found[3] == ""
    assert model.statistics()["iterations"] == 3
    refuses(dear.ConfigError, lambda: trained(check_gradients="maybe"), "maybe")
    refuses(dear.ConfigError, lambda: trained(check_gradients="skip", policy="dear-eager"), "dear-eager")


@behaviour(
    "test_ddp_memory_* (users), test_zero_redundancy_optimizer test_sharding (sizes)",
    "what a rank holds in memory, by kind: state and masters of its shard alone",
    "model.memory()",
)
def memory() -> None:
    for policy, share in (("wfbp", 1), ("dear", WORLD)):
        model = mlp().bfloat16()
        model, optimizer = dear.distribute(model, sgd(model), fusion="all", policy=policy, fp32_masters=True)
        model(torch.ones(1, 8).bfloat16()).square().mean().backward()
        optimizer.step()
        report = model.memory()
        elements = sum(parameter.numel() for parameter in model.parameters())
        assert report["parameters"] == report["gradients"] == 2 * elements
        assert report["masters"] == report["optimizer_state"]  # the momentum
        assert abs(report["masters"] * share - 4 * elements) <= 4 * report["padding"]
        parts = ("parameters", "gradients", "padding", "optimizer_state", "masters", "staging")
        assert report["total"] == sum(report[part] for part in parts), report


@behaviour(
    "(users) a notebook, or a handler of exceptions, that keeps a model whose training has failed",
    "a model whose training has failed, and that is kept: numpy() and pickles of all other tensors go on working",
)
def reads_after_a_failure() -> None:
    def train(steps_before: int) -> None:
        group = torch.distributed.new_group()  # ends with the training
        model, optimizer = trained(process_group=group, check_gradients="error")
        steps(model, optimizer, steps_before)

        def fail() -> None:
            (square(model, 3, RANK) * (float("nan") if RANK == 0 else 1)).backward()
            optimizer.step()
            model.synchronize()

        refuses(dear.Error, fail, "rank")
        assert torch.ones(3).numpy().tolist() == [1, 1, 1]
        assert torch.equal(pickle.loads(pickle.dumps(torch.ones(3))), torch.ones(3))

    train(0)
    train(2)
    gc.collect()
