package custody

import (
	"cmp"
	"slices"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
)

// CutPolicy states when a cut of the model is made, and how long each part of it may take.
// Where Steps and Interval are both zero, a cut is made only on request.
type CutPolicy struct {
	// number of processes that hold the model: parameter servers, or one for a ring
	Holders int
	// updates between two cuts; 0: no cut by number of updates
	Steps int64
	// time between two cuts; 0: no cut by time
	Interval time.Duration
	// how long the holders accept no new gradients at most, at first
	Hold time.Duration
	// the most that Hold grows to: it doubles each time that it was too short
	HoldMost time.Duration
	// how long the holders may take to write, from when all have copied
	Write time.Duration
	// time between a failed cut and the next attempt
	Pause time.Duration
	// the claim of the directory under which the cuts are written
	Claim string
}

// Phase counts the steps of a cut that a holder has completed.
type Phase int

const (
	None Phase = iota // the holder has not heard of the cut
	// the holder accepts no new gradients, and has reported its ledger
	Held
	// the holder has applied all of the target, has copied its values, and accepts new gradients
	// again
	Copied
	Written // the copy is on disk
	Failed  // the copy could not be written
)

// Report describes a holder's part of a cut. A single holder may skip Held: whatever it has copied
// is the cut.
type Report struct {
	// of the cut
	Number int64
	// how far the holder is
	Phase Phase
	// the records in the holder's values: with Held, and with every report of a single holder
	Ledger ledger.Ledger
	// updates in the copy: with Copied and Written
	Version int64
	// the file written: with Written
	Shard Shard
	// why the copy could not be written: with Failed
	Err string
}

// Shard describes the file that one holder has written.
type Shard struct {
	// its name
	File string
	// the elements of the model's flat array that it has
	Start, End int
	// its size
	Bytes int64
	// its checksum
	CRC string
}

// CutOrder tells all holders about the cut under way. It describes a state, not a change: the zero
// value means that no cut is under way.
type CutOrder struct {
	// of the cut under way, 0: none
	Number int64
	// the claim of the directory under which it is written
	Claim string
	// the records that the cut is to have, nil: not known yet; not to be changed
	Target *ledger.Ledger
}

// Cut brings all holders of a model to one common state, an aligned cut, and collects their reports
// until it is on disk.
//
//	         Begin          all hold: the union        all have copied        all have written
//	(none) ────────> gather ─────────────────> align ────────────────> write ──────────> [Commit]
//	  ^                │                         │                       │
//	  └────────────────┴─ too late, or a holder is lost: given up ───────┘
type Cut struct {
	policy CutPolicy
	// the highest number that a cut was given
	last int64

	// of the cut under way, 0 if none
	number int64
	// the records that it is to have; nil: not known yet
	target *ledger.Ledger
	// the latest of each holder, by index
	reports []Report
	// when the cut began, or when all had copied
	since time.Time
	// all holders have copied
	copied bool

	// how long the holders are held at most, now: it doubles up to HoldMost
	hold time.Duration
	// the model's version when the cut under way began
	begun int64
	// the version that the last complete cut covers
	covered int64
	// when the next cut is due by Interval
	next time.Time
	// no cut begins before this time
	rest time.Time
}

// Commit describes a cut that is complete and on disk.
type Commit struct {
	Number   int64
	Ledger   ledger.Ledger // the records that are in it
	Shards   []Shard       // by holder
	Versions []int64       // by holder: updates in its copy
}

// NewCut returns a Cut whose cuts are numbered from last+1.
func NewCut(p CutPolicy, last int64, now time.Time) *Cut {
	return &Cut{policy: p, last: last, hold: p.Hold, next: now.Add(p.Interval)}
}

// Due reports whether a cut of a model at that version is due by Steps or Interval.
func (c *Cut) Due(version int64, now time.Time) bool {
	if !c.Wanted(version, now) {
		return false
	}
	p := c.policy
	return p.Steps > 0 && version >= c.covered+p.Steps || p.Interval > 0 && !now.Before(c.next)
}

// Begin begins a cut of a model at that version, and drops a cut that is under way.
func (c *Cut) Begin(version int64, now time.Time) {
	c.last++
	c.number, c.target, c.copied, c.since = c.last, nil, false, now
	c.reports = make([]Report, c.policy.Holders)
	c.begun, c.next = version, now.Add(c.policy.Interval)
}

// GiveUp drops the cut that is under way, and reports whether there was one. The next is due after
// Pause.
func (c *Cut) GiveUp(now time.Time) bool {
	if c.number == 0 {
		return false
	}
	c.number, c.target, c.reports, c.copied = 0, nil, nil, false
	c.rest = now.Add(c.policy.Pause)
	c.next = c.rest
	return true
}

// Wanted reports whether a cut of a model at that version may begin: none is under way, none covers
// the version, and no pause is on.
func (c *Cut) Wanted(version int64, now time.Time) bool {
	return c.number == 0 && version > c.covered && !now.Before(c.rest)
}

// Covers reports whether a complete cut has that version of the model or a later one.
func (c *Cut) Covers(version int64) bool { return version <= c.covered }

// Rollback notes that the model fell back to a version, because all workers that had a newer one
// are lost. Cuts of newer versions, under way or on disk, no longer cover these versions: the model
// reaches them again with other values.
func (c *Cut) Rollback(version int64) {
	c.begun, c.covered = min(c.begun, version), min(c.covered, version)
}

// Unwritten notes that the last complete cut could not be committed: the newest commit on disk is
// of version. The next cut is due after Pause.
func (c *Cut) Unwritten(version int64, now time.Time) {
	c.covered, c.rest = min(c.covered, version), now.Add(c.policy.Pause)
	c.next = c.rest
}

// Rewind notes that the model was restored from a commit of that version, and drops a cut that is
// under way, which is of the lost model.
func (c *Cut) Rewind(version int64, now time.Time) {
	c.GiveUp(now)
	c.covered = version
}

// Copied reports whether all holders have copied for the cut under way. From then on a process can
// complete its part without holding the model.
func (c *Cut) Copied() bool { return c.copied }

// Order returns the order for all holders.
func (c *Cut) Order() CutOrder {
	if c.number == 0 {
		return CutOrder{}
	}
	return CutOrder{c.number, c.policy.Claim, c.target}
}

// Ended returns the highest number up to which all cuts are complete or given up.
func (c *Cut) Ended() int64 {
	if c.number > 0 {
		return c.number - 1
	}
	return c.last
}

// Heard takes a holder's report, which must be of the present model generation. It returns the
// commit if this report completes the cut, and the reason if the cut is given up because a holder
// failed. Reports of another cut, and those that repeat a phase, change nothing.
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

// Deadline returns the time at which [Cut.Tick] or [Cut.Due] is to be asked next; ok is false if
// there is none.
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

// Tick gives up a cut that takes too long, and returns why; "" if it gave up none.
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
