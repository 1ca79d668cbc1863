package master

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// runJob returns a change of start's job: it runs a program, which may fail this many times.
func runJob(restarts int) func(*Config) {
	return func(c *Config) {
		name, workers := c.Job.Name, c.Job.NumWorkers
		c.Job, c.Training = job.DefaultOf(job.Run), nil
		c.Job.Name, c.Job.NumWorkers, c.Job.NumPS, c.Job.Strategy = name, workers, 0, job.AllReduce
		c.Job.Program.Command, c.Job.Program.MaxRestarts = []string{"main.py"}, restarts
	}
}

// gatherTimeout is the time that worlds without a state wait for workers.
const gatherTimeout = 10 * time.Second

// startProgram runs a program on two workers, and returns them in their first world.
func startProgram(t *testing.T, restarts int) (w *world, a, b *peer) {
	t.Helper()
	w = start(t, runJob(restarts))
	a, b = w.peer(0), w.peer(1)
	for _, p := range []*peer{a, b} {
		p.enters("1 [0 1] from []")
	}
	return w, a, b
}

// enters compares the next world that the master sends with a text like "2 [0 1] from []", and
// skips other messages before it.
func (p *peer) enters(want string) *wire.World {
	p.w.Helper()
	for {
		word := p.word()
		if word.GetWorld() != nil || word == nil {
			if _, got, _ := strings.Cut(say(word), "."); got != want {
				p.w.Fatalf("worker %d hears %q, want %q", p.index, got, want)
			}
			return word.GetWorld()
		}
	}
}

// fails sends an arrival from a generation, without a state, and with the failures of processes.
func (p *peer) fails(generation int64, failures ...*wire.Failure) {
	p.w.Helper()
	p.arrive(&wire.Arrival{Generation: generation, Round: -1, Failures: failures})
}

// fails waits for the end of the job, and checks that it has failed for this reason.
func (w *world) fails(want string) {
	w.Helper()
	<-w.ended
	if w.err == nil || !strings.Contains(w.err.Error(), want) {
		w.Fatalf("the job ends with %v, want %q", w.err, want)
	}
}

// Failures of several processes of a world are counted once. A failure is not counted if another
// has ended the process, as by SIGKILL.
func TestFailureIsCounted(t *testing.T) {
	own, doubt := &wire.Failure{Code: 1}, &wire.Failure{Code: 81, Excused: true, Doubt: true}
	const counted, uncounted = "; the program starts again (counted)", "; the program starts again (not counted)"
	for name, c := range map[string]struct {
		failures []*wire.Failure
		counted  int32
		told     string
	}{
		"one": {[]*wire.Failure{own}, 1, "rank 0 of worker-0 (pid 0): exit code 1" + counted},
		"several": {[]*wire.Failure{own, own, {Signal: int32(syscall.SIGSEGV), Rank: 1, Pid: 7,
			UnixMs: -1}}, 1, "rank 1 of worker-0 (pid 7): killed by SIGSEGV" + counted},
		"killed": {[]*wire.Failure{own, {Signal: int32(syscall.SIGKILL), Rank: 1, Pid: 7}}, 0,
			"rank 1 of worker-0 (pid 7): killed by SIGKILL" + uncounted},
		"terminated": {[]*wire.Failure{{Signal: int32(syscall.SIGTERM)}, own}, 0,
			"rank 0 of worker-0 (pid 0): killed by SIGTERM" + uncounted},
		"memory": {[]*wire.Failure{{Signal: int32(syscall.SIGKILL), Memory: true}}, 1,
			"rank 0 of worker-0 (pid 0): killed by the system: out of memory" + counted},
		"excused": {[]*wire.Failure{own, {Code: 81, Excused: true}}, 0, ""},
		"doubt": {[]*wire.Failure{own, doubt, {Code: 83, Excused: true, UnixMs: -1}}, 0,
			"rank 0 of worker-0 (pid 0): exit code 81" + uncounted},
		"kill first": {[]*wire.Failure{doubt, {Signal: int32(syscall.SIGKILL), Pid: 7}}, 0,
			"rank 0 of worker-0 (pid 7): killed by SIGKILL" + uncounted},
		"own kill": {[]*wire.Failure{{Signal: int32(syscall.SIGTERM), Excused: true, UnixMs: -1},
			{Signal: int32(syscall.SIGKILL), Pid: 7}}, 0, "rank 0 of worker-0 (pid 7): killed by SIGKILL" + uncounted},
		"forked": {[]*wire.Failure{{Code: 1, UnixMs: -1},
			{Signal: int32(syscall.SIGSEGV), Forked: true, Pid: 7}}, 0,
			"rank 0 of worker-0 (pid 7): killed by SIGSEGV" + byExec + uncounted},
		"as it left": {[]*wire.Failure{{Signal: int32(syscall.SIGABRT), Forked: true, Excused: true}}, 0, ""},
		"none":       {nil, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, a, b := startProgram(t, 1)
				a.fails(1, c.failures...)
				b.fails(1, c.failures...)
				time.Sleep(time.Second)
				for _, p := range []*peer{a, b} {
					if got := p.enters("2 [0 1] from []"); got.Restarts != 1 ||
						got.MaxRestarts != 2-c.counted || got.ModelGeneration != 1 {
						t.Errorf("world %v, want 1 restart, of %d, and generation 1", got, 2-c.counted)
					}
				}
				if s := w.look(); s.Restarts != c.counted || s.MaxRestarts != 1 || s.ModelGeneration != 1 ||
					s.State != string(job.Running) || s.Program != "main.py" {
					t.Errorf("status %v, want %d restarts", s, c.counted)
				}
				if s := w.look(); s.Failure != c.told || s.Failures != int32(min(1, len(c.told))) {
					t.Errorf("%d failures, the last: %q, want %q", s.Failures, s.Failure, c.told)
				}
			})
		})
	}
}

