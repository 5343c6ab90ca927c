"""Training by rounds on four ranks, beside replicas that one process trains by the rule:  rounds_test.py DEAR

Under `DEAR launch` this file is the program of each rank.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
import uuid
from typing import Any

import torch
from torch import Tensor, nn

import dear

RANKS = 4
STEPS = 19


class Net(nn.Module):
    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 24), nn.Tanh(), nn.Linear(24, 3))
        self.spare = nn.Linear(2, 2)
        self.spare.requires_grad_(False)
        self.to(dtype)
        with torch.no_grad():
            for number, one in enumerate(self.parameters()):
                one.copy_(0.4 * torch.sin(number + torch.arange(one.numel(), dtype=dtype)).view_as(one))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def loss_of(model: Any, step: int, replica: int) -> Tensor:
    """Of samples that are another replica's than those of all others."""
    dtype = next(model.parameters()).dtype
    ramp = torch.arange(30, dtype=dtype).view(5, 6)
    x = torch.sin(ramp * (0.37 * replica + 0.11) + 0.7 * step)
    return (model(x) - torch.cos(ramp[:, :3] + 0.3 * step)).square().mean()


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=0.01)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.05)


def train(model: Any, optimizer: Any, replica: int, first: int, last: int) -> None:
    """Steps from `first` on, before `last`, counted from 1."""
    for step in range(first, last):
        loss_of(model, step, replica).backward()
        optimizer.step()
        optimizer.zero_grad()


def values(model: Any) -> dict[str, Tensor]:
    return {name: one.detach().clone() for name, one in model.named_parameters() if one.requires_grad}


def reference(
    rounds: dear.DiLoCo,
    replicas: int,
    steps: int,
    fragments: list[list[str]],
    inner: Any = adamw,
    dtype: Any = torch.float64,
) -> tuple[list[dict[str, Tensor]], dict[str, Tensor]]:
    """The parameters of each replica, and the global ones, by the rule and nothing else."""
    nets = [Net(dtype) for _ in range(replicas)]
    inners = [inner(net) for net in nets]
    of = [dict(net.named_parameters()) for net in nets]
    whole = {name: one.detach().clone() for name, one in of[0].items() if one.requires_grad}
    outers = [None if rounds.outer is None else rounds.outer([whole[name] for name in names]) for names in fragments]
    sent: dict[int, tuple[int, dict[str, Tensor]]] = {}  # by fragment, the step and the mean
    apart = rounds.every // len(fragments)
    for step in range(1, steps + 1):
        for replica, net in enumerate(nets):
            inners[replica].zero_grad()
            loss_of(net, step, replica).backward()
            inners[replica].step()
        with torch.no_grad():
            for number, names in enumerate(fragments):
                if step % rounds.every == (number + 1) * apart % rounds.every:
                    means = {n: sum(whole[n] - one[n] for one in of) / replicas for n in names}
                    sent[number] = step, means
                if number in sent and step == sent[number][0] + rounds.delay:
                    for name in names:
                        whole[name].grad = sent[number][1][name]
                    outer = outers[number]
                    if outer is None:
                        for name in names:
                            whole[name] -= whole[name].grad
                    else:
                        outer.step()
                    for one in of:
                        for name in names:
                            one[name].copy_(rounds.mixing * one[name] + (1 - rounds.mixing) * whole[name])
                    del sent[number]
    return [values(net) for net in nets], whole


class Case(unittest.TestCase):
    group: dear.Group

    @classmethod
    def setUpClass(cls) -> None:
        torch.set_num_threads(1)
        cls.group = dear.init(timeout=60)

    def distribute(
        self, rounds: Any, inner: Any = adamw, dtype: Any = torch.float64, **options: Any
    ) -> tuple[Any, Any]:
        net = Net(dtype)
        with torch.no_grad():  # rank 0's are taken
            for one in net.parameters():
                one.add_(float(self.group.rank))
        return dear.distribute(net, inner(net), process_group=self.group, rounds=rounds, **options)

    def assert_near(self, mine: dict[str, Tensor], theirs: dict[str, Tensor], tolerance: float) -> None:
        self.assertEqual(list(mine), list(theirs))
        for name, one in mine.items():
            difference = (one - theirs[name]).abs().max().item()
            self.assertLessEqual(difference, tolerance, name)


