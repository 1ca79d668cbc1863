"""Saves checkpoints of some size again and again, without output, and the others wait."""
import os, sys, tempfile, time
import torch, torch.distributed as dist

dist.init_process_group("gloo")
end = time.time() + float(sys.argv[1])
if dist.get_rank() == 0:
    with tempfile.TemporaryDirectory() as folder:
        while time.time() < end:
            torch.save(torch.zeros(1 << 19), os.path.join(folder, "model.pt"))
            time.sleep(2)
dist.barrier()
