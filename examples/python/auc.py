"""Trains a perceptron for AUC where one class is rare, with averages over ranks once in a round (CoDA).

  dear launch -n 2 -- python auc.py --every 32
  torchrun --nproc-per-node 4 auc.py --loss cross-entropy

Samples are drawn: each class is a mixture of normal distributions in 20 dimensions, and of the labels some are wrong. With
--loss cross-entropy SGD trains in every step, by the same batches, for comparison.
"""

import argparse

import torch

import dear


def draw(count: int, positive: float, noise: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    centres = torch.randn(2, 3, 20, generator=torch.Generator().manual_seed(0)) * 0.7
    generator = torch.Generator().manual_seed(seed)
    truth = (torch.rand(count, generator=generator) < positive).long()
    component = torch.randint(3, (count,), generator=generator)
    x = centres[truth, component] + torch.randn(count, 20, generator=generator)
    wrong = torch.rand(count, generator=generator) < noise
    return x, torch.where(wrong, (torch.rand(count, generator=generator) < positive).long(), truth)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loss", choices=("auc", "cross-entropy"), default="auc")
    for name, value in (("stages", 3), ("stage-steps", 1024), ("every", 32), ("batch", 32), ("samples", 20_000)):
        parser.add_argument(f"--{name}", type=int, default=value)
    for name, value in (("positive", 0.1), ("noise", 0.1), ("lr", 0.1)):
        parser.add_argument(f"--{name}", type=float, default=value)
    options = parser.parse_args()

    torch.manual_seed(1)
    group = dear.init()
    x, y = draw(options.samples, options.positive, options.noise, seed=2)
    test_x, test_y = draw(20_000, options.positive, options.noise, seed=3)
    model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    dataset = torch.utils.data.TensorDataset(x, y)
    sampler = dear.DualSampler(dataset, options.batch, sampling_rate=0.5, process_group=group)
    loader = torch.utils.data.DataLoader(dataset, options.batch, sampler=sampler)

    for_auc = options.loss == "auc"
    if for_auc:
        loss = dear.AUCMLoss(version="v2")
        optimizer = dear.CoDA(
            model.parameters(),
            loss,
            lr=options.lr,
            every=options.every,
            stage_steps=options.stage_steps,
            growth=1,
            process_group=group,
        )
    else:
        loss = lambda scores, labels: torch.nn.functional.binary_cross_entropy_with_logits(scores, labels.float())  # noqa: E731
        optimizer = torch.optim.SGD(model.parameters(), lr=options.lr)
        model, optimizer = dear.distribute(model, optimizer, process_group=group)

    step, last = 0, options.stages * (options.stage_steps + int(for_auc))  # a batch gives alpha at a stage's end
    while step < last:
        for samples, labels in loader:
            optimizer.zero_grad()
            loss(model(samples).squeeze(1), labels).backward()
            optimizer.step()
            step += 1
            if step % (last // options.stages) == 0:
                mine = slice(group.rank, None, group.size)  # each rank scores its share
                with torch.no_grad():
                    area = dear.auc(model(test_x[mine]), test_y[mine], process_group=group)
                if not for_auc:
                    for one in optimizer.param_groups:
                        one["lr"] /= 3
                if group.rank == 0:
                    rounds = optimizer.report()["rounds"] if for_auc else step
                    print(f"step {step}: {rounds} rounds, AUC {area:.4f}", flush=True)
            if step == last:
                break
    if not for_auc:
        model.close()


if __name__ == "__main__":
    main()
