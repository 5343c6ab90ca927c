"""DeAR inside accelerate and transformers.Trainer, on two ranks, with DDP beside it:  huggingface_test.py DEAR [CASE...]"""

from __future__ import annotations

import faulthandler
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings
from datetime import timedelta
from typing import Any

HERE = pathlib.Path(__file__).resolve()
FOLDER = pathlib.Path(os.environ.get("DEAR_TEST_FOLDER", "."))
RANK = int(os.environ.get("RANK", "0"))

if "DEAR_TEST_FOLDER" in os.environ:
    import accelerate
    import torch
    import torch.distributed as dist
    import transformers
    from safetensors.torch import load_file
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    import dear
    from dear import huggingface


def net() -> Any:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))


def loop(kind: Any, clip: str = "", accumulate: int = 1, save: str = "", load: str = "", **options: Any) -> Any:
    """Losses, the model itself and the accelerator."""
    accelerate.state.AcceleratorState._reset_state()  # one of another precision may be there
    accelerate.state.GradientState._reset_state()
    accelerator = kind(cpu=True, gradient_accumulation_steps=accumulate, **options)
    inner = net()
    optimizer: Any = torch.optim.AdamW(inner.parameters(), lr=0.01)
    schedule: Any = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    data = TensorDataset(torch.randn(64, 8, generator=torch.Generator().manual_seed(7)))
    model, optimizer, batches, schedule = accelerator.prepare(
        inner, optimizer, DataLoader(data, batch_size=4), schedule
    )
    if load:
        accelerator.load_state(str(FOLDER / load))
    losses = []
    for (x,) in batches:
        with accelerator.accumulate(model):
            loss = (model(x) - x[:, :3].sin()).square().mean()
            accelerator.backward(loss)
            if accelerator.sync_gradients and clip == "norm":
                accelerator.clip_grad_norm_(model.parameters(), 0.2)
            elif accelerator.sync_gradients and clip == "value":
                accelerator.clip_grad_value_(model.parameters(), 0.01)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    if save:
        accelerator.save_state(str(FOLDER / save))
        accelerator.save_model(model, str(FOLDER / f"{save}-model"))
    unwrapped = accelerator.unwrap_model(model)
    assert unwrapped is inner
    accelerator.free_memory()
    return losses, {name: one.clone() for name, one in inner.state_dict().items()}


def arguments(folder: str, **options: Any) -> Any:
    settings: dict[str, Any] = {
        "max_steps": 6,
        "learning_rate": 0.01,
        "per_device_train_batch_size": 4,
        "logging_steps": 1,
    }
    quiet = {"report_to": [], "disable_tqdm": True, "save_strategy": "no", "use_cpu": True, "seed": 5}
    return transformers.TrainingArguments(output_dir=str(FOLDER / folder), **{**settings, **quiet, **options})


def gpt2() -> Any:
    torch.manual_seed(3)
    still = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=2, n_head=2, **still)
    )


def texts(count: int = 64) -> list[Any]:
    generator = torch.Generator().manual_seed(9)
    tokens = torch.randint(0, 32, (count, 12), generator=generator)
    return [{"input_ids": one, "labels": one} for one in tokens]


