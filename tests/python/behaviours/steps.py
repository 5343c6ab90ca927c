"""What programs do in a step, around it, and with the optimiser."""

from __future__ import annotations

import io
import pickle
import warnings

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, StepLR

import dear

from .registry import RANK, WORLD, batch, behaviour, mlp, plain, refuses, same, sgd, square, together


def second_half(model, step, rank):
    return model(batch(step + 50, rank)).abs().mean()


@behaviour(
    "test_accumulate_gradients_no_sync, test_accumulate_gradients_no_sync_grad_is_view",
    "gradients accumulated under no_sync(), sent with the last pass",
)
def accumulation_no_sync() -> None:
    model, optimizer = dear.distribute(made := mlp(), sgd(made), fusion="layer")
    for step in range(4):
        with model.no_sync():
            square(model, step, RANK).backward()
        second_half(model, step, RANK).backward()
        optimizer.step()
    same(model, plain(mlp, [square, second_half]))


@behaviour(
    "test_multiple_outputs_multiple_backward, test_multiple_backward",
    "several backward passes in a step, learned from the first step",
)
def accumulation_learned() -> None:
    model, optimizer = dear.distribute(made := mlp(), sgd(made), fusion="layer")
    for step in range(4):
        square(model, step, RANK).backward()
        second_half(model, step, RANK).backward()
        optimizer.step()
    same(model, plain(mlp, [square, second_half]))


@behaviour(
    "test_ddp_static_graph_nested_types, test_ddp_static_graph_no_sync (issue: reduces nothing, silently)",
    "steps that differ in their passes without no_sync() are an error that names the parameter",
    "refused",
)
def other_number_of_passes() -> None:
    model, optimizer = dear.distribute(made := mlp(), sgd(made), fusion="layer")
    for step in range(2):
        square(model, step, RANK).backward()
        optimizer.step()
    square(model, 2, RANK).backward()
    refuses(dear.ConfigError, lambda: square(model, 3, RANK).backward(), f"rank {RANK}", "no_sync()")
    model.discard_step()


@behaviour("test_ddp_create_graph", "backward(create_graph=True) and a penalty made of gradients")
def second_order() -> None:
    def loss(model, step, rank):
        value = square(model, step, rank)
        gradients = torch.autograd.grad(value, list(model.parameters()), create_graph=True)
        return value + sum(g.square().sum() for g in gradients)

    same(together(mlp, loss), plain(mlp, loss))


@behaviour("test_ddp_inference, test_no_grad", "evaluation under no_grad between steps, on some ranks only")
def evaluation_on_one_rank() -> None:
    def loss(model, step, rank):
        if rank == 0 and step % 2:
            with torch.no_grad():
                model(batch(step, 77))
        return square(model, step, rank)

    same(together(mlp, loss), plain(mlp))


@behaviour("test_ddp_forward_backward_hook", "hooks of modules and tensors, forward and backward")
def hooks_of_modules() -> None:
    def make():
        model = mlp()
        model[0].register_forward_hook(lambda module, inputs, output: output * 2)
        model[2].register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 3,))
        model[4].weight.register_hook(lambda gradient: gradient * 0.5)
        return model

    same(together(make), plain(make))


@behaviour(
    "test_ddp_hook_with_optimizer_parity (post-accumulate hooks)",
    "gradients that a hook changes after accumulation",
)
def post_accumulate_hooks() -> None:
    def clamp(parameter):
        parameter.grad.clamp_(-0.01, 0.01)

    def make():
        model = mlp()
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(clamp)
        return model

    same(together(make), plain(make))


@behaviour("test_ddp_profiling_torch_profiler, test_ddp_profiling_autograd_profiler", "torch.profiler around steps")
def profiler() -> None:
    with torch.profiler.profile() as profile:
        parallel = together(mlp)
    same(parallel, plain(mlp))
    assert any("Optimizer.step" in event.key for event in profile.key_averages())


