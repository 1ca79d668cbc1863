package evaluation

import (
	"fmt"
	"maps"
	"slices"
)

// Saved is the state of a schedule that no other process knows: the versions that were measured,
// and the final evaluation that is requested. Its size is bounded. Restored from an older state, or
// from none, an evaluation may be made again.
type Saved struct {
	// snapshots of the model up to this version have no use
	Released int64 `json:"released,omitempty"`
	// the last versions that were measured, ascending
	Measured []int64 `json:"measured,omitempty"`
	// the version of the final evaluation, requested or running; nil: none
	Final *int64 `json:"final,omitempty"`
}

// mostMeasured is the number of saved versions. The model's version does not fall in a generation,
// so only the last ones can come again.
const mostMeasured = 100

// Save returns the state that [Restore] continues from.
func (s *Schedule) Save() Saved {
	measured := slices.Sorted(maps.Keys(s.measured))
	out := Saved{Released: s.released, Measured: measured[max(0, len(measured)-mostMeasured):]}
	switch {
	case s.final != nil:
		out.Final = &s.final.Version
	case s.run != nil && s.run.Snapshot == 0:
		out.Final = &s.run.Version
	}
	return out
}

// Restore returns the schedule of a restarted master, or of a model that was rolled back to the
// commit with which it was saved. A running evaluation is due again: at once if it is the final
// one, else when the servers have reported that they still hold its snapshot.
func Restore(p Policy, s Saved) (*Schedule, error) {
	r := New(p)
	before := int64(-1)
	for _, version := range s.Measured {
		if version <= before {
			return nil, fmt.Errorf("restore the evaluations: version %d follows version %d", version, before)
		}
		before = version
		r.measured[version] = true
	}
	if s.Released < 0 || len(s.Measured) > mostMeasured {
		return nil, fmt.Errorf("restore the evaluations: %d are measured, snapshots up to version "+
			"%d released", len(s.Measured), s.Released)
	}
	r.released = s.Released
	if s.Final != nil {
		if *s.Final < 0 || r.measured[*s.Final] {
			return nil, fmt.Errorf("restore the evaluations: that of version %d cannot be due", *s.Final)
		}
		r.final = &Run{Version: *s.Final}
	}
	return r, nil
}
