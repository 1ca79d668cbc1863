package custody

import (
	"cmp"
	"slices"
	"time"

	"github.com/elasticdl/elasticdl/trainer/ledger"
)

// CutPolicy says when a cut of the model is made, and how long it may take. Zero Steps and Interval: only when it is asked for.
type CutPolicy struct {
	Holders  int           // of the model: parameter servers
	Steps    int64         // updates between two cuts
	Interval time.Duration // time between two cuts
	Hold     time.Duration // the holders take no new gradients for so long at most,
	HoldMost time.Duration // or twice as long each time that it was too short, up to this
	Write    time.Duration // until all have written
	Pause    time.Duration // before another is tried when one was given up
}

// Phase is how far a holder is with a cut.
type Phase int

const (
	None    Phase = iota
	Held          // it takes nothing that is new, and says what it has
	Copied        // it has what all are to have, has copied it, and takes what is new again
	Written       // the copy is at rest
	Failed        // it could not be written
)

// Report is a holder's word of a cut. One that is the only holder need not say Held: all that it has copied is in the cut.
type Report struct {
	Number  int64
	Phase   Phase
	Ledger  ledger.Ledger // Held, and all that an only holder says: what it has
	Version int64         // Copied, Written: updates that are in the copy
	Shard   Shard         // Written
	Err     string        // Failed
}

// Shard is what one holder has written.
type Shard struct {
	File       string
	Start, End int
	Bytes      int64
	CRC        string
}

// CutOrder is what all holders are to know of the cut that is made. It is a level: the zero value says that there is none.
type CutOrder struct {
	Number int64
	Target *ledger.Ledger // what is to be in it; nil: not known yet. It is not changed
}

// Cut brings the holders of a model to one state that all have, an aligned cut, and hears when that is at rest.
//
//	         Begin          all hold: the union               all have copied          all have written
//	(none) ────────> gather ─────────────────> align ────────────────────────> write ──────────────────> [Commit]
//	  ^                │                         │                               │
//	  └────────────────┴─── too late, or a holder is gone: given up ─────────────┘
type Cut struct {
	policy CutPolicy
	last   int64 // the highest number that was given to one

	number  int64 // of the one that is made, 0 if none
	target  *ledger.Ledger
	reports []Report // of the holders, by index
	since   time.Time
	copied  bool // all have

	hold    time.Duration // now
	begun   int64         // the version with which this one was
	covered int64         // the version with which the last one was that was made
	next    time.Time     // when another is due by the clock
	rest    time.Time     // none is begun before
}

// Commit is a cut that is whole, and at rest.
type Commit struct {
	Number   int64
	Ledger   ledger.Ledger
	Shards   []Shard // by holder
	Versions []int64 // by holder
}

// NewCut makes a Cut whose numbers are higher than last.
func NewCut(p CutPolicy, last int64, now time.Time) *Cut {
	return &Cut{policy: p, last: last, hold: p.Hold, next: now.Add(p.Interval)}
}

// Due reports whether a cut is to be begun, of a model at that version.
func (c *Cut) Due(version int64, now time.Time) bool {
	if !c.Wanted(version, now) {
		return false
	}
	p := c.policy
	return p.Steps > 0 && version >= c.covered+p.Steps || p.Interval > 0 && !now.Before(c.next)
}

// Begin begins a cut of a model that is at a version. One that is under way is given up.
func (c *Cut) Begin(version int64, now time.Time) {
	c.last++
	c.number, c.target, c.copied, c.since = c.last, nil, false, now
	c.reports = make([]Report, c.policy.Holders)
	c.begun, c.next = version, now.Add(c.policy.Interval)
}

// GiveUp forgets the cut that is made, if there is one, and reports whether there was. Another is due after a pause.
func (c *Cut) GiveUp(now time.Time) bool {
	if c.number == 0 {
		return false
	}
	c.number, c.target, c.reports, c.copied = 0, nil, nil, false
	c.rest = now.Add(c.policy.Pause)
	c.next = c.rest
	return true
}

// Wanted reports whether a cut can be begun of a model at that version, and there is none of it yet.
func (c *Cut) Wanted(version int64, now time.Time) bool {
	return c.number == 0 && version > c.covered && !now.Before(c.rest)
}

