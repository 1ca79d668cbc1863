package master

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// If one member of a ring cannot begin with a checkpoint, the checkpoint is not used: the state of
// members that have begun with it does not count, and all begin with the checkpoint before.
func TestRingVoidRound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, next := beginsAgain(t, nil)
		word := next[0].word()
		if say(word) != "world 2.2 [2 3] from []" || word.GetWorld().Base.GetNumber() != 1 {
			t.Fatal(word)
		}
		next[1].hears("world 2.2 [2 3] from []")
		next[0].arrive(&wire.Arrival{Generation: 2, Round: -1, Damage: "its checksum is another"})
		next[1].back(2, 7, 1, 2)
		synctest.Wait()
		var words []string
		for word = next[1].word(); word != nil; word = next[1].word() {
			words = append(words, say(word))
			if base := word.GetWorld().GetBase(); base != nil {
				t.Errorf("it begins with %v again", base)
			}
		}
		if n := len(words); n == 0 || !strings.HasSuffix(words[n-1], "[2 3] from []") {
			t.Errorf("the one that could begin hears %q", words)
		}
		if s := w.look(); s.RecordsDone != 0 || s.Version != 0 || s.ModelGeneration != 3 ||
			!strings.Contains(s.RollbackReason, "checkpoint 1, with which the model was to begin, cannot be used") {
			t.Error(s)
		}
	})
}

// A checkpoint of a version that was lost with the only worker that had it is not taken for one of
// a later version with the same number.
func TestRingCheckpointOfALostVersion(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, p := startRing(t, func(c *Config) { c.Job.CheckpointDir, c.Job.CheckpointSteps = t.TempDir(), 1 })
		first := w.task(0)
		p[0].says(func(r *wire.HeartbeatRequest) { of(first, 2)(r); r.Version, r.Generation = 7, 1 })
		p[0].says(func(r *wire.HeartbeatRequest) { r.Cut = copied(1, 7) })
		if c := w.look().Checkpoint; c.Number != 1 || c.Version != 7 {
			t.Fatal(c)
		}
		w.kill(worker(0))
		next := w.peer(2)
		p[1].back(1, 6, 1, 1)
		for word := p[1].word(); word != nil; word = p[1].word() {
			if word.GetCut().GetNumber() > 0 {
				t.Errorf("version 6 is copied")
			}
		}
		next.hears("world 2.2 [1 2] from [0]")
		p[1].says(func(r *wire.HeartbeatRequest) { r.Version, r.Generation = 7, 2 })
		if word := p[1].word(); word.GetCut().GetNumber() != 2 {
			t.Errorf("the other version 7 is not copied, worker 1 hears %q", say(word))
		}
	})
}

// A suspended job ends with the checkpoint that is made for the suspension: it begins no other one
// while its workers end, and its status shows the state of the checkpoint, whatever was reported
// before.
func TestRingSuspension(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var failed []CheckpointFailed
		r := reign(t, ringJob(func(c *Config) {
			c.Job.CheckpointDir, c.Job.CheckpointSteps = t.TempDir(), 1000
			c.OnEvent = func(e Event) {
				if e, ok := e.(CheckpointFailed); ok {
					failed = append(failed, e)
				}
			}
		}))
		p := []*peer{r.peer(0), r.peer(1)}
		p[0].hears("world 1.1 [0 1] from []")
		first := r.task(0)
		p[0].says(func(b *wire.HeartbeatRequest) { of(first, 1)(b); b.Version, b.Generation = 6, 1 })
		r.notices <- Suspend
		synctest.Wait()
		if word := p[0].word(); word.GetCut().GetNumber() != 1 {
			t.Fatalf("worker 0 hears %q", say(word))
		}
		// the training continues while the checkpoint is written
		p[0].says(func(b *wire.HeartbeatRequest) { b.Version = 8 })
		p[0].says(func(b *wire.HeartbeatRequest) { b.Cut = copied(1, 7) })
		<-r.ended
		s := r.status
		if c := s.Checkpoint; s.State != "Suspended" || c.Number != 1 || c.Problem != "" || len(failed) > 0 {
			t.Errorf("%s at %v; %v", s.State, c, failed)
		}
		if s.Version != 7 || s.RecordsDone != 2 || s.Epoch != 1 {
			t.Errorf("version %d, %d records, epoch %d; the checkpoint has version 7 and 2 records "+
				"of epoch 1", s.Version, s.RecordsDone, s.Epoch)
		}
	})
}

