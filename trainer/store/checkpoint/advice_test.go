package checkpoint

import (
	"bytes"
	"testing"
)

// Memory gets ready in any place and of any length, and the bytes around it stay.
func TestPrepareMemory(t *testing.T) {
	for name, ready := range map[string]func([]byte){"prepare": prepare, "touch": touch} {
		for _, from := range []int{0, 1, page - 1, page, page + 3} {
			for _, n := range []int{0, 1, page - 1, page, 3*page + 5} {
				all := bytes.Repeat([]byte{1}, from+n+page)
				ready(all[from : from+n])
				if bytes.Contains(all[:from], []byte{0}) || bytes.Contains(all[from+n:], []byte{0}) {
					t.Errorf("%s of %d bytes from %d on changes others", name, n, from)
				}
			}
		}
	}
}