@behaviour(
    "test_ddp_logging_data_cpu, test_ddp_get_bucket_sizes",
    "what was done: statistics(), schedule()",
    "as numbers and names of parameters",
)
def what_was_done() -> None:
    parallel = together(mlp, steps=5)
    assert parallel.statistics()["iterations"] == 5
    names = [name for bucket in parallel.schedule()["buckets"] for name in bucket]
    assert sorted(names) == sorted(name for name, _ in mlp().named_parameters())


@behaviour(
    "test_bucket_cap_mb_list, test_ddp_bucketing",
    "buckets as asked for, and other ones while training",
    "regroup()",
)
def other_buckets() -> None:
    model, optimizer = dear.distribute(made := mlp(), sgd(made), fusion="layer")
    for step in range(4):
        square(model, step, RANK).backward()
        optimizer.step()
        if step == 1:
            model.regroup("all")
    assert len(model.schedule()["buckets"]) == 1
    same(model, plain(mlp))


@behaviour(
    "test_ddp_python_error_logged, test_ddp_exception_in_forward",
    "an exception in forward or backward that the program handles",
)
def exceptions() -> None:
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, gradient):
            raise ValueError("in backward")

    model, optimizer = dear.distribute(made := mlp(), sgd(made), fusion="layer")
    for step in range(4):
        if step == 2:
            refuses(ValueError, lambda: Fails.apply(model[:3](batch(step, RANK))).sum().backward(), "in backward")
            optimizer.zero_grad()
        square(model, step, RANK).backward()
        optimizer.step()
    same(model, plain(mlp))


@behaviour(
    "(loss scalers, NaN guards) gradients dropped after backward",
    "zero_grad() instead of step(), on all ranks, gives the step up",
)
def given_up() -> None:
    model, optimizer = dear.distribute(made := mlp(), sgd(made), fusion="layer")
    for step in range(4):
        square(model, step + 70, RANK).backward()
        optimizer.zero_grad()
        square(model, step, RANK).backward()
        optimizer.step()
    same(model, plain(mlp))


@behaviour(
    "test_ddp_hook_with_optimizer_parity_adam, _adamw, _sgd",
    "Adam, AdamW and SGD in their three implementations",
)
def implementations() -> None:
    for make in (torch.optim.Adam, torch.optim.AdamW):
        for how in ({"foreach": True}, {"foreach": False}, {"fused": True}):

            def chosen(model):
                return make(model.parameters(), 0.01, **how)

            same(together(mlp, optimizer=chosen), plain(mlp, optimizer=chosen))


@behaviour(
    "test_zero_redundancy_optimizer test_multiple_param_groups",
    "parameter groups with options of their own, that change",
)
def parameter_groups() -> None:
    def chosen(model):
        return torch.optim.AdamW(
            [
                {"params": [p for p in model.parameters() if p.dim() > 1]},
                {"params": [p for p in model.parameters() if p.dim() == 1], "lr": 0.1, "weight_decay": 0},
            ],
            lr=0.01,
        )

    def loss_with(optimizer_of):
        def loss(model, step, rank):
            return square(model, step, rank)

        return loss

    reference = mlp()
    theirs = chosen(reference)
    model, optimizer = dear.distribute(made := mlp(), chosen(made), fusion="all")
    for step in range(4):
        totals = None
        for rank in range(WORLD):
            gradients = torch.autograd.grad(square(reference, step, rank), list(reference.parameters()))
            totals = gradients if totals is None else [a + b for a, b in zip(totals, gradients)]
        for parameter, total in zip(reference.parameters(), totals):
            parameter.grad = total / WORLD
        theirs.step()
        square(model, step, RANK).backward()
        optimizer.step()
        for group in (*optimizer.param_groups, *theirs.param_groups):
            group["lr"] *= 0.5
    same(model, reference)


