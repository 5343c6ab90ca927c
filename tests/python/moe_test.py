"""dear.MoE on four ranks and on pairs of them, over the backend dear and Gloo, beside one process that loops over tokens."""

from __future__ import annotations

import copy
import datetime
import faulthandler
import io
import os
import signal
import socket
import subprocess
import sys
import types
import unittest
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "moe"))
import oracle
from cutting import Cutting as Cutting
from mixtures import DOUBLE, EXPERTS, GATES, HIDDEN, WIDTH, Case, Net, batch, gradients, groups, layer
from of_transformers import OfTransformers as OfTransformers
from training import Training as Training

import dear
from dear import _moe, _moe_nodes, _moe_order, _moe_routing

RANKS = 4
warnings.filterwarnings("ignore", category=UserWarning)


def crowded(moe: dear.MoE) -> dear.MoE:
    """All tokens of batch() choose the last expert."""
    with torch.no_grad():
        moe.gate.weight.zero_()[-1] = 0.5
    return moe


def passed(moe: nn.Module, x: Tensor) -> list[Tensor]:
    """The output and all gradients of a pass."""
    x = x.clone().requires_grad_()
    result = moe(x)
    loss = (result * torch.linspace(-1, 1, result.numel()).view_as(result)).sum()
    if isinstance(moe, dear.MoE):
        loss = loss + moe.auxiliary_loss
    for parameter in moe.parameters():
        parameter.grad = None
    loss.backward()
    return [result.detach(), x.grad, *(parameter.grad for parameter in moe.parameters())]  # type: ignore[list-item]


