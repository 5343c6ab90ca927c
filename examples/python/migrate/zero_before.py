"""ZeroRedundancyOptimizer:  torchrun --nproc-per-node 2 zero_before.py"""

import task
import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = task.make_model()
model = DistributedDataParallel(model, gradient_as_bucket_view=True)
optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-2)

for step, (samples, labels) in enumerate(task.batches(dist.get_rank(), dist.get_world_size())):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(samples), labels)
    loss.backward()
    optimizer.step()
    task.report(dist.get_rank(), step, loss)

dist.destroy_process_group()
