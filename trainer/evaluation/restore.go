package evaluation

import (
	"fmt"
	"maps"
	"slices"
)

// Saved is what a schedule knows and nobody else: what was measured, and what is asked for. (Snapshots are of the model here.) It is a hint of bounded size: restored
// from an older one, or from none, an evaluation may be made again.
type Saved struct {
	Released int64   `json:"released,omitempty"` // snapshots up to this version are of no use
	Measured []int64 `json:"measured,omitempty"` // the last versions that were measured, rising
	Final    *int64  `json:"final,omitempty"`    // the version whose evaluation is asked for as the last one, running or not
}

// mostMeasured is how many versions are saved. The model's version does not fall in a life, so only the last may come again.
const mostMeasured = 100

// Save returns what [Restore] takes.
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

// Restore makes the schedule of a master that comes back, or of a model that is back at a commit with which it was
// saved. What was running is withdrawn: it is due again, as soon as the servers have told that they hold its snapshot still, or
// at once if it is the last one.
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
		return nil, fmt.Errorf("restore the evaluations: %d are measured, snapshots up to version %d released", len(s.Measured), s.Released)
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
