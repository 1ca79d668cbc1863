package evaluation

import (
	"errors"
	"fmt"
	"slices"
)

// Policy is what is measured when.
type Policy struct {
	Steps   int64 // versions between snapshots (--evaluation_steps); 0: only Final
	Servers int   // that take them
	Life    int64 // of the model that this is about
}

// Model is what something was measured on.
type Model struct {
	Life    int64
	Version int64
}

// ErrOther is returned for what was measured on another model than the evaluation is of.
var ErrOther = errors.New("measured on another model")

// Run is one evaluation.
type Run struct {
	Version  int64 // of the model
	Snapshot int64 // that has it, 0: the model as it stands
}

// State is the sum of one metric's state over records.
type State struct {
	Name string
	Sum  []float64
}

// Result is the states of one version over all the records, in the order of the first report's names.
type Result struct {
	Version int64
	States  []State
}

// Schedule is the machine. It is not safe for concurrent use: the shell holds a lock round it.
type Schedule struct {
	policy   Policy
	held     []int64 // by server: the version of its snapshot, 0 if none
	released int64   // snapshots up to this one are of no use

	measured map[int64]bool
	final    *Run // asked for, not begun

	run     *Run
	tasks   int // of run
	reports map[records]bool
	states  []State
}

// Part is what one report is of: the records of one task, and what they were measured on.
type Part struct {
	Shard string
	Start int64
	On    Model
}

// records is a part whatever it was measured on.
type records struct {
	shard string
	start int64
}

// New makes a schedule for which nothing is due.
func New(p Policy) *Schedule {
	return &Schedule{policy: p, held: make([]int64, p.Servers), measured: make(map[int64]bool)}
}

// Snapshot notes which snapshot a server holds, 0: none. True: the evaluation that ran on it cannot
// be completed and is given up, so its tasks are to be withdrawn.
func (s *Schedule) Snapshot(server int, version int64) (withdrawn bool) {
	if server < 0 || server >= len(s.held) || s.policy.Steps <= 0 {
		return false
	}
	if version <= s.released {
		version = 0 // told before it was released
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
	// Servers that missed each other begin anew together: if only the older snapshots
	// were released, those servers would in turn miss the newest one, for ever.
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

// Release returns up to which version the servers may drop their snapshots. It never decreases.
func (s *Schedule) Release() int64 { return s.released }

// Final asks for the evaluation of the model as it stands, at version, after what is running;
// not if that version was measured, or is by what is running.
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

// Begin starts what is due, in so many tasks. It panics if nothing is.
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

// Running returns the evaluation that is not complete yet.
func (s *Schedule) Running() (Run, bool) {
	if s.run == nil {
		return Run{}, false
	}
	return *s.run, true
}

// Report adds what a worker measured on one part of the records. The report that completes the evaluation
// gives its result. A report for another version, or for a part that was reported before, changes nothing;
// one whose metrics are not those of the others is an error.
//
// So is [ErrOther], for a part that was measured on another model than the evaluation is of. If that is a later version of the
// same life, the model as it stands has moved on: the evaluation is given up, what was measured is forgotten, and the
// last one is due again with that version. Whoever gets the error asks Running, and withdraws the tasks of what runs no more.
func (s *Schedule) Report(version int64, part Part, states []State) (*Result, error) {
	key := records{part.Shard, part.Start}
	if s.run == nil || s.run.Version != version || s.reports[key] {
		return nil, nil
	}
	if of := (Model{s.policy.Life, version}); part.On != of {
		if part.On.Life == of.Life && part.On.Version > version && s.run.Snapshot == 0 {
			s.run, s.reports, s.states = nil, nil, nil
			s.final = &Run{Version: part.On.Version}
		}
		return nil, fmt.Errorf("%w: version %d in life %d, the evaluation is of version %d in life %d",
			ErrOther, part.On.Version, part.On.Life, version, of.Life)
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
