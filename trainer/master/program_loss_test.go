package master

import (
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// asserts is the failure of a program that needs a world of a certain size.
func asserts() *wire.Failure {
	return &wire.Failure{Code: 1, Pid: 7, Message: "AssertionError: World size 1 needs to be divisible by TP size 2"}
}

// recalls reads the next order, which is to come back.
func (p *peer) recalls() {
	p.w.Helper()
	if word := p.word(); word.GetRecall() == nil {
		p.w.Fatalf("worker %d hears %q, want a recall", p.index, say(word))
	}
}

// waits checks what the status says that the job waits for.
func (w *world) waits(want string) {
	w.Helper()
	if s := w.look(); s.Waiting != want {
		w.Fatalf("the status says that it waits for %q, want %q", s.Waiting, want)
	}
}

// The first world waits for all workers that were asked for, up to a limit, and the status reports
// it.
func TestProgramGathers(t *testing.T) {
	t.Run("all", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			w := start(t, runJob(0))
			b := w.peer(1)
			time.Sleep(4 * time.Second)
			w.waits("waiting for 1 of 2 workers, for at most 6s more: then the program starts " +
				"without (--gather_timeout=10s)")
			a := w.peer(0)
			a.enters("1 [1 0] from []")
			b.enters("1 [1 0] from []")
			w.waits("")
		})
	})
	for _, limit := range []time.Duration{10 * time.Second, 3 * time.Second, 0} {
		t.Run(limit.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := start(t, func(c *Config) {
					runJob(0)(c)
					c.Job.Program.Gather.Duration = limit
				})
				// without the flag, joins wait for each other for a moment
				a, wait := w.peer(0), max(limit, 300*time.Millisecond)
				time.Sleep(wait - time.Millisecond)
				if word := a.word(); word != nil {
					t.Errorf("the first worker hears %q before", say(word))
				}
				time.Sleep(time.Millisecond)
				a.enters("1 [0] from []")
			})
		})
	}
}

// A world without a state that has lost a worker waits for the replacement, and begins on its
// arrival. One in which a process has kept the state continues at once.
func TestProgramWaitsForAReplacement(t *testing.T) {
	lost := func(t *testing.T, then func(w *world, b *peer)) {
		bubble(t, func(t *testing.T) {
			w, a, b := startProgram(t, 0)
			a.close()
			w.kill(worker(0))
			b.recalls()
			then(w, b)
		})
	}
	t.Run("no state", func(t *testing.T) {
		lost(t, func(w *world, b *peer) {
			b.fails(1, &wire.Failure{Code: 1, Message: "Connection reset by peer"})
			time.Sleep(9 * time.Second)
			w.waits("waiting for 1 of 2 workers, for at most 1s more: then the program starts " +
				"without (--gather_timeout=10s)")
			c := w.peer(2)
			c.enters("2 [1 2] from []")
			if got := b.enters("2 [1 2] from []"); got.PauseMs != 0 || got.Restarts != 1 || got.MaxRestarts != 1 {
				b.w.Errorf("world %v, want no pause and 1 restart", got)
			}
		})
	})
	t.Run("state", func(t *testing.T) {
		lost(t, func(w *world, b *peer) {
			b.arrive(&wire.Arrival{Generation: 1, Beginning: 1, Round: 3})
			b.enters("2 [1] from [0]")
		})
	})
}

// loses has a program of two workers start again in a world of one, as the other was lost and the
// replacement does not come in time.
func loses(t *testing.T) (w *world, b *peer) {
	t.Helper()
	w, a, b := startProgram(t, 0)
	a.close()
	w.kill(worker(0))
	b.recalls()
	b.fails(1)
	time.Sleep(gatherTimeout)
	b.enters("2 [1] from []")
	return w, b
}