// A checkpoint that is not complete when its job is stopped is not reported as failed.
func TestRingStoppedDuringACheckpoint(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, p := startRing(t, func(c *Config) { c.Job.CheckpointDir, c.Job.CheckpointSteps = t.TempDir(), 1 })
		p[0].hears("world 1.1 [0 1] from []")
		first := w.task(0)
		p[0].says(func(b *wire.HeartbeatRequest) { of(first, 1)(b); b.Version, b.Generation = 6, 1 })
		if word := p[0].word(); word.GetCut().GetNumber() != 1 {
			t.Fatalf("worker 0 hears %q", say(word))
		}
		w.JobClient.Stop(w.Context(), &wire.StopRequest{})
		<-w.ended
		if c := w.status.Checkpoint; c.Problem != "" {
			t.Errorf("the last checkpoint failed: %s", c.Problem)
		}
	})
}

// copied returns the report of the worker that has written a checkpoint of a ring.
func copied(number, version int64) *wire.CutReport {
	return &wire.CutReport{
		Number: number, Phase: wire.CutPhase_WRITTEN, Version: version, Ledger: had(1, 2), Optimizer: "SGD",
		Layout: []*wire.Variable{{Name: "w", Shape: []int64{4}, Trainable: true}},
		File:   "shard", End: 4, Bytes: 16, Crc: "01234567",
	}
}

// beginsAgain runs a ring whose two workers are lost after a checkpoint. It returns their two
// successors in world 2.2, which begins with the checkpoint.
func beginsAgain(t *testing.T, change func(*Config)) (*world, []*peer) {
	t.Helper()
	dir := t.TempDir()
	w, p := startRing(t, func(c *Config) {
		c.Job.CheckpointDir, c.Job.CheckpointSteps = dir, 1
		if change != nil {
			change(c)
		}
	})
	first := w.task(0)
	p[0].says(func(r *wire.HeartbeatRequest) { of(first, 2)(r); r.Version, r.Generation = 7, 1 })
	p[0].says(func(r *wire.HeartbeatRequest) { r.Cut = copied(1, 7) })
	time.Sleep(time.Second)
	if c := w.look().Checkpoint; c.Number != 1 || c.Version != 7 || c.Records != 2 {
		t.Fatal(c)
	}
	w.kill(worker(0))
	w.kill(worker(1))
	return w, []*peer{w.peer(2), w.peer(3)}
}

// Members that read the checkpoint with which a ring begins are not stragglers, nor are those that
// wait for a member whose storage does not answer, until a round is reported or the time limit of
// storage has passed.
func TestNobodyIsBlamedForStorage(t *testing.T) {
	for name, works := range map[string]bool{"a round": true, "nothing": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, p := beginsAgain(t, func(c *Config) { c.Job.TaskTimeout.Duration = 5 * time.Second })
				w.task(2)
				w.task(3)
				before := len(w.pods.ended())
				wait := timing.Storage
				if works {
					wait = time.Minute
				}
				time.Sleep(wait)
				if d := w.pods.ended(); len(d) > before {
					t.Fatalf("%v deleted", d[before:])
				}
				if works {
					p[1].says(func(r *wire.HeartbeatRequest) { r.Generation = 2 })
				}
				time.Sleep(2*timing.StoragePause + time.Second)
				if d := w.pods.ended(); len(d) != before+1 {
					t.Errorf("%v deleted, want one", d[before:])
				}
			})
		})
	}
}

