//go:build torch

package program

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/test/torch"
)

// loaders is a script whose data set is defined in __main__. The workers of a DataLoader must find
// it, however they are started.
const loaders = `
import os, sys, random, torch, numpy
from torch.utils.data import Dataset, DataLoader

class Numbers(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i): return torch.tensor([i])

if __name__ == "__main__":
    if "OMP_NUM_THREADS" in os.environ: # else OpenBLAS has its own, which it starts again when it needs them after a fork
        print("threads", len(os.listdir("/proc/self/task")), torch.get_num_threads(), flush=True)
    print("draws", random.random(), numpy.random.rand(), torch.initial_seed(), file=sys.stderr, flush=True)
    for way in ("fork", "spawn"):
        total = sum(int(b.sum()) for b in DataLoader(Numbers(), batch_size=16, num_workers=2 if way == "fork" else 1, multiprocessing_context=way))
        print(way, total, flush=True)
    a = torch.rand(200, 200); print("product", torch.allclose(a @ a, torch.from_numpy(a.numpy() @ a.numpy()), atol=1e-3))
`

func TestTorchGolden(t *testing.T) {
	for _, python := range torch.Pythons(t) {
		t.Run(python.Name, func(t *testing.T) {
			both(t, func(method StartMethod) string {
				b := newBench(t, Options{Command: torchCommand(python), StartMethod: method,
					Redirects: Streams{all: Stdout}}, map[string]string{"main.py": loaders})
				g := b.start(2)
				var all strings.Builder
				// slow, because each spawned child imports torch
				for _, e := range b.endsWithin(g, 2*time.Minute) {
					if e.Code != 0 {
						t.Errorf("%+v", e)
					}
					text, _ := os.ReadFile(filepath.Join(b.attempt(0, e.Local), "stdout.log"))
					all.Write(text)
				}
				if g.Method() != method {
					t.Errorf("started by %v, not by %v", g.Method(), method)
				}
				lines := strings.Split(b.err.String(), "\n")
				one, two := strings.Fields(lines[0]), strings.Fields(lines[1])
				for i := 1; i < len(one); i++ {
					if one[i] == two[i] {
						t.Errorf("two ranks draw the same numbers: %q", lines)
					}
				}
				return all.String()
			})
		})
	}
}

// torchCommand returns the command that runs main.py. The interpreter has a name that is recognized
// as Python's.
func torchCommand(python torch.Python) []string {
	return []string{filepath.Join(filepath.Dir(python.Path), "python3"), "main.py"}
}

// dynamo is a script that imports torch._dynamo, and prints whether that has run no code: a forked
// process finds the module that its fork server has imported.
const dynamo = `
import os, importlib.machinery, torch
loader, ran = importlib.machinery.SourceFileLoader, []
plain = loader.exec_module
loader.exec_module = lambda self, module: (ran.append(module), plain(self, module))
try:
    import torch._dynamo
    had = not ran
except ImportError:
    had = False
print(sorted(n for n in os.environ if 'ASYNC' in n), had)
`

// The version of PyTorch is known under both start methods, so that PyTorch does not warn. A forked
// script finds the module imported that PyTorch 2.x imports with the first optimizer.
func TestTorchVersion(t *testing.T) {
	for _, python := range torch.Pythons(t) {
		for _, method := range []StartMethod{Fork, Exec} {
			t.Run(python.Name+"/"+method.String(), func(t *testing.T) {
				b := newBench(t, Options{Command: torchCommand(python), StartMethod: method},
					map[string]string{"main.py": dynamo})
				g := b.start(1)
				b.endsWithin(g, 2*time.Minute)
				want := "['NCCL_ASYNC_ERROR_HANDLING'] False\n"
				if python.Name != "1.13" {
					want = fmt.Sprintf("['TORCH_NCCL_ASYNC_ERROR_HANDLING'] %v\n",
						map[bool]string{true: "True", false: "False"}[method == Fork])
				}
				if g.Method() != method || b.out.String() != want {
					t.Errorf("started by %v: %q, want %q", g.Method(), b.out.String(), want)
				}
			})
		}
	}
}

// Without OMP_NUM_THREADS, OpenBLAS starts threads when it is imported, and ends them before a
// fork. So the program is forked all the same.
func TestTorchFromProcessWithThreads(t *testing.T) {
	for _, python := range torch.Pythons(t) {
		t.Run(python.Name, func(t *testing.T) {
			b := newBench(t, Options{Command: torchCommand(python)}, map[string]string{
				"main.py": "import torch, numpy\na = torch.rand(300, 300)\nprint(numpy.allclose((a " +
					"@ a).numpy(), a.numpy() @ a.numpy(), atol=1e-2))\n"})
			g := b.start(1)
			if b.ends(g); g.Method() != Fork || b.out.String() != "True\n" {
				t.Errorf("started by %v, %q", g.Method(), b.out.String())
			}
		})
	}
}

// last is a script that ends right after a collective, five times with three processes. With its
// long switch interval, Python's lock is released only by a thread that waits.
const last = `
import os, sys, torch
import torch.distributed as dist

def play():
    for attempt in range(5):
        file = "file://%s/store%d" % (os.getcwd(), attempt)
        children = []
        for rank in range(3):
            children.append(os.fork())
            if children[-1] == 0:
                dist.init_process_group("gloo", init_method=file, rank=rank, world_size=3)
                sys.setswitchinterval(1000)
                for _ in range(20):
                    dist.all_reduce(torch.ones(1), async_op=True).wait()
                return
        print([os.waitpid(pid, 0)[1] for pid in children], flush=True)

play()
`

// A process ends with exit code 0 although a thread of gloo has not yet released the tensor of the
// last collective.
func TestTorchLastCollective(t *testing.T) {
	for _, python := range torch.Pythons(t) {
		t.Run(python.Name, func(t *testing.T) {
			b := newBench(t, Options{Command: torchCommand(python)}, map[string]string{"main.py": last})
			g := b.start(1)
			b.endsWithin(g, 2*time.Minute)
			if want := strings.Repeat("[0, 0, 0]\n", 5); g.Method() != Fork || b.out.String() != want {
				t.Errorf("started by %v: %s%s", g.Method(), b.out.String(), b.err.String())
			}
		})
	}
}

// A restart does not import torch again.
func TestTorchRestart(t *testing.T) {
	for _, python := range torch.Pythons(t) {
		t.Run(python.Name, func(t *testing.T) {
			b := newBench(t, Options{Command: torchCommand(python)},
				map[string]string{"main.py": "import torch, time, os\nif os.fork() == 0: " +
					"time.sleep(1000)\nprint('up', flush=True)\ntime.sleep(1000)\n"})
			g := b.start(4)
			var times []time.Duration
			for i := range 10 {
				await(t, "all ranks", func() bool { return strings.Count(b.out.String(), "up\n") == 4*(i+1) })
				begin := time.Now()
				g.Stop(syscall.SIGKILL, 0)
				g = b.start(4)
				await(t, "all ranks again", func() bool { return strings.Count(b.out.String(), "up\n") == 4*(i+2) })
				times = append(times, time.Since(begin).Round(time.Millisecond))
			}
			t.Logf("PyTorch %s, from the kill to all four in the script: %v", python.Version, times)
			if g.Method() != Fork {
				t.Error("not forked")
			}
		})
	}
}
