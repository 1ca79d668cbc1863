"""A script that trains by several forms of ElasticDL's API, on a model that counts its records.

Parameter i rises by one with each update that has record i.
"""

import json
import os
import sys
import time

import torch

from elasticai_api.common.data_shard_service import DataShardService, RecordIndexService, build_data_shard_service
from elasticai_api.common.master_client import build_master_client
from elasticai_api.proto.elasticai_api_pb2 import TRAINING
from elasticai_api.pytorch.controller import PyTorchAllReduceController
from elasticai_api.pytorch.optimizer import DistributedOptimizer
from elasticdl import session

form, size, epochs, pause = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
torch.set_num_threads(1)
if form == "service":  # as in ElasticDL's mnist_pytorch.py
    service = RecordIndexService(
        batch_size=8,
        dataset_size=size,
        num_epochs=epochs,
        shuffle=True,
        dataset_name="mnist_training_data",
        num_minibatches_per_shard=3,
    )
    controller = PyTorchAllReduceController(service)
elif form == "client":
    client = build_master_client()
    service = RecordIndexService(
        client, 8, epochs, size, TRAINING, True, num_minibatches_per_shard=1
    )  # whole minibatches
    controller = PyTorchAllReduceController(client, service)
elif form == "shards":
    service = DataShardService(
        master_client=build_master_client(),
        batch_size=8,
        num_epochs=epochs,
        dataset_size=size,
        shuffle=True,
        num_minibatches_per_shard=3,
    )
    controller = PyTorchAllReduceController(master_client=None, data_shard_service=service)
else:
    service = build_data_shard_service(
        batch_size=8, num_epochs=epochs, dataset_size=size, num_minibatches_per_shard=3, dataset_name="built"
    )
    controller = PyTorchAllReduceController(build_master_client(), service)
controller.init_horovod_locally()


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return sys.maxsize

    def __getitem__(self, _):
        return service.fetch_record_index()


def batches():
    if isinstance(service, RecordIndexService):
        yield from torch.utils.data.DataLoader(Data(), batch_size=8, num_workers=1 if form == "client" else 0)
        return
    shard = service.fetch_shard()
    while shard is not None:
        for i in range(0, len(shard.indices), 8):
            yield torch.tensor(shard.indices[i:i + 8])
        shard = service.fetch_shard()


model = torch.nn.Linear(1, size, bias=False, dtype=torch.float64)
torch.nn.init.zeros_(model.weight)
clips = form in ("service", "shards")


class Counting(torch.optim.SGD):
    """An optimizer that turns the mean of the gradients into their sum."""

    def step(self, closure=None):
        if not clips:
            model.weight.grad *= session.current().weights()[1]
        return super().step()


optimizer = DistributedOptimizer(Counting(model.parameters(), lr=1.0), named_parameters=model.named_parameters())
controller.set_broadcast_model(model)
controller.set_broadcast_optimizer(optimizer)
# that of rank 0 counts, or of those that have trained
controller.set_resume_epoch(int(os.environ["NUMBER"]))
model.weight.data += float(os.environ["NUMBER"]) * 1000
if form in ("client", "built"):
    controller.broadcast()
    assert float(model.weight.detach().min()) < 1000, "the first process has it"
done = 0


def train_one_batch(x):
    optimizer.zero_grad()
    loss = -model(torch.ones(1, 1, dtype=torch.float64))[0, x].mean()
    loss.backward()
    if clips:
        optimizer.synchronize()
        model.weight.grad *= session.current().weights()[1]
        with optimizer.skip_synchronize():
            optimizer.step()
    else:
        optimizer.step()
    time.sleep(pause)
    return loss


each = controller.elastic_run(train_one_batch)
with controller.scope():
    for x in batches():
        if form in ("client", "built"):
            controller.train_one_batch_with_retries(train_one_batch, x)
            done += service.report_batch_done()
        else:
            each(x)
counts = model.weight.detach().reshape(-1).tolist()
print(
    json.dumps(
        {
            "minibatches": controller.global_completed_batch_num,
            "epoch": controller.get_current_epoch(),
            "counts": sorted(set(counts)),
            "missing": counts.count(0),
            "shards": done,
        }
    ),
    flush=True,
)
