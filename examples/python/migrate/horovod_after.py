"""DeAR in the place of Horovod:  mpirun --bind-to none -n 2 python horovod_after.py"""

import dear
import task
import torch

group = dear.init()
model = task.make_model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
model, optimizer = dear.distribute(model, optimizer, process_group=group)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5)

for step, (samples, labels) in enumerate(task.batches(group.rank, group.size)):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(samples), labels)
    loss.backward()
    optimizer.step()
    scheduler.step()
    task.report(group.rank, step, loss)
