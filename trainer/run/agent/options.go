package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Processes returns the number of processes of each worker, for a value of --nproc_per_node.
func Processes(asked string, processors int) (int, error) {
	if n, err := strconv.Atoi(asked); err == nil {
		return n, nil
	}
	gpus := GPUs()
	switch {
	case asked == "cpu", asked == "auto" && gpus == 0:
		return max(1, processors), nil
	case gpus > 0:
		return gpus, nil
	}
	return 0, errors.New("--nproc_per_node=gpu: this worker has no GPU; expected a number, auto or cpu")
}

// GPUs returns how many GPUs this process can use: those that CUDA_VISIBLE_DEVICES names, or else
// those that the machine has.
func GPUs() int {
	if names, ok := os.LookupEnv("CUDA_VISIBLE_DEVICES"); ok {
		n := 0
		for name := range strings.SplitSeq(names, ",") {
			// CUDA ignores what follows such an entry
			if name = strings.TrimSpace(name); name == "" || name == "-1" {
				break
			}
			n++
		}
		return n
	}
	found, _ := filepath.Glob("/dev/nvidia[0-9]*") // the pattern is valid
	return len(found)
}

// threads returns the OMP_NUM_THREADS of a process that starts in a world of that many, on a worker
// with count of them: its share of the processors, by all processes of the job that have them.
// torchrun sets 1 for more than one process of a node, however many processors the node has. 0: the
// only process of a machine has all of them on its own.
func (c Config) threads(count, world int) int {
	share := count
	if c.Workers > 0 {
		share = max(c.Workers*count, world)
	}
	if share <= 1 && !c.Limited {
		return 0
	}
	return max(1, c.Processors/max(1, share))
}