// Failures in a world that lacks a worker are not counted while the replacement is on its way,
// however often they come. The program starts again when it is there, and its failures count from
// then on.
func TestFailureIsNotCountedInASmallWorld(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, b := loses(t)
		for i := range int64(7) {
			b.fails(2+i, asserts())
			if got := b.next(3 + i); got.PauseMs < gatherTimeout.Milliseconds() ||
				got.PauseMs > time.Minute.Milliseconds() {
				t.Fatalf("after %d failures it waits %d ms", i+1, got.PauseMs)
			}
			if i == 0 {
				time.Sleep(2 * time.Second)
				w.waits("waiting for 1 of 2 workers, for at most 8s more: the program failed in a world without them")
				if s, want := w.look(), asserts().Message+
					" (exit code 1), in a world that lacked 1 of 2 workers; the program starts "+
					"again when they are there, or in 10s (not counted)"; !strings.HasSuffix(s.Failure, want) {
					t.Errorf("reported %q, want %q", s.Failure, want)
				}
			}
			time.Sleep(time.Minute)
		}
		if s := w.look(); s.Restarts != 0 || s.Failures != 7 || s.State != string(job.Running) {
			t.Fatalf("status %v", s)
		}
		c := w.peer(2)
		b.recalls()
		b.fails(9)
		c.enters("10 [1 2] from []")
		if got := b.enters("10 [1 2] from []"); got.PauseMs != 0 {
			t.Errorf("the world with the replacement waits %d ms", got.PauseMs)
		}
		b.fails(10, asserts())
		c.fails(10)
		w.fails("the program failed: rank 0 (pid 7): AssertionError")
	})
}

// next returns the world of a generation, whatever its number.
func (p *peer) next(generation int64) *wire.World {
	p.w.Helper()
	word := p.word()
	if word.GetWorld().GetGeneration() != generation {
		p.w.Fatalf("worker %d hears %q, want generation %d", p.index, say(word), generation)
	}
	return word.GetWorld()
}

// A replacement that arrives in the pause after such a failure ends the pause.
func TestProgramStartsWithTheReplacement(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, b := loses(t)
		b.fails(2, asserts())
		b.next(3)
		c := w.peer(2)
		b.recalls()
		b.fails(3)
		if got := c.next(4); got.PauseMs != 0 || len(got.Members) != 2 {
			t.Errorf("%v, want a world of two without a pause", got)
		}
		w.waits("")
	})
}

// A failure of a world that has made progress without a worker is counted: after five minutes,
// after a round, or when nobody else is expected.
func TestFailureIsCountedInASmallWorld(t *testing.T) {
	for name, does := range map[string]func(w *world, b *peer){
		"lasted":      func(*world, *peer) { time.Sleep(5 * time.Minute) },
		"a round":     func(_ *world, b *peer) { b.says(func(r *wire.HeartbeatRequest) { r.Rounds = 2 }) },
		"scaled down": func(w *world, _ *peer) { w.Scale(w.Context(), &wire.ScaleRequest{Workers: 1}) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, b := loses(t)
				does(w, b)
				b.fails(2, asserts())
				w.fails("the program failed: rank 0 (pid 7): AssertionError")
			})
		})
	}
}

// A world lacks a worker, too, whose processes are being started again.
func TestFailureIsNotCountedWithoutAllProcesses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, a, b := startProgram(t, 0)
		crew := func(n int32) *wire.Crew { return &wire.Crew{Processes: n} }
		a.arrive(&wire.Arrival{Generation: 1, Round: -1, Crew: crew(0), Failures: []*wire.Failure{{Signal: 9}}})
		b.arrive(&wire.Arrival{Generation: 1, Beginning: 1, Round: 3, Crew: crew(1)})
		a.enters("2 [1 0] from [0]")
		b.enters("2 [1 0] from [0]")
		b.arrive(&wire.Arrival{Generation: 2, Round: -1, Crew: crew(0), Failures: []*wire.Failure{asserts()}})
		a.recalls()
		a.arrive(&wire.Arrival{Generation: 2, Round: -1, Crew: crew(0)})
		if got := a.next(3); got.PauseMs != 0 {
			t.Errorf("it waits %d ms, and all workers are there", got.PauseMs)
		}
		if s := w.look(); s.Restarts != 0 || s.Failures != 2 {
			t.Errorf("status %v", s)
		}
	})
}

// A process that is killed from outside in a world that lacks a worker starts again at once.
func TestProgramIsKilledInASmallWorld(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, b := loses(t)
		b.fails(2, &wire.Failure{Signal: 9})
		if got := b.next(3); got.PauseMs != 0 {
			t.Errorf("it waits %d ms after a kill", got.PauseMs)
		}
	})
}
