package master

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// trains is the heartbeat of a worker whose processes use the package, and have completed a round.
func trains(r *wire.HeartbeatRequest) { r.Asks, r.Keeps, r.Rounds = true, true, 1 }

// A program that uses the package is asked to end a round and to save it before its job stops or
// rests. Then its processes have the grace period to end.
func TestStopAwaitsTheCheckpointOfAProgram(t *testing.T) {
	for name, c := range map[string]struct {
		stop  func(w *world, notices chan Notice)
		state job.State
	}{
		"stop":    {func(w *world, _ chan Notice) { w.Stop(w.Context(), &wire.StopRequest{}) }, job.Stopped},
		"SIGTERM": {func(w *world, _ chan Notice) { w.cancel() }, job.Stopped},
		"suspend": {func(_ *world, notices chan Notice) { notices <- Suspend }, job.Suspended},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				notices := make(chan Notice, 1)
				w := start(t, func(c *Config) {
					runJob(0)(c)
					c.Notices, c.Grace = notices, time.Minute
				})
				a, b := w.peer(0), w.peer(1)
				a.enters("1 [0 1] from []")
				a.says(trains)
				c.stop(w, notices)
				synctest.Wait()
				reply := b.says(trains)
				if reply.StopMs <= 0 || reply.StopMs > time.Minute.Milliseconds() || reply.Over {
					t.Fatalf("a worker hears %v", reply)
				}
				if s := w.look(); s.State != string(job.Running) || s.Waiting == "" || len(w.pods.running()) != 2 {
					t.Errorf("before the checkpoint: %v", s)
				}
				saved := &wire.Saved{Round: 33, Path: "/ck.pt", UnixMs: 1}
				w.pods.beStubborn() // their processes need some time
				a.says(func(r *wire.HeartbeatRequest) { r.Saved, r.Rest = saved, &wire.Rest{Round: 33} })
				synctest.Wait()
				if reply := b.says(trains); !reply.Over || reply.GraceMs != timing.Grace.Milliseconds() {
					t.Errorf("after the checkpoint a worker hears %v", reply)
				}
				if s := w.look(); s.State != string(c.state) || s.GetSaved().GetPath() != "/ck.pt" ||
					s.Unsaved != "" || s.Waiting != "worker-0, worker-1 may take 30s to end (--grace_period)" {
					t.Errorf("after the checkpoint: %v", s)
				}
			})
		})
	}
}

// The status says why nothing was saved: there was nothing, there is no checkpoint, or it took too
// long. Nobody is waited for in vain.
func TestStopWithoutACheckpointOfAProgram(t *testing.T) {
	const late = "no round was ended, and written as a checkpoint, within 1m0s (--grace_period)"
	for name, c := range map[string]struct {
		says    func(*wire.HeartbeatRequest)
		answer  func(*wire.HeartbeatRequest)
		unsaved string
		after   time.Duration
	}{
		"unmodified": {func(*wire.HeartbeatRequest) {}, nil, "", 0},
		"no round":   {func(r *wire.HeartbeatRequest) { r.Asks = true }, nil, "no round was completed", 0},
		"no path": {trains, func(r *wire.HeartbeatRequest) {
			r.Rest = &wire.Rest{Problem: "it declares none"}
		}, "it declares none", 0},
		"a long round": {trains, nil, late, time.Minute},
		"an earlier answer": {trains, func(r *wire.HeartbeatRequest) {
			r.Saved = &wire.Saved{Round: 3, Path: "/ck.pt", UnixMs: 1}
		}, late, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := start(t, func(c *Config) {
					runJob(0)(c)
					c.Grace = time.Minute
				})
				a := w.peer(0)
				w.peer(1)
				a.enters("1 [0 1] from []")
				a.says(c.says)
				began := time.Now()
				w.Stop(w.Context(), &wire.StopRequest{})
				synctest.Wait()
				if c.answer != nil {
					a.says(c.answer)
				}
				<-w.ended
				if s := w.status; s.State != string(job.Stopped) || s.Unsaved != c.unsaved ||
					time.UnixMilli(s.EndedUnixMs).Sub(began).Round(time.Second) != c.after {
					t.Errorf("after %v: %v", time.UnixMilli(s.EndedUnixMs).Sub(began), s)
				}
			})
		})
	}
}