// Covers reports whether a cut was made of a model at that version, or at a later one.
func (c *Cut) Covers(version int64) bool { return version <= c.covered }

// Back notes that the model is what it was at a version: who had a newer one is gone. What is later in a cut that is made, or at rest,
// comes to be another, under the same versions.
func (c *Cut) Back(version int64) {
	c.begun, c.covered = min(c.begun, version), min(c.covered, version)
}

// Unwritten notes that the last cut came to nothing after all: the newest that is at rest is of a version. Another is due after a pause.
func (c *Cut) Unwritten(version int64, now time.Time) {
	c.covered, c.rest = min(c.covered, version), now.Add(c.policy.Pause)
	c.next = c.rest
}

// Rewind notes that the model is back at a version that is at rest. A cut that is under way is of what is lost.
func (c *Cut) Rewind(version int64, now time.Time) {
	c.GiveUp(now)
	c.covered = version
}

// Copied reports whether all have copied the cut that is made: who writes its copy need not be a holder any more.
func (c *Cut) Copied() bool { return c.copied }

// Order returns what all holders are to know.
func (c *Cut) Order() CutOrder { return CutOrder{c.number, c.target} }

// Ended returns up to which number cuts are made, or given up.
func (c *Cut) Ended() int64 {
	if c.number > 0 {
		return c.number - 1
	}
	return c.last
}

// Heard takes a holder's word, which is of the life of the model that is now. It returns the cut if that is the last word that it
// wanted, and why it is given up if it cannot be made.
func (c *Cut) Heard(holder int, r Report, now time.Time) (done *Commit, failed string) {
	if c.number == 0 || r.Number != c.number || r.Phase <= c.reports[holder].Phase {
		return nil, ""
	}
	if c.target == nil && (r.Phase == Copied || r.Phase == Written) {
		if c.policy.Holders > 1 {
			return nil, ""
		}
		target := r.Ledger.Clone()
		c.target = &target
	}
	if r.Phase == Failed {
		c.GiveUp(now)
		return nil, cmp.Or(r.Err, "it cannot be written")
	}
	c.reports[holder] = r
	all := func(p Phase) bool {
		return !slices.ContainsFunc(c.reports, func(r Report) bool { return r.Phase < p })
	}
	if c.target == nil && all(Held) {
		target := new(ledger.Ledger)
		for i := range c.reports {
			target.Union(&c.reports[i].Ledger)
		}
		c.target = target
	}
	if !c.copied && all(Copied) {
		c.copied, c.since = true, now
	}
	if !all(Written) {
		return nil, ""
	}
	done = &Commit{Number: c.number, Ledger: c.target.Clone()}
	for _, r := range c.reports {
		done.Shards = append(done.Shards, r.Shard)
		done.Versions = append(done.Versions, r.Version)
	}
	c.covered = min(c.begun, slices.Max(done.Versions))
	c.number, c.target, c.reports, c.copied, c.hold = 0, nil, nil, false, c.policy.Hold
	return done, ""
}

// Deadline returns when Tick has something to do if nothing happens before.
func (c *Cut) Deadline() (time.Time, bool) {
	switch {
	case c.number == 0 && c.next.Before(c.rest):
		return c.rest, c.policy.Interval > 0 || c.policy.Steps > 0
	case c.number == 0:
		return c.next, c.policy.Interval > 0
	case c.copied:
		return c.since.Add(c.policy.Write), true
	}
	return c.since.Add(c.hold), true
}

// Tick gives up what takes too long, and says why.
func (c *Cut) Tick(now time.Time) (failed string) {
	at, ok := c.Deadline()
	switch {
	case c.number == 0 || !ok || now.Before(at):
		return ""
	case c.copied:
		failed = "it was not written in time"
	case c.target == nil:
		failed = "a holder did not say in time what it has"
		c.hold = min(2*c.hold, max(c.policy.HoldMost, c.policy.Hold))
	default:
		failed = "a gradient that one of the holders has did not come to all in time"
		c.hold = min(2*c.hold, max(c.policy.HoldMost, c.policy.Hold))
	}
	c.GiveUp(now)
	return failed
}
