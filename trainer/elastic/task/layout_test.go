package task

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
)

// A layout has the tasks that a queue leases in each epoch, and the queue's credits are all records
// of them, once and in order.
func TestLayoutAndCredits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shards := []Shard{{Name: "a", Count: rapid.Int64Range(0, 20).Draw(t, "a")}, {Name: "b", Start: 3, Count: 7}}
		p := Policy{RecordsPerTask: rapid.Int64Range(1, 6).Draw(t, "each"),
			Epochs:  rapid.IntRange(1, 3).Draw(t, "epochs"),
			Shuffle: rapid.Bool().Draw(t, "shuffle"), MaxRecords: rapid.Int64Range(0, 60).Draw(t, "most")}
		q, err := New(shards, p)
		if err != nil {
			t.Fatal(err)
		}
		l, err := NewLayout(shards, p)
		if err != nil {
			t.Fatal(err)
		}
		epochs, now := 0, time.Now()
		for !q.TrainingDone() {
			epochs++
			want := make(map[int]Task)
			records := int64(0)
			for one := range l.Of(epochs) {
				want[one.Number] = one
				records += one.Records()
			}
			if records != l.RecordsOf(epochs) {
				t.Fatalf("epoch %d: %d records, want %d", epochs, records, l.RecordsOf(epochs))
			}
			progress := make(map[ledger.Task]int64)
			for {
				lease, ok := q.Lease(1, now)
				if !ok {
					break
				}
				if lease.Task != want[lease.Number] {
					t.Fatalf("leased %v, want %v", lease.Task, want[lease.Number])
				}
				delete(want, lease.Number)
				if err := q.Touch(lease.ID, 1, lease.Records()/2, now); err != nil {
					t.Fatal(err)
				}
				if err := q.Done(lease.ID, 1, now); err != nil {
					t.Fatal(err)
				}
			}
			for _, c := range q.Credits() {
				if c.From != progress[c.Task] || c.To <= c.From {
					t.Fatalf("credit %+v follows %d", c, progress[c.Task])
				}
				progress[c.Task] = c.To
				records -= c.To - c.From
			}
			if len(want) > 0 || records != 0 || len(q.Credits()) > 0 {
				t.Fatalf("epoch %d: not leased %v, %d records not credited", epochs, want, records)
			}
			q.NextEpoch()
		}
		if epochs != l.Epochs() || l.RecordsOf(epochs+1) != 0 || l.RecordsOf(0) != 0 {
			t.Fatalf("%d epochs, and a layout of %d", epochs, l.Epochs())
		}
		if _, ok := l.Task(1, l.Tasks()); ok {
			t.Fatal("a task beyond the last")
		}
	})
}
