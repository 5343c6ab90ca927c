"""dear.auc, dear.AUCMLoss, dear.DualSampler and dear.CoDA, beside counted pairs, closed forms and the textbook:  auc_test.py DEAR

Under `DEAR launch` this file is the program of each rank.
"""

from __future__ import annotations

import faulthandler
import json
import os
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import dear

RANKS = 2
F64 = torch.float64


def by_pairs(scores: Tensor, labels: Tensor) -> float:
    """AUC as it is defined."""
    above, below = scores[labels == 1][:, None], scores[labels != 1][None]
    return ((above > below).double() + 0.5 * (above == below).double()).mean().item()


def samples(seed: int, count: int, positive: float = 0.3) -> tuple[Tensor, Tensor]:
    """Two classes, each normal with a covariance of its own."""
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(count, generator=generator) < positive).long()
    labels[:2] = torch.tensor([0, 1])
    x = torch.randn(count, 5, generator=generator, dtype=F64)
    x = torch.where(labels[:, None] == 1, x * torch.linspace(0.5, 2, 5, dtype=F64) + 0.6, x)
    return x, labels


def network() -> nn.Module:
    net = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 1)).double()
    with torch.no_grad():
        for number, one in enumerate(net.parameters()):
            one.copy_(0.4 * torch.sin(number + torch.arange(one.numel(), dtype=F64)).view_as(one))
    return net


def linear() -> nn.Module:
    net = nn.Linear(5, 1, bias=False).double()
    nn.init.zeros_(net.weight)
    return net


def saddle(h: Tensor, y: Tensor, a: Tensor, b: Tensor, alpha: Tensor, p: float, margin: float) -> Tensor:
    """The function of CoDA, in the form of LibAUC, sample by sample."""
    total = torch.zeros((), dtype=F64)
    for score, label in zip(h.reshape(-1), y.reshape(-1).tolist()):
        if label == 1:
            total = total + (1 - p) * (score - a) ** 2 - 2 * alpha * (1 - p) * score
        else:
            total = total + p * (score - b) ** 2 + 2 * alpha * p * score
    return total / len(h) + 2 * alpha * p * (1 - p) * margin - p * (1 - p) * alpha**2


Batches = Callable[[int, int], tuple[Tensor, Tensor]]  # of a step, counted over all stages, and a worker


def textbook(
    batches: Batches,
    workers: int,
    every: int,
    stages: list[int],
    *,
    lr: float = 0.1,
    gamma: float = 5.0,
    decay: float = 3.0,
    p: float = 0.5,
    dual_batches: int = 1,
) -> list[float]:
    """CoDA in one process, by its pseudocode: the model, a, b and alpha after whole stages, each with its alpha."""
    net = network()
    shapes = [one.shape for one in net.parameters()]
    sizes = [shape.numel() for shape in shapes]

    def scores_of(v: Tensor, x: Tensor) -> Tensor:
        w1, b1, w2, b2 = (part.view(shape) for part, shape in zip(v[:-2].split(sizes), shapes))
        return (torch.tanh(x @ w1.T + b1) @ w2.T + b2).view(-1)

    start = torch.cat([one.detach().reshape(-1) for one in net.parameters()])
    reference = torch.cat([start, torch.zeros(2, dtype=F64)])
    alpha = 1.0
    step = 0
    for number, length in enumerate(stages):
        eta = lr / decay**number
        v = [reference.clone() for _ in range(workers)]
        dual = [alpha] * workers
        total = torch.zeros_like(reference)
        for t in range(1, length + 1):
            for k in range(workers):
                x, y = batches(step, k)
                at = v[k].clone().requires_grad_(True)
                up = torch.tensor(dual[k], dtype=F64, requires_grad=True)
                saddle(scores_of(at, x), y, at[-2], at[-1], up, p, 1.0).backward()
                v[k] = (v[k] / eta + reference / gamma - at.grad) / (1 / eta + 1 / gamma)
                dual[k] += eta * up.grad.item()
                total += v[k]
            step += 1
            if t % every == 0 or t == length:
                v = [sum(v) / workers] * workers
                dual = [sum(dual) / workers] * workers
        reference = total / (workers * length)
        fresh = [batches(step + i, k) for i in range(dual_batches) for k in range(workers)]
        h, y = torch.cat([scores_of(reference, x) for x, _ in fresh]), torch.cat([y for _, y in fresh])
        alpha = (1.0 + h[y != 1].mean() - h[y == 1].mean()).item()
        step += dual_batches
    return [*reference.tolist(), alpha]