// byExec is the status text of a crash that a fork may have caused.
const byExec = " soon after it was forked, which may be the cause: its worker starts processes by exec from now on"

// The crash of a process that was forked ends no job, even if no failure is allowed. The crash of
// one that was started by exec does.
func TestProgramCrashesAfterFork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, a, b := startProgram(t, 0)
		a.fails(1, &wire.Failure{Pid: 7, Signal: int32(syscall.SIGSEGV), Forked: true})
		b.fails(1, &wire.Failure{Code: 1, Message: "Connection reset by peer"})
		for _, p := range []*peer{a, b} {
			p.enters("2 [0 1] from []")
		}
		if s := w.look(); s.Restarts != 0 || s.Failures != 1 || job.State(s.State).Ended() {
			t.Errorf("status %v", s)
		}
		a.fails(2, &wire.Failure{Pid: 8, Signal: int32(syscall.SIGSEGV)})
		b.fails(2)
		w.fails("the program failed: rank 0 (pid 8): killed by SIGSEGV")
	})
}

// A program that fails soon after each start is restarted at longer and longer intervals, also if
// the failures are not counted. A worker that joins meanwhile does not change the time of the
// restart. After processes that ran for some time or completed a round, it restarts at once.
func TestProgramPaces(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, a, b := startProgram(t, 0)
		generation, pause := int64(1), time.Duration(0)
		dies := func(after time.Duration) time.Duration {
			t.Helper()
			time.Sleep(pause + after)
			// no round in this world
			a.says(func(r *wire.HeartbeatRequest) { r.Generation, r.Rounds = generation, generation-1 })
			a.arrive(&wire.Arrival{Generation: generation, Round: -1, Output: fmt.Sprint(generation),
				Failures: []*wire.Failure{{Signal: int32(syscall.SIGKILL)}}})
			b.fails(generation)
			generation++
			want := fmt.Sprintf("%d [0 1] from []", generation)
			if got, other := a.enters(want).PauseMs, b.enters(want).PauseMs; got != other {
				t.Fatalf("one worker waits %d ms, the other %d", got, other)
			} else {
				pause = time.Duration(got) * time.Millisecond
			}
			return pause.Round(time.Second)
		}
		for i, want := range []time.Duration{0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60} {
			if got := dies(2 * time.Second); got != want*time.Second {
				t.Fatalf("after %d brief worlds it starts again after %v, want %ds", i+1, got, want)
			}
		}
		s := w.look()
		reason := "its processes wait 1m0s before they start: 12 times in a row they failed within 30s"
		if s.Waiting != reason || s.Restarts != 0 {
			t.Errorf("%d restarts are counted; it waits: %q, want %q", s.Restarts, s.Waiting, reason)
		}
		if want := "; the program starts again in 1m0s, after 12 failures in a row within 30s of " +
			"the start (not counted)"; !strings.HasSuffix(s.Failure, want) {
			t.Errorf("the last failure: %q, want %q", s.Failure, want)
		}
		time.Sleep(20 * time.Second) // a part of the pause
		a.fails(generation)
		b.fails(generation)
		generation++
		want := fmt.Sprintf("%d [0 1] from []", generation)
		b.enters(want)
		if pause = time.Duration(a.enters(want).PauseMs) * time.Millisecond; pause.Round(
			time.Second) != 40*time.Second {
			t.Errorf("as the workers meet again it waits %v more, want 40s", pause)
		}
		if got := dies(31 * time.Second); got != 0 {
			t.Errorf("after processes that lasted it starts again after %v, want at once", got)
		}
		if s := w.look(); s.Waiting != "" {
			t.Errorf("it waits: %q", s.Waiting)
		}
		four := func() {
			for range 4 {
				dies(time.Second)
			}
		}
		four()
		b.says(func(r *wire.HeartbeatRequest) { r.Rounds = generation })
		if got := dies(time.Second); got != 0 {
			t.Errorf("after a round it starts again after %v, want at once", got)
		}
		four()
		pause = 0
		a.fails(generation)
		b.fails(generation)
		generation++
		a.enters(fmt.Sprintf("%d [0 1] from []", generation))
		b.enters(fmt.Sprintf("%d [0 1] from []", generation))
		if got := dies(time.Second); got != 0 {
			t.Errorf("after a world that ended without a failure it starts again after %v, want at once", got)
		}
	})
}