@behaviour("test_zero_redundancy_optimizer test_lr_scheduler", "schedulers made before distribute(), and after it")
def schedulers() -> None:
    def run(before: bool) -> nn.Module:
        model = mlp()
        optimizer = sgd(model)
        scheduler = StepLR(optimizer, 2) if before else None
        model, optimizer = dear.distribute(model, optimizer, fusion="layer")
        scheduler = scheduler or LambdaLR(optimizer, lambda step: 0.1 ** (step // 2))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for step in range(4):
                square(model, step, RANK).backward()
                optimizer.step()
                scheduler.step()
        assert abs(optimizer.param_groups[0]["lr"] - 0.001) < 1e-9
        return model

    same(run(before=True), run(before=False))


@behaviour(
    "test_zero_redundancy_optimizer test_state_dict, test_collect_shards",
    "the optimiser's state_dict() is whole, loads into plain PyTorch, and back",
    "gathered: every rank calls it",
)
def optimizer_state() -> None:
    def adamw(model):
        return torch.optim.AdamW(model.parameters(), 0.01, amsgrad=True)

    model, optimizer = dear.distribute(made := mlp(), adamw(made), fusion="all")
    for step in range(3):
        square(model, step, RANK).backward()
        optimizer.step()
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    for step in range(40, 43):
        square(model, step, RANK).backward()
        optimizer.step()
    file.seek(0)
    kept = torch.load(file)
    assert [int(state["step"]) for state in kept["optimizer"]["state"].values()] == [3] * 6

    # In place, into a new DataParallel, and before one is made.
    model.load_state_dict(kept["model"])
    optimizer.load_state_dict(kept["optimizer"])
    runs = [(model, optimizer)]
    again = mlp()
    again.load_state_dict(kept["model"])
    fresh = adamw(again)
    fresh.load_state_dict(kept["optimizer"])
    runs.append(dear.distribute(again, fresh, fusion="layer"))
    late = dear.distribute(made := mlp(), adamw(made), fusion="layer")
    late[0].load_state_dict(kept["model"])
    late[1].load_state_dict(kept["optimizer"])
    runs.append(late)
    for one, its in runs:
        for step in range(3, 6):
            square(one, step, RANK).backward()
            its.step()
    for one, _ in runs:
        same(one, plain(mlp, optimizer=adamw, steps=6))


@behaviour("test_zero_redundancy_optimizer test_step_with_closure", "step(closure), with the loss returned")
def closures() -> None:
    model, optimizer = dear.distribute(made := mlp(), sgd(made), fusion="layer")
    for step in range(4):

        def closure():
            optimizer.zero_grad()
            loss = square(model, step, RANK)
            loss.backward()
            return loss

        assert optimizer.step(closure).item() >= 0
    same(model, plain(mlp))


@behaviour(
    "(torch.optim) test_step_pre_hook, test_step_post_hook",
    "the optimiser is of its own class, and its hooks run once a step",
)
def hooks_of_optimizer() -> None:
    calls = []
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer.register_step_pre_hook(lambda *_: calls.append("pre"))
    model, same_object = dear.distribute(model, optimizer, fusion="layer")
    assert same_object is optimizer and isinstance(optimizer, torch.optim.AdamW)
    optimizer.register_step_post_hook(lambda *_: calls.append("post"))
    for step in range(2):
        square(model, step, RANK).backward()
        optimizer.step()
    assert calls == ["pre", "post"] * 2, calls


@behaviour("test_zero_redundancy_optimizer test_add_param_group", "add_param_group() before distribute()")
def added_group() -> None:
    def chosen(model):
        optimizer = torch.optim.SGD(model[0].parameters(), 0.1)
        optimizer.add_param_group({"params": [*model[2].parameters(), *model[4].parameters()], "lr": 0.01})
        return optimizer

    same(together(mlp, optimizer=chosen), plain(mlp, optimizer=chosen))


@behaviour(
    "test_zero_redundancy_optimizer test_sharding (classes)",
    "Adafactor without ownership, and what else is not elementwise; LBFGS and SparseAdam",
    'your optimiser steps itself; refused with update="sharded", and LBFGS and SparseAdam always',
)
def not_elementwise() -> None:
    class Norms(torch.optim.SGD):  # as LARS: a step of the length of the parameters
        def step(self, closure=None):
            with torch.no_grad():
                for group in self.param_groups:
                    for p in group["params"]:
                        p -= group["lr"] * p.norm() * p.grad

    class Doubled(torch.optim.SGD):  # of the user's own, and elementwise
        def step(self, closure=None):
            with torch.no_grad():
                for group in self.param_groups:
                    for p in group["params"]:
                        if p.grad is not None:
                            p -= 2 * group["lr"] * p.grad

    for make in (torch.optim.LBFGS, torch.optim.Adafactor, lambda p: torch.optim.SparseAdam(list(p)), Norms):
        model = mlp()
        sharded = {"update": "sharded"}
        refuses(
            dear.ConfigError, lambda: dear.distribute(model, make(model.parameters()), **sharded), "cannot train on"
        )

    def doubled(model):
        return Doubled(model.parameters(), 0.05)

    def norms(model):
        return Norms(model.parameters(), 0.05)

    same(together(mlp, optimizer=doubled, update="sharded"), plain(mlp, optimizer=doubled))
    for optimizer in (doubled, norms):
        same(together(mlp, optimizer=optimizer), plain(mlp, optimizer=optimizer))


@behaviour(
    "(users) parameters read past the operators right after step()",
    "numpy(), DLPack, pickles and raw pointers see whole values",
)
def raw_reads() -> None:

    model, optimizer = dear.distribute(made := mlp(), sgd(made), fusion="layer")
    readers = {
        "numpy": lambda p: p.data.numpy().copy(),
        "asarray": lambda p: np.asarray(p.data).copy(),
        "dlpack": lambda p: np.from_dlpack(p.detach()).copy(),
        "tolist": lambda p: np.array(p.data.tolist(), dtype=np.float32),
        "pickle": lambda p: pickle.loads(pickle.dumps(p)).detach().numpy(),
        "save": saved,
    }
    for step, (name, read) in enumerate(readers.items()):
        square(model, step, RANK).backward()
        optimizer.step()
        found = [read(p) for p in model.parameters()]
        reference = plain(mlp, steps=step + 1)
        for mine, theirs in zip(found, reference.parameters()):
            assert np.array_equal(mine, theirs.detach().numpy()), name


def saved(parameter: torch.Tensor) -> np.ndarray:
    file = io.BytesIO()
    torch.save(parameter, file)
    file.seek(0)
    return torch.load(file).detach().numpy()


@behaviour("(users) DataLoader with forked workers", "workers that are forked while parameters are on the wire")
def forked_workers() -> None:
    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            return torch.full((8,), float(index)).tanh()

    model, optimizer = dear.distribute(made := mlp(), sgd(made), fusion="layer")
    for _ in range(2):
        for rows in torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=2, multiprocessing_context="fork"):
            model(rows).square().mean().backward()
            optimizer.step()
    model.synchronize()


@behaviour(
    "test_ddp_compile_*, test_compile_backward_only",
    "torch.compile: the whole module, its blocks, and evaluation right after a step",
)
def compiled() -> None:
    eager = plain(mlp)
    whole = mlp()
    whole.compile(backend="aot_eager")
    blocks = mlp()
    for index in (0, 2, 4):
        blocks[index].compile(backend="aot_eager")
    for model in (whole, blocks):
        parallel, optimizer = dear.distribute(model, sgd(model), fusion="layer")
        for step in range(4):
            square(parallel, step, RANK).backward()
            optimizer.step()
            with torch.no_grad():
                parallel(batch(step, 77))
        same(parallel, eager, 1e-6)


@behaviour(
    "(torch.func) test_functional_call",
    "functional_call on the module: its own parameters, or others for some of them",
)
def functional_call() -> None:
    def loss(model, step, rank):
        inner = getattr(model, "module", model)
        return torch.func.functional_call(inner, dict(inner.named_parameters()), (batch(step, rank),)).square().mean()

    same(together(mlp, loss), plain(mlp, loss))


@behaviour("test_ddp_ignore_params_arg", "parameters that are frozen do not travel", "by requires_grad_(False)")
def frozen() -> None:
    def make():
        model = mlp()
        model[0].requires_grad_(False)
        return model

    def chosen(model):
        return torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1)

    parallel = together(make, optimizer=chosen)
    same(parallel, plain(make, optimizer=chosen))
    assert torch.equal(parallel[0].weight, make()[0].weight)


