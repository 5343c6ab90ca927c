"""Trains a small GPT on characters by rounds, for links that are too slow for every step (DiLoCo).

  dear launch -n 2 -- python rounds.py
  torchrun --nproc-per-node 4 rounds.py --inside 2

The model and the text are those of chargpt.py. Each replica takes `--batch` pieces of text in a step, and trains apart; once in
`--every` steps each fragment of the model is exchanged, under the `--delay` steps that follow. With --inside 2 two ranks are a
site, and one replica: DeAR in every step there, rounds between the sites.
"""

import argparse

import torch
from chargpt import CharGpt, loss_of, read_text

import dear


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("steps", 128), ("batch", 8), ("layers", 2), ("width", 64), ("heads", 4), ("context", 64),
                        ("characters", 200_000), ("report", 32), ("every", 16), ("fragments", 2), ("delay", 2), ("inside", 1)):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()

    torch.manual_seed(1)
    text = read_text(options.characters)
    test = text[: 16 * (options.context + 1)].view(16, -1)
    model = CharGpt(options.layers, options.width, options.heads, options.context)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model, optimizer = dear.distribute(
        model,
        optimizer,
        rounds=dear.DiLoCo(
            every=options.every, fragments=options.fragments, delay=options.delay, mixing=0.5, inside=options.inside
        ),
    )

    generator = torch.Generator().manual_seed(model.rank + 2)  # each rank draws its own pieces
    for step in range(1, options.steps + 1):
        begins = torch.randint(test.numel(), len(text) - options.context, (options.batch,), generator=generator)
        optimizer.zero_grad()
        loss_of(model, torch.stack([text[begin : begin + options.context + 1] for begin in begins.tolist()])).backward()
        optimizer.step()
        if step % options.report == 0 or step == options.steps:
            with model.global_parameters(), torch.no_grad():
                loss = loss_of(model, test).item()
            if model.rank == 0:
                print(f"step {step}: loss {loss:.5f}", flush=True)
    told = model.overlap_report()["rounds"]
    ranks, rank = model.world_size, model.rank
    model.close()  # the steps since the last turns count, too; the model is the same on all ranks
    if rank == 0:
        print(f"{ranks} ranks, {told['exchanges']} exchanges, {told['bytes_per_step'] / 1e3:.1f} kB a step")


if __name__ == "__main__":
    main()
