//go:build torch

package local_test

import (
	"syscall"
	"testing"

	"github.com/elasticdl/elasticdl/test/torch"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// A program that runs in worlds of an even size only survives the loss of a worker: the others wait
// for its replacement, and what fails them in a smaller world meanwhile is not counted.
func TestTorchParallelLosesAWorker(t *testing.T) {
	for _, python := range torch.Pythons(t) {
		if python.Name == "1.13" {
			continue // it has no tensor parallelism
		}
		for _, gather := range []string{"10s", "0s"} {
			t.Run(python.Name+", gather "+gather, func(t *testing.T) {
				j := script(t, python, "parallel.py", []string{"0.05"}, "--num_workers=2",
					"--heartbeat_timeout=3s", "--gather_timeout="+gather)
				before := j.whole(2)
				for worker := range 2 {
					j.kill(pod(j.status(), wire.Role_WORKER, worker), syscall.SIGKILL)
					before = j.whole(2, before...)
				}
				syscall.Kill(before[1], syscall.SIGKILL)
				j.whole(2, before...)
				j.enough()
				if s := j.end(0); s.State != "Succeeded" || s.Restarts != 0 {
					t.Errorf("%s, %d failures counted: %s", s.State, s.Restarts, s.Reason)
				}
				j.nobody()
			})
		}
	}
}