// Failures that follow the loss of a member are not counted, so that they end no job, even if no
// failure is allowed.
func TestProgramLosesMember(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, a, b := startProgram(t, 0)
		a.close()
		w.kill(worker(0))
		b.fails(1, &wire.Failure{Code: 1, Message: "Connection reset by peer"})
		time.Sleep(time.Second)
		c := w.peer(2)
		for _, p := range []*peer{b, c} {
			p.enters("2 [1 2] from []")
		}
		if s := w.look(); s.Restarts != 0 || s.ModelGeneration != 1 || job.State(s.State).Ended() {
			t.Errorf("status %v", s)
		}
		// this failure is the program's own
		b.fails(2, &wire.Failure{Rank: 0, Pid: 9, Signal: int32(syscall.SIGABRT)})
		c.fails(2)
		w.fails("the program failed: rank 0 (pid 9): killed by SIGABRT")
	})
}

// Failures that follow the departure of a member that was asked to leave are not counted.
func TestProgramIsLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, a, b := startProgram(t, 0)
		a.says(func(r *wire.HeartbeatRequest) { r.Leave = wire.Leave_ASKED })
		b.fails(1, &wire.Failure{Code: 1, Message: "Connection closed by peer"})
		a.fails(1)
		time.Sleep(gatherTimeout)
		b.enters("2 [1] from []")
		if s := w.look(); s.Restarts != 0 || job.State(s.State).Ended() {
			t.Errorf("status %v", s)
		}
	})
}

// Nor are they if that member has ended before the next world is formed.
func TestProgramIsLeftAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, a, b := startProgram(t, 0)
		a.says(func(r *wire.HeartbeatRequest) { r.Leave = wire.Leave_ASKED })
		a.fails(1)
		w.pods.events <- pod.Event{ID: worker(0), Incarnation: 1, Phase: pod.Failed,
			Exit: pod.Exit{Code: 143, Preempted: true}}
		a.close()
		synctest.Wait()
		b.fails(1, &wire.Failure{Code: 1, Message: "Connection closed by peer"})
		time.Sleep(gatherTimeout)
		b.enters("2 [1] from []")
		if s := w.look(); s.Restarts != 0 || job.State(s.State).Ended() {
			t.Errorf("status %v", s)
		}
	})
}

