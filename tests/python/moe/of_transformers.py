"""Mixtures of the package transformers, whose experts are shared out to the ranks: cases of moe_test.py."""

from __future__ import annotations

import copy
from typing import Any

import oracle
import torch
import transformers
from mixtures import Case, groups
from torch import Tensor, nn

import dear

SIZES: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 32,
    "use_cache": False,
}


def deepseek() -> Any:
    """Shared experts, a dense layer before the mixtures, groups of experts."""
    mixture = {"n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 12, "n_shared_experts": 1}
    groups_of_experts = {"n_group": 2, "topk_group": 1, "first_k_dense_replace": 1}
    heads = {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8}
    sizes = {name: size for name, size in SIZES.items() if name != "head_dim"}
    return transformers.DeepseekV3Config(**sizes, **mixture, **groups_of_experts, **heads)


CONFIGURATIONS: dict[str, Any] = {
    "mixtral": lambda: transformers.MixtralConfig(num_local_experts=4, num_experts_per_tok=2, **SIZES),
    # Transposed weights, biases, a router with a bias.
    "gpt-oss": lambda: transformers.GptOssConfig(
        num_local_experts=4,
        num_experts_per_tok=2,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        **SIZES,
    ),
    "deepseek": deepseek,
}


def text(rank: int, step: int) -> Tensor:
    return torch.randint(0, 40, (4, 9), generator=torch.Generator().manual_seed(100 * step + rank))


def sgd(model: nn.Module) -> Any:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


class OfTransformers(Case):
    """dear.share_out_experts()."""

    def model(self, name: str) -> Any:
        torch.manual_seed(5)
        model = transformers.AutoModelForCausalLM.from_config(CONFIGURATIONS[name]())
        for parameter in model.parameters():
            if parameter.dim() == 2 and parameter.std() == 0:
                nn.init.normal_(parameter, std=0.02)
        return model

    def test_as_one_process(self) -> None:
        for name in CONFIGURATIONS:
            alone = self.model(name)
            kept = copy.deepcopy(alone)
            optimizer = sgd(alone)
            for step in range(3):
                optimizer.zero_grad()
                for rank in range(4):
                    (alone(input_ids=text(rank, step), labels=text(rank, step)).loss / 4).backward()
                optimizer.step()
            for options in ({"overlap": "none"}, {"overlap": "lancet"}, {"overlap": "lancet", "parts": 2}):
                with self.subTest(name=name, **options):
                    net = copy.deepcopy(kept)
                    layers = dear.share_out_experts(net)
                    model, optimizer = dear.distribute(net, sgd(net), **options)
                    for step in range(3):
                        mine = text(self.rank, step)
                        model(input_ids=mine, labels=mine).loss.backward()
                        optimizer.step()
                        optimizer.zero_grad()
                    report = model.overlap_report()
                    self.assertEqual((report["mixtures"], report["uncut_because"]), (layers, ""))
                    self.assertEqual(report["cut"], "model" if "parts" in options else "")
                    self.assertEqual(net.get_submodule(layers[0]).statistics()["passes"], 3)
                    model.close()
                    expected = dict(alone.named_parameters())
                    for key, found in net.named_parameters():
                        one = expected[key].detach()
                        if one.shape != found.shape:
                            one = oracle.own_part(one, self.rank, 4)
                        torch.testing.assert_close(found.detach(), one, rtol=1e-5, atol=1e-6, msg=f"{name} {key}")

    def test_states_of_one_rank_and_of_all(self) -> None:
        net, whole = self.model("gpt-oss"), self.model("gpt-oss")
        layers = dear.share_out_experts(net, groups.pair)
        states = [net.get_submodule(name).whole_state_dict() for name in layers]
        for name, state in zip(layers, states):
            self.assertSameBits(list(state.values()), [whole.get_parameter(f"{name}.{key}").detach() for key in state])
        own = copy.deepcopy(net.state_dict())
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.zero_()
        net.load_state_dict(whole.state_dict())
        self.assertSameBits(list(net.state_dict().values()), list(own.values()))

    def test_what_is_refused(self) -> None:
        def refused(pattern: str, call: Any) -> None:
            with self.assertRaisesRegex(dear.ConfigError, pattern):
                call()

        refused("takes a torch.nn.Module, and this is a int", lambda: dear.share_out_experts(3))  # type: ignore[arg-type]
        refused("the model has none: use dear.MoE", lambda: dear.share_out_experts(nn.Linear(2, 2)))
        odd = transformers.MixtralConfig(num_local_experts=6, num_experts_per_tok=2, **SIZES)
        odd_model = transformers.AutoModelForCausalLM.from_config(odd)
        refused("'model.layers.0.mlp.experts': 6 experts", lambda: dear.share_out_experts(odd_model))
        self.assertEqual(len(odd_model.model.layers[0].mlp.experts.down_proj), 6)
        net = self.model("mixtral")
        layers = dear.share_out_experts(net)
        refused("are shared out already", lambda: dear.share_out_experts(net))
        router = net.model.layers[0].mlp.gate
        with torch.no_grad():
            router.weight[0, 0] = torch.nan if self.rank == 2 else router.weight[0, 0]
        refused(
            "rank 2: the gate of a mixture of experts gave what is not a finite number", lambda: net(text(self.rank, 0))
        )
        experts, x = net.get_submodule(layers[0]), torch.zeros(3, 16)
        choices = torch.tensor([[0, 4 if self.rank == 1 else 1]] * 3)
        pattern = "router chose experts 0 to 4 of 4" if self.rank == 1 else "rank 1 refused its batch"
        refused(pattern, lambda: experts(x, choices, torch.ones(3, 2)))
