"""Trains a GPT-2 of the package transformers, made from its configuration: random weights, nothing is downloaded.

  python gpt2.py
  torchrun --nproc-per-node 2 gpt2.py
  dear launch -n 2 -- python gpt2.py
  mpirun --bind-to none -n 2 python gpt2.py

The head's weight is that of the embedding, and activations are computed again in the backward pass (gradient checkpointing).
Tokens are the bytes of Python's standard library. All ranks together take `--batch` pieces of text in a step, so the losses
do not depend on the number of ranks.
"""

import argparse
import pathlib
import sys
import sysconfig

import torch

import dear

try:
    from transformers import GPT2Config, GPT2LMHeadModel
except ModuleNotFoundError:
    sys.exit("gpt2.py needs the package transformers: pip install transformers")


def read_bytes(length: int) -> torch.Tensor:
    """The first `length` bytes of the standard library's modules in order of their names."""
    found = bytearray()
    for path in sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py")):
        found += path.read_bytes()[: length - len(found)]
    return torch.tensor(list(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (
        ("steps", 20),
        ("batch", 8),
        ("layers", 2),
        ("width", 64),
        ("heads", 2),
        ("context", 64),
        ("report", 5),
    ):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()

    torch.manual_seed(1)
    text = read_bytes(100_000)
    config = GPT2Config(
        vocab_size=256, n_positions=options.context, n_embd=options.width, n_layer=options.layers, n_head=options.heads,
        resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, use_cache=False, loss_type="ForCausalLM", bos_token_id=10, eos_token_id=10,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model, optimizer = dear.distribute(model, optimizer)
    if options.batch % model.world_size:
        sys.exit(f"gpt2.py: rank {model.rank}: --batch {options.batch} is not divisible by {model.world_size} ranks")

    generator = torch.Generator().manual_seed(1)  # alike on all ranks, each of which takes its part
    for step in range(1, options.steps + 1):
        begins = torch.randint(len(text) - options.context, (options.batch,), generator=generator)
        pieces = torch.stack([text[begin : begin + options.context] for begin in begins.tolist()])
        mine = pieces[model.rank :: model.world_size]
        optimizer.zero_grad()
        model(input_ids=mine, labels=mine).loss.backward()
        optimizer.step()
        if step % options.report == 0 or step == options.steps:
            with torch.no_grad():
                loss = model(input_ids=pieces, labels=pieces).loss.item()
            if model.rank == 0:
                print(f"step {step}: loss {loss:.5f}", flush=True)
    if model.rank == 0:
        print(f"{model.world_size} ranks, backend {model.backend}")


if __name__ == "__main__":
    main()
