package worker

import (
	"fmt"
	"slices"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/train/zoo"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
)

// The records of a rank begin where the state's ledger ends, for any leases.
func TestOffersFollowTheLedger(t *testing.T) {
	of := func(lease, number, done int64) piece {
		task := &wire.Task{Lease: lease, Kind: wire.TaskKind_TRAINING, Epoch: 1, Number: number, End: 8}
		return piece{item: item{task: task, batch: &zoo.Batch{Size: 2}, done: done}}
	}
	for _, c := range []struct {
		name    string
		had     int64 // records of task 1 in the state
		queued  []piece
		want    []string
		reports []string
	}{
		{name: "as it should be", had: 2, queued: []piece{of(1, 1, 4), of(1, 1, 6), of(2, 2, 2)},
			want: []string{"1: 2+2", "1: 4+2", "2: 0+2"}},
		{name: "some of it is in the state", had: 3,
			queued: []piece{of(1, 1, 2), of(1, 1, 4), of(1, 1, 6)}, want: []string{"1: 3+1", "1: 4+2"}},
		{name: "all of it is", had: 8, queued: []piece{of(1, 1, 2), of(1, 1, 4), of(2, 2, 2)},
			want: []string{"2: 0+2"}},
		{name: "there would be a gap", had: 0, queued: []piece{of(1, 1, 4), of(1, 1, 6), of(2, 2, 2)},
			want:    []string{"2: 0+2"},
			reports: []string{"the lease continues at record 2, but the model has 0 records of the task"}},
		{name: "a gap comes later", had: 0, queued: []piece{of(2, 2, 2), of(1, 1, 4)}, want: []string{"2: 0+2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, reports := withQueued(c.queued...)
			r.Meeting, r.Job = membership.New(nil, nil), &job.Job{ModelSettings: job.ModelSettings{MinibatchSize: 2}}
			r.batch = 100 // it offers all that it has
			r.ledger.Add(ledger.Task{Epoch: 1, Number: 1}, c.had, 8)
			if err := r.tidy(t.Context()); err != nil {
				t.Fatal(err)
			}
			var got, said []string
			for _, o := range r.header(&world{World: membership.Of(t.Context(), &wire.World{}), size: 1}).offers {
				got = append(got, fmt.Sprintf("%d: %d+%d", o.task.Number, o.from, o.records))
			}
			for len(reports) > 0 {
				said = append(said, (<-reports).Error)
			}
			if !slices.Equal(got, c.want) || !slices.Equal(said, c.reports) {
				t.Errorf("offers %v and reports %v, want %v and %v", got, said, c.want, c.reports)
			}
		})
	}
}

// If two ranks bring records of one task, the first gives them, and the other gives up its lease.
func TestOneRankGivesATask(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClass(2)
		c.pupils[0].give(training(1, 0, 8, 0))
		again := training(2, 0, 8, 0)
		again.Number = 1 // the task of lease 1
		c.pupils[1].tasks = append(c.pupils[1].tasks, again, training(3, 8, 16, 0))
		c.pupils[1].granted++
		c.start(t)
		c.finish(t)
		for record, v := range c.pupils[0].engine.values[:16] {
			if n := int(1/-v + 0.5); !slices.Contains(c.updates(), n) {
				t.Errorf("record %d: %v after updates of %v records", record, v, c.updates())
			}
		}
	})
}
