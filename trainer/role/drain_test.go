package role

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestWorkOutlastsTheRequestToLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, ask := context.WithCancel(t.Context())
		working, stop := work(asked, leaveGrace)
		defer stop()
		ask()
		time.Sleep(leaveGrace - time.Millisecond)
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
		working, stop := work(asked, leaveGrace)
		defer stop()
		ask(ErrOrphaned)
		synctest.Wait()
		if context.Cause(working) != ErrOrphaned {
			t.Errorf("an orphan: %v", context.Cause(working))
		}
	})
}

func TestOnlyPodsOfAClusterGiveTheirMasterUp(t *testing.T) {
	if d := (Role{}).abandoned(); d != 0 {
		t.Errorf("a process of this machine waits %v", d)
	}
	if d := (Role{Listen: "10.0.0.1:0"}).abandoned(); d != abandoned {
		t.Errorf("a pod waits %v", d)
	}
}
