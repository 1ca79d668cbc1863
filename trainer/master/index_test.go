package master

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/elasticdl/elasticdl/test/speak"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// scan is data that takes an hour to index.
type scan struct {
	begun time.Time
	err   error
	// why Index was ended before it was done
	ended error
	// Index does not return the error of its context
	deaf bool
}

func (s *scan) Index(ctx context.Context) (training, validation []task.Shard, err error) {
	select {
	case <-time.After(time.Hour):
	case <-ctx.Done():
		if s.ended = ctx.Err(); !s.deaf {
			return nil, nil, ctx.Err()
		}
	}
	return []task.Shard{{Name: "shard-0", Count: 8}}, []task.Shard{{Name: "test-0", Count: 2}, {Name: "empty"}}, s.err
}

func (s *scan) Blocks(t task.Task) []task.Block {
	return []task.Block{{First: t.Start, Records: t.Records(), Offset: 10 * t.Start, Size: 10 * t.Records()}}
}

func (s *scan) Indexed() (bytes, of int64) { return int64(time.Since(s.begun).Seconds()) * 1e6, 3600e6 }

// scans returns a change of start's job: its data takes an hour to index.
func scans(s *scan) func(*Config) {
	s.begun = time.Now()
	return func(c *Config) {
		c.Data, c.Training = s, nil
		c.Job.ValidationData = "test"
	}
}

// exist replaces the list of the pods that were created.
func (p *fakePods) exist(all ...Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.created = all
}

// A master answers calls while it indexes its data: pods that exist already are asked to try again,
// and users see the progress. The job begins when the index is complete, however long that takes.
func TestMasterListensBeforeItIndexes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, scans(new(scan)))
		// created by an earlier master
		w.pods.exist(Pod{ID: worker(0), Incarnation: 1}, Pod{ID: ps(0), Incarnation: 1})
		w.pods.events <- pod.Event{ID: worker(0), Incarnation: 1, Phase: pod.Running}
		ctx := t.Context()
		_, join := w.Join(ctx, &wire.JoinRequest{Role: wire.Role_WORKER})
		_, serve := w.Join(ctx, &wire.JoinRequest{Role: wire.Role_PS, Address: "server-0:2222"})
		_, lease := w.GetTask(ctx, &wire.GetTaskRequest{})
		_, report := w.ReportTask(ctx, &wire.ReportTaskRequest{Lease: 7})
		for name, err := range map[string]error{"Join": join, "Join of a server": serve,
			"GetTask": lease, "ReportTask": report} {
			t.Log(name)
			wantCode(t, err, codes.Unavailable)
			if err != nil && !strings.Contains(err.Error(), "not yet") {
				t.Error(err)
			}
		}
		if beat := w.beat(&wire.HeartbeatRequest{Role: wire.Role_WORKER}); beat.Unknown {
			t.Error("a pod is asked to leave before the master knows")
		}
		w.pods.exist()
		if s := w.look(); s.State != "Pending" || !strings.Contains(s.Waiting, "60 of 3600 MB") {
			t.Errorf("status %v", s)
		}
		time.Sleep(58 * time.Minute)
		if n := len(w.pods.running()); n > 0 {
			t.Errorf("%d pods run before there is something to do", n)
		}
		time.Sleep(2 * time.Minute)
		w.join()
		first := w.task(0)
		if b := first.Blocks; len(b) != 1 || b[0].First != 0 || b[0].Records != 4 || b[0].Offset != 0 ||
			b[0].Size != 40 {
			t.Errorf("reported where the records of %v are", first)
		}
		w.done(0, first)
		if task := w.train(0); task.Kind != wire.TaskKind_EVALUATION || task.End != 2 {
			t.Errorf("after the training there is %v", task)
		}
		if s := w.look(); s.RecordsDone != 8 || s.Waiting != "" {
			t.Errorf("status %v", s)
		}
	})
}

