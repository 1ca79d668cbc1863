package ring_test

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"

	"github.com/elasticdl/elasticdl/test/netmodel"
)

// modelled returns the seconds until size ranks have summed n numbers. It fails the test if ranks
// wait for one another in a circle.
func modelled(t *testing.T, size, n int) (seconds float64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var err error
		if seconds, err = netmodel.AllReduce(size, n); err != nil {
			t.Error(err)
		}
	})
	return seconds
}

// The time of a sum over many ranks is near to the least that the bandwidth allows.
func TestManyRanks(t *testing.T) {
	for _, c := range []struct {
		size, n int
		// greatest time, as a multiple of the least possible
		most float64
	}{
		{2, 1_000_000, 1.3}, {4, 1_000_000, 1.6}, {6, 250_000, 1.2}, {8, 2_000_000, 1.2},
		{33, 1_000_000, 1.2}, {64, 250_000, 1.3}, {64, 1_000_000, 1.2}, {64, 4_000_000, 1.2},
		{100, 250_000, 1.3}, {100, 2_000_000, 1.2},
	} {
		t.Run(fmt.Sprintf("%d ranks, %d numbers", c.size, c.n), func(t *testing.T) {
			got := modelled(t, c.size, c.n) / netmodel.Least(c.size, c.n)
			if got > c.most {
				t.Errorf("takes %.2f times the least, at most %.2f", got, c.most)
			} else {
				t.Logf("takes %.2f times the least", got)
			}
		})
	}
}

// A few numbers of many ranks are gathered, which waits as often as the logarithm of the ranks, and
// more are summed in twice as many rounds; neither waits as often as there are ranks.
func TestFewNumbersOfManyRanks(t *testing.T) {
	for _, c := range []struct {
		size, n int
		// bytes that a rank receives
		bytes float64
		// rounds by the logarithm of the ranks
		rounds float64
	}{
		{100, 200, 4 * 100 * 200, 1}, {64, 10_000, 8 * 10_000, 2}, {65, 10_000, 8 * 10_000, 2},
	} {
		waits := c.rounds * math.Ceil(math.Log2(float64(c.size)))
		got, most := modelled(t, c.size, c.n), 1.5*(waits*netmodel.Hop+c.bytes/netmodel.Bandwidth)
		if got > most {
			t.Errorf("%d numbers of %d ranks take %.2g s, which is %.0f waits, expected %.0f", c.n, c.size,
				got, got/netmodel.Hop, waits)
		}
	}
}

// No ranks wait for one another in a circle, whatever their number, and however a block compares
// with a segment.
func TestNoCircle(t *testing.T) {
	for _, size := range []int{2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 16, 17, 24, 31, 32, 33, 64, 65} {
		for _, n := range []int{1, size, 3_000 * size, 7_000 * size, 20_000 * size} {
			modelled(t, size, n)
		}
	}
}
