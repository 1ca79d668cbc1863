package task

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// Kind is what is to be done with a task's records.
type Kind int

const (
	Training   Kind = iota + 1
	Evaluation      // measure the model on them
	Export          // write the model, or put the parts of a prediction together; such a task has no records
	Prediction      // write the model's outputs for them
)

func (k Kind) String() string {
	switch k {
	case Training:
		return "training"
	case Evaluation:
		return "evaluation"
	case Export:
		return "export"
	case Prediction:
		return "prediction"
	}
	return fmt.Sprintf("Kind(%d)", int(k))
}

// Shard is the records [Start, Start+Count) of one named source: a file, a table's partition.
type Shard struct {
	Name         string
	Start, Count int64
}

// Block is where the records [First, First+Records) of a shard are: in the Size bytes of its file from Offset on, which are
// read at once.
type Block struct{ First, Records, Offset, Size int64 }

// Task is the records [Start, End) of one shard, the unit that is leased.
// Its records are taken in the order that [Policy.Order] gives.
type Task struct {
	Kind       Kind
	Number     int // in the unshuffled cut of all the shards, from 0: the same in every epoch
	Of         int // prediction: how many tasks there are; export: how many parts are to be put together, 0 to write the model
	Shard      string
	Start, End int64
	Done       int64 // records, in that order, that are credited already: begin after them
	Epoch      int   // from 1; training only
	Version    int64 // evaluation, prediction and export: which version of the model, 0 as it stands
	Attempts   int   // leases of it that failed and were charged
	Slow       int   // how often a worker was overdue with it; each time doubles the limit
	Returned   int   // how often in a row, without progress, it was given back as its data could not be reached
}

// Records returns the number of its records, the credited ones included.
func (t Task) Records() int64 { return t.End - t.Start }

func (t Task) String() string {
	switch t.Kind {
	case Export:
		return "export"
	case Evaluation, Prediction:
		return fmt.Sprintf("%v[v=%d] of records [%d, %d) of %s", t.Kind, t.Version, t.Start, t.End, t.Shard)
	}
	return fmt.Sprintf("%v on records [%d, %d) of %s, epoch %d", t.Kind, t.Start, t.End, t.Shard, t.Epoch)
}

// Lease is one worker's hold on one task. A worker takes its leases in the order of their ids.
type Lease struct {
	ID     int64
	Worker int
	Task
	Granted time.Time
	shown   int64     // the most progress that its worker has told
	effort  int64     // the most effort that it has told
	Touched time.Time // when its worker last showed progress on any of its leases, or Granted
}

// ErrStale is returned for a report about a lease that the worker does not hold (any more):
// it was settled before, or taken back. Nothing was changed; the worker drops the task and goes on.
var ErrStale = errors.New("lease is not held")

// Policy is how a queue behaves. The worker needs Shuffle and Seed of it, for [Policy.Order].
type Policy struct {
	RecordsPerTask int64         // length of a task; the last one of a shard may be shorter
	Epochs         int           // passes over the training shards; <= 0: without end
	MaxAttempts    int           // how often a task may fail, charged, or be returned in a row, before the queue fails; 0: 3
	Timeout        time.Duration // the least time without progress that makes a straggler; 0: there are none
	Shuffle        bool          // order of tasks, and of records within a task, differs by epoch
	Seed           uint64        // decides that order
	MaxRecords     int64         // training ends after so many records, epochs notwithstanding; 0: no limit
}

// stragglerFactor times the longest completed lease is what a lease may take without progress, if Timeout is less.
const stragglerFactor = 3

// maxSlow is how often the limit of a task is doubled at most: 64 times the limit is for ever.
const maxSlow = 6

func (p Policy) validate() error {
	var problems []error
	if p.RecordsPerTask <= 0 {
		problems = append(problems, fmt.Errorf("records per task must be positive, not %d", p.RecordsPerTask))
	}
	if p.MaxAttempts < 0 {
		problems = append(problems, fmt.Errorf("attempts must not be negative, not %d", p.MaxAttempts))
	}
	if p.Timeout < 0 {
		problems = append(problems, fmt.Errorf("timeout must not be negative, not %v", p.Timeout))
	}
	if p.MaxRecords < 0 {
		problems = append(problems, fmt.Errorf("record limit must not be negative, not %d", p.MaxRecords))
	}
	return errors.Join(problems...)
}

// Order returns the indices of the task's records, all of them, in the order in which
// a worker takes them; a worker begins at [t.Done:]. It depends on Shuffle, Seed
// and the task's epoch, shard and range only, so whoever gets the rest of a lost
// lease goes on where the other one was. Only training is shuffled.
func (p Policy) Order(t Task) []int64 {
	order := make([]int64, t.Records())
	for i := range order {
		order[i] = t.Start + int64(i)
	}
	if p.Shuffle && t.Kind == Training {
		h := fnv.New64a()
		fmt.Fprintf(h, "%d/%d/%d/%s", t.Epoch, t.Start, t.End, t.Shard)
		r := rand.New(rand.NewPCG(p.Seed, h.Sum64()))
		r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	return order
}

// Stats is a queue as users see it.
type Stats struct {
	Epoch, Epochs int // Epoch from 1; Epochs 0: without end

	Done, Total int64 // training records credited and planned, over all epochs; Total 0: without end
	Skipped     int64 // records of the epochs that MaxRecords leaves out, on purpose

	EpochDone, EpochTotal int64 // records of this epoch

	Todo, Leased, Settled int // training tasks of this epoch; their sum is constant within it

	Evaluating int // evaluation, prediction and export tasks that are waiting or leased

	Measured, ToMeasure int64 // records of the last evaluation or prediction: done, and all of them

	Requeued int // leases taken back from lost workers and stragglers, and those that were given back
	Failed   int // leases that failed and were charged
}

func (s Stats) String() string {
	return fmt.Sprintf("epoch %d of %d: %d of %d records; tasks: %d to do, %d leased, %d settled; %d evaluating; %d requeued, %d failed",
		s.Epoch, s.Epochs, s.EpochDone, s.EpochTotal, s.Todo, s.Leased, s.Settled, s.Evaluating, s.Requeued, s.Failed)
}
