package credential

import (
	"io"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// closer counts how often it is closed, and runs a function then.
type closer struct {
	closed int
	then   func()
}

func (c *closer) Close() error {
	c.closed++
	if c.then != nil {
		c.then()
	}
	return nil
}

var _ io.Closer = (*closer)(nil)

// Strangers are compared with a list: the oldest are closed when there are too many, known ones
// never, and nobody twice.
func TestStrangers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Strangers
		var all, open []*closer
		known := make(map[*closer]func())
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			if len(all) > 0 && rapid.Bool().Draw(t, "known") {
				c := rapid.SampledFrom(all).Draw(t, "which")
				known[c]()
				open = slices.DeleteFunc(open, func(o *closer) bool { return o == c })
				continue
			}
			c, most := new(closer), rapid.IntRange(1, 5).Draw(t, "most")
			c.then = func() { known[c]() }
			known[c] = s.Admit(c, most)
			all, open = append(all, c), append(open, c)
			open = open[max(0, len(open)-most):]
			for _, o := range all {
				if o.closed > 1 || o.closed == 1 && slices.Contains(open, o) {
					t.Fatalf("connection %d is closed %d times", slices.Index(all, o), o.closed)
				}
			}
			if closed := len(all) - len(open); len(s.conns) != len(open) {
				t.Fatalf("%d strangers after %d were closed or known, want %d", len(s.conns), closed, len(open))
			}
		}
	})
}
