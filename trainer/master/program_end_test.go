package master

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// finished changes a heartbeat: all processes of the worker have ended with 0 in the first world.
func finished(r *wire.HeartbeatRequest) { r.Finished = 1 }

// succeeds waits for the end of a job of trainAll's data set, and checks that it has succeeded with
// all records in the model of its first generation.
func (w *world) succeeds(peers ...*peer) {
	w.Helper()
	w.finish(peers...)
	if s := w.status; s.State != string(job.Succeeded) || s.ModelGeneration != 1 || s.RecordsDone != 8 {
		w.Errorf("status %v, want success with 8 records in generation 1", s)
	}
}

// The others do not notice the loss of a worker whose processes have ended with 0: nothing of it is
// missing. Nor does one that takes its place disturb what they do after the training.
func TestProgramLosesAWorkerThatHasFinished(t *testing.T) {
	for name, lose := range map[string]func(w *world, a *peer){
		"killed":  func(w *world, a *peer) { a.close(); w.kill(worker(0)) },
		"deleted": func(w *world, a *peer) { a.close(); w.pods.end(worker(0), pod.Exit{Deleted: true}) },
		"silent":  func(_ *world, a *peer) { a.close(); a.silent(true) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, a, b := startProgram(t, 0)
				trainAll(w)
				a.says(finished)
				lose(w, a)
				time.Sleep(time.Minute)
				if n := len(w.pods.running()); n != 2 {
					t.Fatalf("%d pods run, want that of the other worker and one more", n)
				}
				c := w.peer(2)
				time.Sleep(time.Minute)
				b.hears()
				if s := w.look(); s.State != string(job.Running) || s.ModelGeneration != 1 || s.RecordsDone != 8 {
					t.Errorf("status %v", s)
				}
				b.says(finished)
				w.succeeds(b, c)
			})
		})
	}
}

// A worker that is asked to leave after the training is released when its processes have ended with
// 0, and the others continue.
func TestProgramIsLeftAfterTheTraining(t *testing.T) {
	for _, asked := range []string{"before its end", "after it"} {
		t.Run(asked, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, a, b := startProgram(t, 0)
				trainAll(w)
				leaves := func(r *wire.HeartbeatRequest) { r.Leave = wire.Leave_ASKED }
				steps := []func(*wire.HeartbeatRequest){leaves, finished}
				if asked == "after it" {
					steps = []func(*wire.HeartbeatRequest){finished, leaves}
				}
				a.says(steps[0])
				a.says(steps[1])
				if reply := a.says(finished); !reply.Unknown {
					t.Error("it is not released")
				}
				a.close()
				w.pods.end(worker(0), pod.Exit{})
				for word := b.word(); word != nil; word = b.word() {
					// after a round, which does not come
					if word.GetRecall() == nil || word.GetRecall().Now {
						t.Errorf("the other hears %s", say(word))
					}
				}
				b.says(finished)
				w.succeeds(b)
			})
		})
	}
}

// If a worker is lost after the training, but before its processes have ended, all begin again,
// those that have ended, too: nobody knows what of its work after the training is missing. The
// status says why.
func TestProgramLosesAWorkerAfterTheTraining(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, a, b := startProgram(t, 0)
		trainAll(w)
		a.says(finished)
		b.close()
		w.kill(worker(1))
		a.hears("recall 1 now")
		a.arrive(&wire.Arrival{Generation: 1, Round: -1, Finished: true, Crew: &wire.Crew{}})
		time.Sleep(time.Minute)
		a.enters("2 [0] from []")
		if s := w.look(); s.State != string(job.Running) || s.ModelGeneration != 2 || s.RecordsDone != 0 ||
			!strings.HasPrefix(s.RollbackReason, "a process was lost, or failed, after the training") {
			t.Errorf("status %v", s)
		}
		a.says(func(r *wire.HeartbeatRequest) { r.Generation, r.Origin = 2, &wire.Origin{Generation: 2} })
		if s := w.look(); !strings.HasPrefix(s.RollbackReason,
			"the training started over: a process was lost, or failed, after the training") {
			t.Errorf("status %v", s)
		}
	})
}

// A worker none of whose processes took part in the last world need not finish.
func TestProgramEndsWithoutOneThatStarts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, a, b := startProgram(t, 0)
		a.arrive(&wire.Arrival{Generation: 1, Round: -1, Crew: &wire.Crew{}})
		b.arrive(&wire.Arrival{Generation: 1, Beginning: 1, Round: 3, Crew: &wire.Crew{Processes: 1}})
		time.Sleep(time.Second)
		a.enters("2 [1 0] from [0]")
		b.enters("2 [1 0] from [0]")
		// its process is ready
		a.arrive(&wire.Arrival{Generation: 2, Round: -1, Crew: &wire.Crew{Processes: 1}})
		b.hears("recall 2")
		b.says(func(r *wire.HeartbeatRequest) { r.Finished = 2 })
		synctest.Wait()
		w.finish(a, b)
		if w.status.State != string(job.Succeeded) {
			t.Errorf("status %v", w.status)
		}
	})
}

// A program that fails after its training, and may not fail, ends the job: its records stay what
// they were, and nothing is reported to start over.
func TestProgramFailsAfterTheTraining(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, a, b := startProgram(t, 0)
		trainAll(w)
		a.arrive(&wire.Arrival{Generation: 1, Round: -1, Crew: &wire.Crew{},
			Failures: []*wire.Failure{{Code: 1, Message: "no space left"}}})
		b.arrive(&wire.Arrival{Generation: 1, Round: -1, Crew: &wire.Crew{}, Finished: true})
		w.fails("the program failed: rank 0 (pid 0): no space left (exit code 1)")
		if s := w.status; s.RecordsDone != 8 || s.ModelGeneration != 1 || s.Rollbacks != 0 || s.RollbackReason != "" {
			t.Errorf("status %v", s)
		}
	})
}

// A world is lost on the way to a worker whose processes had ended with 0 in the world before. The
// worker arrives once more, as it did then: its processes have not finished in the lost world, and
// their failures are not counted twice.
func TestProgramOfALostWorldHasNotFinished(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, runJob(1))
		crew := &wire.Crew{Processes: 1}
		a, b := w.stranger(0), w.stranger(1)
		for _, p := range []*peer{a, b} {
			p.arrive(&wire.Arrival{Round: -1, Process: 7, Crew: crew})
			go p.live(w.MasterClient)
		}
		a.enters("1 [0 1] from []")
		b.enters("1 [0 1] from []")
		crash := []*wire.Failure{{Code: 1}}
		b.arrive(&wire.Arrival{Generation: 1, Round: -1, Process: 7, Crew: &wire.Crew{}, Failures: crash})
		a.arrive(&wire.Arrival{Generation: 1, Round: -1, Process: 7, Crew: crew, Finished: true})
		a.enters("2 [0 1] from []")
		a.close()
		b.close()
		synctest.Wait()
		a, b = w.stranger(0), w.stranger(1)
		a.arrive(&wire.Arrival{Generation: 1, Round: -1, Process: 7, Crew: crew, Finished: true})
		b.arrive(&wire.Arrival{Generation: 1, Round: -1, Process: 7, Crew: crew, Failures: crash})
		go a.live(w.MasterClient)
		go b.live(w.MasterClient)
		a.enters("3 [0 1] from []")
		if s := w.look(); s.State != string(job.Running) || s.Restarts != 1 {
			t.Errorf("status %v, want a job that runs, with one failure", s)
		}
		for _, p := range []*peer{a, b} {
			p.says(func(r *wire.HeartbeatRequest) { r.Finished = 3 })
		}
		w.finish(a, b)
	})
}
