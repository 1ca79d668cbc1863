package role

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
)

const grace = time.Minute

func TestWorkOutlastsTheRequestToLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, ask := context.WithCancel(t.Context())
		working, stop := work(asked, grace, func() bool { return false })
		defer stop()
		ask()
		time.Sleep(grace - time.Millisecond)
		if working.Err() != nil {
			t.Error("the work ended before its grace")
		}
		time.Sleep(2 * time.Millisecond)
		if context.Cause(working) != ErrLeft {
			t.Errorf("after the grace: %v", context.Cause(working))
		}
	})
}

func TestOrphanHasNoGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, ask := context.WithCancelCause(t.Context())
		working, stop := work(asked, grace, func() bool { return false })
		defer stop()
		ask(ErrOrphaned)
		synctest.Wait()
		if context.Cause(working) != ErrOrphaned {
			t.Errorf("an orphan: %v", context.Cause(working))
		}
	})
}

// If the launcher dies in a planned stop, a program still has its grace period. A model's worker,
// without a master, has nothing to end.
func TestStopOutlivesItsLauncher(t *testing.T) {
	for program, want := range map[bool]error{true: ErrLeft, false: ErrStopped} {
		synctest.Test(t, func(t *testing.T) {
			asked, ask := context.WithCancelCause(t.Context())
			working, stop := work(asked, grace, func() bool { return program })
			defer stop()
			ask(ErrStopped)
			time.Sleep(grace - time.Millisecond)
			if program != (working.Err() == nil) {
				t.Errorf("program %v: before the end of its grace period: %v", program, context.Cause(working))
			}
			time.Sleep(2 * time.Millisecond)
			if context.Cause(working) != want {
				t.Errorf("program %v: after it: %v", program, context.Cause(working))
			}
		})
	}
}

// A process that runs a program outlives its launcher in a planned stop by the time after which it
// is killed itself, and any other process ends with the launcher.
func TestOnlyProgramsOutliveTheirLauncher(t *testing.T) {
	var runs, rests atomic.Bool
	runs.Store(true)
	for name, c := range map[string]struct {
		role Role
		want time.Duration
	}{
		"a program":                   {Role{Runs: &runs, Grace: 40 * time.Second}, 40 * time.Second},
		"a program, not said when":    {Role{Runs: &runs}, timing.Grace},
		"a worker before its program": {Role{Runs: &rests, Grace: 40 * time.Second}, 0},
		"a server":                    {Role{Grace: 40 * time.Second}, 0},
	} {
		if got := c.role.Lasts(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestOnlyPodsOfAClusterGiveTheirMasterUp(t *testing.T) {
	if d := (Role{}).abandoned(); d != 0 {
		t.Errorf("a process of this machine waits %v", d)
	}
	if d := (Role{Listen: "10.0.0.1:0"}).abandoned(); d != abandoned {
		t.Errorf("a pod waits %v", d)
	}
}
