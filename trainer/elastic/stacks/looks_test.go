package stacks

import (
	"fmt"
	"testing"
)

// Each thread is looked at as often as it can tell something.
func TestLooks(t *testing.T) {
	const line = "Current thread 0x01 (most recent call first):\n  File \"/code/train.py\", line %d in f\n"
	type glance struct {
		state byte
		ticks int64
		line  int
	}
	for name, c := range map[string]struct {
		glance func(n int) glance
		want   Looks
		// glances after the first look
		times int
	}{
		"stands in a loop": {func(n int) glance { return glance{'R', int64(2 * n), 1} }, Looks{Same: MostLooks}, 8},
		"moves at once":    {func(n int) glance { return glance{'R', int64(2 * n), 1 + n} }, Looks{Moved: true}, 1},
		"moves at last": {func(n int) glance { return glance{'R', int64(2 * n), 1 + n/6} },
			Looks{Same: 5, Moved: true}, 6},
		"waits":           {func(int) glance { return glance{'S', 70, 1} }, Looks{Same: MostLooks}, 10},
		"gets nothing":    {func(int) glance { return glance{'R', 70, 1} }, Looks{}, 99},
		"gets little":     {func(n int) glance { return glance{'R', int64(n / 20), 1} }, Looks{Same: 2}, 99},
		"computes rarely": {func(n int) glance { return glance{'S', int64(n / 5), 1} }, Looks{Same: MostLooks}, 80},
		"ends":            {func(n int) glance { return glance{0, 0, 1} }, Looks{}, 1},
		"has no stack":    {func(n int) glance { return glance{'R', int64(n), 0} }, Looks{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			text := func(g glance) string {
				if g.line == 0 {
					return ""
				}
				return fmt.Sprintf(line, g.line)
			}
			var l Looks
			first, n := c.glance(0), 0
			for more := l.Take(text(first), first.ticks); more && n < 99; {
				n++
				var due bool
				g := c.glance(n)
				if due, more = l.Due(g.state, g.ticks); due {
					more = l.Take(text(g), g.ticks)
				}
			}
			if l.Same != c.want.Same || l.Moved != c.want.Moved || n != c.times {
				t.Errorf("%d looks, moved %v after %d glances; want %+v, %d", l.Same, l.Moved, n, c.want, c.times)
			}
		})
	}
}
