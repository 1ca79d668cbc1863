package ps

import "testing"

// A reader that waits for a part of the values is woken before the sender has sent all of them, and
// by as many bytes as possible.
func TestEnoughBytesCome(t *testing.T) {
	const most = 5
	for rest := 1; rest < 4*most; rest++ {
		for part := 1; part <= rest; part++ {
			n, last := enough(part, rest, most), rest-part+1 // to come when one byte of the part lacks
			if n < 1 || n > last || last > most && n != most {
				t.Errorf("%d bytes wake the reader of %d of %d, expected at most %d", n, part, rest, min(last, most))
			}
		}
	}
}
