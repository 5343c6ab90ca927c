"""Horovod:  horovodrun -np 2 python horovod_before.py"""

import horovod.torch as hvd
import task
import torch

hvd.init()
model = task.make_model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5)

for step, (samples, labels) in enumerate(task.batches(hvd.rank(), hvd.size())):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(samples), labels)
    loss.backward()
    optimizer.step()
    scheduler.step()
    task.report(hvd.rank(), step, loss)
