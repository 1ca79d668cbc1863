package local

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// A job whose status says that it is over is started or resumed again as soon as its last processes
// have ended, and is not refused before.
func TestLockOfAJobThatIsOver(t *testing.T) {
	for state, want := range map[job.State]struct {
		away time.Duration // until the lock is released
		took time.Duration
		err  error
	}{
		job.Stopped:   {3 * time.Second, 3 * time.Second, nil},
		job.Failed:    {time.Second, time.Second, nil},
		job.Suspended: {2 * time.Second, 2 * time.Second, nil},
		job.Running:   {3 * time.Second, 0, job.ErrRunning},
		job.Succeeded: {time.Minute, endLimit, job.ErrRunning},
	} {
		useHome(t)
		d := home(t, "a")
		held, err := d.lock()
		if err != nil {
			t.Fatal(err)
		}
		text, err := encode(&wire.JobStatus{Name: "a", State: string(state)})
		if err == nil {
			err = d.write(statusFile, text)
		}
		if err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) {
			began, gone := time.Now(), make(chan struct{})
			go func() {
				time.Sleep(want.away)
				held.Close()
				close(gone)
			}()
			lock, err := d.lockOver(t.Context())
			if took := time.Since(began).Round(100 * time.Millisecond); !errors.Is(err, want.err) || took != want.took {
				t.Errorf("%s: %v after %v", state, err, took)
			}
			if lock != nil {
				lock.Close()
			}
			<-gone
		})
	}
}

// A job is over as soon as its master reports it, before the last status is written.
func TestOverBeforeItIsWritten(t *testing.T) {
	useHome(t)
	newLife(t)
	h := startJob(t, "lags")
	d := home(t, "lags")
	if d.over(t.Context()) {
		t.Error("a job that runs is over")
	}
	if err := d.ask(t.Context(), func(ctx context.Context, m wire.JobClient) error {
		_, err := m.Stop(ctx, &wire.StopRequest{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if !d.over(t.Context()) {
		t.Error("a job is not over, and its master says that it was stopped")
	}
	if s, err := d.stored(); err != nil || s.State != string(job.Running) {
		t.Errorf("%v, %v is written", s, err)
	}
	h.Kill()
	h.Wait(t.Context())
}