class Rule(Case):
    def test_diloco_is_the_rule(self) -> None:
        for rounds in (
            dear.DiLoCo(every=4),
            dear.DiLoCo(every=6, fragments=3),
            dear.DiLoCo(every=8, fragments=2, delay=3),
            dear.DiLoCo(every=4, delay=2, mixing=0.5),
            dear.DiLoCo(every=5, fragments=5, mixing=1.0),
            dear.DiLoCo(every=4, fragments=2, delay=1, outer=lambda p: torch.optim.AdamW(p, lr=0.02)),
        ):
            with self.subTest(rounds=rounds):
                model, optimizer = self.distribute(rounds)
                train(model, optimizer, self.group.rank, 1, STEPS + 1)
                told = model.overlap_report()["rounds"]
                owns, whole = reference(rounds, RANKS, STEPS, told["fragments"])
                self.assert_near(values(model), owns[self.group.rank], 1e-10)
                with model.global_parameters():
                    self.assert_near(values(model), whole, 1e-10)
                self.assert_near(values(model), owns[self.group.rank], 1e-10)
                self.assertEqual(sorted(sum(told["fragments"], [])), sorted(whole))
                model.close()

    def test_controls_differ(self) -> None:
        """What a wrong implementation would compute is no result of the rule."""
        rounds = dear.DiLoCo(every=4, fragments=2)
        names = [list(values(Net()))[::2], list(values(Net()))[1::2]]
        right, _ = reference(rounds, 2, 8, names)
        turned, _ = reference(
            dear.DiLoCo(every=4, fragments=2, outer=lambda p: torch.optim.SGD(p, lr=0.7, maximize=True)), 2, 8, names
        )
        late, _ = reference(dear.DiLoCo(every=4, fragments=2, delay=1), 2, 8, names)
        for wrong in (turned, late):
            self.assertGreater(max((wrong[0][n] - right[0][n]).abs().max().item() for n in right[0]), 1e-3)

    def test_local_sgd_of_one_step_is_every_step(self) -> None:
        model, optimizer = self.distribute(dear.LocalSGD(every=1), sgd)
        train(model, optimizer, self.group.rank, 1, STEPS + 1)
        by_rounds = values(model)
        model.close()
        model, optimizer = self.distribute(None, sgd)
        train(model, optimizer, self.group.rank, 1, STEPS + 1)
        model.synchronize()
        self.assert_near(by_rounds, values(model), 1e-12)
        model.close()

    def test_replicas_in_bfloat16_meet_in_fp32(self) -> None:
        model, optimizer = self.distribute(dear.LocalSGD(every=3), sgd, torch.bfloat16)
        train(model, optimizer, self.group.rank, 1, 4)
        owns, _ = reference(dear.DiLoCo(every=100, outer=None), RANKS, 3, [[]], sgd, torch.bfloat16)
        for name, one in values(model).items():
            mean = sum(own[name].float() for own in owns) / RANKS
            self.assertLessEqual((one.float() - mean).abs().max().item(), 2**-8 * mean.abs().max().item())
        model.close()

    def test_schedulers_clipping_and_scaling_are_of_own_steps(self) -> None:
        model, optimizer = self.distribute(dear.DiLoCo(every=4), sgd)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.9)
        net = Net()
        alone = sgd(net)
        beside = torch.optim.lr_scheduler.StepLR(alone, step_size=1, gamma=0.9)
        for step in range(1, 4):
            for one, by, rates in ((model, optimizer, scheduler), (net, alone, beside)):
                loss_of(one, step, self.group.rank).backward()
                nn.utils.clip_grad_norm_(one.parameters(), 0.5)
                by.step()
                by.zero_grad()
                rates.step()
        self.assert_near(values(model), values(net), 0)
        loss_of(model, 4, self.group.rank).backward()
        model.discard_step()  # no step of the round
        loss_of(model, 4, self.group.rank).backward()
        self.assertEqual(model.overlap_report()["rounds"]["exchanges"], 0)
        optimizer.step()
        self.assertEqual(model.overlap_report()["rounds"]["exchanges"], 1)
        model.close()


