//go:build torch

package program

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/test/torch"
)

// loaders is a script whose data set is defined in __main__, which every way of starting DataLoader workers must find.
const loaders = `
import os, sys, random, torch, numpy
import torch.multiprocessing as mp
from torch.utils.data import Dataset, DataLoader

class Numbers(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i): return torch.tensor([i])

def child(rank, x): print("spawned", rank, x, flush=True)

if __name__ == "__main__":
    print("threads", len(os.listdir("/proc/self/task")), torch.get_num_threads() if "OMP_NUM_THREADS" in os.environ else "", flush=True)
    print("seed", torch.initial_seed(), torch.rand(1).item(), flush=True)
    for way in ("fork", "spawn", "forkserver"):
        total = sum(int(b.sum()) for b in DataLoader(Numbers(), batch_size=16, num_workers=2, multiprocessing_context=way))
        print(way, total, flush=True)
    mp.spawn(child, args=(5,), nprocs=1)
    a = torch.rand(200, 200); print("product", torch.allclose(a @ a, torch.from_numpy(a.numpy() @ a.numpy()), atol=1e-3))
    print("draws", random.random(), numpy.random.rand(), file=sys.stderr, flush=True)
`

func TestTorchGolden(t *testing.T) {
	for _, python := range torch.Pythons(t) {
		for _, command := range [][]string{{"main.py"}, {"-m", "app.main"}} {
			t.Run(python.Name+"/"+command[0], func(t *testing.T) {
				for _, n := range []int{1, 2} { // with one process, libraries may have threads
					both(t, func(method StartMethod) string {
						b := newBench(t, Options{Command: append([]string{filepath.Join(filepath.Dir(python.Path), "python3")}, command...), StartMethod: method, LocalSize: n},
							map[string]string{"main.py": loaders, "app/__init__.py": "", "app/main.py": loaders})
						var redirects Streams
						redirects.all = Stdout
						b.options.Redirects = redirects
						g := b.start(n)
						var all strings.Builder
						for _, e := range b.ends(g) {
							if e.Code != 0 {
								t.Errorf("%+v", e)
							}
							text, _ := os.ReadFile(filepath.Join(b.attempt(0, e.Local), "stdout.log"))
							all.Write(text)
						}
						if g.Method() != method {
							t.Errorf("started by %v, not by %v", g.Method(), method)
						}
						if draws := strings.Split(strings.TrimSpace(b.err.String()), "\n"); n == 2 && strings.Fields(draws[0])[2] == strings.Fields(draws[1])[2] {
							t.Errorf("two ranks draw the same numbers: %q", draws)
						}
						return all.String()
					})
				}
			})
		}
	}
}

// A restart costs no import.
func TestTorchRestart(t *testing.T) {
	for _, python := range torch.Pythons(t) {
		t.Run(python.Name, func(t *testing.T) {
			b := newBench(t, Options{Command: []string{filepath.Join(filepath.Dir(python.Path), "python3"), "main.py"}, LocalSize: 4},
				map[string]string{"main.py": "import torch, time, os\nif os.fork() == 0: time.sleep(1000)\nprint('up', flush=True)\ntime.sleep(1000)\n"})
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
