package evaluation

import (
	"errors"
	"fmt"
	"slices"
)

// Policy states when the model is measured.
type Policy struct {
	// versions between snapshots (--evaluation_steps); 0: only Final
	Steps int64
	// number of processes that take snapshots
	Servers int
	// the model generation that the schedule is for
	ModelGeneration int64
}

// Model names the state of the model on which records were measured.
type Model struct {
	ModelGeneration int64
	Version         int64
}

// ErrOther is returned for a report that was measured on another model than the evaluation is of.
var ErrOther = errors.New("measured on another model")

// Run describes one evaluation.
type Run struct {
	// of the model
	Version int64
	// version of the snapshot to measure, 0: the model as it stands
	Snapshot int64
}

// State is one metric's state, summed over records.
type State struct {
	// of the metric
	Name string
	// from which the metric is computed, see Result.Metrics
	Sum []float64
}

// Result is the states of one version's metrics over all records, in the order of the first
// report's names.
type Result struct {
	Version int64
	States  []State
}

// Schedule decides which evaluation is due, and collects the reports of the one that is running. It
// is not safe for concurrent use.
type Schedule struct {
	policy Policy
	// by server: the version of its snapshot, 0 if none
	held []int64
	// snapshots up to this version have no use
	released int64

	// versions with a result
	measured map[int64]bool
	// requested by Final, and not begun; nil: none
	final *Run

	// nil: none is running
	run *Run
	// number of tasks of run
	tasks int
	// tasks of run that were reported
	reports map[records]bool
	// their sum
	states []State
}

// Part names what one report is about: the records of one task, and the model on which they were
// measured.
type Part struct {
	Shard string
	Start int64 // first record of the task, in the shard
	On    Model
}

// records identifies a task's records in a map.
type records struct {
	shard string
	start int64
}

// New returns a schedule for which nothing is due.
func New(p Policy) *Schedule {
	return &Schedule{policy: p, held: make([]int64, p.Servers), measured: make(map[int64]bool)}
}

// Snapshot notes the version of the snapshot that a server holds, 0: none. It reports whether that
// ends the running evaluation, because the server has lost its snapshot: then the caller withdraws
// the tasks.
func (s *Schedule) Snapshot(server int, version int64) (withdrawn bool) {
	if server < 0 || server >= len(s.held) || s.policy.Steps <= 0 {
		return false
	}
	if version <= s.released {
		// reported before the server heard of the release
		version = 0
	}
	s.held[server] = version
	if s.run != nil && s.run.Snapshot > 0 && version != s.run.Snapshot {
		s.release(s.run.Snapshot)
		s.run = nil
		withdrawn = true
	}
	if slices.Contains(s.held, 0) {
		return withdrawn
	}
	// If servers hold different versions, all of these are released: if only the older ones
	// were, the servers that had them could take a different version again, for ever.
	newest, oldest := slices.Max(s.held), slices.Min(s.held)
	if newest != oldest || s.measured[newest] {
		s.release(newest)
	}
	return withdrawn
}

func (s *Schedule) release(version int64) {
	s.released = max(s.released, version)
	for i, v := range s.held {
		if v <= s.released {
			s.held[i] = 0
		}
	}
}

// Release returns the version up to which the servers may drop their snapshots. It never decreases.
func (s *Schedule) Release() int64 { return s.released }

// Final requests the evaluation of the model as it stands, at version, after the one that is
// running. It is not made if that version was measured, or the running evaluation measures it.
func (s *Schedule) Final(version int64) {
	if !s.measured[version] {
		s.final = &Run{Version: version}
	}
}

// Due returns the evaluation to begin now, if there is one.
func (s *Schedule) Due() (Run, bool) {
	switch {
	case s.run != nil:
		return Run{}, false
	case len(s.held) > 0 && slices.Min(s.held) > 0: // and all the same
		return Run{Version: s.held[0], Snapshot: s.held[0]}, true
	case s.final != nil:
		return *s.final, true
	}
	return Run{}, false
}

// Begin starts the evaluation that is due, in that many tasks. It panics if none is due, or tasks
// is not positive.
func (s *Schedule) Begin(tasks int) Run {
	r, ok := s.Due()
	if !ok || tasks <= 0 {
		panic(fmt.Sprintf("evaluation: begin with %d tasks, due: %t", tasks, ok))
	}
	if r.Snapshot == 0 {
		s.final = nil
	}
	s.run, s.tasks = &r, tasks
	s.reports, s.states = make(map[records]bool), nil
	return r
}

// Running returns the evaluation that has begun and is not complete; ok is false if there is none.
func (s *Schedule) Running() (Run, bool) {
	if s.run == nil {
		return Run{}, false
	}
	return *s.run, true
}

// Report adds what a worker measured on one part of the records. It returns the result if this
// report completes the evaluation, else nil. A report for another version, or for a part that was
// reported before, changes nothing. It returns an error if the metrics are not those of the other
// reports.
//
// It returns [ErrOther] if the part was measured on another model than the evaluation is of. If an
// evaluation of the model as it stands meets a later version of the same generation, the model has
// moved on: the evaluation is given up, its reports are dropped, and Final is due again with that
// version. After this error the caller asks Running, and withdraws the tasks of an evaluation that
// no longer runs.
func (s *Schedule) Report(version int64, part Part, states []State) (*Result, error) {
	key := records{part.Shard, part.Start}
	if s.run == nil || s.run.Version != version || s.reports[key] {
		return nil, nil
	}
	if of := (Model{s.policy.ModelGeneration, version}); part.On != of {
		if part.On.ModelGeneration == of.ModelGeneration && part.On.Version > version && s.run.Snapshot == 0 {
			s.run, s.reports, s.states = nil, nil, nil
			s.final = &Run{Version: part.On.Version}
		}
		return nil, fmt.Errorf("%w: version %d in generation %d, the evaluation is of version %d in generation %d",
			ErrOther, part.On.Version, part.On.ModelGeneration, version, of.ModelGeneration)
	}
	if err := s.add(states); err != nil {
		return nil, fmt.Errorf("fold metrics of records from %d of %s: %w", part.Start, part.Shard, err)
	}
	s.reports[key] = true
	if len(s.reports) < s.tasks {
		return nil, nil
	}
	result := &Result{Version: version, States: s.states}
	s.measured[version] = true
	s.release(s.run.Snapshot)
	if s.final != nil && s.final.Version == version {
		s.final = nil
	}
	s.run, s.reports, s.states = nil, nil, nil
	return result, nil
}

func (s *Schedule) add(states []State) error {
	if s.states == nil {
		s.states = make([]State, len(states))
		for i, x := range states {
			s.states[i] = State{x.Name, slices.Clone(x.Sum)}
		}
		return nil
	}
	same := func(a, b State) bool { return a.Name == b.Name && len(a.Sum) == len(b.Sum) }
	if !slices.EqualFunc(s.states, states, same) {
		return fmt.Errorf("%v where others have %v", names(states), names(s.states))
	}
	for i, x := range states {
		for j, v := range x.Sum {
			s.states[i].Sum[j] += v
		}
	}
	return nil
}

func names(states []State) []string {
	var out []string
	for _, x := range states {
		out = append(out, fmt.Sprintf("%s[%d]", x.Name, len(x.Sum)))
	}
	return out
}

// Idle reports whether nothing is running and nothing due.
func (s *Schedule) Idle() bool {
	_, due := s.Due()
	return !due && s.run == nil
}