class Traffic(Case):
    def test_between_turns_nothing_is_sent(self) -> None:
        model, optimizer = self.distribute(dear.DiLoCo(every=4, fragments=2))
        seen: list[dear.StepMetrics] = []
        model.on_step(seen.append)
        sent = []
        for step in range(1, 9):
            train(model, optimizer, self.group.rank, step, step + 1)
            sent.append(model.statistics()["bytes"])
        for step in (1, 3, 5, 7):  # turns are at 2, 4, ...
            before = sent[step - 2] if step > 1 else 0
            self.assertEqual(sent[step - 1], before, f"step {step}")
        elements = sum(one.numel() for one in values(model).values())
        padding = 2 * 8 * 8 * RANKS * 8  # lines of tensors, weights and shards
        once = 2 * (RANKS - 1) / RANKS * 8 * elements
        self.assertTrue(2 * once <= sent[-1] <= 2 * once + 2 * padding, f"{sent} {once}")
        self.assertEqual(sum(one.bytes for one in seen), sent[-2])  # a turn's counts with the next step
        self.assertEqual({one.rank for one in seen}, {self.group.rank})
        told = model.overlap_report()["rounds"]
        self.assertEqual(told["bytes_per_step"], sent[-1] / 8)
        self.assertTrue(0 <= told["hidden"] <= 1)
        model.close()

    def test_compressed(self) -> None:
        """In fp32, beside the rule: bf16 rounds, top-k of everything is exact, and feedback forgets nothing."""
        for compression, tolerance in (
            ("bf16,dense-below=1", 2e-2),
            ("top-k:1,dense-below=1", 1e-5),
            ("top-k:0.3,ef,dense-below=1", 1.0),
            ("low-rank:2,ef,dense-below=1", 1.0),
            ("random-block:0.5,ef,dense-below=1", 1.0),
        ):
            with self.subTest(compression):
                rounds = dear.DiLoCo(every=4, fragments=2, delay=1, compression=compression)
                model, optimizer = self.distribute(rounds, dtype=torch.float32)
                train(model, optimizer, self.group.rank, 1, STEPS + 1)
                told = model.overlap_report()["rounds"]
                _, whole = reference(rounds, RANKS, STEPS, told["fragments"], dtype=torch.float32)
                with model.global_parameters():
                    self.assert_near(values(model), whole, tolerance)
                    text = json.dumps([one.tolist() for one in values(model).values()])
                every = dear._C.gather_bytes(self.group, text.encode())
                self.assertEqual(len(set(every)), 1, "global parameters differ")
                model.close()

    def test_feedback_forgets_nothing(self) -> None:
        """Of gradients that stay the same: what came in, and what ranks still keep, is what they have made."""

        def made(rank: int) -> Tensor:
            return torch.sin(torch.arange(64.0) * (rank + 1))

        for compression in ("top-k:0.1,ef,dense-below=1", "random-block:0.2,ef,dense-below=1"):
            net = nn.ParameterDict({"one": nn.Parameter(torch.zeros(64))})
            inner = torch.optim.SGD(net.parameters(), lr=0.25)
            rounds = dear.DiLoCo(every=2, outer=None, compression=compression)
            model, optimizer = dear.distribute(net, inner, process_group=self.group, rounds=rounds)
            for step in range(1, 12):
                (net["one"] * made(self.group.rank)).sum().backward()
                optimizer.step()
                if step == 7:
                    with model.join():  # a round of one step ends, and one without steps
                        pass
            kept = model._rounds.state_dict()["residual/one"]
            every = [
                torch.tensor(json.loads(one))
                for one in dear._C.gather_bytes(self.group, json.dumps(kept.tolist()).encode())
            ]
            with model.global_parameters():
                came = -net["one"].detach()
            mean = sum(made(rank) for rank in range(RANKS)) / RANKS * 0.25 * 11
            torch.testing.assert_close(came + sum(every) / RANKS, mean, rtol=0, atol=1e-5)
            self.assertGreater(kept.abs().max().item(), 0)
            model.close()


