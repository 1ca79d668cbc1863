package worker

import (
	"runtime"
	"testing"
)

// A copy for a checkpoint counts the bytes that are written, and the time that the rounds wait.
func TestCopyIsMeasured(t *testing.T) {
	r := holder(t, t.TempDir(), 0)
	r.Meter = new(Meter)
	r.train(0, 10)
	for r.order(1); r.copies.newest() == nil; r.copyState() {
		runtime.Gosched()
	}
	r.copies.writing.Wait()
	if said := r.copies.newest(); said.Bytes == 0 || r.Meter.Written.Load() != said.Bytes || r.Meter.Held.Load() <= 0 {
		t.Errorf("%d bytes, %d ns, want %v", r.Meter.Written.Load(), r.Meter.Held.Load(), said)
	}
}
