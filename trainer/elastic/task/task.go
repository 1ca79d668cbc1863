package task

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
)

// Kind is the purpose of a task: training, evaluation or prediction.
type Kind int

const (
	Training   Kind = iota + 1
	Evaluation      // measure the model on the records
	// write the model, or join the parts of a prediction; such a task has no records
	Export
	// write the model's outputs for the records
	Prediction
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

// Shard is the records [Start, Start+Count) of a named source, for example a file.
type Shard struct {
	Name         string
	Start, Count int64
	Bytes        int64  // size of the file; 0: not known
	Sum          uint64 // checksum of the content; 0: not known
}

// Block is the position of the records [First, First+Records) of a shard: the Size bytes of its
// file from Offset on. A block is read as a whole. Checksum is that of its bytes, so that other
// records that have come in their place are not taken for them.
type Block struct {
	First, Records, Offset, Size int64
	Checksum                     uint32
}

// Task is the records [Start, End) of one shard, the unit that is leased. A worker takes them in
// the order of [Policy.Order].
type Task struct {
	Kind Kind
	// index of the task among those of all shards, unshuffled, from 0: the same in every epoch
	Number int
	// prediction: the number of tasks; export: the number of parts to join, 0 to write the model
	Of int
	// name of the shard
	Shard      string
	Start, End int64
	// number of records, in the order of [Policy.Order], that are credited: the worker begins after
	// them
	Done int64
	// the number of its records is found by reading them: see [Policy.Unsized]. Start is then the
	// number of the shard.
	Unsized bool
	// from 1; training only
	Epoch int
	// the version of the model for evaluation, prediction and export; 0: the newest
	Version int64
	// number of leases that failed and were counted
	Attempts int
	// how often a worker was overdue during the task; each time doubles the limit
	Slow int
	// how often in a row, without progress, the task was given back because its data could not be
	// reached
	Returned int
}

// Records returns the number of records, credited ones included. Of a task of unknown length it
// returns [ledger.End]: no count of its records is that of all.
func (t Task) Records() int64 {
	if t.Unsized {
		return ledger.End
	}
	return t.End - t.Start
}

// Whole reports whether a count of the first records of a task is that of all.
func (t Task) Whole(count int64) bool { return count >= t.Records() }

// In returns the count of the task's first records that are in a ledger.
func (t Task) In(l *ledger.Ledger) int64 {
	n, whole := l.Progress(ledger.Task{Epoch: t.Epoch, Number: t.Number})
	switch {
	case !whole:
		return n
	case t.Unsized:
		return ledger.End + n
	}
	return t.Records()
}

// most returns the highest count of the records of a task.
func (t Task) most() int64 {
	if t.Unsized {
		return math.MaxInt64
	}
	return t.Records()
}

func (t Task) String() string {
	switch t.Kind {
	case Export:
		return "export"
	case Evaluation, Prediction:
		return fmt.Sprintf("%v[v=%d] of records [%d, %d) of %s", t.Kind, t.Version, t.Start, t.End, t.Shard)
	}
	if t.Unsized {
		return fmt.Sprintf("%v on shard %d of %s, epoch %d", t.Kind, t.Number, t.Shard, t.Epoch)
	}
	return fmt.Sprintf("%v on records [%d, %d) of %s, epoch %d", t.Kind, t.Start, t.End, t.Shard, t.Epoch)
}

// Lease is the right of one worker to a task. A worker works on its leases in the order of their
// numbers.
type Lease struct {
	// the number of the lease
	ID     int64
	Worker int
	Task
	Granted time.Time
	// the highest progress reported
	shown int64
	// the highest effort reported
	effort int64
	// when the worker last showed progress on any of its leases; Granted if it did not
	Touched time.Time
}

// ErrStale is returned for a report about a lease that the worker does not hold, because it was
// settled or taken back. The report changes nothing; the worker drops the lease and continues.
var ErrStale = errors.New("lease is not held")

// Policy configures a queue. Workers need its Shuffle and Seed, for [Policy.Order].
type Policy struct {
	// records of a task; the last task of a shard may have fewer
	RecordsPerTask int64
	// passes over the training shards; <= 0: no limit
	Epochs int
	// number of failures, or of returns in a row, of one task that fails the queue; 0: 3
	MaxAttempts int
	// a worker is a straggler only after at least this time without progress; 0: never
	Timeout time.Duration
	// shuffle tasks, and records within a task, differently in each epoch
	Shuffle bool
	// of the shuffled order
	Seed uint64
	// training ends after this number of records, whatever Epochs says; 0: no limit
	MaxRecords int64
	// the records of a shard are themselves shards, such as files or URLs, the lengths of which are
	// unknown: each is one task. Counts of its records are those of [ledger.End].
	Unsized bool
}

// stragglerFactor times the longest completed lease is the limit of a lease without progress, if
// Timeout is less.
const stragglerFactor = 3

// maxSlow limits how often the limit of a task is doubled, to 64 times the limit.
const maxSlow = 6

// validate returns an error that names every field with an impossible value.

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
	if p.Unsized && (p.RecordsPerTask != 1 || p.MaxRecords != 0) {
		problems = append(problems, fmt.Errorf("shards of unknown length: want 1 shard per task and no limit of "+
			"records, not %d and %d", p.RecordsPerTask, p.MaxRecords))
	}
	return errors.Join(problems...)
}

// Order returns the indices of all records of a task in the order in which workers take them; a
// worker begins at [t.Done:]. The order depends only on Shuffle, Seed and the task's epoch, shard
// and range, so that the next worker of a lost lease continues where the other one was. Only
// training is shuffled.
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

// Stats is the progress of a queue.
type Stats struct {
	// the open epoch, from 1
	Epoch int
	// number of epochs; 0: no limit
	Epochs int

	// training records credited, over all epochs
	Done int64
	// training records of all epochs; 0: no limit, or unknown
	Total int64
	// records of all epochs beyond MaxRecords
	Skipped int64

	// records credited of the open epoch
	EpochDone int64
	// records of the open epoch; 0: unknown
	EpochTotal int64

	// training tasks of the open epoch that wait; Todo + Leased + Settled is constant within an
	// epoch
	Todo int
	// training tasks of the open epoch that are leased
	Leased int
	// training tasks of the open epoch that are settled
	Settled int

	// evaluation, prediction and export tasks that wait or are leased
	Evaluating int

	// records done of the last evaluation or prediction
	Measured int64
	// records of the last evaluation or prediction
	ToMeasure int64

	// number of leases that were lost, withdrawn from stragglers, or given back
	Requeued int
	// number of leases that failed and were counted
	Failed int
}

func (s Stats) String() string {
	return fmt.Sprintf("epoch %d of %d: %d of %d records; tasks: %d to do, %d leased, %d settled; "+
		"%d evaluating; %d requeued, %d failed",
		s.Epoch, s.Epochs, s.EpochDone, s.EpochTotal, s.Todo, s.Leased, s.Settled, s.Evaluating, s.Requeued, s.Failed)
}