// A worker of a ring that arrives before the index is complete is asked to try again.
func TestRingListensBeforeItIndexes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, ringJob(scans(new(scan))))
		w.pods.exist(Pod{ID: worker(0), Incarnation: 1})
		stream, err := w.Rendezvous(speak.As(t.Context(), worker(0)))
		if err != nil {
			t.Fatal(err)
		}
		if err = stream.Send(&wire.Arrival{Process: 1}); err == nil {
			_, err = stream.Recv()
		}
		wantCode(t, err, codes.Unavailable)
		w.pods.events <- pod.Event{ID: worker(0), Incarnation: 1, Phase: pod.Running}
		time.Sleep(time.Second)
		if s := w.look(); s.State != "Pending" {
			t.Errorf("a pod that is seen makes the job %v", s)
		}
	})
}

// Bad data ends the job before a pod is created, with the reason.
func TestBadDataEndsTheJob(t *testing.T) {
	bubble(t, func(t *testing.T) {
		began := time.Now()
		w := start(t, scans(&scan{err: errors.New("--training_data: rows.csv: line 7: bad")}))
		<-w.ended
		if w.err == nil || !strings.Contains(w.err.Error(), "line 7: bad") ||
			w.status.State != "Failed" || elapsed(began) != time.Hour || len(w.pods.created) > 0 {
			t.Errorf("after %v: %v, %v; created %v", elapsed(began), w.err, w.status, w.pods.created)
		}
	})
}

// A stop of the job does not wait for the end of the index.
func TestStopEndsTheScan(t *testing.T) {
	bubble(t, func(t *testing.T) {
		// even if the index ignores its context's error
		s := &scan{deaf: true}
		w := start(t, scans(s))
		began := time.Now()
		if _, err := w.Stop(t.Context(), &wire.StopRequest{Reason: "enough"}); err != nil {
			t.Fatal(err)
		}
		<-w.ended
		if w.err == nil || !strings.Contains(w.err.Error(), "enough") || w.status.State != "Stopped" ||
			elapsed(began) > 2*time.Second || s.ended == nil || len(w.pods.created) > 0 {
			t.Errorf("after %v: %v, %v; scan ended: %v, created %v", elapsed(began), w.err, w.status,
				s.ended, w.pods.created)
		}
	})
}

// A job that is scaled while it is indexed begins with the new number of workers.
func TestScaledWhileItIsIndexed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, scans(new(scan)))
		reply, err := w.Scale(t.Context(), &wire.ScaleRequest{Workers: 3})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(w.pods.created) > 0 || reply.Before != 2 || w.look().Workers != 3 {
			t.Errorf("scaled from %d to %d, created %v", reply.Before, w.look().Workers, w.pods.created)
		}
		time.Sleep(time.Hour)
		w.join()
		time.Sleep(time.Second)
		workers := 0
		for _, id := range w.pods.running() {
			if id.Role == pod.Worker {
				workers++
			}
		}
		if workers != 3 {
			t.Errorf("%d workers", workers)
		}
	})
}

// far is data in which each record is a block of its own, at a large offset in its file.
type far struct{ scan }

func (*far) Blocks(t task.Task) []task.Block {
	all := make([]task.Block, t.Records())
	for i := range all {
		all[i] = task.Block{First: t.Start + int64(i), Records: 1 << 20, Offset: 1 << 50, Size: 1 << 30}
	}
	return all
}

// The list of a task's blocks fits into a message: a list that is too long is left out.
func TestBlocksFitIntoAMessage(t *testing.T) {
	const start, limit = 1 << 50, 4 << 20
	m := &master{shared: shared{Config: &Config{Data: new(far)}}}
	for records, want := range map[int64]int{3: 3, mostBlocks: mostBlocks, mostBlocks + 1: 0} {
		told := m.blocks(task.Task{Kind: task.Training, Start: start, End: start + records})
		if size := proto.Size(&wire.Task{Blocks: told}); len(told) != want || size > limit {
			t.Errorf("%d blocks of %d records, %d bytes", len(told), records, size)
		}
	}
}
