package task

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
)

func TestPermutation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 2000).Draw(t, "n")
		p := plain(n)
		if rapid.Bool().Draw(t, "shuffled") {
			p = shuffle(n, rapid.Uint64().Draw(t, "seed"), rapid.Uint64().Draw(t, "epoch"))
		}
		seen := make([]bool, n)
		for i := range n {
			number := p.at(i)
			if number < 0 || number >= n || seen[number] {
				t.Fatalf("place %d of %d has number %d, again: %t", i, n, number, number < n && seen[number])
			}
			seen[number] = true
			if back := p.indexOf(number); back != i {
				t.Fatalf("number %d at place %d is looked for at %d", number, i, back)
			}
		}
	})
}

// All orders of a few numbers are about equally frequent. Each of many numbers is about equally
// often at each place.
func TestShuffleIsFair(t *testing.T) {
	const tries = 24000
	orders := make(map[string]int)
	for seed := range uint64(tries) {
		p := shuffle(4, seed, 1)
		orders[fmt.Sprint(p.at(0), p.at(1), p.at(2), p.at(3))]++
	}
	for order, n := range orders {
		if n < tries/24*3/4 || n > tries/24*5/4 || len(orders) != 24 {
			t.Errorf("order %s came %d times of %d, one of %d", order, n, tries, len(orders))
		}
	}
	const n = 50
	var at [n][n]int
	var follows int
	for seed := range uint64(tries) {
		p := shuffle(n, seed, 1)
		for i := range n {
			number := p.at(i)
			at[i][number]++
			if i > 0 && number == p.at(i-1)+1 {
				follows++
			}
		}
	}
	for i := range n {
		if least, most := slices.Min(at[i][:]), slices.Max(at[i][:]); least < tries/n*3/4 || most > tries/n*5/4 {
			t.Errorf("a number is at place %d from %d to %d times of %d, not about %d", i, least, most, tries, tries/n)
		}
	}
	if want := tries * (n - 1) / n; follows < want*9/10 || follows > want*11/10 {
		t.Errorf("%d times a number follows the one before it, not about %d", follows, want)
	}
}

// TestCut compares cutUp with a simple enumeration of tasks, and checks that a limit of records is
// kept exactly.
func TestCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var shards []Shard
		for i := range rapid.IntRange(1, 6).Draw(t, "shards") {
			shards = append(shards, Shard{Name: fmt.Sprint(i),
				Start: rapid.Int64Range(0, 9).Draw(t, "start"), Count: rapid.Int64Range(0, 30).Draw(t, "count")})
		}
		each := rapid.Int64Range(1, 9).Draw(t, "records")
		var want []Task
		for _, s := range shards {
			for at := s.Start; at < s.Start+s.Count; at += each {
				want = append(want, Task{Kind: Training, Number: len(want), Shard: s.Name, Start: at,
					End: min(at+each, s.Start+s.Count)})
			}
		}
		c := cutUp(shards, each)
		if c.tasks != len(want) {
			t.Fatalf("%d tasks, want %d", c.tasks, len(want))
		}
		for i, w := range want {
			if got := c.task(i, Task{Kind: Training}); got != w {
				t.Fatalf("task %d is %+v, want %+v", i, got, w)
			}
		}
		todo := newTodo(c, shuffle(c.tasks, rapid.Uint64().Draw(t, "seed"), 1), Task{Kind: Training})
		limit := rapid.Int64Range(1, max(1, c.records+3)).Draw(t, "limit")
		todo.limit(limit)
		var sum int64
		for place := range todo.end {
			if n := todo.at(place).Records(); n <= 0 || n > each {
				t.Fatalf("place %d of %d: %v", place, todo.end, todo.at(place))
			} else {
				sum += n
			}
		}
		if sum != min(limit, c.records) {
			t.Fatalf("%d tasks with %d records of %d, limit %d", todo.end, sum, c.records, limit)
		}
	})
}

// NextEpoch, which the master calls under its lock, takes no more memory for many tasks than for a
// few.
func TestNextEpochIsCheap(t *testing.T) {
	q := newQueue(t, 1e5, Policy{RecordsPerTask: 1, Shuffle: true, MaxRecords: 2e5 + 5e4})
	for range 2 {
		for !q.Settled() {
			must(t, q.Done(lease(t, q, 0, start).ID, 0, start))
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		q.NextEpoch()
		q.Remaining()
		q.Evaluate(7, []Shard{{Name: "test", Start: 0, Count: 1e5}})
		q.Withdraw(7, start)
		runtime.ReadMemStats(&after)
		if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 1<<16 {
			t.Errorf("opening epoch %d took %d bytes", q.Stats().Epoch, bytes)
		}
	}
}

func BenchmarkNextEpoch(b *testing.B) {
	q := newQueue(b, 1e6, Policy{RecordsPerTask: 1, Shuffle: true})
	for b.Loop() {
		must(b, q.Rewind(new(ledger.Ledger)))
	}
}
