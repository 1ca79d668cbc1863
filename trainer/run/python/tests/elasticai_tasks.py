"""A script with loader workers whose batches do not divide the tasks.

Parameter i rises by one with each update that has record i.
"""

import json
import sys
import time

import torch

import elasticdl
from elasticai_api.pytorch.controller import create_elastic_controller
from elasticai_api.pytorch.optimizer import DistributedOptimizer
from elasticdl import session

size, fixed, each = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
controller = create_elastic_controller(batch_size=8, num_epochs=1, dataset_size=size, shuffle=True)
service = controller.data_shard_service


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return sys.maxsize

    def __getitem__(self, _):
        return service.fetch_record_index()


class Counting(torch.optim.SGD):
    """An optimizer that turns the mean of the gradients into their sum."""

    def step(self, closure=None):
        model.weight.grad *= session.current().weights()[1]
        return super().step()


model = torch.nn.Linear(1, size, bias=False, dtype=torch.float64)
torch.nn.init.zeros_(model.weight)
optimizer = DistributedOptimizer(
    Counting(model.parameters(), lr=1.0), fixed_global_batch_size=fixed > 0, global_batch_num_per_step=fixed
)
controller.set_broadcast_model(model)
controller.set_broadcast_optimizer(optimizer)


@controller.elastic_run
def train_one_batch(x):
    optimizer.zero_grad()
    # A batch that is filled up has some records twice.
    loss = -model(torch.ones(1, 1, dtype=torch.float64))[0, x.unique()].mean()
    loss.backward()
    optimizer.step()
    time.sleep(0.02 if elasticdl.world().size > 1 else 0.2)  # a replacement comes before the end
    return loss


with controller.scope():
    ended = False
    while not ended:
        ended = True
        for i, x in enumerate(torch.utils.data.DataLoader(Data(), batch_size=8, num_workers=2)):
            train_one_batch(x)
            if i + 1 == each:
                ended = False
                break
counts = model.weight.detach().reshape(-1)
print(json.dumps({"counts": sorted(set(counts.mul(1e6).round().div(1e6).tolist()))}), flush=True)