@behaviour(
    "test_ddp_update_process_group, test_new_group",
    "a process group of torch.distributed, also one of some ranks",
)
def process_groups() -> None:
    alone = [torch.distributed.new_group([rank]) for rank in range(WORLD)][RANK]
    parallel = together(mlp, process_group=alone)
    assert parallel.world_size == 1
    everyone = torch.distributed.new_group(list(range(WORLD)))
    parallel = together(mlp, process_group=everyone)
    assert parallel.world_size == WORLD
    same(parallel, plain(mlp))


@behaviour("test_ddp_multiple_models, test_ddp_two_models", "two models that train in turns")
def two_models() -> None:
    pairs = [dear.distribute(made := mlp(), sgd(made), fusion="layer") for _ in range(2)]
    for step in range(4):
        for model, optimizer in pairs:
            square(model, step, RANK).backward()
            optimizer.step()
    for model, _ in pairs:
        same(model, plain(mlp))


@behaviour("test_ddp_remove_autograd_hooks, test_ddp_has_finalized", "close() ends it: model and optimiser go on alone")
def closed() -> None:
    parallel = together(mlp, steps=3)
    module, optimizer = parallel.module, parallel.optimizer
    parallel.close()
    refuses(dear.ConfigError, parallel.synchronize, "closed")
    assert type(optimizer) is torch.optim.SGD
    for rank in range(WORLD):  # the gradient of all ranks, on each
        (square(parallel, 3, rank) / WORLD).backward()
    optimizer.step()
    same(module, plain(mlp, steps=4), 1e-6)
    optimizer.zero_grad()
    again, optimizer = dear.distribute(module, optimizer, fusion="layer")
    square(again, 4, RANK).backward()
    optimizer.step()
    same(again, plain(mlp, steps=5), 1e-6)


