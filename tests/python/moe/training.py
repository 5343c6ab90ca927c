"""Models with mixtures of experts that dear.distribute() trains: cases of moe_test.py."""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Callable
from typing import Any
from unittest import mock

import oracle
import torch
import torch.distributed as dist
from mixtures import DOUBLE, Case, Net, batch, groups, layer
from torch import Tensor, nn

import dear
from dear import _C, _moe_order


class Training(Case):
    """dear.distribute()."""

    def trained(self, group: Any, make: Callable[[Any], Any], steps: int = 4, **options: Any) -> tuple[Any, Any]:
        net = Net(group, DOUBLE, capacity_factor=1.5)
        optimizer = make(net.parameters())
        model, optimizer = dear.distribute(net, optimizer, process_group=group, fusion="2KiB", **options)
        for step in range(steps):
            optimizer.zero_grad()
            self.loss(model, step).backward()
            optimizer.step()
        return model, optimizer

    def loss(self, model: Any, step: int) -> Tensor:
        return model(batch(self.rank, step=step, dtype=DOUBLE)).square().mean() + sum(
            one.auxiliary_loss for one in model.mixtures
        )

    def alone(self, make: Callable[[Any], Any], group: Any, ranks: int, clip: float = 0) -> tuple[list[Tensor], float]:
        """One process, of all ranks' batches: loops over tokens, and PyTorch's optimiser."""
        net = Net(group, DOUBLE, capacity_factor=1.5)
        states = [oracle.leaves(one.whole_state_dict()) for one in net.mixtures]
        linears = [net.first, net.between, net.last]
        parameters = [p for one in linears for p in one.parameters()] + [p for one in states for p in one.values()]
        optimizer = make(parameters)
        first, norm = self.rank - net.mixtures[0].rank, 0.0
        for step in range(4):
            optimizer.zero_grad()
            total: Any = 0
            for rank in range(ranks):
                x = batch(first + rank, step=step, dtype=DOUBLE)
                for linear, state in zip(linears, states):
                    mixed = oracle.mixture(linear(x), state, "switch", 1, 1.5)
                    x, total = x + mixed.output, total + 0.01 * mixed.balance
                total = total + net.last(x).square().mean()
            (total / ranks).backward()
            for parameter in parameters:
                parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            if clip:
                norm = float(nn.utils.clip_grad_norm_(parameters, clip))
            optimizer.step()
        mine = []
        for name, parameter in net.named_parameters():
            if name.startswith("mixtures"):
                _, number, *key = name.split(".")
                whole = states[int(number)][".".join(key)].detach()
                parameter = whole if key[0] == "gate" else oracle.own_part(whole, net.mixtures[0].rank, ranks)
            mine.append(parameter.detach())
        return mine, norm

    def assertTrainsAsAlone(self, model: Any, expected: list[Tensor]) -> None:
        model.close()
        for (name, found), one in zip(model.module.named_parameters(), expected):
            torch.testing.assert_close(
                found.detach(), one, rtol=1e-7, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}"
            )

    def test_as_one_process(self) -> None:
        def adamw(parameters: Any) -> Any:
            return torch.optim.AdamW(parameters, lr=0.01, eps=1e-3)

        for group, ranks in ((None, 4), (groups.pair, 2)):
            expected, _ = self.alone(adamw, group, ranks)
            for options in ({"overlap": "lancet"}, {"policy": "wfbp"}, {"update": "program"}):
                with self.subTest(ranks=ranks, **options):
                    model, _ = self.trained(group, adamw, **options)
                    self.assertTrainsAsAlone(model, expected)

    def test_overlaps_train_with_the_same_bits(self) -> None:
        def sgd(parameters: Any) -> Any:
            return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)

        states = []
        for overlap in ("none", "experts", "lancet"):
            model, _ = self.trained(None, sgd, overlap=overlap)
            states.append([value.clone() for value in model.state_dict().values()])
            report = model.overlap_report()
            self.assertEqual(report["mixtures"], ["mixtures.0", "mixtures.1"])
            self.assertEqual(report["deferred"], ["first", "between", "last"] if overlap == "lancet" else [])
            model.close()
            self.assertIs(type(model.module.first), nn.Linear)
        self.assertSameBits(states[1], states[0])
        self.assertSameBits(states[2], states[0])

    def test_buckets_stay_from_step_to_step(self) -> None:
        net = Net()
        model, optimizer = dear.distribute(net, torch.optim.Adam(net.parameters()), fusion="25MiB")
        places = []
        for step in range(4):
            model(batch(self.rank, step=step)).square().mean().backward()
            optimizer.step()
            model.synchronize()
            places.append(net.first.weight.data_ptr())
        self.assertEqual(places[1:], places[1:2] * 3)
        model.close()

    def test_clipping_counts_each_expert_once(self) -> None:
        def sgd(parameters: Any) -> Any:
            return torch.optim.SGD(parameters, lr=0.1)

        expected, norm = self.alone(sgd, None, 4, clip=0.02)
        for update in ("auto", "program"):
            net = Net(None, DOUBLE, capacity_factor=1.5)
            model, optimizer = dear.distribute(net, sgd(net.parameters()), update=update)
            for step in range(4):
                self.loss(model, step).backward()
                with self.assertRaisesRegex(dear.ConfigError, "optimizer.clip_grad_norm_"):
                    nn.utils.clip_grad_norm_(model.parameters(), 0.02)
                found = optimizer.clip_grad_norm_(0.02)
                optimizer.step()
            self.assertAlmostEqual(float(found), norm, places=9)
            self.assertTrainsAsAlone(model, expected)

    def test_scaled_losses_and_steps_that_are_given_up(self) -> None:
        def run(scaled: bool) -> list[Tensor]:
            net = Net()
            model, optimizer = dear.distribute(net, torch.optim.SGD(net.parameters(), lr=0.1))
            scaler = torch.amp.GradScaler("cpu", init_scale=4.0, enabled=scaled)
            for step in range(3):
                loss = model(batch(self.rank, step=step)).square().mean()
                if scaled and step == 1:  # the gradient of one expert, on one rank
                    scaler.scale(loss).backward()
                    if self.rank == 2:
                        net.mixtures[0].inputs.grad[0, 0, 0] = torch.inf  # type: ignore[index]
                elif step != 1:
                    scaler.scale(loss).backward()
                if scaled or step != 1:
                    scaler.step(optimizer)
                    scaler.update()
            model.close()
            return [parameter.detach() for parameter in net.parameters()]

        for found, expected in zip(run(True), run(False)):
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)

    def test_state_is_saved_loaded_and_carried_to_other_ranks(self) -> None:
        def adam(parameters: Any) -> Any:
            return torch.optim.Adam(parameters, lr=0.01)

        model, optimizer = self.trained(None, adam, steps=2)
        kept = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
        self.assertEqual(len(kept[1]["state"]), len(list(model.parameters())))
        whole = model.mixtures[0].whole_state_dict()
        results = []
        for _ in range(2):
            model.load_state_dict(kept[0])
            optimizer.load_state_dict(kept[1])
            self.loss(model, 9).backward()
            optimizer.step()
            results.append([value.clone() for value in model.state_dict().values()])
        self.assertSameBits(results[0], results[1])
        with self.assertRaisesRegex(dear.ConfigError, "equally many batches"):
            model.join().__enter__()
        model.close()
        self.assertEqual(len(optimizer.state), len(kept[1]["state"]))
        of_pair = layer(groups.pair, DOUBLE)
        of_pair.load_state_dict(whole)
        self.assertTrue(torch.equal(of_pair.inputs, oracle.own_part(whole["inputs"], of_pair.rank, 2)))

    def test_a_checkpoint_goes_on_and_on_other_ranks(self) -> None:
        def adam(parameters: Any) -> Any:
            return torch.optim.Adam(parameters, lr=0.01)

        folder = [tempfile.mkdtemp()] if self.rank == 0 else [None]
        dist.broadcast_object_list(folder)
        path = f"{folder[0]}/last.pt"
        model, optimizer = self.trained(None, adam, steps=2)
        dear.save(path, model, 2)
        whole = [one.whole_state_dict() for one in model.mixtures]
        results = []
        for _ in range(2):
            self.loss(model, 9).backward()
            optimizer.step()
            results.append([value.clone() for value in model.state_dict().values()])
            self.assertEqual(dear.load(path, model), {"step": 2})
        self.assertSameBits(results[1], results[0])
        with self.assertRaisesRegex(dear.ConfigError, "give Checkpoints.. sharded=False"):
            dear.Checkpoints(f"{folder[0]}/shards", model, sharded=True).save(2)
        model.close()

        alone = torch.load(path, weights_only=True)
        names = [name for name, _ in model.module.named_parameters()]
        number = names.index("mixtures.1.outputs")
        for key, value in whole[1].items():
            self.assertTrue(torch.equal(alone["model"][f"mixtures.1.{key}"], value))
        model, optimizer = self.trained(groups.pair, adam, steps=1)
        dear.load(path, model, say=lambda _: None)
        for one, expected in zip(model.mixtures, whole):
            self.assertSameBits(list(one.whole_state_dict().values()), list(expected.values()))
        state = optimizer.state_dict()["state"][number]
        saved = alone["optimizer"]["state"][number]
        self.assertEqual(float(state["step"]), 2)
        self.assertTrue(torch.equal(state["exp_avg"], oracle.own_part(saved["exp_avg"], self.rank % 2, 2)))
        self.loss(model, 9).backward()
        optimizer.step()
        model.close()
        dist.barrier()
        if self.rank == 0:
            shutil.rmtree(folder[0])

    def test_weight_gradients_go_where_they_were_planned(self) -> None:
        # Of two that could go under the longer all-to-all the nearer one in time does. Between its launch and its wait
        # half a second of other work hides as much of it. The third fits under none.
        events = [("ready", 0, 1.0, 0.0), ("ready", 1, 2.0, 0.0), ("launch", 1, 2.5, 0.0), ("wait", 1, 2.5, 0.5)]
        events += [("ready", 2, 0.5, 0.5), ("launch", 0, 1.0, 0.5), ("wait", 0, 1.0, 0.5), ("ready", 3, 5.0, 0.5)]
        self.assertEqual(_C.moe_plan(events), ({1: 1, 0: 0}, 3.0, 3.0))

        def run(overlap: str) -> tuple[Any, list[str]]:
            net, orders = Net(), []
            model, optimizer = dear.distribute(net, torch.optim.SGD(net.parameters(), lr=0.1), overlap=overlap)
            for step in range(7):
                loss = model(batch(self.rank, step=step)).square().mean()
                with _moe_order.recording() as log:
                    loss.backward()
                orders.append("".join({"launch": "L", "wait": ".", "weight": "w"}[one] for one in log))
                optimizer.step()
            return model, orders

        plans: list[Any] = []

        def last(events: Any) -> Any:  # all under the last all-to-all of the backward pass, but for one
            plans.append(events)
            return {**dict.fromkeys(range(1, 9), 0), 7: 1}, 0.5, 0.25

        with mock.patch.object(_C, "moe_plan", last):
            model, orders = run("lancet")
        self.assertEqual(orders[:2], ["Lww.Lww." * 2 + "w"] * 2)
        self.assertEqual(orders[5:], ["L.L.Lw.Lwwwwwww.w"] * 2)
        self.assertEqual((model.overlap_report()["planned"], model.overlap_report()["hidden_seconds"]), (True, 0.25))
        everyone: list[Any] = [None] * 4
        dist.all_gather_object(everyone, plans)
        self.assertEqual(everyone, [plans] * 4)  # gradients of all ranks arrive in one order
        forward = plans.pop(0)
        kinds = [what for what, *_ in plans[0]]
        self.assertEqual([one for one, *_ in forward], ["launch", "wait"] * 4)
        self.assertEqual([len(plans), kinds.count("launch"), kinds.count("wait"), kinds.count("ready")], [1, 4, 4, 9])
        self.assertTrue(all(seconds > 0 for _, _, seconds, _ in plans[0]))
        natural, _ = run("none")
        self.assertSameBits(list(model.state_dict().values()), list(natural.state_dict().values()))