// A parameter server that is asked to leave waits until a checkpoint has all records that are in
// the model. It does not wait if the job makes no checkpoints, or nothing was trained on yet.
func TestServerLeaves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, func(c *Config) {
			c.Job.NumPS = 2
			c.Job.CheckpointDir, c.Job.CheckpointSteps = t.TempDir(), 1000
		})
		w.join()
		leave := &wire.HeartbeatRequest{Role: wire.Role_PS, Index: 1, Leave: wire.Leave_ASKED}
		w.done(0, w.task(0))
		w.beat(&wire.HeartbeatRequest{Role: wire.Role_PS, Index: 0, Version: 5})
		leave.Version = 5
		for range 2 {
			if reply := w.beat(leave); reply.Unknown {
				t.Fatal("it leaves with what it holds")
			}
		}
		var had ledger.Ledger
		had.Add(ledger.Task{Epoch: 1}, 4, 4)
		for _, phase := range []wire.CutPhase{wire.CutPhase_HELD, wire.CutPhase_COPIED, wire.CutPhase_WRITTEN} {
			for i := range int64(2) {
				w.beat(&wire.HeartbeatRequest{Role: wire.Role_PS, Index: int32(i), Version: 6, Cut: &wire.CutReport{
					Number: 1, Phase: phase, Version: 6, Ledger: had.Append(nil), Optimizer: "SGD",
					Layout: []*wire.Variable{{Name: "w", Shape: []int64{4}, Trainable: true}},
					File:   fmt.Sprint("shard-", i), Start: 2 * i, End: 2*i + 2, Bytes: 8, Crc: "01234567",
				}})
			}
		}
		if c := w.look().Checkpoint; c.Number != 1 || c.Version != 6 {
			t.Fatalf("%v", c)
		}
		// it does not wait for a checkpoint of later records
		leave.Version = 7
		if reply := w.beat(leave); !reply.Unknown {
			t.Error("there is a checkpoint, and it stays")
		}
	})
	for name, change := range map[string]func(*Config){
		"without checkpoints": func(c *Config) {},
		"before the training": func(c *Config) { c.Job.CheckpointDir, c.Job.CheckpointSteps = t.TempDir(), 1000 },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := start(t, change)
				w.join()
				if reply := w.beat(&wire.HeartbeatRequest{Role: wire.Role_PS,
					Leave: wire.Leave_ASKED}); !reply.Unknown {
					t.Error("it stays")
				}
			})
		})
	}
}

// The record of a checkpoint has the newest version of all servers, as the status of the job has.
// It says that an epoch is complete when the next has begun, whether or not the servers know that.
func TestCheckpointOfServers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, func(c *Config) {
			c.Job.NumPS, c.Job.NumEpochs = 2, 2
			c.Job.CheckpointDir, c.Job.CheckpointSteps = t.TempDir(), 6
		})
		w.join()
		for range 2 {
			w.done(0, w.task(0))
		}
		w.task(0)
		var all ledger.Ledger
		for n := range 2 {
			all.Add(ledger.Task{Epoch: 1, Number: n}, 4, 4)
		}
		all.Add(ledger.Task{Epoch: 2}, 3, 4)
		for _, phase := range []wire.CutPhase{wire.CutPhase_NONE, wire.CutPhase_HELD,
			wire.CutPhase_COPIED, wire.CutPhase_WRITTEN} {
			for i := range int64(2) {
				w.beat(&wire.HeartbeatRequest{Role: wire.Role_PS, Index: int32(i), Version: 7 - i, Cut: &wire.CutReport{
					Number: 1, Phase: phase, Version: 7 - i, Ledger: all.Append(nil), Optimizer: "SGD",
					Layout: []*wire.Variable{{Name: "w", Shape: []int64{4}, Trainable: true}},
					File:   fmt.Sprint("shard-", i), Start: 2 * i, End: 2*i + 2, Bytes: 8, Crc: "01234567",
				}})
			}
		}
		if c := w.look().Checkpoint; c.Number != 1 || c.Version != 7 || c.Records != 8+3 || c.Problem != "" {
			t.Errorf("%v", c)
		}
	})
}
