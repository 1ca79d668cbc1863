package rendezvous

import (
	"fmt"
	"testing"
)

// Each position is newer than those before it, and equal to itself.
func TestPositionsInOrder(t *testing.T) {
	order := []Position{NoState, {}, {Round: 1000}, {Beginning: 1}, {Beginning: 1, Round: 1 << 40}, {Beginning: 2}}
	for i, a := range order {
		for j, b := range order {
			if got, want := sign(a.Compare(b)), sign(i-j); got != want {
				t.Errorf("%+v compared with %+v: %d, want %d", a, b, got, want)
			}
		}
		if a.Exists() != (i > 0) {
			t.Errorf("%+v exists: %t", a, a.Exists())
		}
	}
	if none := (Position{Beginning: 7, Round: -1}); none.Compare(NoState) != 0 || none.Compare(Position{}) >= 0 {
		t.Error("the beginning counts although there is no state: " + fmt.Sprint(none.Compare(NoState)))
	}
}

func sign(n int) int {
	switch {
	case n < 0:
		return -1
	case n > 0:
		return 1
	}
	return 0
}
