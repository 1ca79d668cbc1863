"""A script that trains like ElasticDL's mnist_pytorch.py, on a model that counts its records."""

import json
import sys

import torch

from elasticai_api.pytorch.controller import create_elastic_controller
from elasticai_api.pytorch.optimizer import DistributedOptimizer

size, epochs, workers, fixed = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(1)
controller = create_elastic_controller(
    batch_size=8, num_epochs=epochs, dataset_size=size, shuffle=True, num_minibatches_per_shard=3
)
service = controller.data_shard_service


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return sys.maxsize

    def __getitem__(self, _):
        return service.fetch_record_index()


model = torch.nn.Linear(1, size, bias=False, dtype=torch.float64)
torch.nn.init.zeros_(model.weight)
optimizer = DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), fixed_global_batch_size=fixed > 0,
                                 global_batch_num_per_step=fixed)
controller.set_broadcast_model(model)
controller.set_broadcast_optimizer(optimizer)
seen = []


@controller.elastic_run
def train_one_batch(x):
    optimizer.zero_grad()
    loss = -model(torch.ones(1, 1, dtype=torch.float64))[0, x].mean()
    loss.backward()
    optimizer.step()
    return loss


with controller.scope():
    for x in torch.utils.data.DataLoader(Data(), batch_size=8, num_workers=workers):
        train_one_batch(x)
trained = model.weight.detach().reshape(-1)
print(
    json.dumps(
        {"updates": controller.global_completed_batch_num, "sum": float(trained.sum()), "least": float(trained.min())}
    ),
    flush=True,
)