def batch_of(step: int, worker: int) -> tuple[Tensor, Tensor]:
    """Half of it positive."""
    x, _ = samples(100 * step + worker, 6)
    return x + 0.8 * torch.tensor([1, 0, 1, 0, 1, 0])[:, None], torch.tensor([1, 0, 1, 0, 1, 0])


def union_of(step: int, _: int) -> tuple[Tensor, Tensor]:
    halves = [batch_of(step, worker) for worker in range(RANKS)]
    return torch.cat([x for x, _ in halves]), torch.cat([y for _, y in halves])


class Job:
    def __init__(self, net: nn.Module, *, loss: Any = None, group: Any = None, **options: Any) -> None:
        self.net = net
        self.loss = loss or dear.AUCMLoss(imratio=0.5, dtype=F64)
        options = {"epoch_decay": 0.2, **options}
        self.optimizer = dear.CoDA(net.parameters(), self.loss, process_group=group, **options)

    def train(self, batches: Batches, first: int, last: int, worker: int) -> None:
        for step in range(first, last):
            x, y = batches(step, worker)
            self.optimizer.zero_grad()
            self.loss(self.net(x), y).backward()
            self.optimizer.step()

    def values(self) -> list[float]:
        every = [*self.net.parameters(), self.loss.a, self.loss.b, self.loss.alpha]
        return torch.cat([one.detach().reshape(-1) for one in every]).tolist()


class Case(unittest.TestCase):
    def assert_near(self, one: list[float], other: list[float], tolerance: float) -> None:
        self.assertEqual(len(one), len(other))
        self.assertLessEqual(max(abs(x - y) for x, y in zip(one, other)), tolerance)

    def refused(self, sentence: str, act: Callable[[], Any], kind: type = dear.ConfigError) -> None:
        with self.assertRaisesRegex(kind, sentence):
            act()