// Nor are they if that member is back before its heartbeat reports that it was asked to leave.
func TestProgramIsLeftSilently(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, a, b := startProgram(t, 0)
		a.arrive(&wire.Arrival{Generation: 1, Round: -1, Crew: &wire.Crew{Store: "store:0"}, Leaves: true})
		b.fails(1, &wire.Failure{Code: 1, Message: "Connection closed by peer"})
		b.enters("2 [1 0] from []")
		if s := w.look(); s.Restarts != 0 || job.State(s.State).Ended() {
			t.Errorf("status %v", s)
		}
	})
}

// When the program has failed too often, the reason is that of the process that failed first, on
// whichever worker.
func TestProgramFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, a, b := startProgram(t, 1)
		a.fails(1, &wire.Failure{Code: 1})
		b.fails(1)
		time.Sleep(time.Second)
		a.enters("2 [0 1] from []")
		b.enters("2 [0 1] from []")
		a.fails(2, &wire.Failure{Code: 1, UnixMs: 200, Message: "it follows"},
			&wire.Failure{Rank: 1, Code: 1, UnixMs: 201})
		b.fails(2, &wire.Failure{Rank: 2, Code: 1, UnixMs: 202},
			&wire.Failure{Rank: 3, Pid: 7, Code: 3, UnixMs: 100, Message: "ValueError:\n no such label"})
		w.fails("the program failed 2 times, --max_restarts=1: rank 3 (pid 7): ValueError: no such label (exit code 3)")
	})
}

// The job has succeeded when the processes of all workers have ended with exit code 0 in the
// current world.
func TestProgramSucceeds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, a, b := startProgram(t, 1)
		a.says(func(r *wire.HeartbeatRequest) { r.Finished = 1 })
		b.fails(1, &wire.Failure{Code: 1})
		a.fails(1)
		time.Sleep(time.Second)
		a.enters("2 [0 1] from []")
		b.enters("2 [0 1] from []")
		b.says(func(r *wire.HeartbeatRequest) { r.Finished = 2 })
		// meanwhile the other reports that it finished in the world before
		time.Sleep(time.Minute)
		if s := w.look(); job.State(s.State).Ended() {
			t.Fatalf("status %v, and one has not ended", s)
		}
		finished := func(r *wire.HeartbeatRequest) { r.Finished = 2 }
		a.says(finished)
		if reply := a.says(finished); !reply.Over {
			t.Error("a worker is not reported that the job is over")
		}
		w.finish(a, b)
		if w.status.State != string(job.Succeeded) || w.status.Restarts != 1 {
			t.Errorf("status %v", w.status)
		}
	})
}

// If workers are recalled for a newcomer after their processes have ended with exit code 0, the job
// has succeeded, and nothing starts over.
func TestProgramSucceedsAsOneJoins(t *testing.T) {
	for _, by := range []string{"arrival", "heartbeat"} {
		t.Run(by, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, a, b := startProgram(t, 0)
				if _, err := w.Scale(t.Context(), &wire.ScaleRequest{Workers: 3}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				c := w.peer(2)
				if by == "heartbeat" {
					a.says(func(r *wire.HeartbeatRequest) { r.Finished = 1 })
				} else {
					a.arrive(&wire.Arrival{Generation: 1, Round: -1, Finished: true})
				}
				b.arrive(&wire.Arrival{Generation: 1, Round: -1, Finished: true})
				w.finish(a, b, c)
				if w.status.State != string(job.Succeeded) || w.status.ModelGeneration != 1 {
					t.Errorf("status %v", w.status)
				}
			})
		})
	}
}

// Workers of a program whose processes keep no state do not begin a new generation when a newcomer
// joins; all of them begin together.
func TestProgramGrows(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, a, b := startProgram(t, 0)
		if _, err := w.Scale(t.Context(), &wire.ScaleRequest{Workers: 3}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		c := w.peer(2)
		for _, p := range []*peer{a, b} {
			if word := p.word(); word.GetRecall() == nil || word.GetRecall().Now || !word.GetRecall().Joins {
				t.Fatalf("%v, want a recall for one that joins", word)
			}
			p.fails(1)
		}
		time.Sleep(time.Second)
		for _, p := range []*peer{a, b, c} {
			p.enters("2 [0 1 2] from []")
		}
		if s := w.look(); s.ModelGeneration != 1 || s.Restarts != 0 || s.WorldSize != 3 {
			t.Errorf("status %v", s)
		}
	})
}

