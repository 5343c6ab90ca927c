"""DistributedDataParallel:  torchrun --nproc-per-node 2 ddp_before.py"""

import task
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = task.make_model()
model = DistributedDataParallel(model, gradient_as_bucket_view=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5)

for step, (samples, labels) in enumerate(task.batches(dist.get_rank(), dist.get_world_size())):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(samples), labels)
    loss.backward()
    optimizer.step()
    scheduler.step()
    task.report(dist.get_rank(), step, loss)

dist.destroy_process_group()