class Loss(Case):
    def test_is_the_function_and_so_are_its_gradients(self) -> None:
        """Beside what is written sample by sample, and the derivatives by pencil."""
        x, y = samples(1, 40)
        h = x[:, 0].clone()
        for p, imratio in ((0.2, 0.2), (y.double().mean().item(), None)):
            loss = dear.AUCMLoss(margin=0.7, imratio=imratio, dtype=F64)
            with torch.no_grad():
                loss.a.fill_(0.3), loss.b.fill_(-0.4), loss.alpha.fill_(0.9)
            scores = h.clone().view(-1, 1).requires_grad_(True)
            value = loss(scores, y)
            value.backward()
            self.assertEqual(value.shape, ())
            expected = saddle(h, y, torch.tensor(0.3), torch.tensor(-0.4), torch.tensor(0.9), p, 0.7)
            self.assertAlmostEqual(value.item(), expected.item(), delta=1e-7)  # 0.3 in fp32
            one, other, n = (y == 1).double(), (y != 1).double(), len(y)
            by_h = 2 * (1 - p) * (h - 0.3 - 0.9) * one + 2 * p * (h + 0.4 + 0.9) * other
            self.assert_near(scores.grad.view(-1).tolist(), (by_h / n).tolist(), 1e-12)
            self.assertAlmostEqual(loss.a.grad.item(), (-2 * (1 - p) * (h - 0.3) * one).mean().item(), delta=1e-12)
            self.assertAlmostEqual(loss.b.grad.item(), (-2 * p * (h + 0.4) * other).mean().item(), delta=1e-12)
            by_alpha = (2 * (p * h * other - (1 - p) * h * one)).mean() + 2 * p * (1 - p) * (0.7 - 0.9)
            self.assertAlmostEqual(loss.alpha.grad.item(), by_alpha.item(), delta=1e-12)

    def test_at_the_best_a_b_and_alpha_it_is_the_loss_of_pairs(self) -> None:
        x, y = samples(2, 60)
        p = y.double().mean().item()
        for version, factor in (("v1", p * (1 - p)), ("v2", 1.0)):
            net = network()
            loss = dear.AUCMLoss(margin=0.8, version=version, dtype=F64)
            h = net(x).view(-1)
            mine, others = h[y == 1], h[y != 1]
            with torch.no_grad():
                loss.a.copy_(mine.mean()), loss.b.copy_(others.mean())
                loss.alpha.copy_(0.8 + others.mean() - mine.mean())
            value = loss(h, 2 * y - 1)  # labels -1 and 1
            pairs = factor * (0.8 - mine[:, None] + others[None]).square().mean()
            self.assertAlmostEqual(value.item(), pairs.item(), delta=1e-14)
            gradients = torch.autograd.grad(pairs, list(net.parameters()), retain_graph=True)
            value.backward()
            for one, expected in zip(net.parameters(), gradients):
                torch.testing.assert_close(one.grad, expected, rtol=0, atol=1e-13)
            for one in (loss.a, loss.b, loss.alpha):
                self.assertLess(abs(one.grad.item()), 1e-14)

    def test_the_closed_form_of_a_linear_score_is_its_saddle_point(self) -> None:
        x, y = samples(3, 200)
        above, below = x[y == 1], x[y != 1]
        between = above.mean(0) - below.mean(0)
        within = torch.cov(above.T, correction=0) + torch.cov(below.T, correction=0)
        w = torch.linalg.solve(within + torch.outer(between, between), between)
        loss, net = dear.AUCMLoss(dtype=F64), linear()
        with torch.no_grad():
            net.weight.copy_(w)
            loss.a.copy_(w @ above.mean(0)), loss.b.copy_(w @ below.mean(0))
            loss.alpha.copy_(1 + loss.b - loss.a)
        best = loss(net(x), y)
        best.backward()
        for one in (net.weight, *loss.parameters()):
            self.assertLess(one.grad.abs().max().item(), 1e-14)
        with torch.no_grad():
            loss.alpha += 0.1
            self.assertLess(loss(net(x), y).item(), best.item())
            loss.alpha -= 0.1
            loss.a += 0.1
            self.assertGreater(loss(net(x), y).item(), best.item())

    def test_refuses(self) -> None:
        loss, h = dear.AUCMLoss(), torch.zeros(3)
        self.refused("no positive sample", lambda: loss(h, torch.zeros(3)))
        self.refused("no negative sample", lambda: loss(h, torch.ones(3)))
        self.refused("no sample", lambda: dear.AUCMLoss(imratio=0.5)(h[:0], h[:0]))
        self.refused("1 of 3 labels are none of", lambda: loss(h, torch.tensor([0, 1, 2])))
        self.refused("1 labels are 0 and 1 are -1", lambda: loss(h, torch.tensor([0, 1, -1])))
        self.refused("3 scores and 2 labels", lambda: loss(h, torch.tensor([0, 1])))
        self.refused("scores are on meta", lambda: loss(h.to("meta"), torch.tensor([0, 1, 1])))
        self.refused("imratio=1", lambda: dear.AUCMLoss(imratio=1))
        self.refused("margin=0", lambda: dear.AUCMLoss(margin=0))
        self.refused('give "v1" or "v2"', lambda: dear.AUCMLoss(version="v3"))
        self.assertTrue(dear.AUCMLoss(imratio=0.5)(h, torch.ones(3)).isfinite())  # p tells what is missing