// A stop waits for no checkpoint if no process has a state that is newer than the last one: all
// were lost, and those that take their place have yet to begin.
func TestStopWhenAllStateIsLost(t *testing.T) {
	for _, formed := range []bool{false, true} {
		t.Run(fmt.Sprint("new world ", formed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := start(t, func(c *Config) {
					runJob(0)(c)
					c.Grace = time.Minute
				})
				a, b := w.peer(0), w.peer(1)
				a.enters("1 [0 1] from []")
				a.says(func(r *wire.HeartbeatRequest) {
					trains(r)
					r.Saved = &wire.Saved{Round: 3, Path: "/ck.pt", UnixMs: 1}
				})
				for i, p := range []*peer{a, b} {
					p.close()
					w.kill(worker(i))
				}
				synctest.Wait()
				if formed {
					c, d := w.peer(2), w.peer(3)
					c.enters("2 [2 3] from []")
					d.enters("2 [2 3] from []")
				}
				began := time.Now()
				w.Stop(w.Context(), &wire.StopRequest{})
				w.leave()
				if s := w.status; s.Unsaved != "no process has a newer state" ||
					s.GetSaved().GetRound() != 3 || time.Since(began) >= time.Minute {
					t.Errorf("after %v: %v", time.Since(began), s)
				}
			})
		})
	}
}

// A second request to the master's process ends the job without its checkpoint; another call of
// Stop does not.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, func(c *Config) {
			runJob(0)(c)
			c.Grace = time.Hour
		})
		a := w.peer(0)
		w.peer(1)
		a.enters("1 [0 1] from []")
		a.says(trains)
		for range 2 {
			w.Stop(w.Context(), &wire.StopRequest{Reason: "by the user"})
		}
		synctest.Wait()
		if s := w.look(); s.State != string(job.Running) {
			t.Errorf("after two calls: %v", s)
		}
		w.cancel()
		<-w.ended
		if s := w.status; s.State != string(job.Stopped) || s.Reason != "stopped: by the user" {
			t.Errorf("after the signal: %v", s)
		}
	})
}

// The others of a program continue while a worker that is scaled down, or whose node is drained,
// gives its processes their grace period: they are called back when it says that these have ended.
func TestProgramWorksWhileAWorkerLeaves(t *testing.T) {
	for name, leaves := range map[string]func(w *world){
		"scaled down": func(w *world) { w.Scale(w.Context(), &wire.ScaleRequest{Workers: 1}) },
		"drained":     func(w *world) { w.pods.events <- pod.Event{ID: worker(1), Incarnation: 1, Phase: pod.Leaving} },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, a, b := startProgram(t, 0)
				w.pods.beStubborn()
				leaves(w)
				time.Sleep(10 * time.Second)
				for _, p := range []*peer{a, b} {
					if word := p.word(); word != nil {
						t.Errorf("worker %d hears %s before the processes have ended", p.index, say(word))
					}
				}
				b.says(func(r *wire.HeartbeatRequest) { r.Leave = wire.Leave_ASKED })
				if got := say(a.word()); got != "recall 1" {
					t.Errorf("then the other hears %s", got)
				}
			})
		})
	}
}

// When a job of a cluster is deleted, its pods are asked to leave at the same time. None is made in
// their place, and the job has stopped when the last has ended: nobody is left that could write a
// checkpoint.
func TestPodsLeaveWhileTheJobStops(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, func(c *Config) {
			runJob(0)(c)
			c.Grace = time.Hour
		})
		a := w.peer(0)
		w.peer(1)
		a.enters("1 [0 1] from []")
		a.says(trains)
		w.Stop(w.Context(), &wire.StopRequest{})
		for i := range 2 {
			w.pods.events <- pod.Event{ID: worker(i), Incarnation: 1, Phase: pod.Leaving}
		}
		time.Sleep(10 * time.Second)
		if n := len(w.pods.running()); n != 2 || w.look().State != string(job.Running) {
			t.Errorf("%d pods, and the job is %s", n, w.look().State)
		}
		w.kill(worker(0))
		w.kill(worker(1))
		<-w.ended
		if s := w.status; s.State != string(job.Stopped) || len(w.pods.created) != 2 {
			t.Errorf("%s after %d pods", s.State, len(w.pods.created))
		}
	})
}
