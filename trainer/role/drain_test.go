package role

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
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

// If the launcher dies in a planned stop, a program still has its grace period. A model's worker, without a master, has nothing to end.
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

func TestOnlyPodsOfAClusterGiveTheirMasterUp(t *testing.T) {
	if d := (Role{}).abandoned(); d != 0 {
		t.Errorf("a process of this machine waits %v", d)
	}
	if d := (Role{Listen: "10.0.0.1:0"}).abandoned(); d != abandoned {
		t.Errorf("a pod waits %v", d)
	}
}