class Layers(Case):
    def test_as_one_process_that_loops_over_tokens(self) -> None:
        for group, ranks in ((None, 4), (groups.pair, 2), (groups.gloo, 4)):
            for options in GATES:
                with self.subTest(ranks=ranks, **options):
                    self.check_against_loops(layer(group, DOUBLE, z_weight=0.1, **options), group, ranks)

    def check_against_loops(self, moe: dear.MoE, group: Any, ranks: int) -> None:
        state = oracle.leaves(moe.whole_state_dict())
        first = self.rank - dist.get_rank(group) if group is not None else 0
        batches = [batch(first + rank, 3 + rank, dtype=DOUBLE).requires_grad_() for rank in range(ranks)]
        choices = moe.top_k
        mixed = [oracle.mixture(x, state, moe.kind, choices, moe.capacity_factor) for x in batches]
        losses = [one.output.square().sum() + 0.01 * one.balance + 0.1 * one.z for one in mixed]
        (sum(losses) / ranks).backward()  # type: ignore[union-attr]

        mine = mixed[moe.rank]
        x = batches[moe.rank].detach().clone().requires_grad_()
        result = moe(x)
        (result.square().sum() + moe.auxiliary_loss).backward()
        torch.testing.assert_close(result, mine.output, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(x.grad, batches[moe.rank].grad * ranks, rtol=1e-8, atol=1e-10)
        gate = moe.gate.weight.grad.clone()  # type: ignore[union-attr]
        dist.all_reduce(gate, group=group)
        torch.testing.assert_close(gate / ranks, state["gate.weight"].grad, rtol=1e-8, atol=1e-10)
        for name in ("inputs", "outputs"):
            whole = state[name].grad
            expected = torch.zeros_like(state[name]) if whole is None else whole
            own = oracle.own_part(expected, moe.rank, ranks)
            torch.testing.assert_close(getattr(moe, name).grad, own, rtol=1e-8, atol=1e-10)
        counted = moe.statistics()
        self.assertEqual(counted["dropped"], mine.dropped)
        for expert, count in enumerate(counted["by_expert"]):
            self.assertEqual(count, sum(of_token.count(expert) for of_token in mine.chosen))
        torch.testing.assert_close(moe.balance_loss, mine.balance, rtol=1e-9, atol=0)

    def test_parts_and_overlaps_have_the_same_bits(self) -> None:
        x = batch(self.rank)
        for group in (None, groups.pair, groups.gloo):
            for options in GATES:
                expected = passed(layer(group, **options), x)
                full = passed(crowded(layer(group, **options)), x)
                for parts in (1, 2, 4):
                    for overlap in ("none", "experts", "lancet") if group is None else ("lancet",):
                        with self.subTest(parts=parts, overlap=overlap, **options):
                            moe = layer(group, parts=parts, overlap=overlap, **options)
                            self.assertSameBits(passed(moe, x), expected)
                            self.assertSameBits(passed(crowded(moe), x), full)

    def test_parts_that_share_out_the_places_drop_other_tokens(self) -> None:
        x = batch(self.rank)
        moe = layer(capacity_factor=0.5)
        whole = moe(x)
        naive = torch.cat([moe(part) for part in x.split(4)])
        self.assertFalse(torch.equal(naive, whole))
        self.assertFalse(torch.equal(naive.any(-1), whole.any(-1)), "those that are dropped")
        self.assertTrue(torch.equal(layer(capacity_factor=0.5, parts=2)(x), whole))

    def test_a_multiple_of_rows_has_bits_of_its_own(self) -> None:
        """What ROWS says: rows in a product that is filled up do not depend on where the batch is cut."""
        for inputs, outputs in ((12, 20), (64, 256), (96, 33)):
            generator = torch.Generator().manual_seed(inputs)
            rows, matrix = (
                torch.randn(83, inputs, generator=generator),
                torch.randn(outputs, inputs, generator=generator),
            )

            def product(block: Tensor) -> Tensor:
                filled = functional.pad(block, (0, 0, 0, -len(block) % _moe_routing.ROWS))
                return torch.mm(filled, matrix.t())[: len(block)]

            for cut in (1, 2, 15, 16, 17, 40, 82):
                self.assertTrue(torch.equal(torch.cat([product(rows[:cut]), product(rows[cut:])]), product(rows)))

    def test_experts_without_tokens_have_gradients_of_zero(self) -> None:
        moe = crowded(layer())
        passed(moe, batch(self.rank))
        for parameter in (moe.inputs, moe.outputs):
            for expert, gradient in enumerate(parameter.grad):  # type: ignore[arg-type]
                last = moe.rank * len(parameter) + expert == EXPERTS - 1
                self.assertEqual(bool(gradient.any()), last)

    def test_only_rows_that_are_there_travel(self) -> None:
        sent: list[int] = []

        def counting(taken: Tensor, rows: Tensor, takes: list[int], sends: list[int], group: Any) -> Any:
            sent.append(sum(sends) - sends[self.rank])
            return original(taken, rows, takes, sends, group)

        original = _moe_nodes.all_to_all
        with mock.patch.object(_moe_nodes, "all_to_all", counting):
            moe = layer(capacity_factor=0.5)
            passed(moe, batch(self.rank))
        there, back, of_results, of_tokens = sent
        self.assertEqual((there, back), (moe.statistics()["sent_rows"], of_tokens))
        self.assertEqual((there, back), (of_results, of_tokens))

    def test_own_experts(self) -> None:
        def expert() -> nn.Module:
            return nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, WIDTH))

        whole, halves = layer(expert=expert), layer(expert=expert, parts=2, overlap="experts")
        found, expected = passed(halves, batch(self.rank)), passed(whole, batch(self.rank))
        self.assertSameBits(found[:2], expected[:2])
        for one, other in zip(found, expected):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