class Sites(Case):
    def test_sites_train_in_every_step_and_meet_by_rounds(self) -> None:
        """A site of two on the halves of its batch is one replica on the whole of it."""

        def step_of(model: Any, step: int) -> Tensor:
            dtype = torch.float64
            site, half = divmod(self.group.rank, 2)
            x = torch.sin(torch.arange(24, dtype=dtype).view(4, 6) * (0.37 * site + 0.11) + step)
            return model(x[half::2]).square().mean()

        def whole_of(model: Any, step: int, site: int) -> Tensor:
            x = torch.sin(torch.arange(24, dtype=torch.float64).view(4, 6) * (0.37 * site + 0.11) + step)
            return model(x).square().mean()

        rounds = dear.DiLoCo(every=4, fragments=2, delay=1, inside=2)
        model, optimizer = self.distribute(rounds, fusion="layer")
        for step in range(1, STEPS + 1):
            step_of(model, step).backward()
            optimizer.step()
            optimizer.zero_grad()
        told = model.overlap_report()["rounds"]
        global loss_of
        kept, loss_of = loss_of, whole_of
        try:
            owns, whole = reference(rounds, 2, STEPS, told["fragments"])
        finally:
            loss_of = kept
        model.synchronize()
        self.assert_near(values(model), owns[self.group.rank // 2], 1e-10)
        model.close()
        everyone = dear._C.gather_bytes(
            self.group, json.dumps([v.tolist() for v in values(model.module).values()]).encode()
        )
        self.assertEqual(len(set(everyone)), 1)

    def test_one_site_is_diloco_of_one_replica(self) -> None:
        model, optimizer = self.distribute(dear.DiLoCo(every=2, inside=RANKS))
        train(model, optimizer, 0, 1, 7)
        owns, _ = reference(dear.DiLoCo(every=2), 1, 6, [list(values(model))])
        model.synchronize()
        self.assert_near(values(model), owns[0], 1e-10)
        model.close()


class Join(Case):
    def test_a_replica_without_data_biases_nothing(self) -> None:
        """Rank r makes 5 + 2 r steps: each exchange is a mean over those that made steps in its round."""
        rounds = dear.LocalSGD(every=4)
        lasts = [5 + 2 * rank for rank in range(RANKS)]
        model, optimizer = self.distribute(rounds)
        with model.join():
            train(model, optimizer, self.group.rank, 1, lasts[self.group.rank] + 1)
        nets = [Net() for _ in range(RANKS)]
        inners = [adamw(net) for net in nets]
        for begin in range(0, max(lasts), 4):
            active = [rank for rank in range(RANKS) if lasts[rank] > begin]
            for rank in active:
                train(nets[rank], inners[rank], rank, begin + 1, min(begin + 4, lasts[rank]) + 1)
            with torch.no_grad():
                for each in zip(*(net.parameters() for net in nets)):
                    mean = sum(each[rank] for rank in active) / len(active)
                    for one in each:
                        one.copy_(mean)
        self.assert_near(values(model), values(nets[0]), 1e-12)
        train(model, optimizer, self.group.rank, 20, 25)  # all go on
        model.close()

    def test_fragments_and_delays_end_alike(self) -> None:
        for options in ({"fragments": 2, "delay": 1}, {"inside": 2}):
            model, optimizer = self.distribute(dear.DiLoCo(every=4, **options))
            with dear.join(model):
                train(model, optimizer, self.group.rank, 1, 4 + 3 * self.group.rank)
            text = json.dumps([one.tolist() for one in values(model).values()])
            self.assertEqual(len(set(dear._C.gather_bytes(self.group, text.encode()))), 1, options)
            model.close()


class Checkpoints(Case):
    def check(self, rounds: dear.DiLoCo, saved: int, dtype: Any, folder: bool) -> None:
        model, optimizer = self.distribute(rounds, dtype=dtype)
        train(model, optimizer, self.group.rank, 1, STEPS + 1)
        with model.global_parameters():
            whole = values(model)
        own = values(model)
        model.close()
        name = dear._C.gather_bytes(self.group, tempfile.mkdtemp(dir=os.environ["ROUNDS_TEST"]).encode())[0].decode()
        model, optimizer = self.distribute(rounds, dtype=dtype)
        train(model, optimizer, self.group.rank, 1, saved + 1)
        if folder:
            dear.Checkpoints(name, model).save(saved)
        else:
            dear.save(os.path.join(name, "last.pt"), model, saved)
        model.close()
        model, optimizer = self.distribute(rounds, dtype=dtype)
        train(model, optimizer, self.group.rank, 100, 103)  # to be forgotten
        if folder:
            position = dear.Checkpoints(name, model).resume()
        else:
            position = dear.load(os.path.join(name, "last.pt"), model)
        self.assertEqual(position, {"step": saved})
        train(model, optimizer, self.group.rank, saved + 1, STEPS + 1)
        self.assert_near(values(model), own, 0)
        with model.global_parameters():
            self.assert_near(values(model), whole, 0)
        model.close()

    def test_a_training_goes_on_to_the_bit(self) -> None:
        """Also where an exchange was under way."""
        self.check(dear.DiLoCo(every=6, fragments=2, delay=2, mixing=0.25), 10, torch.float64, False)
        self.check(dear.DiLoCo(every=4), 9, torch.float64, True)
        self.check(dear.DiLoCo(every=4, delay=1, compression="top-k:0.2,ef,dense-below=1"), 9, torch.float32, False)
        self.check(
            dear.DiLoCo(every=4, delay=2, inside=2, compression="low-rank:2,ef,dense-below=1"), 9, torch.float32, True
        )

    def test_of_other_rounds_is_refused(self) -> None:
        name = dear._C.gather_bytes(self.group, tempfile.mkdtemp(dir=os.environ["ROUNDS_TEST"]).encode())[0].decode()
        path = os.path.join(name, "last.pt")
        model, optimizer = self.distribute(dear.DiLoCo(every=4))
        train(model, optimizer, self.group.rank, 1, 6)
        dear.save(path, model, 5)
        model.close()
        model, _ = self.distribute(dear.DiLoCo(every=4, fragments=2))
        with self.assertRaisesRegex(dear.ConfigError, r"\(4, 1, 0, 4, 1\), and these are \(4, 2, 0, 4, 1\)"):
            dear.load(path, model)
        model.close()
        model, optimizer = self.distribute(None)
        train(model, optimizer, 0, 1, 2)
        dear.save(path, model, 1)
        model.close()
        model, _ = self.distribute(dear.DiLoCo(every=4))
        with self.assertRaisesRegex(dear.ConfigError, "replica1|without rounds"):
            dear.load(path, model)
        model.close()


class Refusals(Case):
    def refused(self, saying: str, rounds: Any, error: Any = dear.ConfigError, **options: Any) -> None:
        with self.subTest(saying), self.assertRaisesRegex(error, saying):
            self.distribute(rounds, **options)

    def test_of_arguments_are_one_sentence(self) -> None:
        self.refused("rounds is a int", 64)
        self.refused("every=0", dear.DiLoCo(every=0))
        self.refused("every=2.5", dear.DiLoCo(every=2.5))  # type: ignore[arg-type]
        self.refused("multiple", dear.DiLoCo(every=10, fragments=4))
        self.refused("7 fragments|multiple", dear.DiLoCo(every=14, fragments=7))
        self.refused("delay=5: give 0 to 4", dear.DiLoCo(every=10, fragments=2, delay=5))
        self.refused("mixing=1.5", dear.DiLoCo(mixing=1.5))
        self.refused("mixing=nan", dear.DiLoCo(mixing=float("nan")))
        self.refused("inside=3", dear.DiLoCo(inside=3))
        self.refused("fp64", dear.DiLoCo(compression="bf16"))
        self.refused("top-k", dear.DiLoCo(compression="top-j"), dtype=torch.float32)
        self.refused("sketch", dear.DiLoCo(compression="sketch"), dtype=torch.float32)
        self.refused("momentum", dear.DiLoCo(compression="top-k:0.1,momentum=0.9"), dtype=torch.float32)
        self.refused("outer is a float", dear.DiLoCo(outer=0.7))  # type: ignore[arg-type]
        self.refused("returned a int", dear.DiLoCo(outer=lambda p: 3))  # type: ignore[arg-type, return-value]
        self.refused("other parameters", dear.DiLoCo(outer=lambda p: torch.optim.SGD(p[:1], lr=1.0)))
        self.refused("LBFGS", dear.DiLoCo(outer=lambda p: torch.optim.LBFGS(p)))
        self.refused("give it to the rounds", dear.DiLoCo(), compression="bf16")
        self.refused("buffers='average'", dear.DiLoCo(), buffers="average")
        self.refused("one_copy", dear.DiLoCo(inside=2), one_copy=True)
        self.refused("fp32_masters", dear.DiLoCo(), fp32_masters=True, dtype=torch.bfloat16)
        self.refused("rank", dear.DiLoCo(every=4 + self.group.rank), dear.MismatchError)

    def test_a_model_that_changes(self) -> None:
        model, optimizer = self.distribute(dear.DiLoCo(every=2))
        with self.assertRaisesRegex(dear.ConfigError, "keeps its layers"):
            model.rebuild()
        with self.assertRaisesRegex(dear.ConfigError, "between the rounds"):
            model.on_step(print, ranks="reduced")
        with model.global_parameters(), self.assertRaisesRegex(dear.ConfigError, "global parameters are shown"):
            train(model, optimizer, 0, 1, 2)
        model.close()

    def test_a_parameter_that_is_unfrozen_later(self) -> None:
        model, optimizer = self.distribute(dear.DiLoCo(every=2))
        model.spare.requires_grad_(True)
        optimizer.add_param_group({"params": list(model.spare.parameters())})
        with self.assertRaisesRegex(dear.ConfigError, "other parameters than when the rounds began"):
            train(model, optimizer, 0, 1, 2)
        net = Net()
        model, optimizer = dear.distribute(
            net, torch.optim.SGD(net.parameters(), lr=0.1), process_group=self.group, rounds=dear.DiLoCo(every=2)
        )
        net.spare.requires_grad_(True)
        with self.assertRaisesRegex(dear.ConfigError, "'spare.weight' was frozen"):
            train(model, optimizer, 0, 1, 3)

    def test_memory_is_counted(self) -> None:
        model, optimizer = self.distribute(dear.DiLoCo(every=2))
        train(model, optimizer, 0, 1, 3)
        bytes_of_model = sum(one.nbytes for one in values(model).values())
        told = model.memory()
        self.assertGreaterEqual(told["rounds"], 3 * bytes_of_model)  # global ones, momentum, what travels
        self.assertLess(told["rounds"], 5 * bytes_of_model)
        self.assertGreaterEqual(told["total"], told["rounds"] + bytes_of_model)
        model.close()

    def test_nan_is_named_and_the_round_does_not_count(self) -> None:
        model, optimizer = self.distribute(dear.DiLoCo(every=2))
        with model.global_parameters():
            before = values(model)
        train(model, optimizer, self.group.rank, 1, 2)
        if self.group.rank == 2:
            with torch.no_grad():
                model.layers[2].bias[3] = float("nan")
        with self.assertRaisesRegex(dear.Error, r"rank 2: parameter 'layers\.\d\.(bias|weight)' is NaN"):
            train(model, optimizer, self.group.rank, 2, 3)
        with model.global_parameters():
            self.assert_near(values(model), before, 0)


def killed(rank: int, name: str) -> None:
    """Rank 1 dies before it comes to an exchange, in which the other is."""
    group = dear._C.meet_in_shared_memory(name, rank, 2, 60)
    net = Net()
    model, optimizer = dear.distribute(
        net, adamw(net), process_group=group, rounds=dear.DiLoCo(every=4, fragments=2, delay=1)
    )
    train(model, optimizer, group.rank, 1, 4)
    if group.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        train(model, optimizer, group.rank, 4, 20)
    except dear.TransportError as error:
        assert "rank 1" in str(error), error
        return
    raise AssertionError("nobody missed rank 1")


class Launched(unittest.TestCase):
    def test_on_four_ranks(self) -> None:
        command = [DEAR, "launch", "-n", str(RANKS), "--", sys.executable, "-B", __file__, "RANK", *PARTS]
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "ROUNDS_TEST": folder, "OMP_NUM_THREADS": "1"}
            ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=190)
        self.assertEqual(ended.returncode, 0, ended.stdout[-6000:] + ended.stderr[-6000:])

    def test_a_rank_that_is_killed_in_an_exchange_is_named(self) -> None:
        name = f"rounds-{uuid.uuid4().hex}"
        command = [sys.executable, "-B", __file__, "KILLED"]
        ranks = [subprocess.Popen([*command, str(rank), name], stderr=subprocess.PIPE, text=True) for rank in range(2)]
        said = [rank.communicate(timeout=100)[1] for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0, -signal.SIGKILL], said)


if __name__ == "__main__":
    if sys.argv[1] == "RANK":
        faulthandler.dump_traceback_later(150, exit=True)
        parts = sys.argv[2:] or ["Rule", "Traffic", "Sites", "Join", "Checkpoints", "Refusals"]
        unittest.main(argv=[sys.argv[0], *parts])
    elif sys.argv[1] == "KILLED":
        killed(int(sys.argv[2]), sys.argv[3])
    else:
        DEAR, PARTS = sys.argv[1], sys.argv[2:]
        unittest.main(argv=[sys.argv[0], "Launched"])
