package master

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

func TestScale(t *testing.T) {
	for name, change := range map[string]func(*Config){"servers": func(*Config) {}, "ring": ringJob(nil)} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := start(t, func(c *Config) { change(c); c.Job.MinWorkers, c.Job.MaxWorkers = 2, 5 })
				w.join()
				for _, c := range []struct {
					n    int32
					says string
				}{
					{1, "fewer than 2 (--min_workers)"}, {0, "--min_workers"}, {-3, "--min_workers"},
					{6, "more than 5 (--max_workers)"},
				} {
					_, err := w.Scale(t.Context(), &wire.ScaleRequest{Workers: c.n})
					wantCode(t, err, codes.InvalidArgument)
					if err == nil || !strings.Contains(err.Error(), c.says) {
						t.Errorf("%v does not say %q", err, c.says)
					}
				}
				before := int32(2)
				for _, n := range []int32{5, 3, 3} {
					reply, err := w.Scale(t.Context(), &wire.ScaleRequest{Workers: n})
					if err != nil || reply.Before != before {
						t.Fatal(reply, err)
					}
					before = n
					if s := w.look(); s.Workers != n {
						t.Errorf("%d workers wanted, want %d", s.Workers, n)
					}
					for i := range 5 {
						if got := w.pods.isRunning(worker(i)); got != (i < int(n)) {
							t.Errorf("scaled to %d: worker %d is running: %t", n, i, got)
						}
					}
				}
				w.pods.beStubborn()
				w.Stop(t.Context(), &wire.StopRequest{})
				_, err := w.Scale(t.Context(), &wire.ScaleRequest{Workers: 2})
				wantCode(t, err, codes.FailedPrecondition)
			})
		})
	}
}

// The log reports worlds, what the ring waits for, and a lost model.
func TestRingLog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var lines strings.Builder
		w, p := startRing(t, func(c *Config) {
			c.Job.NumWorkers, c.Job.MinWorkers = 3, 2
			c.Log = slog.New(slog.NewTextHandler(&lines, nil))
		})
		w.done(0, w.task(0))
		for i := range 2 {
			w.kill(worker(i))
		}
		p[2].back(1, 7)
		time.Sleep(10 * time.Second)
		w.peer(3)
		w.peer(4)
		for i := 2; i <= 4; i++ {
			w.kill(worker(i))
		}
		for i := 5; i <= 7; i++ {
			w.peer(i)
		}
		if _, err := w.Scale(t.Context(), &wire.ScaleRequest{Workers: 4}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.peer(8) // the others have not come back yet
		time.Sleep(10 * time.Second)
		w.cancel()
		<-w.ended
		text := lines.String()
		for _, c := range []struct {
			line string
			n    int
		}{
			{`level=INFO msg="World 1 formed: 3 workers [worker-0 worker-1 worker-2], from the initial values"`, 1},
			{`msg="The ring does not work" reason="waiting for 1 of at least 2 workers"`, 1},
			{`msg="World 2 formed: 2 workers [worker-2 worker-3], state of worker-2 at version 7"`, 1},
			{`level=WARN msg="The training starts over" reason="every worker was lost, and the model with them`, 1},
			{`msg="World 3 formed: 3 workers [worker-5 worker-6 worker-7], from the initial values"`, 1},
			{`The ring does not work`, 1},
			{`World `, 3},
		} {
			if n := strings.Count(text, c.line); n != c.n {
				t.Errorf("%d lines with %q, want %d", n, c.line, c.n)
			}
		}
		if t.Failed() {
			t.Log(text)
		}
	})
}

// Scaling down removes the newest workers, and credits the records of their leases that are in the
// model.
func TestRingShrinks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, p := startRing(t, func(c *Config) { c.Job.NumWorkers = 4 })
		p[0].hears("world 1.1 [0 1 2 3] from []")
		lease := w.task(2)
		// the others wait for the end of the round, not for the end of the removed pods
		w.pods.beStubborn()
		if _, err := w.Scale(t.Context(), &wire.ScaleRequest{Workers: 2}); err != nil {
			t.Fatal(err)
		}
		p[0].hears("recall 1")
		for _, x := range p {
			x.back(1, 3, lease.Lease, 2)
		}
		p[0].hears("world 2.2 [0 1] from [0 1]")
		w.wantTask(w.task(0), lease.Start, 2)
		if s := w.look(); s.Relaunched != 0 || s.Workers != 2 {
			t.Errorf("status %v", s)
		}
	})
}

// A worker that the others cannot reach is replaced.
func TestRingEvicts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, p := startRing(t, func(c *Config) { c.Job.NumWorkers = 3 })
		lease := w.task(2)
		for generation := int64(1); w.pods.isRunning(worker(2)); generation++ {
			if generation > 5 {
				t.Fatal("it is not evicted")
			}
			for _, x := range p {
				suspect := int32(2)
				if x.index == 2 {
					suspect = 1
				}
				x.arrive(&wire.Arrival{Generation: generation, Round: 1, Version: 1, Broken: true, Suspect: suspect,
					Ledger: had(lease.Lease, 2)})
			}
		}
		w.wantTask(w.task(0), lease.Start, 2)
		if s := w.look(); s.WorldSize != 2 {
			t.Errorf("status %v", s)
		}
	})
}
