"""Trains the model of counting.py with Accelerate."""
import os

import torch
from counting import EPOCHS, Counter, Model, Numbers, home, report, stepped

import elasticdl
from elasticdl.integrations.accelerate import Accelerator

elasticdl.checkpoint(os.path.join(home, "checkpoint.pt"), every=10)
elasticdl.init()
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = Model()
optimizer = Counter(model.parameters())
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
state = elasticdl.State(model=model, optimizer=optimizer, scheduler=scheduler, steps=0)
net, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)


@elasticdl.run
def train(state):
    for batch in accelerator.records(Numbers(), 4, epochs=EPOCHS):
        with accelerator.accumulate(net):
            loss = net(**batch)["loss"]
            assert accelerator.gather(torch.ones(1)).sum() == elasticdl.world().size
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            state.steps += 1
            stepped(state.steps)
            elasticdl.step(loss)


train(state)
report(accelerator.unwrap_model(net))
