package rendezvous

import "cmp"

// Position is the position of a state. Rounds are counted from the beginning of the model, which
// may begin more than once in a job: two states with as many rounds of different beginnings are
// different.
type Position struct {
	// generation of the world in which the model began; 0: in none of this job, as a process has
	// read the state from a checkpoint of its own
	Beginning int64 `json:"beginning,omitempty"`
	// number of rounds since then; -1: there is no state
	Round int64 `json:"round,omitempty"`
}

// NoState is the position of a process that has no state.
var NoState = Position{Round: -1}

// Exists reports whether there is a state.
func (p Position) Exists() bool { return p.Round >= 0 }

// Compare returns a positive number if p is newer than q, a negative one if it is older, and 0 if
// they are equal. A later beginning is newer, whatever the rounds; no state is older than any.
func (p Position) Compare(q Position) int {
	switch {
	case !p.Exists() && !q.Exists():
		return 0
	case !p.Exists():
		return -1
	case !q.Exists():
		return 1
	}
	return cmp.Or(cmp.Compare(p.Beginning, q.Beginning), cmp.Compare(p.Round, q.Round))
}
