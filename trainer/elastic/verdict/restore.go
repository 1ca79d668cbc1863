package verdict

import "fmt"

// Snapshot is the stored state of a [Judge].
type Snapshot struct {
	// number of failures that count
	Counted int `json:"restarts,omitempty"`
	// number of reported failures
	Failures int `json:"failures,omitempty"`
	// the last failure, as text
	Last string `json:"last,omitempty"`
	// number of worlds in a row that ended with a doubt
	Doubts int `json:"doubts,omitempty"`
	// how often processes were started again
	Again   int     `json:"again,omitempty"`
	Repeats Repeats `json:"repeats,omitzero"`
	// the job has failed because its program ends in the same way again and again
	Repeated bool `json:"repeated,omitempty"`
}

// Snapshot returns the state for [Restore].
func (j *Judge) Snapshot() Snapshot {
	return Snapshot{Counted: j.counted, Failures: j.failures, Last: j.last, Doubts: j.doubts,
		Again: j.again, Repeats: j.repeats, Repeated: j.repeated}
}

// Restore returns the judge of a master that was restarted. It refuses impossible snapshots.
func Restore(p Policy, s Snapshot) (*Judge, error) {
	if s.Counted < 0 || s.Failures < s.Counted || s.Doubts < 0 || s.Doubts >= mostDoubts || s.Again < 0 ||
		s.Repeats.Count < 0 {
		return nil, fmt.Errorf("restore the verdicts on a program: snapshot: %d of %d failures count, %d doubts, "+
			"%d restarts, the same end %d times", s.Counted, s.Failures, s.Doubts, s.Again, s.Repeats.Count)
	}
	j := New(p)
	j.counted, j.failures, j.last, j.doubts = s.Counted, s.Failures, s.Last, s.Doubts
	j.again, j.repeats, j.repeated = s.Again, s.Repeats, s.Repeated
	return j, nil
}

// Counted returns how many failures count.
func (j *Judge) Counted() int { return j.counted }

// Left returns how many failures that count the job still survives.
func (j *Judge) Left() int { return max(0, j.policy.MaxRestarts-j.counted) }

// Again returns how often processes were started again, for whichever reason.
func (j *Judge) Again() int { return j.again }

// Last returns how many failures were reported, and the last of them as text.
func (j *Judge) Last() (failures int, text string) { return j.failures, j.last }

// Repeated reports whether the job has failed because its program ends in the same way again and
// again.
func (j *Judge) Repeated() bool { return j.repeated }