// A worker whose process is restarted does not delay the others, which train on, and does not
// interrupt a round when it is ready.
func TestProgramTakesPartAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, a, b := startProgram(t, 0)
		crew := func(n int32) *wire.Crew { return &wire.Crew{Processes: n} }
		a.arrive(&wire.Arrival{Generation: 1, Round: -1, Crew: crew(0),
			Failures: []*wire.Failure{{Rank: 0, Pid: 7, Signal: int32(syscall.SIGKILL)}}})
		if word := b.word(); word.GetRecall() == nil || !word.GetRecall().Now {
			t.Fatalf("%v, want a recall at once: the others wait for what has failed", word)
		}
		b.arrive(&wire.Arrival{Generation: 1, Beginning: 1, Round: 3, Crew: crew(1)})
		time.Sleep(time.Second)
		a.enters("2 [1 0] from [0]")
		b.enters("2 [1 0] from [0]")
		if got, want := w.look().Failure,
			"rank 0 of worker-0 (pid 7): killed by SIGKILL; the others continue, it is started again "+
				"(not counted)"; got != want {
			t.Errorf("reported %q, want %q", got, want)
		}
		a.arrive(&wire.Arrival{Generation: 2, Round: -1, Crew: crew(1)})
		if word := b.word(); word.GetRecall() == nil || word.GetRecall().Now {
			t.Fatalf("%v, want a recall after the round", word)
		}
	})
}

// A worker that breaks off while the others finish their round for a newcomer ends that round, in
// which they would wait for it.
func TestProgramBreaksOffAsOneJoins(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, a, b := startProgram(t, 0)
		if _, err := w.Scale(t.Context(), &wire.ScaleRequest{Workers: 3}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.peer(2)
		for _, p := range []*peer{a, b} {
			if word := p.word(); word.GetRecall() == nil || word.GetRecall().Now {
				t.Fatalf("%v, want a recall after the round", word)
			}
		}
		a.arrive(&wire.Arrival{Generation: 1, Round: -1, BrokeOff: true,
			Failures: []*wire.Failure{{Signal: int32(syscall.SIGKILL), Excused: true}}})
		if word := b.word(); word.GetRecall() == nil || !word.GetRecall().Now {
			t.Fatalf("%v, want a recall at once", word)
		}
		b.arrive(&wire.Arrival{Generation: 1, Beginning: 1, Round: 3})
		time.Sleep(time.Second)
		b.enters("2 [0 1 2] from [1]")
		if s := w.look(); s.ModelGeneration != 1 {
			t.Errorf("generation %d, and worker-1 has the state", s.ModelGeneration)
		}
	})
}

// A newcomer is notified that processes keep their state, once a heartbeat of a training worker has
// reported it.
func TestProgramKeeps(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, a, _ := startProgram(t, 0)
		keeps := func() bool {
			t.Helper()
			if _, err := w.Scale(t.Context(), &wire.ScaleRequest{Workers: 3}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			reply, err := w.Join(t.Context(), &wire.JoinRequest{Role: wire.Role_WORKER, Index: 2, Pid: 1})
			if err != nil {
				t.Fatal(err)
			}
			return reply.Keeps
		}
		if keeps() {
			t.Error("a newcomer is notified that processes keep their state, and none has reported it")
		}
		a.says(func(r *wire.HeartbeatRequest) { r.Keeps = true })
		if !keeps() {
			t.Error("a newcomer is not reported that processes keep their state")
		}
	})
}

// asks sends a process's request for records.
func (w *world) asks(worker int, d *wire.Dataset) (*wire.Task, error) {
	reply, err := w.GetTask(w.Context(), &wire.GetTaskRequest{Worker: int32(worker), Now: true, Dataset: d})
	return reply.GetTask(), err
}

