"""FSDP2:  torchrun --nproc-per-node 2 fsdp2_before.py"""

import task
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = task.make_model()
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

for step, (samples, labels) in enumerate(task.batches(dist.get_rank(), dist.get_world_size())):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(samples), labels)
    loss.backward()
    optimizer.step()
    task.report(dist.get_rank(), step, loss)

dist.destroy_process_group()
