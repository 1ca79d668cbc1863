package master

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

const (
	// doubted is the reason of doubt's failure.
	doubted = "the group of generation 4 cannot be made: timed out (exit code 81)"
	// doubtedAgain is the reason of the job's failure after five doubts.
	doubtedAgain = "rank 1 (pid 7): " + doubted + ", in 5 worlds without a completed round"
)

// doubt returns the failure of a process that doubts its state.
func doubt() *wire.Failure {
	return &wire.Failure{Rank: 1, Pid: 7, Code: 81, Excused: true, Doubt: true,
		Message: "the group of generation 4 cannot be made: timed out"}
}

// doubters runs worlds of workers that end one after the other.
type doubters struct {
	w          *world
	peers      []*peer
	generation int64
}

// end ends the world with failures of the first worker's processes, a while after their start, and
// returns the status.
func (d *doubters) end(failures ...*wire.Failure) *wire.JobStatus {
	d.w.Helper()
	time.Sleep(40 * time.Second)
	for i, p := range d.peers {
		if i > 0 {
			failures = nil
		}
		p.fails(d.generation, failures...)
	}
	d.generation++
	for _, p := range d.peers {
		p.enters(fmt.Sprintf("%d [0 1] from []", d.generation))
	}
	return d.w.look()
}

// doubt ends some worlds with a doubt, none of which is counted, and before which there were
// others.
func (d *doubters) doubt(before, n int) {
	d.w.Helper()
	for i := range n {
		want := "rank 1 of worker-0 (pid 7): " + doubted
		if before+i > 0 {
			want += fmt.Sprintf(", in %d worlds without a completed round", before+i+1)
		}
		want += "; the program starts again (not counted)"
		if s := d.end(doubt()); s.Failure != want {
			d.w.Fatalf("reported %q, want %q", s.Failure, want)
		}
	}
}

// The fifth world that ends with a doubt is counted if no round was completed in between. Worlds
// that end otherwise do not count.
func TestProgramDoubts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, a, b := startProgram(t, 1)
		d := &doubters{w, []*peer{a, b}, 1}
		d.doubt(0, 3)
		d.end()
		d.end(&wire.Failure{Signal: int32(syscall.SIGKILL)}, doubt())
		d.doubt(3, 1)
		b.says(func(r *wire.HeartbeatRequest) { r.Rounds = d.generation })
		d.doubt(0, 1) // the world completed a round
		d.doubt(0, 4)
		s, want := d.end(doubt()), "rank 1 of worker-0 (pid 7): "+doubted+
			", in 5 worlds without a completed round; the program starts again (counted)"
		if s.Failure != want || s.Restarts != 1 {
			t.Fatalf("%d restarts, reported %q, want 1 and %q", s.Restarts, s.Failure, want)
		}
		d.doubt(0, 4)
		time.Sleep(40 * time.Second)
		a.fails(d.generation, doubt())
		b.fails(d.generation)
		w.fails("the program failed 2 times, --max_restarts=1: " + doubtedAgain)
	})
}

// The program's own failure is counted on its own: the doubts before it do not count any more.
func TestProgramFailsAfterDoubts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, a, b := startProgram(t, 1)
		d := &doubters{w, []*peer{a, b}, 1}
		d.doubt(0, 4)
		if s := d.end(&wire.Failure{Code: 1}); s.Restarts != 1 {
			t.Fatalf("%d restarts, want 1", s.Restarts)
		}
		d.doubt(0, 4)
	})
}

// A world that has lost a member does not count, whatever its other members report.
func TestProgramDoubtsAndLosesMember(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, a, b := startProgram(t, 0)
		d := &doubters{w, []*peer{a, b}, 1}
		d.doubt(0, 4)
		a.close()
		w.kill(worker(0))
		b.fails(5, doubt())
		time.Sleep(time.Second)
		c := w.peer(2)
		b.enters("6 [1 2] from []")
		b.fails(6, doubt())
		c.fails(6)
		w.fails("the program failed: " + doubtedAgain)
	})
}

// The next master knows how many worlds have ended with a doubt, and hears of rounds again.
func TestProgramDoubtsAsTheMasterComesBack(t *testing.T) {
	for _, round := range []bool{false, true} {
		t.Run(fmt.Sprintf("round %v", round), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := reign(t, runJob(0))
				a, b := r.peer(0), r.peer(1)
				a.enters("1 [0 1] from []")
				b.enters("1 [0 1] from []")
				d := &doubters{r.world, []*peer{a, b}, 1}
				d.doubt(0, 4)
				r.ends(Leave, ErrLeft)
				r.follow()
				a, b = r.peer(0), r.peer(1)
				d.peers = []*peer{a, b}
				time.Sleep(time.Minute)
				for _, p := range d.peers {
					for word := p.word(); word != nil; word = p.word() {
						d.generation = max(d.generation, word.GetWorld().GetGeneration())
					}
				}
				if round {
					a.says(func(r *wire.HeartbeatRequest) { r.Rounds = d.generation })
					d.doubt(0, 1)
					return
				}
				a.fails(d.generation, doubt())
				b.fails(d.generation)
				r.fails("the program failed: " + doubtedAgain)
			})
		})
	}
}
