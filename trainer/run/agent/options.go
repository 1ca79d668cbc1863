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

// GPUs returns the number of GPUs that this process can use: those that CUDA_VISIBLE_DEVICES names,
// or, if it is not set, those of the machine.
func GPUs() int {
	if names, ok := os.LookupEnv("CUDA_VISIBLE_DEVICES"); ok {
		n := 0
		for name := range strings.SplitSeq(names, ",") {
			// CUDA ignores all entries after such a one
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

// threads returns the OMP_NUM_THREADS of a process that starts in a world of the given number of
// processes, on a worker with count of them. It is the number of the worker's processors divided by
// the number of the job's processes that share them; 0 leaves the variable unset, for a process
// that has all processors of a machine. torchrun sets 1 if a node has more than one process,
// however many processors the node has.
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
