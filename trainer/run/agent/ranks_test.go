package agent

import "testing"

func TestRanks(t *testing.T) {
	for _, test := range []struct {
		first, n int
		want     string
	}{{0, 0, "no rank"}, {1, 1, "rank 1"}, {2, 4, "ranks 2-5"}} {
		if got := ranks(test.first, test.n); got != test.want {
			t.Errorf("ranks(%d, %d) = %q, want %q", test.first, test.n, got, test.want)
		}
	}
}
