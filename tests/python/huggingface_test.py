"""DeAR inside accelerate and transformers.Trainer, on two ranks, with DDP beside it:  huggingface_test.py DEAR [CASE...]

PEFT's LoRA is among the cases.
"""

from __future__ import annotations

import faulthandler
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import warnings
from datetime import timedelta
from typing import Any

HERE = pathlib.Path(__file__).resolve()
FOLDER = pathlib.Path(os.environ.get("DEAR_TEST_FOLDER", "."))
RANK = int(os.environ.get("RANK", "0"))

if "DEAR_TEST_FOLDER" in os.environ:
    import accelerate
    import peft
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


def arguments(folder: str, kind: Any = None, **options: Any) -> Any:
    kind = kind or transformers.TrainingArguments
    settings: dict[str, Any] = {
        "max_steps": 6,
        "learning_rate": 0.01,
        "per_device_train_batch_size": 4,
        "logging_steps": 1,
    }
    quiet = {"report_to": [], "disable_tqdm": True, "save_strategy": "no", "use_cpu": True, "seed": 5}
    return kind(output_dir=str(FOLDER / folder), **{**settings, **quiet, **options})


def gpt2() -> Any:
    torch.manual_seed(3)
    still = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=2, n_head=2, **still)
    )


def lora() -> Any:
    """Adapters at the attention of a frozen model."""
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM")
    return peft.get_peft_model(gpt2(), config)


def copies(model: Any) -> dict[str, Any]:
    return {name: one.clone() for name, one in model.state_dict().items()}


def texts(count: int = 64) -> list[Any]:
    generator = torch.Generator().manual_seed(9)
    tokens = torch.randint(0, 32, (count, 12), generator=generator)
    return [{"input_ids": one, "labels": one} for one in tokens]


