"""Rank 1 receives tensors from rank 0, which sends them slowly. Nobody writes anything."""
import sys, time
import torch, torch.distributed as dist

dist.init_process_group("gloo")
end = time.time() + float(sys.argv[1])
data = torch.zeros(1 << 17)
while not data[0].item():
    if dist.get_rank() == 0:
        time.sleep(3)
        data[0] = float(time.time() > end)
        dist.send(data, 1)
    else:
        dist.recv(data, 0)
