package local_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// make accuracy sets it, and MNIST_SOURCE to a folder with the IDX files of the whole set.
var whole = flag.Bool("accuracy", false, "train on the whole of MNIST, as IDX files in $MNIST_SOURCE")

// TestAccuracy compares one epoch with two servers and four workers, and of a ring of four, each undisturbed
// and with workers killed all the time, with one worker alone. Without -accuracy it is of the shipped digits.
func TestAccuracy(t *testing.T) {
	data, want, within, every := digits, 0.85, 0.05, 500*time.Millisecond
	if *whole {
		data, want, within, every = filepath.Join(t.TempDir(), "mnist"), 0.97, 0.005, 5*time.Second
		args := []string{"dataset", "mnist", data}
		if source := os.Getenv("MNIST_SOURCE"); source != "" {
			args = append(args, "--source", source)
		}
		if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	set := []string{cnn, "--num_epochs=1", "--training_data=" + filepath.Join(data, "train"), "--validation_data=" + filepath.Join(data, "test")}
	// A ring with the updates of one worker, each of a part from every worker.
	few := []string{"--num_ps_pods=0", "--minibatch_size=16", "--num_minibatches_per_task=16", "--global_batch_size=64"}
	found := make(map[string]float64)
	for _, tt := range []struct {
		name    string
		flags   []string
		killing bool
	}{
		{"1 worker", []string{"--num_ps_pods=1", "--num_workers=1"}, false},
		{"4 workers", nil, false},
		{"4 workers, killed", nil, true},
		{"ring of 4", few, false},
		{"ring of 4, killed", few, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			began := time.Now()
			j := train(t, slices.Concat(set, tt.flags)...)
			kills := 0
			if tt.killing {
				kills = j.killWorkers(every)
			}
			s := j.end(0)
			found[tt.name] = j.accuracy()
			t.Logf("accuracy %.4f, %d records in %v, %d workers killed, %d pods replaced, %d tasks taken back",
				found[tt.name], s.RecordsDone, time.Since(began).Round(time.Millisecond), kills, s.Relaunched, s.Requeued)
			if s.State != "Succeeded" || s.RecordsDone != s.RecordsTotal {
				t.Errorf("%s with %d of %d records", s.State, s.RecordsDone, s.RecordsTotal)
			}
			if tt.killing && kills == 0 {
				t.Error("no worker was killed")
			}
			if found[tt.name] < want {
				t.Errorf("accuracy %.4f, want %.4f", found[tt.name], want)
			}
			if found[tt.name] < found["1 worker"]-within {
				t.Errorf("accuracy %.4f, %.4f with one worker: want no more than %.3f less", found[tt.name], found["1 worker"], within)
			}
		})
	}
}

// killWorkers kills the oldest worker that runs, again and again until the job has ended, and says
// how many. Those of a ring have to have trained together for a while, and one stays: so the job
// ends although a worker takes longer to start than it is left alone.
func (j *launched) killWorkers(every time.Duration) int {
	j.t.Helper()
	before := j.until("training", trained(0.0001))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		j.wait()
	}()
	tick := time.NewTicker(every)
	defer tick.Stop()
	kills := 0
	for {
		select {
		case <-ended:
			return kills
		case <-tick.C:
		}
		s := j.status()
		trains := s.World == before.World && s.RecordsDone != before.RecordsDone
		before = s
		if !trains || s.World > 0 && s.WorldSize < 2 {
			continue
		}
		workers := slices.DeleteFunc(s.Pods, func(p *wire.PodStatus) bool {
			return p.Role != wire.Role_WORKER || p.State != "Running" || p.Pid == 0
		})
		if len(workers) > 0 && syscall.Kill(int(workers[0].Pid), syscall.SIGKILL) == nil {
			kills++
		}
	}
}