def train(kind: Any, folder: str, resume: Any = None, make: dict[str, Any] | None = None, **options: Any) -> Any:
    """Losses as logged, and the trainer."""
    accelerate.state.AcceleratorState._reset_state()
    given = {"model": gpt2(), "train_dataset": texts(), "eval_dataset": texts(8), **(make or {})}
    trainer = kind(args=arguments(folder, **options), **given)
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

    def test_the_best_is_loaded_at_the_end(self) -> None:
        # The "best" is the first file, so that the end is another.
        keep = {"save_strategy": "steps", "save_steps": 2, "eval_strategy": "steps", "eval_steps": 2}
        keep |= {"load_best_model_at_end": True, "metric_for_best_model": "eval_loss", "greater_is_better": True}
        found = []
        for name, kind in (("ddp", transformers.Trainer), ("dear", huggingface.Trainer)):
            losses, trainer = train(kind, f"best-{name}", **keep)
            self.assertEqual(trainer.state.best_model_checkpoint, str(FOLDER / f"best-{name}" / "checkpoint-2"))
            saved = load_file(FOLDER / f"best-{name}" / "checkpoint-2" / "model.safetensors")
            for key, tensor in saved.items():
                self.assertTrue(torch.equal(trainer.model.state_dict()[key], tensor), key)
            evaluated = [one["eval_loss"] for one in trainer.state.log_history if "eval_loss" in one]
            self.assertEqual(trainer.evaluate()["eval_loss"], evaluated[0])
            self.assertNotEqual(evaluated[0], evaluated[-1])
            found.append([*losses, *evaluated])
        self.close(found[1], found[0], 2e-6)

    def test_generating_while_it_trains(self) -> None:
        """On all ranks after an evaluation, and on rank 0 alone right after a step: with whole parameters, and no rank waits."""
        prompt = texts(1)[0]["input_ids"][None, :4]

        class Generates(transformers.TrainerCallback):
            def __init__(self) -> None:
                self.said: list[Any] = []

            def write(self, model: Any, beams: int = 1) -> None:
                training = model.training
                how = {"max_new_tokens": 6, "do_sample": False, "num_beams": beams, "pad_token_id": 0}
                told = model.eval().generate(prompt, **how, output_scores=True, return_dict_in_generate=True)
                self.said.append((told.sequences.tolist(), torch.stack(told.scores), copies(model)))
                model.train(training)

            def on_evaluate(self, args: Any, state: Any, control: Any, model: Any = None, **more: Any) -> None:
                self.write(model, beams=2)

            def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **more: Any) -> None:
                if RANK == 0:
                    self.write(model)

        found = []
        for kind in (transformers.Trainer, huggingface.Trainer):
            callback = Generates()
            losses, _ = train(kind, "generate", make={"callbacks": [callback]}, eval_strategy="steps", eval_steps=2)
            found.append((losses, callback.said))
        (theirs, reference), (mine, said) = found
        self.close(mine, theirs, 2e-6)
        self.assertEqual(len(said), 9 if RANK == 0 else 3)
        self.assertEqual([text for text, *_ in said], [text for text, *_ in reference])
        for (_, scores, state), (_, wanted_scores, wanted) in zip(said, reference):
            torch.testing.assert_close(scores, wanted_scores, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(state, wanted, rtol=1e-4, atol=1e-5)
        self.assertGreater((said[0][1] - said[-1][1]).abs().max().item(), 0.01)  # it trained in between

    def test_a_mixin_that_predicts_with_generate(self) -> None:
        class Mine(huggingface.InTrainer, transformers.Seq2SeqTrainer):
            pass

        def t5() -> Any:
            torch.manual_seed(3)
            small = {"vocab_size": 32, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
            config = transformers.T5Config(**small, dropout_rate=0.0, decoder_start_token_id=0, eos_token_id=None)
            return transformers.T5ForConditionalGeneration(config)

        found = []
        for kind in (transformers.Seq2SeqTrainer, Mine):
            accelerate.state.AcceleratorState._reset_state()
            generating = {"kind": transformers.Seq2SeqTrainingArguments, "predict_with_generate": True}
            made = arguments("seq2seq", **generating, generation_max_length=6, eval_strategy="steps", eval_steps=3)
            predicted: list[Any] = []

            def score(one: Any, predicted: list[Any] = predicted) -> dict[str, float]:
                predicted.append(one.predictions.tolist())
                return {}

            trainer = kind(model=t5(), args=made, train_dataset=texts(), eval_dataset=texts(8), compute_metrics=score)
            trainer.remove_callback(transformers.PrinterCallback)
            trainer.train()
            found.append((predicted, trainer.evaluate()["eval_loss"]))
        self.assertEqual(len(found[1][0]), 3)
        self.assertEqual(found[1][0], found[0][0])
        self.close([found[1][1]], [found[0][1]], 2e-6)

    def test_bf16(self) -> None:
        self.both(bf16=True, max_grad_norm=0.0)
        self.both(2e-4, bf16=True)  # a norm of another last digit makes bf16 round to its other neighbour

    def test_an_optimiser_that_must_see_whole_tensors(self) -> None:
        theirs, _ = train(transformers.Trainer, "adafactor", optim="adafactor", max_grad_norm=0.0)
        make = {"dear_options": {"ownership": "auto"}}
        mine, _ = train(huggingface.Trainer, "adafactor", make=make, optim="adafactor", max_grad_norm=0.0)
        self.close(mine, theirs, 1e-4)

    def test_without_transformers_a_sentence_says_so(self) -> None:
        with unittest.mock.patch.dict(sys.modules, {"transformers": None}):
            with self.assertRaisesRegex(
                ImportError, "Trainer needs the package transformers: pip install transformers=="
            ):
                huggingface.__getattr__("Trainer")

    def test_without_clipping_there_may_be_compression(self) -> None:
        make = {"dear_options": {"compression": "bf16,dense-below=1"}}
        losses, trainer = train(huggingface.Trainer, "bf16", make=make, max_grad_norm=0.0)
        exact, _ = train(transformers.Trainer, "exact", max_grad_norm=0.0)
        self.close(losses, exact, 2e-2)
        self.assertGreater(dear.own(trainer.model_wrapped).compression_report()["bytes"], 0)


class InLora(unittest.TestCase):
    """Only the adapters train, as under DDP."""

    close = InLoops.close

    def is_trained(self, model: Any, before: dict[str, Any]) -> None:
        """The base is what it was, to the bit, and each adapter is another."""
        adapters = 0
        for name, one in copies(model).items():
            self.assertEqual("lora_" in name, not torch.equal(one, before[name]), name)
            adapters += "lora_" in name
        self.assertEqual(adapters, 4)

    def test_a_trainer(self) -> None:
        found = []
        for name, kind in (("ddp", transformers.Trainer), ("dear", huggingface.Trainer)):
            model = lora()
            before, folder = copies(model), FOLDER / f"lora-{name}"
            keep = {"save_strategy": "steps", "save_steps": 3, "eval_strategy": "steps", "eval_steps": 3}
            losses, trainer = train(kind, f"lora-{name}-run", make={"model": model}, **keep)
            self.is_trained(model, before)
            if isinstance(trainer.model_wrapped, dear.DataParallel):
                buckets = dear.own(trainer.model_wrapped).schedule()["buckets"]
                self.assertTrue(all("lora_" in one for bucket in buckets for one in bucket), buckets)
            trainer.save_model(str(folder))
            dist.barrier()
            resumed, _ = train(
                kind, f"lora-{name}-run", make={"model": lora()}, resume=str(FOLDER / f"lora-{name}-run/checkpoint-3")
            )
            self.close(resumed, losses, 2e-6)
            # The file has the adapters and nothing else, and gives the model's outputs to one that was not distributed.
            saved = load_file(folder / "adapter_model.safetensors")
            self.assertEqual(sum(one.numel() for one in saved.values()), sum(p.numel() for p in model.parameters() if p.requires_grad))  # fmt: skip
            loaded = peft.PeftModel.from_pretrained(gpt2(), folder)
            tokens = texts(2)[0]["input_ids"][None]
            with torch.no_grad():
                self.assertTrue(torch.equal(loaded.eval()(tokens).logits, model.eval()(tokens).logits))
            found.append((losses, trainer.evaluate()["eval_loss"]))
        self.close(found[1][0], found[0][0], 2e-6)
        self.close([found[1][1]], [found[0][1]], 2e-6)

    def test_a_loop(self) -> None:
        found = []
        for kind in (accelerate.Accelerator, huggingface.Accelerator):
            accelerate.state.AcceleratorState._reset_state()
            accelerator, inner = kind(cpu=True), lora()
            before = copies(inner)
            optimizer: Any = torch.optim.AdamW((p for p in inner.parameters() if p.requires_grad), lr=0.01)
            model, optimizer, batches = accelerator.prepare(inner, optimizer, DataLoader(texts(), batch_size=4))
            losses = []
            for batch in batches:
                loss = model(**batch).loss
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.item())
            accelerator.unwrap_model(model).save_pretrained(
                FOLDER / "lora-loop", state_dict=accelerator.get_state_dict(model), is_main_process=RANK == 0
            )
            accelerator.wait_for_everyone()
            self.is_trained(inner, before)
            loaded = copies(peft.PeftModel.from_pretrained(gpt2(), FOLDER / "lora-loop"))
            for name, one in copies(inner).items():
                self.assertTrue(torch.equal(loaded[name], one), name)
            accelerator.wait_for_everyone()
            found.append((losses, copies(inner)))
            accelerator.free_memory()
        self.close(found[1][0], found[0][0])
        for name, one in found[0][1].items():
            self.assertTrue(torch.equal(found[1][1][name], one), name)


class OnDear(unittest.TestCase):
    """A process group of DeAR's carries what accelerate and the Trainer send by themselves, too, under DDP as well."""

    close = InLoops.close

    @classmethod
    def setUpClass(cls) -> None:
        begin("cpu:dear")

    @classmethod
    def tearDownClass(cls) -> None:
        begin("gloo")

    def test_a_loop(self) -> None:
        self.assertIn("dear", dist.get_backend())
        (theirs, reference), (mine, found) = (
            loop(one, save=f"on-dear-{one.__module__}") for one in (accelerate.Accelerator, huggingface.Accelerator)
        )
        self.close(mine, theirs)
        for name, tensor in reference.items():
            self.assertTrue(torch.equal(found[name], tensor), name)

    def test_what_is_gathered(self) -> None:
        accelerator = huggingface.Accelerator(cpu=True)
        mine = torch.tensor([RANK, 10 + RANK])
        self.assertEqual(accelerator.gather(mine).tolist(), [0, 10, 1, 11])
        self.assertEqual(accelerator.reduce(mine.float(), "mean").tolist(), [0.5, 10.5])
        self.assertEqual(accelerator.gather_for_metrics([f"rank {RANK}"], use_gather_object=True), ["rank 0", "rank 1"])
        padded = accelerator.pad_across_processes(torch.ones(1 + RANK, 2), dim=0)
        self.assertEqual(padded.shape, (2, 2))

    def test_a_trainer_that_evaluates_saves_and_resumes(self) -> None:
        keep = {"save_strategy": "steps", "save_steps": 3, "eval_strategy": "steps", "eval_steps": 3}
        keep |= {"lr_scheduler_type": "constant", "load_best_model_at_end": True}
        found = []
        for name, kind in (("ddp", transformers.Trainer), ("dear", huggingface.Trainer)):
            losses, trainer = train(kind, f"on-dear-{name}", **keep)
            evaluated = [one["eval_loss"] for one in trainer.state.log_history if "eval_loss" in one]
            path = str(FOLDER / f"on-dear-{name}" / "checkpoint-3")
            resumed, _ = train(kind, f"on-dear-{name}-resumed", resume=path, **keep)
            found.append([*losses, *evaluated, *resumed[-3:]])
        self.assertEqual(len(found[0]), 6 + 2 + 3)
        self.close(found[1], found[0], 2e-6)


def begin(group: str) -> None:
    """The default process group, anew; accelerate forgets the one before."""
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
    begin.count += 1  # type: ignore[attr-defined]
    meeting = f"file://{FOLDER}/meet-{begin.count}"  # type: ignore[attr-defined]
    dist.init_process_group(group, meeting, timeout=timedelta(seconds=60), rank=RANK, world_size=2)
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


begin.count = 0  # type: ignore[attr-defined]


def on_a_rank() -> None:
    faulthandler.dump_traceback_later(380, exit=True)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    begin("gloo")
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
