package master

import (
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// The status of a program that does not get on says why within 10 s: while its processes start,
// when they stop completing rounds, and when they take long to end. A checkpoint that cannot be
// written is a problem that the program outlasts.
func TestProgramStandsStill(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, a, b := startProgram(t, 0)
		beat := func(p *peer, stage wire.Stage, steps int64) {
			p.says(func(r *wire.HeartbeatRequest) {
				r.Stage, r.Steps, r.Unsaved = stage, steps, ""
				if stage >= wire.Stage_STAGE_TRAINING {
					trains(r)
				}
			})
		}
		waits := func(want string) {
			t.Helper()
			if got := w.look().Waiting; got != want {
				t.Fatalf("the status says %q, want %q", got, want)
			}
		}
		beat(a, wire.Stage_STAGE_IMPORTING, 0)
		beat(b, wire.Stage_STAGE_IMPORTING, 0)
		waits("")
		time.Sleep(6100 * time.Millisecond) // between heartbeats
		waits("torch to be imported, before processes start, by worker-0, worker-1")
		beat(a, wire.Stage_STAGE_TRAINING, 1)
		waits("")
		time.Sleep(6100 * time.Millisecond) // between heartbeats
		beat(b, wire.Stage_STAGE_SILENT, 0)
		waits("the first output of the processes of worker-1")
		beat(b, wire.Stage_STAGE_TRAINING, 1)
		waits("")
		time.Sleep(9200 * time.Millisecond)
		beat(a, wire.Stage_STAGE_TRAINING, 1)
		waits("a step of its processes: none was completed for 9s")
		a.says(func(r *wire.HeartbeatRequest) {
			trains(r)
			r.Stage, r.Steps, r.Unsaved = wire.Stage_STAGE_TRAINING, 2, "/ck.pt: No space left on device"
		})
		if s := w.look(); s.Waiting != "" || !strings.Contains(strings.Join(s.Problems, "; "),
			"worker-0, which continues: /ck.pt: No space left on device") {
			t.Errorf("waits for %q; problems %q", s.Waiting, s.Problems)
		}
		beat(a, wire.Stage_STAGE_TRAINED, 3)
		if s := w.look(); len(s.Problems) != 0 {
			t.Errorf("a problem that is over: %q", s.Problems)
		}
		beat(b, wire.Stage_STAGE_TRAINED, 2)
		time.Sleep(6100 * time.Millisecond) // between heartbeats
		waits("the processes to end, as the training is complete, of worker-0, worker-1")
		a.says(func(r *wire.HeartbeatRequest) { r.Stage, r.Finished = wire.Stage_STAGE_TRAINED, 1 })
		waits("the processes to end, as the training is complete, of worker-1")
	})
}