class Auc(Case):
    def test_is_what_pairs_say(self) -> None:
        generator = torch.Generator().manual_seed(5)
        for count in (2, 3, 17, 400):
            for values in (3, 40, 10**6):  # many ties, and hardly any
                for positive in (0.2, 0.8):
                    scores = torch.randint(values, (count,), generator=generator).double() / 7
                    labels = (torch.rand(count, generator=generator) < positive).long()
                    labels[:2] = torch.tensor([0, 1])
                    self.assertAlmostEqual(dear.auc(scores, labels), by_pairs(scores, labels), delta=1e-14)

    def test_other_forms_of_input(self) -> None:
        self.assertEqual(dear.auc([0.5, 2.0, 1.0], [False, True, False]), 1.0)
        self.assertEqual(dear.auc(torch.tensor([[1.0], [1.0]]).numpy(), [-1, 1]), 0.5)
        self.assertEqual(dear.auc(torch.tensor([float("inf"), -float("inf")]), torch.tensor([0.0, 1.0])), 0.0)

    def test_refuses(self) -> None:
        self.refused("rank 0: auc: 1 of 2 scores are NaN", lambda: dear.auc([float("nan"), 1], [0, 1]))
        self.refused("no positive sample", lambda: dear.auc([1, 2], [0, 0]))
        self.refused("no negative sample", lambda: dear.auc([1, 2], [1, 1]))
        self.refused("labels are none of", lambda: dear.auc([1, 2], [3, 1]))
        self.refused("are 0 and 1 are -1", lambda: dear.auc([1, 2, 3], [0, 1, -1]))


