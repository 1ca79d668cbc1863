package cli

import (
	"context"
	"syscall"
	"testing"
)

// Two SIGTERMs in quick succession, as timeout(1) sends them, are one request to end.
func TestTwoSignals(t *testing.T) {
	ctx := untilSignal()
	for range 2 {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil { // without a handler it would end the test
			t.Fatal(err)
		}
		<-ctx.Done()
	}
	if err := context.Cause(ctx); err.Error() != "by SIGTERM" {
		t.Errorf("ended %v, want by SIGTERM", err)
	}
}
