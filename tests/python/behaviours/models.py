"""Models that DDP trains."""

from __future__ import annotations

import collections
import copy
import dataclasses
import io
import pickle

import torch
import torch.utils.checkpoint
from torch import nn

import dear

from .registry import RANK, WORLD, batch, behaviour, mlp, plain, refuses, same, sgd, square, together


@behaviour(
    "test_DistributedDataParallelCPU",
    "the parameters of plain PyTorch over the union of the batches, to the bit",
)
def trains_as_one_process() -> None:
    for policy in dear.training_policies():
        same(together(mlp, policy=policy), plain(mlp))


@behaviour("test_DistributedDataParallelCPU_grad_is_view", "gradients are views into buckets after the first step")
def gradients_are_views() -> None:
    parallel = together(mlp, fusion="all")
    storages = {p.grad.untyped_storage().data_ptr() for p in parallel.parameters()}
    assert len(storages) == 1
    gradients = [p.grad.data_ptr() for p in parallel.parameters()]
    parallel.optimizer.zero_grad()
    square(parallel, 9, RANK).backward()
    assert gradients == [p.grad.data_ptr() for p in parallel.parameters()]


@behaviour(
    "test_grad_is_view_set_to_none, test_DistributedDataParallel_with_grad_is_view",
    "model.zero_grad() to none, the default: gradients that are no views are taken in, and the view put back",
)
def gradients_set_to_none() -> None:
    def loss(model, step, rank):
        for parameter in model.parameters():
            parameter.grad = None
        return square(model, step, rank)

    parallel = together(mlp, loss)
    same(parallel, plain(mlp))
    assert all(p.grad is not None for p in parallel.parameters())


@behaviour("test_DistributedDataParallel_requires_grad", "a model without a parameter to train is refused", "refused")
def nothing_to_train() -> None:
    frozen = mlp().requires_grad_(False)
    refuses(dear.ConfigError, lambda: dear.distribute(frozen, sgd(frozen)), "requires a gradient")


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.embed = nn.Embedding(11, 8)
        self.body = nn.Linear(8, 8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(torch.tanh(self.body(self.embed(tokens))))


def tokens_loss(model, step, rank):
    generator = torch.Generator().manual_seed(step * 10 + rank)
    tokens = torch.randint(0, 11, (4, 5), generator=generator)
    return nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())


@behaviour(
    "test_ddp_weight_sharing, test_ddp_shared_grad_acc_unused_params",
    "a weight that two modules share (a tied head)",
)
def tied_weights() -> None:
    same(together(Shared, tokens_loss), plain(Shared, tokens_loss))


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.trunk = nn.Linear(8, 8)
        self.left = nn.Linear(8, 3)
        self.right = nn.Linear(8, 3)
        self.never = nn.Linear(8, 3)

    def forward(self, x, left=True):
        return (self.left if left else self.right)(self.trunk(x))


@behaviour("test_ddp_control_flow_same_across_ranks", "branches that all ranks take alike, others in other steps")
def same_branches() -> None:
    def loss(model, step, rank):
        return model(batch(step, rank), left=step % 2 == 0).square().mean()

    same(together(Branches, loss, steps=6), plain(Branches, loss, steps=6))


@behaviour(
    "test_ddp_control_flow_different_across_ranks, test_global_local_unused_params_grad",
    "branches that ranks take differently: a parameter without a gradient on one rank counts as zero there",
)
def other_branches() -> None:
    def loss(model, step, rank):
        return model(batch(step, rank), left=(step + rank) % 2 == 0).square().mean()

    same(together(Branches, loss, steps=6), plain(Branches, loss, steps=6))


@behaviour(
    "test_find_unused_parameters_kwarg, test_ddp_multiple_nested_unused_params_error",
    "parameters that no rank uses are found without an option, and left as they are, state and all",
)
def unused_parameters() -> None:
    def adamw(model):
        return torch.optim.AdamW(model.parameters(), 0.1, weight_decay=0.5)

    def loss(model, step, rank):
        return model(batch(step, rank)).square().mean()

    parallel = together(Branches, loss, adamw)
    same(parallel, plain(Branches, loss, adamw))
    assert torch.equal(parallel.never.weight, Branches().never.weight)


@behaviour(
    "test_output_unused_in_loss, test_ddp_unused_params_rebuild_buckets_exception",
    "an output that the loss does not use",
)
def unused_output() -> None:
    class Two(Branches):
        def forward(self, x):
            hidden = self.trunk(x)
            return {"left": self.left(hidden), "right": self.right(hidden)}

    def loss(model, step, rank):
        return model(batch(step, rank))["left"].square().mean()

    same(together(Two, loss), plain(Two, loss))