def train(kind: Any, folder: str, resume: Any = None, make: dict[str, Any] | None = None, **options: Any) -> Any:
    """Losses as logged, and the trainer."""
    accelerate.state.AcceleratorState._reset_state()
    trainer = kind(
        model=gpt2(), args=arguments(folder, **options), train_dataset=texts(), eval_dataset=texts(8), **(make or {})
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train(resume_from_checkpoint=resume)
    return [one["loss"] for one in trainer.state.log_history if "loss" in one], trainer


class InLoops(unittest.TestCase):
    def same(self, tolerance: float = 0.0, **options: Any) -> None:
        (theirs, reference), (mine, found) = (
            loop(one, **options) for one in (accelerate.Accelerator, huggingface.Accelerator)
        )
        self.close(mine, theirs)
        for name, tensor in reference.items():
            torch.testing.assert_close(found[name], tensor, rtol=tolerance, atol=tolerance)

    def close(self, mine: list[float], theirs: list[float], tolerance: float = 1e-6) -> None:
        self.assertEqual(len(mine), len(theirs))
        for one, other in zip(mine, theirs):
            self.assertAlmostEqual(one, other, delta=tolerance * max(1, abs(other)))

    def test_a_loop(self) -> None:
        self.same()

    def test_clipping(self) -> None:
        self.same(1e-6, clip="norm")
        self.same(1e-6, clip="value")

    def test_accumulation(self) -> None:
        self.same(accumulate=3)

    def test_bf16(self) -> None:
        self.same(1e-6, mixed_precision="bf16", clip="norm")

    def test_files(self) -> None:
        runs = {}
        for name, kind in (("ddp", accelerate.Accelerator), ("dear", huggingface.Accelerator)):
            _, state = loop(kind, save=name)
            saved = load_file(FOLDER / f"{name}-model" / "model.safetensors")
            self.assertEqual(saved.keys(), state.keys())
            for key, tensor in state.items():
                self.assertTrue(torch.equal(saved[key], tensor))
        for writer in ("ddp", "dear"):
            for kind in (accelerate.Accelerator, huggingface.Accelerator):
                runs[writer, kind] = loop(kind, load=writer)
        first, *others = runs.values()
        for losses, state in others:
            self.close(losses, first[0])
            for key, tensor in first[1].items():
                self.assertTrue(torch.equal(state[key], tensor))

    def test_what_is_apart_is_refused(self) -> None:
        accelerator = huggingface.Accelerator(cpu=True)
        model = net()
        with self.assertRaisesRegex(dear.ConfigError, "prepare\\(model, optimizer\\)"):
            accelerator.prepare(torch.optim.SGD(model.parameters(), 0.1))
        with self.assertRaisesRegex(dear.ConfigError, "prepare\\(model, optimizer\\), or freeze"):
            accelerator.prepare(model)
        self.assertIsInstance(accelerator.prepare(net().requires_grad_(False)), nn.Sequential)

    def test_options_reach_distribute(self) -> None:
        with self.assertRaisesRegex(dear.ConfigError, "nowhere"):
            loop(huggingface.Accelerator, dear_options={"policy": "nowhere"})


class InTrainers(unittest.TestCase):
    close = InLoops.close

    def both(self, tolerance: float = 2e-6, **options: Any) -> None:
        (theirs, _), (mine, trainer) = (
            train(one, "both", **options) for one in (transformers.Trainer, huggingface.Trainer)
        )
        self.close(mine, theirs, tolerance)
        self.assertGreater(len(mine), 2)
        self.assertIsInstance(trainer.model_wrapped, dear.DataParallel)

    def test_a_trainer_with_accumulation_and_clipping(self) -> None:
        self.both()
        self.both(gradient_accumulation_steps=3, max_grad_norm=0.1, max_steps=4)

    def test_files_are_resumed_by_either(self) -> None:
        kinds = {"ddp": transformers.Trainer, "dear": huggingface.Trainer}
        whole, _ = train(transformers.Trainer, "whole")
        for writer, kind in kinds.items():
            train(kind, f"by-{writer}", max_steps=3, save_strategy="steps", save_steps=3, lr_scheduler_type="constant")
        states = [
            torch.load(FOLDER / f"by-{one}" / "checkpoint-3" / "optimizer.pt", weights_only=True) for one in kinds
        ]
        self.assertEqual(states[0]["state"].keys(), states[1]["state"].keys())
        self.assertEqual(states[0]["param_groups"], states[1]["param_groups"])
        results = []
        for writer in kinds:
            for reader, kind in kinds.items():
                path = str(FOLDER / f"by-{writer}" / "checkpoint-3")
                losses, _ = train(kind, f"{writer}-{reader}", resume=path, lr_scheduler_type="constant")
                results.append(losses[-3:])
        for losses in results[1:]:
            self.close(losses, results[0], 2e-6)

    def test_evaluation_and_a_second_train(self) -> None:
        found = []
        for kind in (transformers.Trainer, huggingface.Trainer):
            losses, trainer = train(kind, "again", eval_strategy="steps", eval_steps=3, max_steps=3)
            first = trainer.evaluate()["eval_loss"]
            trainer.train()
            found.append([*losses, first, trainer.evaluate()["eval_loss"]])
        self.close(found[1], found[0], 1e-5)

    def test_without_clipping_there_may_be_compression(self) -> None:
        make = {"dear_options": {"compression": "bf16,dense-below=1"}}
        losses, trainer = train(huggingface.Trainer, "bf16", make=make, max_grad_norm=0.0)
        exact, _ = train(transformers.Trainer, "exact", max_grad_norm=0.0)
        self.close(losses, exact, 2e-2)
        self.assertGreater(dear.own(trainer.model_wrapped).compression_report()["bytes"], 0)


def on_a_rank() -> None:
    faulthandler.dump_traceback_later(300, exit=True)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    meeting = f"file://{FOLDER}/meet"
    dist.init_process_group("gloo", meeting, timeout=timedelta(seconds=60), rank=RANK, world_size=2)
    unittest.main(warnings="ignore", failfast=True)


def main() -> int:
    told = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    with tempfile.TemporaryDirectory() as folder:
        ranks = []
        for rank in range(2):
            mine = {"RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1", "DEAR_TEST_FOLDER": folder}
            command = [sys.executable, "-B", str(HERE), *sys.argv[2:]]
            ranks.append(
                subprocess.Popen(command, cwd=folder, env={**os.environ, **told, **mine, "ACCELERATE_USE_CPU": "true"})
            )
        return max(abs(rank.wait()) for rank in ranks)


if __name__ == "__main__":
    if "DEAR_TEST_FOLDER" in os.environ:
        on_a_rank()
    sys.exit(main())
