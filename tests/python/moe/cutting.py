"""Models whose forward pass dear.distribute(parts=...) cuts: cases of moe_test.py."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from mixtures import GATES, WIDTH, Case, Net, batch, layer
from torch import Tensor, nn
from torch.nn import functional

import dear
from dear import _moe_cut, _moe_order, _moe_parts


class Block(nn.Module):
    """Attention before a network with two mixtures. Takes an additive mask of each sample, gives a dict."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.norm, self.mixed = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.net = Net(**options)
        self.change: Callable[[Tensor], Tensor] = lambda x: x
        self.around: Callable[[], Any] = contextlib.nullcontext
        self.seen: list[int] = []

    def forward(self, x: Tensor, *, mask: Tensor, scale: Tensor) -> dict[str, Any]:
        self.seen.append(len(x))
        q, k, v = self.mixed(self.norm(x)).unsqueeze(1).chunk(3, -1)
        x = x + functional.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None]).squeeze(1) * scale
        with self.around():
            return {"scores": self.net(self.change(x)), "name": "block"}


class Model(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.block = Block(**options)

    def forward(self, x: Tensor) -> Tensor:
        mask = torch.zeros(len(x), x.shape[1], x.shape[1]).triu_(1).mul(-1e9)
        scores: Tensor = self.block(x, mask=mask, scale=torch.full((1,), 0.5))["scores"]
        return scores.square().mean() + sum(one.auxiliary_loss for one in self.block.net.mixtures)  # type: ignore[no-any-return]


class Cutting(Case):
    """dear.distribute(parts=...)."""

    def trained(
        self, net: Model, samples: int = 32, steps: int = 3, **options: Any
    ) -> tuple[Any, list[Any], list[str]]:
        """Also outputs, statistics, gradients and parameters, and the order of the last backward pass."""
        optimizer: Any = torch.optim.SGD(net.parameters(), lr=0.1)
        model, optimizer = dear.distribute(net, optimizer, **options)
        found: list[Any] = []
        for step in range(steps):
            loss = model(batch(self.rank, samples, step))
            with _moe_order.recording() as log:
                loss.backward()
            found += [loss.detach(), *(one.grad.clone() for one in net.block.net.mixtures[0].expert_parameters())]
            optimizer.step()
        counted = [one.statistics() for one in net.block.net.mixtures]
        report = model.overlap_report()
        model.close()
        return report, [*found, *net.parameters(), counted], log

    def assertSame(self, found: list[Any], expected: list[Any]) -> None:
        self.assertSameBits(found[:-1], expected[:-1])
        self.assertEqual(found[-1], expected[-1])

    def test_parts_have_the_bits_of_the_whole(self) -> None:
        for options in GATES:
            _, expected, _ = self.trained(Model(**options), overlap="none")
            self.assertEqual(expected[-1][0]["passes"], 3)
            self.assertGreater(expected[-1][0]["dropped"], 0)
            for parts, overlap in ((2, "experts"), (2, "lancet"), (4, "lancet")):
                with self.subTest(parts=parts, overlap=overlap, **options):
                    net = Model(**options)
                    report, found, _ = self.trained(net, overlap=overlap, parts=parts)
                    self.assertEqual(
                        (report["cut"], report["parts"], report["uncut_because"]), ("block.net", parts, "")
                    )
                    self.assertSame(found, expected)
                    self.assertIs(net.block.net.forward.__func__, Net.forward)

    def test_all_tokens_to_one_expert(self) -> None:
        def crowded() -> Model:
            net = Model(capacity_factor=0.5)
            with torch.no_grad():
                net.block.net.mixtures[1].gate.weight.zero_()  # of equal probabilities the first wins
            return net

        _, expected, _ = self.trained(crowded(), overlap="none", steps=1)
        _, found, _ = self.trained(crowded(), overlap="lancet", parts=4, steps=1)
        self.assertSame(found, expected)
        self.assertEqual(sum(count > 0 for count in expected[-1][1]["by_expert"]), 1)

    def test_batches_that_the_program_cuts_differ(self) -> None:
        net, x = Model(capacity_factor=0.5), batch(self.rank, 32)
        with torch.no_grad():
            whole = net.block.net(x)
            halves = torch.cat([net.block.net(half) for half in x.chunk(2)])
        self.assertTrue(_moe_cut.differs(halves, whole))

    def test_all_to_alls_of_one_part_go_under_the_other(self) -> None:
        names = {"launch": "L", "wait": ".", "weight": ""}
        for parts, expected in ((1, "L.L.L.L."), (2, "LL.L.L.L.L.L.L..")):
            _, _, log = self.trained(Model(), overlap="lancet", parts=parts)
            self.assertEqual("".join(names[one] for one in log), expected)

    def test_the_cut_goes_beyond_the_mixtures(self) -> None:
        wide = Model()
        wide.block.net.mixtures, wide.extra = (
            nn.ModuleList([wide.block.net.mixtures[0]] * 2),
            wide.block.net.mixtures[1],
        )
        names = [name for name, one in wide.named_modules() if isinstance(one, dear.MoE)]
        self.assertEqual(_moe_cut.module_to_cut(wide, names), "")
        self.assertEqual(_moe_cut.module_to_cut(Model(), ["block.net.mixtures.0"]), "block.net")

    def test_arguments_and_contexts_of_each_part(self) -> None:
        def run(parts: int, around: Callable[[], Any]) -> list[Any]:
            net = Model()
            net.block.extra = layer()  # a mixture beside the others: the block is cut, which takes and gives more
            net.block.change = lambda x: net.block.extra(x)
            net.block.around = around
            report, found, _ = self.trained(net, overlap="lancet", parts=parts)
            self.assertEqual((report["parts"], report["uncut_because"]), (parts, ""))
            self.assertEqual(net.block.seen[:3], [32, 32, 32] if parts == 1 else [32, 16, 16])
            return found

        for around in (contextlib.nullcontext, lambda: torch.autocast("cpu", torch.float16)):
            whole, cut = run(1, around), run(2, around)
            self.assertTrue(torch.equal(whole[0], cut[0]))
            self.assertEqual(whole[-1], cut[-1])
            for one, other in zip(whole[1:-1], cut[1:-1]):
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)

    def test_models_that_cannot_be_cut_are_trained_uncut(self) -> None:
        def batch_norm(net: Net) -> None:
            net.between = nn.Sequential(net.between, nn.Flatten(0, 1), nn.BatchNorm1d(WIDTH), nn.Unflatten(0, (-1, 5)))

        def dropout(net: Net) -> None:
            net.last = nn.Sequential(nn.Dropout(0.5), net.last)

        def with_loss(net: Net) -> None:
            net.last = nn.Sequential(net.last, Mean())

        def auxiliary(net: Net) -> None:
            net.last = nn.Sequential(net.last, Auxiliary(net.mixtures))

        def of_batch(net: Net) -> None:
            net.last = nn.Sequential(net.last, nn.Softmax(0))

        def checkpointed(net: Net) -> None:
            net.checkpointed = "plain"

        for change, reason in (
            (batch_norm, "its buffer 'between.2.running_mean' changes"),
            (dropout, "it draws random numbers"),
            (with_loss, "no sample in its first dimension"),
            (auxiliary, "takes the auxiliary loss of a mixture"),
            (of_batch, "not those of the whole batch"),
            (checkpointed, "activations within it are checkpointed"),
        ):
            results = []
            for parts in (1, 2):
                net = Model()
                change(net.block.net)
                torch.manual_seed(self.rank)
                with warnings.catch_warnings(record=True) as told:
                    warnings.simplefilter("always")
                    report, found, _ = self.trained(net, overlap="lancet", parts=parts)
                results.append([*found[:-1], *net.buffers(), found[-1]])
            self.assertIn(reason, report["uncut_because"])
            self.assertEqual(report["parts"], 1)
            said = [str(one.message) for one in told if "is not cut" in str(one.message)]
            self.assertEqual(len(said), 1 if self.rank == 0 else 0)
            self.assertSame(results[1], results[0])

    def test_what_is_refused(self) -> None:
        def refused(pattern: str, call: Callable[[], Any]) -> None:
            with self.assertRaisesRegex(dear.ConfigError, pattern):
                call()

        net = Model()
        optimizer: Any = torch.optim.SGD(net.parameters(), lr=0.1)
        for parts in (0, True, "all", 1.5):
            refused(
                f"parts={parts!r}: give a number",
                lambda: dear.distribute(net, optimizer, overlap="lancet", parts=parts),
            )
        refused("parts=2 of a batch take turns", lambda: dear.distribute(net, optimizer, overlap="none", parts=2))
        model, optimizer = dear.distribute(net, optimizer, overlap="lancet", parts=4)
        refused(
            "rank 2: a batch of 6 samples cannot be cut into 4 equal",
            lambda: model(batch(0, 6 if self.rank == 2 else 8)),
        )
        model(batch(self.rank, 32)).backward()
        optimizer.step()
        mine = self.rank == 1
        reason = "rank 1: 'block.net' is cut into 4 parts, and a batch of 30" if mine else "rank 1 refused its batch"
        refused(reason, lambda: model(batch(0, 30 if mine else 32)))
        model.close()

    def test_compiled_models(self) -> None:
        for parts in (1, 2):
            results = []
            for compiled in (False, True):
                net = Net()
                module: Any = torch.compile(net, backend="eager") if compiled else net
                optimizer: Any = torch.optim.SGD(net.parameters(), lr=0.1)
                model, optimizer = dear.distribute(module, optimizer, overlap="lancet", parts=parts)
                for step in range(2):
                    model(batch(self.rank, 32, step)).square().mean().backward()
                    optimizer.step()
                self.assertEqual(model.overlap_report()["uncut_because"], "")
                model.close()
                results.append(list(net.parameters()))
            self.assertSameBits(results[1], results[0])

    def test_a_part_that_fails_ends_the_pass(self) -> None:
        net, calls = Model(), itertools.count()

        def fails(module: nn.Module, given: Any) -> None:
            if next(calls) == 3:  # two layers in the pass of the whole batch; the second one of the first part
                raise ValueError("as the test wants it")

        for one in (net.block.net.first, net.block.net.between):
            one.register_forward_pre_hook(fails)
        optimizer: Any = torch.optim.SGD(net.parameters(), lr=0.1)
        model, optimizer = dear.distribute(net, optimizer, overlap="lancet", parts=2)
        with self.assertRaisesRegex(ValueError, "as the test wants it"):
            model(batch(self.rank, 32))
        self.assertIsNone(_moe_cut.current())
        model(batch(self.rank, 32)).backward()
        optimizer.step()
        self.assertEqual(model.overlap_report()["parts"], 2)
        model.close()

    def test_the_number_of_parts_with_the_shortest_iterations(self) -> None:
        seconds = {1: 3.0, 2: 1.0, 4: 2.0}
        clock = mock.Mock()
        clock.perf_counter.return_value = 0.0
        net = Model()
        optimizer: Any = torch.optim.SGD(net.parameters(), lr=0.1)
        model, optimizer = dear.distribute(net, optimizer, overlap="lancet", parts="auto")
        tried = []
        with mock.patch.object(_moe_parts, "time", clock):
            for _ in range(38):
                model(batch(self.rank, 32)).backward()
                optimizer.step()
                report = model.overlap_report()
                tried.append(report["parts"])
                clock.perf_counter.return_value += seconds[report["parts"]] * (1 + self.rank)
        self.assertEqual(tried, ([1] * 4 + [2] * 4 + [4] * 4) * 3 + [2, 2])
        self.assertEqual((report["choosing_parts"], report["uncut_because"]), (False, ""))
        model.close()


class Auxiliary(nn.Module):
    def __init__(self, mixtures: Any) -> None:
        super().__init__()
        self.of = lambda: sum(one.auxiliary_loss for one in mixtures)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.of()


class Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean()