class BackwardPasses(Case):
    """With weight gradients late, as plain autograd has them."""

    def assertSameGradients(self, run: Callable[[Net], None], **options: Any) -> None:
        plain = Net(overlap="none", **options)
        run(plain)
        late = Net(overlap="lancet", parts=2, **options)
        report = dear.defer_weight_gradients(late)
        self.assertEqual(report["deferred"], ["first", "between", "last"])
        run(late)
        self.assertSameBits(gradients(late), gradients(plain))
        self.assertGreater(len(gradients(late)), 0)

    def loss(self, net: nn.Module, step: int = 0) -> Tensor:
        return net(batch(self.rank, step=step)).square().mean()

    def test_one_and_several_passes(self) -> None:
        self.assertSameGradients(lambda net: self.loss(net).backward())

        def accumulate(net: Net) -> None:
            for step in range(3):
                self.loss(net, step).backward()

        self.assertSameGradients(accumulate)

        def together(net: Net) -> None:
            (self.loss(net, 0) + self.loss(net, 1)).backward()

        self.assertSameGradients(together)

        def retained(net: Net) -> None:
            loss = self.loss(net)
            loss.backward(retain_graph=True)
            with torch.no_grad():
                self.loss(net, 5)
            loss.backward()

        self.assertSameGradients(retained)

    def test_activations_that_are_computed_again(self) -> None:
        for way in ("reentrant", "not reentrant"):

            def run(net: Net) -> None:
                net.checkpointed = way
                x = batch(self.rank).requires_grad_()
                net(x).square().mean().backward()
                self.assertEqual([one.statistics()["passes"] for one in net.mixtures], [1, 1])

            self.assertSameGradients(run)

    def test_frozen_weights_and_inputs(self) -> None:
        def run(net: Net) -> None:
            net.first.weight.requires_grad_(False)
            net.mixtures[0].inputs.requires_grad_(False)
            net.between.requires_grad_(False)
            self.loss(net).backward()

        self.assertSameGradients(run)

        def head_only(net: Net) -> None:
            net.requires_grad_(False)
            net.last.requires_grad_(True)
            self.loss(net).backward()

        self.assertSameGradients(head_only)

    def test_a_pass_that_was_broken_off(self) -> None:
        def run(net: Net) -> None:
            def raises(_: Tensor) -> None:
                raise ValueError("a hook")

            handle = net.between.weight.register_hook(raises)
            with self.assertRaisesRegex(ValueError, "a hook"):
                self.loss(net).backward()
            handle.remove()
            net.zero_grad()
            self.loss(net, 1).backward()

        self.assertSameGradients(run)

    def test_autocast_and_hooks(self) -> None:
        def run(net: Net) -> None:
            seen: list[str] = []
            for name, parameter in net.named_parameters():
                parameter.register_post_accumulate_grad_hook(lambda _, name=name: seen.append(name))
            net.last.weight.register_hook(lambda gradient: 2 * gradient)
            with torch.autocast("cpu", torch.bfloat16):
                self.loss(net).backward()
            self.assertEqual(sorted(seen), sorted(name for name, _ in net.named_parameters()))

        self.assertSameGradients(run)

    def test_layers_whose_weights_lie_the_other_way(self) -> None:
        class Conv1D(nn.Module):  # of transformers, which need not be there
            def __init__(self) -> None:
                super().__init__()
                torch.manual_seed(2)
                self.weight, self.bias = nn.Parameter(torch.randn(WIDTH, 7)), nn.Parameter(torch.randn(7))

            def forward(self, x: Tensor) -> Tensor:
                return torch.addmm(self.bias, x.view(-1, WIDTH), self.weight).view(*x.shape[:-1], 7)

        with mock.patch.dict(sys.modules, {"transformers.pytorch_utils": types.SimpleNamespace(Conv1D=Conv1D)}):
            net = nn.Sequential(Conv1D(), nn.Bilinear(7, 7, 2))
            expected = passed(net[0], batch(0))
            report = dear.defer_weight_gradients(net)
            self.assertEqual(report, {"deferred": ["0"], "left_out": {}})
            self.assertSameBits(passed(net[0], batch(0)), expected)
            dear.restore_weight_gradients(net)
            self.assertIs(type(net[0]), Conv1D)
            replaced, embedding = nn.Linear(3, 3), nn.Embedding(3, 3)
            replaced.forward = lambda x: x  # type: ignore[method-assign]
            left_out = dear.defer_weight_gradients(nn.Sequential(replaced, embedding))["left_out"]
            self.assertEqual(
                left_out, {"0": "its forward was replaced", "1": "the backward of a Embedding is not known"}
            )

    def test_copies(self) -> None:
        net = Net(overlap="lancet")
        dear.defer_weight_gradients(net)
        self.loss(net).backward()
        twin = copy.deepcopy(net)
        self.loss(twin, 1).backward()
        self.assertEqual(len(gradients(twin)), len(list(net.parameters())))
        file = io.BytesIO()
        torch.save(net, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
        self.assertTrue(torch.equal(loaded(batch(self.rank)), net(batch(self.rank))))
        dear.restore_weight_gradients(net)
        self.assertIs(type(net.first), nn.Linear)

    def test_the_order_of_launches_and_weight_gradients(self) -> None:
        def order(net: Net) -> str:
            loss = self.loss(net)
            with _moe_order.recording() as log:
                loss.backward()
            return "".join({"launch": "L", "wait": ".", "weight": "w"}[one] for one in log)

        natural, late = Net(overlap="experts"), Net(overlap="lancet")
        dear.defer_weight_gradients(late)
        # Of a mixture: results launched, two products, tokens launched, the gate.
        self.assertEqual(order(natural), "L.wwL.w" * 2)
        # The first all-to-all of a mixture has the layer behind it and the gate, the second one the experts.
        self.assertEqual(order(late), "Lww.Lww." * 2 + "w")


class Refusals(Case):
    def assertRefused(self, sentence: str, call: Callable[[], Any], error: Any = dear.ConfigError) -> None:
        with self.assertRaisesRegex(error, sentence) as caught:
            call()
        self.assertNotIn("\n", str(caught.exception))

    def test_arguments(self) -> None:
        for sentence, options in (
            ("6 experts cannot be dealt to 4 ranks", {"experts": 6}),
            ("gate='top3'", {"gate": "top3"}),
            ("top_k=2 of 8 experts: the gate switch chooses 1", {"top_k": 2}),
            ("overlap='all'", {"overlap": "all"}),
            ("capacity factor of 0", {"capacity_factor": 0.0}),
            ("0 parts", {"parts": 0}),
            ("process_group is a str", {"process_group": "all"}),
            ("BatchNorm1d", {"expert": lambda: nn.Sequential(nn.Linear(12, 12), nn.BatchNorm1d(12))}),
        ):
            self.assertRefused(sentence, lambda: dear.MoE(WIDTH, HIDDEN, **{"experts": EXPERTS, **options}))  # noqa: B023

    def test_batches(self) -> None:
        for sentence, moe, x in (
            ("5 tokens are too few for 8 experts", layer(), batch(0, 1)),
            ("leaves experts no place", layer(capacity_factor=0.1), batch(0)),
            ("3 parts do not divide a batch of 8", layer(parts=3), batch(0)),
            ("a batch of 2 cannot be cut into 4 parts", layer(parts=4), batch(0, 2)),
            ("takes .batch, ..., 12.", layer(), batch(0)[..., :7]),
            ("float32 was given torch.float64", layer(), batch(0, dtype=DOUBLE)),
            ("rank 0: the gate .* not a finite number", layer(), batch(0) * torch.nan),
            ("Dropout, which takes random", layer(parts=2, expert=lambda: nn.Sequential(nn.Linear(12, 12), nn.Dropout())), batch(0)),
        ):  # fmt: skip
            with self.subTest(sentence):
                self.assertRefused(sentence, lambda: moe(x))  # noqa: B023

    def test_what_one_rank_refuses_all_do(self) -> None:
        moe = layer()
        sentence = "too few" if self.rank == 1 else "rank 1 refused its batch"
        self.assertRefused(sentence, lambda: moe(batch(0, 1 if self.rank == 1 else 8)))
        x = batch(0)
        if self.rank == 3:
            x[0, 0, 0] = torch.inf
        self.assertRefused("rank 3: the gate", lambda: moe(x))
        self.assertTrue(moe(batch(0)).isfinite().all())

    def test_ranks_that_differ(self) -> None:
        moe = layer(capacity_factor=1.5 if self.rank == 2 else 1.25)
        self.assertRefused(
            "capacity_factor 1.25 on rank 0 and 1.5 on rank 2", lambda: moe(batch(0)), dear.MismatchError
        )

    def test_ranks_with_different_numbers_of_process_groups(self) -> None:
        pairs = [dist.new_group([first, first + 1]) for first in (0, 2)]
        pair = pairs[self.rank // 2]
        alone = dist.new_group([0], use_local_synchronization=True) if self.rank == 0 else None
        if self.rank < 2:
            sentence = "rank 0 has .* process groups of torch.distributed and rank 1 has"
            self.assertRefused(sentence, lambda: layer(pair)(batch(0)), dear.MismatchError)
        if alone is not None:
            dist.destroy_process_group(alone)
        self.assertTrue(layer(pair)(batch(0)).isfinite().all())

    def test_counts_beyond_the_capacity(self) -> None:
        moe = layer()
        original = _moe.MoE._counts_of_all

        def corrupt(self: Any, tokens: int, sent: list[list[int]], whole: Any) -> Any:
            return original(self, tokens, [[1000] * EXPERTS] if self.rank == 1 else sent, whole)

        with mock.patch.object(_moe.MoE, "_counts_of_all", corrupt):
            self.assertRefused("rank 1 says that it sends 1000 tokens", lambda: moe(batch(0)), dear.MismatchError)

    def test_models(self) -> None:
        def distribute(net: Any, cls: Any = torch.optim.SGD, **options: Any) -> Callable[[], Any]:
            return lambda: dear.distribute(net, cls(net.parameters(), lr=0.1), **options)

        net = Net()
        net.mixtures[1].inputs = net.mixtures[0].inputs
        self.assertRefused("share a parameter", distribute(net))
        self.assertRefused("shared out to 2 ranks, and 4 train", distribute(Net(groups.pair)))
        self.assertRefused("LAMB takes norms", distribute(Net(), dear.LAMB))
        self.assertRefused("fp32_masters", distribute(Net(), fp32_masters=True))
        self.assertRefused("overlap='all'", distribute(Net(), overlap="all"))
        self.assertRefused("the model has none", distribute(nn.Linear(3, 3), overlap="lancet"))
        some = nn.Sequential(nn.Linear(WIDTH, WIDTH), layer())
        optimizer = torch.optim.SGD([*some[0].parameters(), some[1].gate.weight], lr=0.1)
        self.assertRefused("does not hold the experts of '1'", lambda: dear.distribute(some, optimizer))
        self.assertRefused("after a forward pass", lambda: layer().auxiliary_loss)


def left_by_rank_2() -> int:
    """Returns 0 where an all-to-all in which rank 2 dies, in a backward pass, names it."""
    net = Net()
    model, optimizer = dear.distribute(net, torch.optim.SGD(net.parameters(), lr=0.1), overlap="lancet", parts=2)
    launch = _moe_nodes.Exchange.launch

    def dies(exchange: Any, key: str, rows: Tensor, *, there: bool) -> None:
        if key == "gradients of tokens" and dist.get_rank() == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        launch(exchange, key, rows, there=there)

    with mock.patch.object(_moe_nodes.Exchange, "launch", dies):
        try:
            model(batch(dist.get_rank())).square().mean().backward()
        except RuntimeError as error:
            os._exit(0 if "rank 2 (pid" in str(error) and "died" in str(error) else 1)
    os._exit(1)


def run_ranks(**environment: str) -> list[int]:
    """Returns how each rank ended."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    job = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen([sys.executable, "-B", *sys.argv], env={**os.environ, **job, **environment, "RANK": str(rank)})
        for rank in range(RANKS)
    ]
    return [rank.wait() for rank in ranks]


def main() -> int:
    if "RANK" in os.environ:
        faulthandler.dump_traceback_later(200, exit=True)
        torch.set_num_threads(1)
        dist.init_process_group("cpu:dear", timeout=datetime.timedelta(seconds=60))
        if "KILLED" in os.environ:
            return left_by_rank_2()
        pairs = [dist.new_group([first, first + 1]) for first in (0, 2)]
        groups.pair, groups.gloo = pairs[dist.get_rank() // 2], dist.new_group(backend="gloo")
        result = unittest.main(exit=False, argv=sys.argv, failfast=True, verbosity=0).result
        if not result.wasSuccessful():
            os._exit(1)  # the others may be in a collective
        dist.destroy_process_group()
        return 0
    if any(run_ranks()):
        return 1
    ends = run_ranks(KILLED="1")
    if ends != [0, 0, -signal.SIGKILL, 0]:
        print(f"ranks ended with {ends}, and rank 2 was killed: the others must name it", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
