//go:build linux && !race

package checkpoint

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Copies into prepared memory need no other page: of those it takes the kernel many times as long
// as the copying.
func TestMemoryIsPrepared(t *testing.T) {
	const elements = 8 << 20 // 32 MiB
	src := part(0, elements, 1, 0)
	var prepared, not Copy
	if done := make(chan bool); !prepared.Prepare(src, func() { close(done) }) {
		<-done
	}
	faults := func(c *Copy) int64 {
		var before, after unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &before); err != nil {
			t.Fatal(err)
		}
		c.Take(src)
		if err := unix.Getrusage(unix.RUSAGE_SELF, &after); err != nil {
			t.Fatal(err)
		}
		return after.Minflt - before.Minflt
	}
	if n := faults(&prepared); n > 200 {
		t.Errorf("%d pages are made while 64 MiB are copied", n)
	}
	t.Logf("%d pages are made if nothing is prepared", faults(&not))
}
