package local_test

import (
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// `make accuracy` sets it, and MNIST_SOURCE to a directory with the IDX files of the whole data
// set.
var whole = flag.Bool("accuracy", false, "train on the whole of MNIST, as IDX files in $MNIST_SOURCE")

// TestAccuracy compares jobs with two servers and four workers, and rings of four, undisturbed and
// with workers killed all the time, with a single worker. Without -accuracy each trains three
// epochs on the shipped digits with a small model; with it, one epoch on MNIST. There, a further
// job has a hundred of its processes killed: workers, servers and the master.
func TestAccuracy(t *testing.T) {
	data, want, within, every := digits, 0.85, 0.05, 500*time.Millisecond
	calm, wild, epochs := small, patient, "3"
	if *whole {
		calm, wild, epochs = cnn, cnn, "1"
		data, want, within, every = filepath.Join(t.TempDir(), "mnist"), 0.97, 0.005, 5*time.Second
		args := []string{"dataset", "mnist", data}
		if source := os.Getenv("MNIST_SOURCE"); source != "" {
			args = append(args, "--source", source)
		}
		if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	set := []string{"--num_epochs=" + epochs, "--training_data=" + filepath.Join(data, "train"),
		"--validation_data=" + filepath.Join(data, "test")}
	// A ring with updates of the same size as those of one worker, each of a part from every
	// worker.
	few := []string{"--num_ps_pods=0", "--minibatch_size=16", "--num_minibatches_per_task=16", "--global_batch_size=64"}
	workers := func(j *launched) int { return j.killWorkers(every) }
	tests := []struct {
		name  string
		flags []string
		kill  func(*launched) int // returns the number of kills; nil = none
		least int
	}{
		{"1 worker", []string{"--num_ps_pods=1", "--num_workers=1"}, nil, 0},
		{"4 workers", nil, nil, 0},
		{"4 workers, killed", nil, workers, 1},
		{"ring of 4", few, nil, 0},
		{"ring of 4, killed", few, workers, 1},
	}
	if *whole {
		tests = append(tests, tests[1])
		last := &tests[len(tests)-1]
		last.name, last.flags, last.least = "4 workers, all kinds killed", []string{"--checkpoint_steps=20"}, 100
		last.kill = func(j *launched) int { return j.killAnybody(last.least, 400*time.Millisecond) }
	}
	one := 0.0 // the accuracy of one worker
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			model := calm
			if tt.kill != nil {
				model = wild
			}
			flags := slices.Concat(set, []string{model}, tt.flags)
			enough := max(want, one-within)
			accuracy := trainOnce(t, flags, tt.kill, tt.least)
			if i == 0 {
				one = accuracy
			}
			if accuracy >= enough {
				return
			}
			// The accuracies of asynchronous jobs scatter: with -accuracy around 0.982 by a
			// standard deviation of 0.001, where one worker has 0.9836. So one in some hundreds is
			// too low by chance. Two of three are not.
			t.Logf("accuracy %.4f, want %.4f, %.4f with one worker: the next two jobs must have it",
				accuracy, enough, one)
			for range 2 {
				if again := trainOnce(t, flags, tt.kill, tt.least); again < enough {
					t.Fatalf("accuracy %.4f, then %.4f, want %.4f, %.4f with one worker", accuracy, again, enough, one)
				}
			}
		})
	}
}

// trainOnce trains a job, kills its processes by kill, and checks that every record was trained on
// and at least that many processes were killed. It returns the accuracy.
func trainOnce(t *testing.T, flags []string, kill func(*launched) int, least int) float64 {
	t.Helper()
	began := time.Now()
	j := train(t, flags...)
	kills := 0
	if kill != nil {
		kills = kill(j)
	}
	s := j.end(0)
	accuracy := j.accuracy()
	t.Logf("accuracy %.4f, %d records in %v, %d processes killed, %d pods replaced, %d tasks taken back",
		accuracy, s.RecordsDone, time.Since(began).Round(time.Millisecond), kills, s.Relaunched, s.Requeued)
	if s.State != "Succeeded" || s.RecordsDone != s.RecordsTotal {
		t.Errorf("%s with %d of %d records", s.State, s.RecordsDone, s.RecordsTotal)
	}
	if out, err := exec.Command(program, "audit", j.name).CombinedOutput(); err != nil {
		t.Errorf("elasticdl audit: %v\n%s", err, out)
	}
	if kills < least {
		t.Errorf("%d processes were killed, want %d at least", kills, least)
	}
	return accuracy
}

// killWorkers kills the oldest running worker repeatedly until the job has ended, and returns how
// many it has killed. In a ring it waits until the workers have trained together for a while, and
// never kills the last one: so the job ends even if a worker takes longer to start than the time
// between kills.
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

// killAnybody kills n processes of the job, each chosen at random among the running workers,
// servers and master, unless the job ends before. It returns how many it has killed.
func (j *launched) killAnybody(n int, every time.Duration) int {
	j.t.Helper()
	j.until("training", trained(0.0001))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		j.wait()
	}()
	tick := time.NewTicker(every)
	defer tick.Stop()
	chance := rand.New(rand.NewPCG(12, 2))
	kills := make(map[wire.Role]int)
	done := 0
	for done < n {
		select {
		case <-ended:
			return done
		case <-tick.C:
		}
		alive := slices.DeleteFunc(j.status().Pods, func(p *wire.PodStatus) bool {
			return p.State != "Running" || p.Pid == 0
		})
		if len(alive) == 0 {
			continue
		}
		if p := alive[chance.IntN(len(alive))]; syscall.Kill(int(p.Pid), syscall.SIGKILL) == nil {
			kills[p.Role]++
			done++
		}
	}
	j.t.Logf("killed: %v; %.1f%% of the records were done then", kills,
		100*float64(j.status().RecordsDone)/float64(max(1, j.status().RecordsTotal)))
	<-ended
	return done
}
