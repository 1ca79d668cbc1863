"""DistributedDataParallel on gloo, whose steps take 20 s, each with a line of output."""
import sys, time
import torch, torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 1))
end = time.time() + float(sys.argv[1])
last = torch.zeros(1)
while not last.item():
    time.sleep(20)
    model(torch.rand(8, 10)).sum().backward()
    print("step", flush=True)
    last = torch.tensor([float(time.time() > end)])
    dist.broadcast(last, 0)
