"""A script that trains on leases or shards without a data loader; its model counts its records."""

import json
import sys
import time

import torch

import elasticdl
from elasticai_api.common.data_shard_service import build_data_shard_service
from elasticdl import session

size, task, pause, shards = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), len(sys.argv) > 4
torch.set_num_threads(1)
service = build_data_shard_service(8, 1, size, shuffle=True, num_minibatches_per_shard=task // 8) if shards else None
elasticdl.init()
model = torch.nn.Linear(1, size, bias=False)
torch.nn.init.zeros_(model.weight)
norm = torch.nn.BatchNorm1d(1)  # refuses batches of one record
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
idle = 0


def update(batch, report):
    norm(torch.ones(len(batch), 1))
    optimizer.zero_grad()
    (-model(torch.ones(1, 1))[0, batch].mean()).backward()
    report(len(batch))
    elasticdl.allreduce_gradients(model)
    # a mean to a sum, so that the model counts
    model.weight.grad *= session.current().weights()[1]
    optimizer.step()
    time.sleep(pause)
    elasticdl.step()


@elasticdl.run
def train(state):
    global idle
    if shards:
        while True:
            shard = service.fetch_shard()
            if shard is None:
                return
            assert shard.end > shard.start
            for at in range(0, len(shard.indices), 8):
                update(shard.indices[at:at + 8], service.report_batch_done)
    elasticdl.dataset(size, records_per_task=task)
    while True:
        lease = elasticdl.lease()
        if lease is None:
            return
        idle += len(lease) == 0
        indices = lease.indices()
        while indices:
            batch, indices = indices[:8], indices[8:]
            update(batch, lease.done)


train(elasticdl.State(model=model, optimizer=optimizer))
counts = model.weight.detach().reshape(-1).round().int().tolist()
print(
    json.dumps(
        {
            "wrong": [(i, c) for i, c in enumerate(counts) if c != 1],
            "idle": idle,
            "formation": elasticdl.world().formation,
        }
    ),
    flush=True,
)
