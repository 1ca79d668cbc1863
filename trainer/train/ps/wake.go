package ps

import (
	"syscall"

	"github.com/elasticdl/elasticdl/trainer/wire/credential"
)

// Values that arrive in a socket wake their reader once for many bytes: a wake-up takes as long as
// to copy some tens of kilobytes.
const (
	// pushWake is for the values of a push. It is a quarter of what the slowest sender sends within
	// stall.
	pushWake = 512 << 10
	// pullWake is for the values of a pull.
	pullWake = 1 << 20
)

// wakes sets the number of bytes that wake a reader of values.
type wakes struct {
	// nil: any
	socket syscall.RawConn
	most   int
	// 0: any
	set int
}

// before sets how many bytes wake the reader of the next part of the values, in bytes, which is one
// of the rest.
func (w *wakes) before(part, rest int) {
	n := enough(part, rest, w.most)
	if w.socket != nil && n != max(w.set, 1) {
		credential.WakeAt(w.socket, n)
		w.set = n
	}
}

// enough returns the number of bytes, at most most, that wake the reader of a part of the rest. The
// reader may lack no more than the last byte of the part, so at least that number follows it.
func enough(part, rest, most int) int {
	if rest-part < most {
		return 1
	}
	return most
}
