package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/elasticdl/elasticdl/trainer/train/ps"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// A use that lasts is in each report up to then.
func TestStopwatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w stopwatch
		want := func(s *wire.Spent) {
			t.Helper()
			if got := w.report(); !proto.Equal(got, s) {
				t.Errorf("%v, want %v", got, s)
			}
		}
		want(&wire.Spent{})
		w.begin(forData)
		time.Sleep(3 * time.Second)
		want(&wire.Spent{DataMs: 3000})
		time.Sleep(time.Second)
		w.end(forData)
		for i, u := range []use{computing, forServers, forPeers, forCheckpoint, forWorld, forData} {
			w.begin(u)
			time.Sleep(time.Duration(i+1) * time.Second)
			w.end(u)
		}
		time.Sleep(time.Hour)
		want(&wire.Spent{ComputeMs: 1000, ServersMs: 2000, PeersMs: 3000, CheckpointMs: 4000, FormingMs: 5000,
			DataMs: 10_000})
	})
}

// last returns where the time of a worker went by its last heartbeat.
func (s *script) last(t *testing.T) *wire.Spent {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.beats) == 0 || s.beats[len(s.beats)-1].Spent == nil {
		t.Fatal("no heartbeat reports it")
	}
	return s.beats[len(s.beats)-1].Spent
}

// late is a master that has no more tasks for ten seconds.
type late struct {
	*script
	asked int
}

func (l *late) GetTask(ctx context.Context, r *wire.GetTaskRequest, o ...grpc.CallOption) (*wire.GetTaskReply, error) {
	if l.asked++; l.asked == 2 {
		time.Sleep(10 * time.Second)
	}
	return l.script.GetTask(ctx, r, o...)
}

// A worker of servers reports its wait for records while it lasts, and its computing.
func TestWaitForRecordsIsReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, ps.ServerConfig{Async: true}, training(1, 0, 4, 0), training(2, 4, 8, 0))
		b.Master, b.engine.takes = &late{script: b.master}, 2*time.Second
		done := make(chan error)
		go func() { done <- work(t.Context(), b.Config) }()
		time.Sleep(8 * time.Second)
		if s := b.master.last(t); s.DataMs < 5000 || s.DataMs > 6000 || s.ComputeMs != 2000 || s.ServersMs > 100 {
			t.Errorf("%v after 8 s", s)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if s := b.master.last(t); s.DataMs < 7900 || s.DataMs > 8100 {
			t.Errorf("%v at the end", s)
		}
	})
}

// Of two members of a ring the faster one waits for the other.
func TestWaitForPeersIsReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClass(2)
		c.pupils[0].give(training(1, 0, 24, 0))
		c.pupils[1].give(training(2, 24, 48, 0))
		c.pupils[1].engine.fail = func([]int32) error {
			time.Sleep(490 * time.Millisecond)
			return nil
		}
		c.start(t)
		time.Sleep(2400 * time.Millisecond)
		if s := c.pupils[0].last(t); s.PeersMs < 1500 || s.ComputeMs > 100 || s.DataMs > 100 {
			t.Errorf("the fast one: %v", s)
		}
		if s := c.pupils[1].last(t); s.PeersMs > 100 || s.ComputeMs < 1500 {
			t.Errorf("the slow one: %v", s)
		}
		c.finish(t)
	})
}