@behaviour(
    "test_arbitrary_forward_return_value, test_ddp_namedtuple, test_ddp_dict_outputs",
    "forward takes and returns anything: named tuples, dataclasses, dictionaries",
)
def any_output() -> None:
    Pair = collections.namedtuple("Pair", "a b")

    @dataclasses.dataclass
    class Both:
        pair: Pair
        scale: float

    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp()

        def forward(self, x, *, scale):
            return Both(Pair(self.body(x["input"]), 0), scale)

    def loss(model, step, rank):
        both = model({"input": batch(step, rank)}, scale=0.5)
        return both.pair.a.square().mean() * both.scale

    same(together(Odd, loss), plain(Odd, loss))


@behaviour("test_ddp_zero_output_features", "layers without outputs, parameters without elements")
def no_elements() -> None:
    class Empty(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp()
            self.nothing = nn.Parameter(torch.empty(0, 8))

        def forward(self, x):
            return self.body(x) + (x @ self.nothing.t()).sum()

    same(together(Empty), plain(Empty))


@behaviour("test_ddp_returns_tensor_with_no_grad", "an output that does not require a gradient beside one that does")
def output_without_gradient() -> None:
    class Noted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp()

        def forward(self, x):
            return self.body(x), x.detach().mean()

    def loss(model, step, rank):
        return model(batch(step, rank))[0].square().mean()

    same(together(Noted, loss), plain(Noted, loss))


@behaviour(
    "test_ddp_new_tensor_in_fwd, test_ddp_new_tensor_in_fwd_static_graph",
    "a trainable tensor that forward makes anew",
)
def new_tensor_in_forward() -> None:
    class Fresh(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp()

        def forward(self, x):
            shift = torch.zeros(8, requires_grad=True)
            return self.body(x + shift)

    same(together(Fresh), plain(Fresh))


@behaviour(
    "test_ddp_checkpointing_once, test_ddp_checkpointing_unused_params",
    "activation checkpointing, without re-entry and with it",
)
def checkpointing() -> None:
    for reentrant in (False, True):

        class Checkpointed(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                torch.manual_seed(3)
                self.first = nn.Linear(8, 8)
                self.body = nn.Linear(8, 8)
                self.last = nn.Linear(8, 3)

            def forward(self, x):
                x = torch.utils.checkpoint.checkpoint(self.body, self.first(x).tanh(), use_reentrant=reentrant)
                return self.last(x)

        same(together(Checkpointed), plain(Checkpointed))


@behaviour(
    "test_ddp_checkpointing_twice, test_ddp_checkpointing_twice_weight_sharing",
    "a checkpointed layer that runs twice",
)
def checkpointing_twice() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(3)
            self.body = nn.Linear(8, 8)
            self.last = nn.Linear(8, 3)

        def forward(self, x):
            for _ in range(2):
                x = torch.utils.checkpoint.checkpoint(self.body, x, use_reentrant=False).tanh()
            return self.last(x)

    same(together(Twice), plain(Twice))


@behaviour(
    "test_grad_layout_1devicemodule_1replicaperprocess",
    "weights in channels_last and other dense orders keep their strides",
)
def memory_orders() -> None:
    def make():
        torch.manual_seed(3)
        return nn.Sequential(nn.Conv2d(2, 4, 3), nn.Flatten(), nn.Linear(16, 3)).to(memory_format=torch.channels_last)

    def loss(model, step, rank):
        return model(batch(step, rank, 4, 32).view(4, 2, 4, 4)).square().mean()

    parallel = together(make, loss)
    same(parallel, plain(make, loss))
    assert parallel[0].weight.stride() == make()[0].weight.stride()
    assert parallel[0].weight.grad.stride() == parallel[0].weight.stride()


@behaviour(
    "test_sparse_gradients, test_ddp_sparse_grads",
    "sparse gradients of an embedding",
    "as rows where that is less to send, else dense",
)
def sparse_gradients() -> None:
    class Sparse(nn.Module):
        def __init__(self, words: int) -> None:
            super().__init__()
            torch.manual_seed(3)
            self.embed = nn.Embedding(words, 8, sparse=True)
            self.head = nn.Linear(8, 11)

        def forward(self, tokens):
            return self.head(self.embed(tokens))

    def bag() -> nn.Module:
        torch.manual_seed(3)
        return nn.EmbeddingBag(300, 8, sparse=True)

    def bag_loss(model, step, rank):
        return model(torch.arange(12).view(3, 4) * (step + rank + 1)).square().sum()

    for policy in dear.training_policies():
        for make, loss, rows in (
            (lambda: Sparse(11), tokens_loss, 0),
            (lambda: Sparse(300), tokens_loss, 4),
            (bag, bag_loss, 4),
        ):
            parallel = together(make, loss, policy=policy, profile_steps=2)
            same(parallel, plain(make, loss))
            assert parallel.statistics()["sparse_as_rows"] == rows, (policy, rows)

    def accumulated(model, step, rank):
        if step % 2 == 1:
            with model.no_sync():
                tokens_loss(model, step + 10, rank).backward()
        return tokens_loss(model, step, rank)

    def twice(model, step, rank):
        return tokens_loss(model, step + 10, rank) if step % 2 == 1 else 0 * tokens_loss(model, step, rank)

    for fusion in ("auto", "planned"):  # whose buckets change
        parallel = together(lambda: Sparse(300), tokens_loss, steps=40, fusion=fusion, profile_steps=5)
        same(parallel, plain(lambda: Sparse(300), tokens_loss, steps=40))
        assert parallel.statistics()["sparse_as_rows"] == 40

    parallel = together(lambda: Sparse(300), accumulated)
    same(parallel, plain(lambda: Sparse(300), [twice, tokens_loss]))


@behaviour("test_fp16, test_ddp_bf16", "parameters in bfloat16, float16 and float64, also in one model")
def types_of_parameters() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(3)
            self.wide = nn.Linear(8, 8).double()
            self.narrow = nn.Linear(8, 8).bfloat16()
            self.last = nn.Linear(8, 3)

        def forward(self, x):
            return self.last(self.narrow(self.wide(x.double()).bfloat16()).float())

    def plain_sgd(model):
        return torch.optim.SGD(model.parameters(), 0.1)

    same(together(Mixed, optimizer=plain_sgd, steps=1), plain(Mixed, optimizer=plain_sgd, steps=1), 1e-2)


@behaviour(
    "test_DistributedDataParallel_SyncBatchNorm (without sync), test_ddp_broadcast_buffer",
    "BatchNorm: statistics are each rank's own in training",
    "become rank 0's at synchronize(), not in every forward",
)
def buffers() -> None:
    def make():
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))

    parallel = together(make)
    mean = parallel[1].running_mean.clone()
    everyone = [torch.zeros_like(mean) for _ in range(WORLD)]
    torch.distributed.all_gather(everyone, mean)
    assert torch.equal(everyone[0], everyone[1])


@behaviour(
    "test_ddp_model_diff_shape_across_ranks",
    "a model whose shapes differ between ranks is refused on every rank",
    "refused",
)
def other_shapes() -> None:
    def make():
        return nn.Linear(8, 3 + RANK)

    refuses(dear.MismatchError, lambda: together(make), "rank 1", "weight")


@behaviour(
    "test_ddp_model_diff_num_params_across_ranks",
    "a model with more parameters on one rank is refused on every rank",
    "refused",
)
def other_numbers() -> None:
    def make():
        return nn.Sequential(*[nn.Linear(8, 8) for _ in range(1 + RANK)])

    refuses(dear.MismatchError, lambda: together(make), "rank 1", "1.weight")


@behaviour("test_ddp_sync_module_states, test_sync_module_states", "parameters and buffers begin as rank 0's")
def begins_as_rank_0() -> None:
    def make():
        torch.manual_seed(RANK)
        return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))

    parallel = together(make, steps=0)
    torch.manual_seed(0)
    same(parallel, nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)))


