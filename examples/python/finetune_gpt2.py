"""Fine-tunes a GPT-2 with the Trainer of Hugging Face, whose ranks train by DeAR.

  python finetune_gpt2.py
  torchrun --nproc-per-node 2 finetune_gpt2.py
  dear launch -n 2 -- python finetune_gpt2.py
  python finetune_gpt2.py --model FOLDER          a model that save_pretrained() wrote

Without --model the GPT-2 is made from its configuration: random weights, nothing is downloaded. Tokens are the bytes of Python's
standard library. All ranks together take `--batch` pieces of text in a step, so the losses do not depend on the number of ranks.
Needs the packages transformers and accelerate.
"""

import argparse
import os
import sys
import tempfile
import warnings

import torch
import torch.distributed as dist

import dear

try:
    import transformers
    from dear.huggingface import Trainer
except ImportError as missing:
    sys.exit(f"finetune_gpt2.py needs transformers and accelerate: pip install transformers accelerate ({missing})")

from gpt2 import read_bytes  # isort: skip


class Report(transformers.TrainerCallback):
    def on_log(self, args, state, control, logs=None, **_):
        if state.is_world_process_zero and "loss" in logs:
            print(f"step {state.global_step}: loss {float(logs['loss']):.5f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = {"steps": 20, "batch": 8, "layers": 2, "width": 64, "heads": 2, "context": 64, "report": 5}
    for name, value in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--model", help="a folder with a GPT-2 of 256 tokens or more")
    options = parser.parse_args()

    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1 and not dist.is_initialized():
        dear.init_process_group()  # Trainer takes it
    if options.batch % ranks:
        sys.exit(f"finetune_gpt2.py: --batch {options.batch} is not divisible by {ranks} ranks")
    torch.manual_seed(1)
    if options.model:
        model = transformers.GPT2LMHeadModel.from_pretrained(options.model)
    else:
        config = transformers.GPT2Config(
            vocab_size=256, n_positions=options.context, n_embd=options.width, n_layer=options.layers, n_head=options.heads,
            resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, use_cache=False, loss_type="ForCausalLM", bos_token_id=10, eos_token_id=10,
        )  # fmt: skip
        model = transformers.GPT2LMHeadModel(config)
    pieces = read_bytes(100_000).split(options.context)[:-1]
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            max_steps=options.steps,
            per_device_train_batch_size=options.batch // ranks,
            learning_rate=3e-3,
            logging_steps=options.report,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=not torch.cuda.is_available(),
        )
        trainer = Trainer(
            model=model,
            args=arguments,
            train_dataset=[{"input_ids": piece, "labels": piece} for piece in pieces],
            callbacks=[Report()],
            dear_options={"policy": "dear"},
        )
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
    if trainer.is_world_process_zero():
        print(f"{ranks} ranks")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
