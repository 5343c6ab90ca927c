"""DeAR in the place of ZeroRedundancyOptimizer:  torchrun --nproc-per-node 2 zero_after.py"""

import dear
import task
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = task.make_model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
model, optimizer = dear.distribute(model, optimizer)

for step, (samples, labels) in enumerate(task.batches(dist.get_rank(), dist.get_world_size())):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(samples), labels)
    loss.backward()
    optimizer.step()
    task.report(dist.get_rank(), step, loss)

dist.destroy_process_group()