@behaviour(
    "test_ddp_with_lazy_parameters",
    "lazy parameters are refused until a forward has given them shapes",
    "refused",
)
def lazy_parameters() -> None:
    model = nn.Sequential(nn.LazyLinear(8))
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], 0.1)
    refuses(dear.ConfigError, lambda: dear.distribute(model, optimizer), "0.weight", "forward")


@behaviour(
    "test_save_load_checkpoint, test_ddp_state_dict",
    "state_dict() and load_state_dict(), between and right after steps",
    'keys without "module."',
)
def checkpoints() -> None:
    parallel = together(mlp)
    square(parallel, 7, RANK).backward()
    parallel.optimizer.step()
    file = io.BytesIO()
    torch.save(parallel.state_dict(), file)  # parameters may still be on the wire
    file.seek(0)
    loaded = mlp()
    loaded.load_state_dict(torch.load(file))
    same(parallel, loaded)
    assert list(parallel.state_dict()) == list(mlp().state_dict())
    parallel.load_state_dict(mlp().state_dict())
    same(parallel, mlp())


@behaviour("test_pickle, test_ddp_deepcopy", "pickling and copying", "give the module alone")
def copies() -> None:
    parallel = together(lambda: nn.Linear(8, 3))
    for made in (pickle.loads(pickle.dumps(parallel)), copy.deepcopy(parallel)):
        assert type(made) is nn.Linear
        same(parallel, made)


@behaviour(
    "test_ddp_attributes (module access)",
    "attributes, submodules, training mode, len and index reach the module",
)
def reaches_through() -> None:
    parallel = together(mlp)
    assert parallel[0] is parallel.module[0] and len(parallel) == 5
    parallel.eval()
    assert not parallel.module.training and not parallel.training and not parallel[0].training
    parallel.note = 3
    assert parallel.module.note == 3
    assert [name for name, _ in parallel.named_modules()] == [name for name, _ in mlp().named_modules()]
    assert "Linear(in_features=8" in repr(parallel)
