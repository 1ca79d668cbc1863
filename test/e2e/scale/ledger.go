package scale

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// errGeneration refuses a message about another model generation.
var errGeneration = errors.New("the model has started over")

// Ledger is the model of a job, as all of its servers have it: which records it contains, how
// often. A push is on every server or on none. Like a real server, it has the first records of each
// task up to some record, and it exists as long as the model does.
type Ledger struct {
	mu              sync.Mutex
	modelGeneration int64
	// all records of the epochs up to this one are in the model
	settled int32
	// number of records that are in the model, from each task's start
	applied map[key]int64
	// how many times each record was pushed
	shards map[shard][]int
	pushes int64
	// number of records of the tasks in applied
	sizes map[key]int64
	// number of records that were pushed in all model generations
	trained int64
	// models of the checkpoints, by number
	saved map[int64]*Ledger
}

// key names a training task.
type key struct {
	epoch  int32
	number int64
}

// shard is a shard in an epoch.
type shard struct {
	epoch int32
	name  string
}

// NewLedger returns the ledger of a job that has not begun, in the first model generation.
func NewLedger() *Ledger {
	l := &Ledger{saved: make(map[int64]*Ledger)}
	l.clear(1)
	return l
}

func (l *Ledger) clear(modelGeneration int64) {
	l.modelGeneration, l.settled, l.pushes = modelGeneration, 0, 0
	l.applied, l.shards, l.sizes = make(map[key]int64), make(map[shard][]int), make(map[key]int64)
}

// push adds the records [from, to) of a task, in its order, and returns how many records of the
// task are in the model. If that is less than to, the push does not begin at the ledger's end of
// the task, and adds nothing. It returns errGeneration if the model is in another generation.
func (l *Ledger) push(modelGeneration int64, t *wire.Task, from, to int64) (had int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := key{t.Epoch, t.Number}
	had = l.applied[of]
	switch {
	case modelGeneration != l.modelGeneration:
		return 0, fmt.Errorf("%w: a push of generation %d in generation %d", errGeneration, modelGeneration,
			l.modelGeneration)
	case t.Epoch <= l.settled:
		return to, nil
	case to <= had || from != had:
		return had, nil
	}
	records := l.shards[shard{t.Epoch, t.Shard}]
	if missing := int(t.End) - len(records); missing > 0 {
		records = append(records, make([]int, missing)...)
		l.shards[shard{t.Epoch, t.Shard}] = records
	}
	for i := t.Start + from; i < t.Start+to; i++ {
		records[i]++
	}
	l.applied[of], l.sizes[of] = to, t.End-t.Start
	l.trained += to - from
	l.pushes++
	return to, nil
}

// progress returns how many records of some tasks are in the model.
func (l *Ledger) progress(tasks []*wire.TaskKey) []int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []int64
	for _, t := range tasks {
		all = append(all, l.applied[key{t.Epoch, t.Number}])
	}
	return all
}

// begin begins a model generation with a checkpoint, or with the initial values for 0, unless that
// generation or a later one has begun.
func (l *Ledger) begin(modelGeneration, number int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if modelGeneration > l.modelGeneration {
		l.load(modelGeneration, number)
	}
}

// restart begins a model generation with a checkpoint, or with the initial values for 0, because
// all servers are new: they have nothing of that generation.
func (l *Ledger) restart(modelGeneration, number int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if modelGeneration >= l.modelGeneration {
		l.load(modelGeneration, number)
	}
}

func (l *Ledger) load(modelGeneration, number int64) {
	l.clear(modelGeneration)
	if of := l.saved[number]; of != nil {
		l.take(of)
	}
}

// take makes the model a copy of another one.
func (l *Ledger) take(of *Ledger) {
	l.settled, l.pushes = of.settled, of.pushes
	l.applied, l.sizes, l.shards = maps.Clone(of.applied), maps.Clone(of.sizes), maps.Clone(of.shards)
	for name, counts := range l.shards {
		l.shards[name] = slices.Clone(counts)
	}
}

// save copies the model for a checkpoint. It returns the records in the copy, and its version.
func (l *Ledger) save(number int64) (records ledger.Ledger, version int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := new(Ledger)
	of.take(l)
	l.saved[number] = of
	for k, done := range of.applied {
		records.Add(ledger.Task{Epoch: int(k.epoch), Number: int(k.number)}, done, of.sizes[k])
	}
	records.Settle(int(of.settled))
	return records, of.pushes
}

// work returns the number of records that were pushed, also those that were lost with a model
// generation.
func (l *Ledger) work() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trained
}

// settle records that all records of the epochs up to this one are in the model, in that
// generation. It returns errGeneration if the model is in another generation.
func (l *Ledger) settle(modelGeneration int64, epochs int32) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if modelGeneration != l.modelGeneration {
		return fmt.Errorf("%w: an order of generation %d in generation %d", errGeneration, modelGeneration,
			l.modelGeneration)
	}
	l.settled = max(l.settled, epochs)
	maps.DeleteFunc(l.applied, func(k key, _ int64) bool { return k.epoch <= l.settled })
	return nil
}

func (l *Ledger) version() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pushes
}

// Check compares the ledger with a finished job: each of the records must have been trained on once
// in each of the epochs.
func (l *Ledger) Check(records, epochs int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	trained, again := 0, 0
	for _, counts := range l.shards {
		for _, n := range counts {
			trained += min(n, 1)
			again += max(n-1, 0)
		}
	}
	var err error
	if trained != records*epochs {
		err = fmt.Errorf("%d of %d records were trained on", trained, records*epochs)
	}
	if again > 0 {
		err = errors.Join(err, fmt.Errorf("%d records were trained on again", again))
	}
	return err
}
