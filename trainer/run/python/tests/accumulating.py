"""A script that accumulates the gradients of several batches in each round.

Its arguments are the number of records and the batches in a round. The last round has fewer batches
with records.
"""

import json
import sys

import torch

import elasticdl

size, every = int(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(1)
elasticdl.init()
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
data = [torch.tensor([float(i)]) for i in range(size)]


@elasticdl.run
def train(state):
    net = elasticdl.DistributedDataParallel(model)
    for i, x in enumerate(elasticdl.records(data, 16, records_per_task=16)):
        if i % every < every - 1:
            with net.no_sync():
                net(x).mean().backward()
            continue
        net(x).mean().backward()
        optimizer.step()
        elasticdl.step()
        optimizer.zero_grad()


train(elasticdl.State(model=model, optimizer=optimizer))
print(
    json.dumps(
        {"records": sum(elasticdl.session.current().ledger.values()), "rounds": elasticdl.session.current().round}
    ),
    flush=True,
)
