"""Trains while ranks come and go.

    dear launch --elastic 1:3 --restarts 100 -- python elastic.py

Kill a rank meanwhile (kill -9 PID): the others go on, and another process takes its place.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

import dear

inputs, labels = load_digits(return_X_y=True)
x, y = torch.tensor(inputs, dtype=torch.float32) / 16, torch.tensor(labels)
torch.manual_seed(1)
net = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 10))
optimizer = torch.optim.AdamW(net.parameters(), lr=0.002)
run = dear.Elastic(net, optimizer, samples=len(x), batch=128, epochs=10)
for step in run:
    with step as indices:
        nn.functional.cross_entropy(run.model(x[indices]), y[indices]).backward()
        optimizer.step()
if run.model.rank == 0:
    right = (run.model(x).argmax(1) == y).float().mean().item()
    print(f"{run.steps} steps, {run.model.world_size} ranks, {right:.1%} right")