class Sampler(Case):
    def labels(self) -> Tensor:
        return (torch.arange(103) % 10 == 0).long()  # 11 positive

    def test_batches_have_both_classes_and_deal_out_all_samples(self) -> None:
        labels = self.labels()
        dataset = torch.utils.data.TensorDataset(torch.arange(103), labels)
        sampler = dear.DualSampler(dataset, 10, num_pos=3)
        seen = [index.tolist() for index, _ in torch.utils.data.DataLoader(dataset, 10, sampler=sampler)]
        self.assertEqual(len(seen), 92 // 7)
        self.assertEqual(len(sampler), 10 * len(seen))
        for batch in seen:
            self.assertEqual(int(labels[batch].sum()), 3)
        drawn = [index for batch in seen for index in batch]
        negatives = [index for index in drawn if labels[index] == 0]
        self.assertEqual(len(negatives), len(set(negatives)))
        positives = [index for index in drawn if labels[index] == 1]
        for start in range(0, len(positives) - 10, 11):  # all before any again
            self.assertEqual(len(set(positives[start : start + 11])), 11)

    def test_ranks_draw_together_what_one_draws(self) -> None:
        labels, several, epochs = self.labels(), [], range(2)
        one = dear.DualSampler(None, 12, labels=labels, sampling_rate=0.5)
        for rank in range(3):
            several.append(dear.DualSampler(None, 4, labels=labels, rank=rank, num_replicas=3))
        orders = []
        for epoch in epochs:
            whole = torch.tensor(list(one)).view(-1, 12)
            orders.append(whole.tolist())
            parts = torch.cat([torch.tensor(list(each)).view(-1, 4) for each in several], dim=1)
            self.assertEqual(parts.sort(dim=1).values.tolist(), whole.sort(dim=1).values.tolist())
        self.assertNotEqual(*orders)
        one.set_epoch(0)
        self.assertEqual(list(one), [index for batch in orders[0] for index in batch])

    def test_refuses(self) -> None:
        labels = self.labels()
        self.refused("has no positive sample", lambda: dear.DualSampler(None, 4, labels=[0, 0, 0]))
        self.refused("say the same", lambda: dear.DualSampler(None, 4, labels=labels, num_pos=1, sampling_rate=0.5))
        self.refused("batch_size=1", lambda: dear.DualSampler(None, 1, labels=labels))
        self.refused("num_pos=4", lambda: dear.DualSampler(None, 4, labels=labels, num_pos=4))
        self.refused("sampling_rate=1", lambda: dear.DualSampler(None, 4, labels=labels, sampling_rate=1.0))
        self.refused("does not tell its labels", lambda: dear.DualSampler([1, 2], 4))
        self.refused("go together", lambda: dear.DualSampler(None, 4, labels=labels, rank=0))
        self.refused("rank=2", lambda: dear.DualSampler(None, 4, labels=labels, rank=2, num_replicas=2))


class OneProcess(Case):
    def test_is_the_textbook(self) -> None:
        job = Job(network(), stage_steps=4, growth=2.0, dual_batches=2)
        job.train(batch_of, 0, 4 + 2 + 8 + 2 + 16 + 2, 0)
        expected = textbook(batch_of, 1, 1, [4, 8, 16], dual_batches=2)
        self.assert_near(job.values(), expected, 1e-10)
        self.assertEqual(job.optimizer.report()["stage"], 3)
        self.assertAlmostEqual(job.optimizer.report()["lr"], 0.1 / 27)
        for wrong in (
            textbook(batch_of, 1, 1, [4, 8, 15], dual_batches=2),
            textbook(batch_of, 1, 1, [4, 8, 16], dual_batches=2, gamma=5.1),
            textbook(batch_of, 1, 1, [4, 8, 16], dual_batches=2, decay=2.9),
        ):
            self.assertGreater(max(abs(x - y) for x, y in zip(job.values(), wrong)), 1e-6)

    def test_goes_on_from_a_state(self) -> None:
        whole = Job(network(), stage_steps=4, growth=1.5)
        whole.train(batch_of, 0, 17, 0)
        for stop in (2, 4, 7):  # in a stage, before its alpha, and in the next one
            before = Job(network(), stage_steps=4, growth=1.5)
            before.train(batch_of, 0, stop, 0)
            after = Job(network(), stage_steps=4, growth=1.5)
            after.net.load_state_dict(before.net.state_dict())
            after.loss.load_state_dict(before.loss.state_dict())
            after.optimizer.load_state_dict(before.optimizer.state_dict())
            after.train(batch_of, stop, 17, 0)
            self.assertEqual(after.values(), whole.values())
        self.refused("another optimiser", lambda: whole.optimizer.load_state_dict({"state": {}, "param_groups": []}))

    def test_clips_and_decays_as_it_says(self) -> None:
        net = linear()
        with torch.no_grad():
            net.weight.fill_(2.0)
        job = Job(net, lr=0.5, clip_value=0.25, weight_decay=0.1, epoch_decay=0.0)
        net.weight.grad = torch.tensor([[1.0, -1.0, 0.1, 0.0, 0.25]], dtype=F64)
        job.optimizer.step()
        steps = [0.25, -0.25, 0.1, 0.0, 0.25]
        self.assert_near(net.weight.detach().view(-1).tolist(), [2 - 0.5 * (one + 0.2) for one in steps], 1e-15)

    def test_rounds_grow_as_steps_get_smaller(self) -> None:
        job = Job(network(), lr=0.05, stage_steps=2, growth=1.0)
        periods = []
        for _ in range(4):
            periods.append(job.optimizer.report()["every"])
            job.train(batch_of, 0, 3, 0)
        self.assertEqual(periods, [4, 7, 13, 23])  # 1 / sqrt(lr), rounded down

    def test_stages_that_end_by_hand(self) -> None:
        job = Job(network(), stage_steps=100)
        job.train(batch_of, 0, 5, 0)
        job.optimizer.update_regularizer(decay_factor=10)
        self.assert_near(job.values()[:-1], textbook(batch_of, 1, 1, [5])[:-1], 1e-10)
        self.assertAlmostEqual(job.optimizer.report()["lr"], 0.01)
        at = job.values()
        job.optimizer.end_stage()  # has ended
        self.assertEqual(job.values(), at)

    def test_refuses(self) -> None:
        for sentence, options in (
            ("every=0", {"every": 0}),
            ("stage_steps=1.5", {"stage_steps": 1.5}),
            ("dual_batches=0", {"dual_batches": 0}),
            ("decay=0.5", {"decay": 0.5}),
            ("growth=inf", {"growth": float("inf")}),
            ("lr=-1", {"lr": -1}),
            ("lr=4 makes alpha diverge.*less than 4", {"lr": 4}),
            ("clip_value=0", {"clip_value": 0}),
            ("epoch_decay=-1", {"epoch_decay": -1}),
            ("weight_decay=nan", {"weight_decay": float("nan")}),
            ("lr=1 makes", {"lr": 1, "loss": dear.AUCMLoss(version="v2")}),
            ("loss_fn is a MSELoss", {"loss": nn.MSELoss()}),
        ):
            self.refused(sentence, lambda: Job(network(), **options))
        self.refused("float16", lambda: Job(network().half()))
        self.refused("there are no parameters", lambda: Job(nn.Identity()))
        job = Job(network())
        self.refused("do not join", lambda: job.optimizer.add_param_group({"params": []}))

    def test_an_imratio_that_is_not_that_of_batches(self) -> None:
        job = Job(network(), loss=dear.AUCMLoss(imratio=0.1, dtype=F64), stage_steps=3)
        self.refused("imratio=0.1 and 0.5 of the samples", lambda: job.train(batch_of, 0, 3, 0))
        job = Job(network(), loss=dear.AUCMLoss(imratio=0.1, dtype=F64), stage_steps=1)
        x, y = batch_of(0, 0)
        job.loss(job.net(x), y, auto=True).backward()  # of the batch
        job.optimizer.step()
        self.assertEqual(job.optimizer.report()["stage"], 1)

    def test_batches_without_a_class_at_the_end_of_a_stage(self) -> None:
        job = Job(network(), stage_steps=1, growth=1.0)
        x, y = batch_of(0, 0)
        job.train(batch_of, 0, 1, 0)
        alpha = job.loss.alpha.item()
        job.train(lambda *_: (x[y == 1], y[y == 1]), 0, 3, 0)
        self.assertEqual(job.loss.alpha.item(), alpha)
        job.train(lambda *_: (x[y == 0], y[y == 0]), 0, 1, 0)
        h = job.net(x).view(-1)
        three = (h[y == 1].mean() * 3 * 3) / 9
        self.assertAlmostEqual(job.loss.alpha.item(), (1 + h[y == 0].mean() - three).item(), delta=1e-12)
        job.train(batch_of, 0, 1, 0)  # the next stage
        with self.assertRaisesRegex(dear.ConfigError, "100 batches of all ranks had no negative sample"):
            job.train(lambda *_: (x[y == 1], y[y == 1]), 0, 101, 0)


class OnRanks(Case):
    group: Any

    @classmethod
    def setUpClass(cls) -> None:
        torch.set_num_threads(1)
        cls.group = dear.init(timeout=60)
        cls.rank = cls.group.rank

    def both(self, mine: Any) -> list[Any]:
        return [json.loads(one) for one in dear._C.gather_bytes(self.group, json.dumps(mine).encode())]

    def test_auc_of_uneven_ranks(self) -> None:
        for first, values, seed in ((150, 20, 1), (3, 10**6, 2), (200, 5, 3)):  # of 200: rank 1 has none
            generator = torch.Generator().manual_seed(seed)
            scores = torch.randint(values, (200,), generator=generator).float()
            labels = (torch.rand(200, generator=generator) < (0.1 if seed % 2 else 0.9)).int()
            mine = slice(0, first) if self.rank == 0 else slice(first, 200)
            got = dear.auc(scores[mine], labels[mine], process_group=self.group)
            self.assertAlmostEqual(got, by_pairs(scores, labels), delta=1e-14)
            self.assertEqual(self.both(got), [got] * RANKS)

    def test_auc_refuses_on_every_rank(self) -> None:
        def of(scores: list[float], labels: list[int]) -> None:
            self.refused(sentence, lambda: dear.auc(scores, labels, process_group=self.group))

        sentence = "rank 1: auc: 1 of 2 scores are NaN"
        of([1.0, float("nan") if self.rank == 1 else 2.0], [0, 1])
        sentence = "all ranks together have no positive"
        of([1.0], [0])
        sentence = "1 labels are 0 and 1 are -1"
        of([1.0, 2.0], [1, -self.rank])

    def test_is_the_textbook_with_rounds(self) -> None:
        for every in (1, 3, 8):
            job = Job(network(), group=self.group, every=every, stage_steps=5, growth=2.0)
            job.train(batch_of, 0, 5 + 1 + 10 + 1, self.rank)
            self.assert_near(job.values(), textbook(batch_of, RANKS, every, [5, 10]), 1e-10)
            self.assertEqual(self.both(job.values()), [job.values()] * RANKS)
            self.assertEqual(job.optimizer.report()["rounds"], -(-5 // every) + -(-10 // every))

    def test_rounds_of_one_step_are_one_process_on_the_union(self) -> None:
        for loss, options in (
            (dear.AUCMLoss(imratio=0.5, dtype=F64), {}),
            (dear.AUCMLoss(dtype=F64), {"weight_decay": 0.01}),
            (dear.AUCMLoss(version="v2", dtype=F64), {"epoch_decay": 0.0}),
        ):
            kept = {name: one.clone() for name, one in loss.state_dict().items()}
            job = Job(network(), loss=loss, group=self.group, every=1, stage_steps=6, growth=1.5, **options)
            job.train(batch_of, 0, 30, self.rank)
            job.optimizer.end_stage()
            mine = job.values()
            alone = dear._C.meet_in_shared_memory(f"auc-alone-{os.getpid()}", 0, 1, 60)
            loss.load_state_dict(kept)
            one = Job(network(), loss=loss, group=alone, every=1, stage_steps=6, growth=1.5, **options)
            one.train(union_of, 0, 30, 0)
            one.optimizer.end_stage()
            self.assert_near(mine, one.values(), 1e-10)

    def test_ranks_begin_as_the_first(self) -> None:
        net = network()
        with torch.no_grad():
            for one in net.parameters():
                one.add_(self.rank)
        job = Job(net, group=self.group)
        self.assertEqual(job.values()[:-3], Job(network(), group=self.group).values()[:-3])

    def test_the_same_auc_in_far_fewer_rounds(self) -> None:
        x, y = samples(11, 4000, 0.1)
        dataset = torch.utils.data.TensorDataset(x, y)
        ended = {}
        for every in (1, 8, 32):
            sampler = dear.DualSampler(dataset, 16, process_group=self.group)
            job = Job(linear(), group=self.group, every=every, stage_steps=320, growth=1.0, lr=0.1, epoch_decay=2e-3)
            while job.optimizer.report()["stage"] < 3:
                for chosen in torch.tensor(list(sampler)).view(-1, 16):
                    job.optimizer.zero_grad()
                    job.loss(job.net(x[chosen]), y[chosen]).backward()
                    job.optimizer.step()
                    if job.optimizer.report()["stage"] == 3:
                        break
            with torch.no_grad():
                scores = job.net(x[self.rank :: RANKS])
            ended[every] = dear.auc(scores, y[self.rank :: RANKS], process_group=self.group)
            self.assertEqual(job.optimizer.report()["rounds"], 960 // every)
        above, below = x[y == 1], x[y != 1]
        between = above.mean(0) - below.mean(0)
        within = torch.cov(above.T, correction=0) + torch.cov(below.T, correction=0)
        best = by_pairs(x @ torch.linalg.solve(within + torch.outer(between, between), between), y)
        for every, got in ended.items():
            self.assertAlmostEqual(got, ended[1], delta=1e-3, msg=str(ended))
            self.assertAlmostEqual(got, best, delta=3e-3, msg=str(ended))

    def test_what_differs_is_told_to_every_rank(self) -> None:
        def make(**options: Any) -> Callable[[], Job]:
            return lambda: Job(network(), group=self.group, **options)

        self.refused("dual_batches.* on rank 1", make(every=1 + self.rank), dear.MismatchError)
        self.refused("groups", make(lr=0.1 + self.rank), dear.MismatchError)
        self.refused("rank 1: CoDA: every=0", make(every=1 - self.rank))
        self.refused(
            "CoDA has parameters",
            lambda: Job(network() if self.rank else linear(), group=self.group),
            dear.MismatchError,
        )
        sentence = "the DualSampler has their digest"
        labels = [0, 1, 0, 1] if self.rank else [0, 1, 1, 0]
        self.refused(
            sentence, lambda: dear.DualSampler(None, 2, labels=labels, process_group=self.group), dear.MismatchError
        )
        job = make(every=50)()
        job.train(batch_of, 0, 2 + self.rank, self.rank)
        self.refused("the stage of CoDA has steps 2 on rank 0 and 3", job.optimizer.end_stage, dear.MismatchError)

    def test_nan_is_named_on_every_rank(self) -> None:
        job = Job(network(), group=self.group, every=2)
        job.train(batch_of, 0, 1, self.rank)
        if self.rank == 1:
            with torch.no_grad():
                job.net[2].bias.fill_(float("nan"))
        self.refused("rank 1: parameter 0 is NaN", lambda: job.train(batch_of, 1, 2, self.rank), dear.Error)
        job = Job(network(), group=self.group, stage_steps=1)
        job.train(batch_of, 0, 1, self.rank)
        x, y = batch_of(1, 0)
        x[0] += float("nan") if self.rank == 1 else 0.0
        self.refused("scores of a rank are NaN", lambda: job.train(lambda *_: (x, y), 0, 1, 0), dear.Error)

    def test_a_class_that_one_rank_lacks(self) -> None:
        """Sums over ranks, no mean of means."""
        job = Job(network(), group=self.group, stage_steps=1)
        job.train(batch_of, 0, 1, self.rank)
        x, y = batch_of(5, 0)
        mine = (y == 1) if self.rank == 1 else torch.arange(6) < 5
        h = job.net(x).view(-1).detach()
        every = torch.cat([h[:5], h[y == 1]]), torch.cat([y[:5], y[y == 1]])
        job.train(lambda *_: (x[mine], y[mine]), 0, 1, self.rank)
        expected = 1 + every[0][every[1] == 0].mean() - every[0][every[1] == 1].mean()
        self.assertAlmostEqual(job.loss.alpha.item(), expected.item(), delta=1e-12)

    def test_process_groups_of_torch_do_the_same(self) -> None:
        job = Job(network(), group=self.group, every=3, stage_steps=7)
        job.train(batch_of, 0, 12, self.rank)
        path = os.path.join(os.environ["AUC_TEST"], "store")
        dist.init_process_group("gloo", store=dist.FileStore(path, RANKS), rank=self.rank, world_size=RANKS)
        try:
            other = Job(network(), every=3, stage_steps=7)
            other.train(batch_of, 0, 12, self.rank)
            self.assert_near(other.values(), job.values(), 1e-14)
            scores = torch.tensor([1.0, 2.0]) + self.rank
            self.assertEqual(dear.auc(scores, [0, 1]), 0.875)
        finally:
            dist.destroy_process_group()

    def test_the_ranks_of_the_launcher(self) -> None:
        self.assertEqual(dear.auc([1.0, 2.0 + self.rank], [0, 1]), dear.auc([1.0], [self.rank]) + 0.5)


class Launched(unittest.TestCase):
    def test_on_two_ranks(self) -> None:
        command = [DEAR, "launch", "-n", str(RANKS), "--", sys.executable, "-B", __file__, "RANK", *PARTS]
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "AUC_TEST": folder, "OMP_NUM_THREADS": "1"}
            ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110)
        self.assertEqual(ended.returncode, 0, ended.stdout[-6000:] + ended.stderr[-6000:])


if __name__ == "__main__":
    if sys.argv[1] == "RANK":
        faulthandler.dump_traceback_later(100, exit=True)
        unittest.main(argv=[sys.argv[0], *(sys.argv[2:] or ["OnRanks"])])
    else:
        DEAR, PARTS = sys.argv[1], sys.argv[2:]
        alone = ["Loss", "Auc", "Sampler", "OneProcess"]
        unittest.main(argv=[sys.argv[0], *([] if PARTS else alone), "Launched"])