// All processes train on the same records. There are no more records after the last epoch, but the
// job continues.
func TestProgramDataset(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, a, b := startProgram(t, 0)
		d := &wire.Dataset{Size: 10, Epochs: 2, Task: 4}
		for _, bad := range []*wire.Dataset{{Epochs: 1, Task: 1}, {Size: 1, Task: 1}, {Size: 1, Epochs: 1}} {
			_, err := w.asks(0, bad)
			wantCode(t, err, codes.InvalidArgument)
		}
		if first, err := w.asks(0, d); err != nil || first.Kind != wire.TaskKind_TRAINING ||
			first.Start != 0 || first.End != 4 {
			t.Fatal(first, err)
		}
		if again, err := w.asks(1, proto.Clone(d).(*wire.Dataset)); err != nil || again.Start != 4 {
			t.Fatal(again, err)
		}
		other := proto.Clone(d).(*wire.Dataset)
		other.Seed = 7
		_, err := w.asks(1, other)
		wantCode(t, err, codes.FailedPrecondition)
		records := int64(0)
		for i := range 2 { // the first lease of each worker
			lease := w.task(i)
			records += lease.End - lease.Start
			w.done(i, lease)
		}
		for {
			next := w.task(0)
			if next.Kind == wire.TaskKind_END {
				break
			}
			records += next.End - next.Start
			w.done(0, next)
		}
		if s := w.look(); records != 20 || s.RecordsDone != 20 || s.RecordsTotal != 20 || job.State(s.State).Ended() {
			t.Errorf("%d records; status %v", records, s)
		}
		a.says(func(r *wire.HeartbeatRequest) { r.Finished = 1 })
		b.says(func(r *wire.HeartbeatRequest) { r.Finished = 1 })
		w.finish(a, b)
	})
}

// A data set that is declared to a restarted master has leases that no world before has made void.
func TestProgramDeclaresToTheNextMaster(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := reign(t, runJob(0))
		r.ends(Leave, ErrLeft)
		r.follow()
		a, b := r.stranger(0), r.stranger(1)
		for _, p := range []*peer{a, b} {
			go p.live(r.MasterClient)
		}
		time.Sleep(2 * timing.Return) // no other may announce leases
		for _, p := range []*peer{a, b} {
			p.arrive(&wire.Arrival{Round: -1, Process: 7, Crew: &wire.Crew{Processes: 1}})
		}
		world := a.enters("1 [0 1] from []")
		b.enters("1 [0 1] from []")
		lease, err := r.asks(0, &wire.Dataset{Size: 8, Epochs: 1, Task: 4})
		if err != nil || lease.Lease < world.Floor {
			t.Errorf("lease %v, error %v; those below %d are void", lease, err, world.Floor)
		}
		a.says(func(r *wire.HeartbeatRequest) { r.Finished = world.Generation })
		b.says(func(r *wire.HeartbeatRequest) { r.Finished = world.Generation })
		r.finish(a, b)
	})
}

// After a restart the master knows how often the program has failed, and its data set.
func TestProgramMasterComesBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := reign(t, runJob(1))
		a, b := r.peer(0), r.peer(1)
		d := &wire.Dataset{Size: 8, Epochs: 3, Shuffle: true, Seed: 5, Task: 4}
		if _, err := r.asks(0, d); err != nil {
			t.Fatal(err)
		}
		a.fails(1, &wire.Failure{Code: 1})
		b.fails(1)
		time.Sleep(time.Second)
		r.ends(Leave, ErrLeft)
		r.follow()
		a, b = r.peer(0), r.peer(1)
		time.Sleep(time.Minute)
		if s := r.look(); s.Restarts != 1 || s.Failures != 1 || s.Failure == "" ||
			s.RecordsTotal != 24 || s.State != string(job.Running) {
			t.Errorf("status %v", s)
		}
		if _, err := r.asks(0, d); err != nil {
			t.Error(err)
		}
		_, err := r.asks(0, &wire.Dataset{Size: 9, Epochs: 3, Task: 4})
		wantCode(t, err, codes.FailedPrecondition)
		var generation int64
		for _, p := range []*peer{a, b} {
			for word := p.word(); word != nil; word = p.word() {
				if word.GetWorld() != nil {
					generation = word.GetWorld().Generation
				}
			}
		}
		a.fails(generation, &wire.Failure{Code: 4})
		b.fails(generation)
		r.fails("the program failed 2 times, --max_restarts=1: rank 0 (pid 0): exit code 4")
	})
}
