package master

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/verdict"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// ends has both workers arrive after a failure in a generation, with their output.
func ends(a, b *peer, generation int64, output string, f *wire.Failure) {
	a.w.Helper()
	a.arrive(&wire.Arrival{Generation: generation, Round: -1, Output: output, Failures: []*wire.Failure{f}})
	b.arrive(&wire.Arrival{Generation: generation, Round: -1})
}

// A program that ends in the same way three times in a row without progress ends the job, whatever
// --max_restarts says.
func TestProgramEndsInTheSameWay(t *testing.T) {
	for name, f := range map[string]*wire.Failure{
		"SIGKILL":   {Signal: int32(syscall.SIGKILL)},
		"SIGTERM":   {Signal: int32(syscall.SIGTERM)},
		"SIGINT":    {Signal: int32(syscall.SIGINT)},
		"SIGABRT":   {Signal: int32(syscall.SIGABRT)},
		"exit code": {Code: 7, Message: "RuntimeError: no"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, a, b := startProgram(t, 9)
				for generation := range int64(3) {
					time.Sleep(time.Second)
					ends(a, b, generation+1, "", f)
					if generation < 2 {
						a.enters(enterText(generation + 2))
					}
				}
				w.fails("the program ended in the same way 3 times in a row, without a completed " +
					"round, a new checkpoint file or other output in between: rank 0 (pid 0): " + reason(f))
				if s := w.status; s.State != string(job.Failed) || s.ExitCode != exitSame ||
					!strings.Contains(s.Failure, ", the same 3 times in a row; the job fails (") {
					t.Errorf("status %v", s)
				}
			})
		})
	}
}

// As long as other processes keep their state, the program has not ended: the limit is higher.
func TestProgramEndsInTheSameWayAndKeepsItsState(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, a, b := startProgram(t, 0)
		for generation := range int64(10) {
			time.Sleep(time.Second)
			a.arrive(&wire.Arrival{Generation: generation + 1, Round: -1,
				Failures: []*wire.Failure{{Signal: int32(syscall.SIGKILL)}}})
			b.arrive(&wire.Arrival{Generation: generation + 1, Beginning: 1, Round: 3})
			if generation+1 < 10 {
				a.enters(fmt.Sprintf("%d [0 1] from [1]", generation+2))
			}
		}
		w.fails("the program ended in the same way 10 times in a row")
	})
}

// The next master knows how often the program has ended in the same way, and whether the job has
// failed for it.
func TestProgramRepeatsAreSaved(t *testing.T) {
	m := newShell(Config{Job: job.DefaultOf(job.Run)}, nil, nil)
	p, next := newProgram(m), newProgram(m)
	text := `{"restarts":2,"failures":4,"last":"killed","doubts":1,"again":3,"repeats":{"last":{"signal":9},` +
		`"count":3,"ran":7},"repeated":true}`
	var saved savedProgram
	if err := cmp.Or(json.Unmarshal([]byte(text), &saved), p.restore(&saved)); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(p.save())
	if err != nil || string(again) != text {
		t.Errorf("saved as\n%s, %v, want\n%s", again, err, text)
	}
	saved = savedProgram{}
	if err := cmp.Or(json.Unmarshal(again, &saved), next.restore(&saved)); err != nil ||
		next.judge.Snapshot() != p.judge.Snapshot() || !next.judge.Repeated() {
		t.Errorf("restored %+v, %v", next.judge, err)
	}
	if err := next.restore(&savedProgram{Snapshot: verdict.Snapshot{Doubts: -1}}); err == nil {
		t.Error("an impossible record is restored")
	}
}

// A program that makes progress is never ended by kills.
func TestProgramIsKilledAndMakesProgress(t *testing.T) {
	kill := &wire.Failure{Signal: int32(syscall.SIGKILL)}
	for name, does := range map[string]func(a, b *peer, generation int64){
		"other output": func(a, b *peer, generation int64) {
			ends(a, b, generation, strings.Repeat("x", int(generation)), kill)
		},
		"output of another rank": func(a, b *peer, generation int64) {
			b.arrive(&wire.Arrival{Generation: generation, Round: -1, Output: strings.Repeat("x", int(generation))})
			a.fails(generation, kill)
		},
		"a checkpoint file": func(a, b *peer, generation int64) {
			a.fails(generation, kill)
			b.arrive(&wire.Arrival{Generation: generation, Round: -1, CheckpointUnixMs: generation})
		},
		"a round": func(a, b *peer, generation int64) {
			b.says(func(r *wire.HeartbeatRequest) { r.Rounds = generation })
			ends(a, b, generation, "", kill)
		},
		"no end in between": func(a, b *peer, generation int64) {
			if generation%3 > 0 {
				ends(a, b, generation, "", kill)
				return
			}
			a.fails(generation)
			b.fails(generation)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, a, b := startProgram(t, 0)
				for generation := range int64(12) {
					time.Sleep(31 * time.Second)
					does(a, b, generation+1)
					a.enters(enterText(generation + 2))
					b.enters(enterText(generation + 2))
				}
				if s := w.look(); s.State != string(job.Running) || s.ExitCode != 0 {
					t.Errorf("status %v", s)
				}
			})
		})
	}
}

// enterText is the message to both workers about a generation.
func enterText(generation int64) string { return fmt.Sprintf("%d [0 1] from []", generation) }