@behaviour("(FSDP2, tensor parallel) test_ddp_with_dtensor", "parameters that are DTensors", "refused")
def dtensors() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = fully_shard(mlp(), mesh=init_device_mesh("cpu", (WORLD,)))
    refuses(dear.ConfigError, lambda: dear.distribute(model, sgd(model)), "0.weight", "DTensor")


@behaviour(
    "test_ddp_wrong_arguments, test_ddp_device_ids_*",
    "wrong arguments: one sentence, before anything is sent",
    "refused",
)
def wrong_arguments() -> None:
    model = mlp()
    for options, words in (
        ({"policy": "best"}, ("best", "dear")),
        ({"fusion": "nonsense=3"}, ("nonsense",)),
        ({"buffers": "never"}, ("never",)),
        ({"process_group": "world"}, ("process_group",)),
        ({"profile_steps": 0}, ("profile_steps",)),
    ):
        refuses(dear.ConfigError, lambda: dear.distribute(model, sgd(model), **options), *words)
    refuses(dear.ConfigError, lambda: dear.distribute(nn.parallel.DataParallel(mlp()), sgd(model)), "DataParallel")
    refuses(
        dear.ConfigError,
        lambda: dear.distribute(model, torch.optim.SGD(model[0].parameters(), 0.1)),
        "2.weight",
    )
    parallel, optimizer = dear.distribute(model, sgd(model), fusion="layer")
    refuses(dear.ConfigError, lambda: dear.distribute(parallel, optimizer), "DataParallel")


@behaviour(
    "test_ddp_apply_optim_in_backward_*", "an optimiser that runs in backward", 'policy="dear-eager"; a hook refused'
)
def optimiser_in_backward() -> None:
    same(together(mlp, policy="dear-eager"), plain(mlp))
    from torch.distributed.optim import _apply_optimizer_in_backward

    model = mlp()
    _apply_optimizer_in_backward(torch.optim.SGD, model.parameters(), {"lr": 0.1})
    refuses(dear.ConfigError, lambda: dear.distribute(model, sgd(model)), "0.weight", "dear-eager")


@behaviour(
    "test_DistributedDataParallel_non_default_stream, all CUDA tests",
    "models on a device that the process group does not carry",
    "refused: it names the device, and the process groups that carry a GPU's memory",
)
def another_device() -> None:
    model = nn.Linear(8, 3, device="meta")
    refuses(dear.ConfigError, lambda: dear.distribute(model, sgd(model)), "meta", "materialise")
