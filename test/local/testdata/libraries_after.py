# Trains a model that counts its records: weight n rises by one each time that record n is in an
# update. Until the file "enough" is there a step lasts a while.
import collections
import os
import sys
import time

EPOCHS, ROWS = 2, 200
elasticdl.init()
model = torch.nn.Linear(ROWS, 1, bias=False).double()
torch.nn.init.zeros_(model.weight)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
state = elasticdl.State(model=model, optimizer=optimizer, steps=0)


@elasticdl.run
def train(state):
    net = elasticdl.DistributedDataParallel(model)
    for batch in batches():
        x = torch.as_tensor(batch["n"])
        share = torch.bincount(x, minlength=ROWS).double()  # how often it has each record
        optimizer.zero_grad()
        loss = -net(share[None]).sum() / len(x)
        loss.backward()
        from elasticdl import session
        model.weight.grad *= session.current().weights()[1]
        optimizer.step()
        state.steps += 1
        world = elasticdl.world()
        print(f"step {state.steps} rank {world.rank} world {world.size} pid {os.getpid()}", flush=True)
        if not os.path.exists(os.path.join(sys.argv[1], "enough")):
            time.sleep(2)
        elasticdl.step(loss)


train(state)
want = collections.Counter(n for epoch in range(EPOCHS) for n in range(ROWS))
if "order" in globals():
    want = collections.Counter(n for epoch in range(EPOCHS) for n in order(epoch))
counts = model.weight.detach().round().int().flatten().tolist()
wrong = [(n, count) for n, count in enumerate(counts) if count != want[n]]
print(f"counted {len(counts) - len(wrong)} right, {len(wrong)} wrong: {wrong[:20]}", flush=True)
sys.exit(1 if wrong else 0)
