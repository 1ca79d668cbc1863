package role

import (
	"bytes"
	"fmt"
	"syscall"
	"testing"
)

// disk is a file on a disk with room for that many bytes.
type disk struct {
	bytes.Buffer
	room int
}

func (d *disk) Write(p []byte) (int, error) {
	if n := min(len(p), d.room); n < len(p) {
		d.Buffer.Write(p[:n])
		d.room -= n
		return n, syscall.ENOSPC
	}
	d.room -= len(p)
	return d.Buffer.Write(p)
}

// A log whose disk was full says how many lines it lacks, at their place, whether or not the last
// line before is whole.
func TestLossyLog(t *testing.T) {
	for name, c := range map[string]struct {
		room int // at first
		want string
	}{
		"never full": {1 << 20, "line 0\nline 1\nline 2\nline 3\nline 4\n"},
		"full from start": {0,
			"elasticdl: 4 lines of this log are missing here: no space left on device\nline 4\n"},
		"whole lines": {14,
			"line 0\nline 1\nelasticdl: 2 lines of this log are missing here: no space left on device\nline 4\n"},
		"within a line": {16,
			"line 0\nline 1\nli\nelasticdl: 2 lines of this log are missing here: no space left on device\nline 4\n"},
		"room for a part of the note": {26,
			"line 0\nline 1\nline 2\nline \nelasticdl: 1 lines of this log are missing here: no " +
				"space left on device\nline 4\n"},
	} {
		t.Run(name, func(t *testing.T) {
			d := &disk{room: c.room}
			log := Lossy(d)
			for i := range 5 {
				if i == 4 {
					d.room = 1 << 20
				}
				if n, err := fmt.Fprintf(log, "line %d\n", i); err != nil || n != 7 {
					t.Errorf("%d bytes, %v", n, err)
				}
			}
			if got := d.String(); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
