"""What a pipeline refuses, and what it says when a step fails. Cases of pipeline_test.py."""

from __future__ import annotations

import copy
import datetime
import json
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from nets import Case, Drawn, alone, cross_entropy, groups, ids, sgd
from torch import Tensor, nn
from torch.nn import functional

import dear


class Written(nn.Module):
    """Four layers around a forward of a test."""

    def __init__(self, forward: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(*(nn.Linear(4, 4) for _ in range(4)))
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("count", torch.zeros(1))
        self._forward = forward

    def forward(self, x: Tensor) -> Any:
        return self._forward(self, self.layers(x))


class Plain(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x if x.sum() > 0 else x


def without_gradients(net: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        y = x + 1
    return y * x


def autocast(net: Any, x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return net.layers(x)


class Refusals(Case):
    def assertRefused(self, sentence: str, call: Callable[[], Any], error: Any = dear.ConfigError) -> None:
        with self.assertRaisesRegex(error, sentence) as caught:
            call()
        self.assertNotIn("\n", str(caught.exception))

    def made(self, model: nn.Module, **options: Any) -> Callable[[], Any]:
        options = {"sample": torch.ones(8, 4), "micro_batches": None if "plan" in options else 4, **options}
        optimizer = options.pop("optimizer", torch.optim.SGD(list(model.parameters()), lr=0.1))
        return lambda: dear.pipeline(model, optimizer, **options)

    def test_models_that_cannot_be_traced(self) -> None:
        for sentence, forward in (
            ("refusals.py:[0-9]+, in .*control flow", lambda net, x: x if x.sum() > 0 else -x),
            ("refusals.py:[0-9]+", lambda net, x: x * float(x.sum())),
            ("refusals.py:[0-9]+", lambda net, x: x[x.nonzero()]),
            ("gradient mode, inference mode or autocast changes", without_gradients),
            ("autocast changes", autocast),
            ("draws random numbers", lambda net, x: x + torch.randn(4)),
            ("'.*add_.*' changes 'count' in place", lambda net, x: x + net.count.add_(1)),
            ("is called that is no part", lambda net, x: Plain()(x)),
            ("nothing to train", lambda net, x: x.detach() * 2),
        ):
            with self.subTest(sentence):
                self.assertRefused(sentence, self.made(Written(forward)))

    def test_what_is_kept_whole_need_not_be_traced(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), Plain(), nn.Linear(4, 4), nn.Linear(4, 4))
        self.assertRefused("refusals.py:[0-9]+, in '1' .Plain.: .*control flow", self.made(model))
        pipe, _ = dear.pipeline(
            copy.deepcopy(model), sgd(nn.Linear(1, 1)), sample=torch.ones(8, 4), micro_batches=4, leaves=(Plain,)
        )
        self.assertEqual([name for stage in pipe.stages for name in stage], ["0", "1", "2", "3"])
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
        alone(model, x, x, functional.mse_loss, 4)
        pipe.step(x, x, loss=functional.mse_loss)
        self.assertAsAlone(pipe, model, 1e-6)

    def test_in_place_on_the_batch(self) -> None:
        class Shifts(nn.Sequential):
            def forward(self, x: Tensor) -> Tensor:
                return super().forward(x.add_(1))

        self.assertRefused("changes the batch in place", self.made(Shifts(*(nn.Linear(4, 4) for _ in range(4)))))

    def test_models_and_optimisers(self) -> None:
        model = Written(lambda net, x: x)
        wrapped = nn.Sequential(nn.Linear(4, 4), nn.DataParallel(nn.Linear(4, 4)))
        on_meta = nn.Sequential(*(nn.Linear(4, 4, device="meta") for _ in range(4)))
        for sentence, call in (
            ("'1' is a DataParallel", self.made(wrapped)),
            ("the model is a function", lambda: dear.pipeline(print, None, sample=1)),  # type: ignore[arg-type]
            ("the optimiser is a LBFGS", self.made(model, optimizer=torch.optim.LBFGS(model.parameters()))),
            ("on the device meta", self.made(on_meta)),
        ):
            with self.subTest(sentence):
                self.assertRefused(sentence.replace("function", "builtin_function_or_method"), call)
        twice = Written(lambda net, x: net.norm(net.layers(net.norm(x))))
        self.assertRefused("'norm.*' changes buffers", self.made(twice, method="equal-number"))
        stateful = Written(lambda net, x: x)
        stateful.get_extra_state = lambda: {}  # type: ignore[method-assign]
        type(stateful).get_extra_state = lambda _: 1  # type: ignore[method-assign,assignment,misc]
        self.addCleanup(delattr, type(stateful), "get_extra_state")
        self.assertRefused("'_extra_state' .* no parameter or buffer", self.made(stateful))

    def test_arguments(self) -> None:
        model = Written(lambda net, x: x)
        for sentence, options in (
            ("batch of 6 cannot be cut into 4", {"sample": torch.ones(6, 4)}),
            ("batch of 8 cannot be cut into -1", {"micro_batches": -1}),
            ("3 stages cannot be dealt to 4 ranks", {"stages": 3}),
            ("'2f2b'", {"schedule": "2f2b"}),
            ("zb-h1 has one stage", {"schedule": "zb-h1", "stages": 8}),
            ("'half'", {"method": "half"}),
            ("'sometimes'", {"compress": "sometimes:2"}),
            ("compress='top-k:x'", {"compress": "top-k:x"}),
            ("0.5", {"compress": "top-k:0.5"}),
            ("nan", {"compress": "top-k:nan"}),
            ("nowhere.json", {"cluster": "nowhere.json"}),
            ("48 devices, and 4 ranks", {"cluster": "fusionllm-48"}),
            ("cannot run 2 micro-batches on 4 devices", {"schedule": "interleaved", "stages": 8, "micro_batches": 2}),
            ("shapes \\[8, 4\\] and \\[5, 4\\]", {"sample": (torch.ones(8, 4), torch.ones(5, 4))}),
        ):
            with self.subTest(sentence):
                self.assertRefused(sentence, self.made(model, **options))
        self.assertRefused("timeout=0", self.made(model, timeout=0))
        self.assertRefused("process_group is a str", self.made(model, process_group="all"))
        self.assertRefused("fewer|too few|stages", self.made(nn.Linear(4, 4)))

    def test_plans(self) -> None:
        model = Written(lambda net, x: x)
        pipe, _ = self.made(copy.deepcopy(model))()
        plan = json.loads(pipe.plan)

        def changed(**changes: Any) -> dict[str, Any]:
            return {"plan": json.dumps({**plan, **changes})}

        three = [*plan["stages"][:2], {**plan["stages"][3], "operators": ["layers.2", "layers.3"], "warm_up": 1}]
        for sentence, options in (
            ("the plan is of 'Other'", changed(model="Other")),
            ("micro_batches=4 and a plan", {**changed(), "micro_batches": 4}),
            ("batch of 8 cannot be cut into 3", changed(micro_batches=3)),
            ("no device 'moon'", changed(stages=[{**plan["stages"][0], "device": "moon"}, *plan["stages"][1:]])),
            ("operator 'layers.1' is in no stage|'layers.1' comes next", changed(stages=plan["stages"][:1])),
            ("schedule", {"plan": json.dumps({**plan, "schedule": "zb-v"})}),
            ("cannot be read", {"plan": "nowhere.json"}),
            ("cannot be read", {"plan": "{"}),
        ):
            with self.subTest(sentence):
                self.assertRefused(sentence, self.made(copy.deepcopy(model), **options))
        made, _ = self.made(copy.deepcopy(model), **changed(stages=three))()  # a rank without a stage
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
        alone(model, x, x, functional.mse_loss, 4)
        made.step(x, x, loss=functional.mse_loss)
        self.assertAsAlone(made, model, 1e-6)

    def test_ranks_that_differ(self) -> None:
        model = Written(lambda net, x: x if self.rank else x.tanh())
        self.assertRefused("another model or sample", self.made(model), dear.MismatchError)
        sample = torch.ones(8, 4) if self.rank != 2 else torch.ones(6, 4)
        self.assertRefused("batch of 6", self.made(Written(lambda net, x: x), sample=sample))

    def test_batches(self) -> None:
        model = Written(lambda net, x: x)
        pipe, _ = self.made(model)()
        x = torch.ones(8, 4)
        first = 0 in pipe.stages_here
        last = len(pipe.stages) - 1 in pipe.stages_here
        for sentence, given, target, loss in (
            ("is \\[6, 4\\] of torch.float32, where the sample was \\[8, 4\\]", x[:6], x, functional.mse_loss),
            ("is \\[8, 4\\] of torch.float64", x.double(), x, functional.mse_loss),
            ("x is None", None, x, functional.mse_loss),
            ("y has the shape \\[7, 4\\]", x, x[:7], functional.mse_loss),
            ("loss is a str", x, x, "mse"),
        ):
            with self.subTest(sentence):
                self.assertRefused(
                    "rank [0-3]: .*" + sentence,
                    lambda: pipe.step(given if first else x, target if last else x, loss=loss),  # noqa: B023
                )
        model.norm.eval()
        self.assertRefused("'norm' has gone out of training mode", lambda: pipe.step(x, x, loss=functional.mse_loss))
        model.norm.train()
        self.assertTrue(pipe.step(x, x, loss=functional.mse_loss).isfinite())

    def test_states(self) -> None:
        pipe, _ = self.made(Written(lambda net, x: x))()
        state = pipe.state_dict()
        for sentence, given in (
            ("has no 'layers.0.weight'", {name: one for name, one in state.items() if name != "layers.0.weight"}),
            ("what the model has not: 'more'", {**state, "more": torch.ones(1)}),
            ("shape \\[4\\], and that of the model \\[4, 4\\]", {**state, "layers.2.weight": torch.ones(4)}),
        ):
            self.assertRefused(sentence, lambda: pipe.load_state_dict(given))  # noqa: B023


class Failures(Case):
    def test_a_loss_that_raises_ends_the_step_on_all_ranks(self) -> None:
        for bad in ("raises", "no loss"):
            model = Drawn(1)
            x, y = ids(1)
            pipe, _ = dear.pipeline(model, sgd(model), sample=x, micro_batches=4)
            calls = []

            def loss(output: Tensor, target: Tensor) -> Any:
                calls.append(1)  # noqa: B023
                if len(calls) == 2:  # noqa: B023
                    if bad == "raises":  # noqa: B023
                        raise ValueError("a loss of a test")
                    return 3.0
                return cross_entropy(output, target)

            last = len(pipe.stages) - 1 in pipe.stages_here
            error: Any = dear.TransportError if not last else ValueError if bad == "raises" else dear.ConfigError
            with self.assertRaises(error) as caught:
                pipe.step(x, y, loss=loss)
            if not last:
                self.assertRegex(
                    str(caught.exception), "stage [0-3] .* operator '.*' of micro-batch [0-3].* on rank [0-3]"
                )
            with self.assertRaisesRegex(dear.TransportError, "failed in an earlier step"):
                pipe.step(x, y, loss=loss)

    def test_a_wait_has_a_deadline(self) -> None:
        model = Drawn(1)
        x, y = ids(1)
        pipe, _ = dear.pipeline(model, sgd(model), sample=x, micro_batches=4, process_group=groups.pair)
        last = len(pipe.stages) - 1 in pipe.stages_here

        def loss(output: Tensor, target: Tensor) -> Tensor:
            dist.barrier(groups.pair)  # until the other rank has given up
            raise ValueError("a loss of a test")

        if last:
            with self.assertRaisesRegex(ValueError, "a loss of a test"):
                pipe.step(x, y, loss=loss)
        else:
            pipe._made.wire.timeout = datetime.timedelta(milliseconds=50)
            with self.assertRaisesRegex(
                dear.TimeoutError, "stage 0 .* waited for the gradient .* of micro-batch 0 .*deadline"
            ):
                pipe.step(x, y, loss=loss)
            dist.barrier(groups.pair)
