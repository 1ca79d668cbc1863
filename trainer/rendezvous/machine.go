package rendezvous

import "time"

// Rendezvous is the machine. It is not safe for concurrent use: the shell holds a lock round it.
type Rendezvous struct {
	policy Policy
}

// New makes a rendezvous to which nobody has come.
func New(p Policy) *Rendezvous { return &Rendezvous{policy: p} }

// Expect tells how many workers there are, or will be soon: joins do not wait for more than them.
func (r *Rendezvous) Expect(workers int, now time.Time) []Action { return nil }

// Arrive takes a member's arrival.
func (r *Rendezvous) Arrive(a Arrival, now time.Time) []Action { return nil }

// Leave tells that a process is gone: its stream ended, its pod, or its heartbeats. Session 0: whichever
// the worker has. Of one that is not there it is ignored.
func (r *Rendezvous) Leave(worker int, session int64, reason string, now time.Time) []Action {
	return nil
}

// Tick does what is due.
func (r *Rendezvous) Tick(now time.Time) []Action { return nil }

// Deadline is when Tick has something to do next, if nothing happens before.
func (r *Rendezvous) Deadline() (time.Time, bool) { return time.Time{}, false }

// World is the last one that was formed.
func (r *Rendezvous) World() (World, bool) { return World{}, false }

// Waiting is how many have arrived and stand waiting, and what for: "waiting for 2 of at least 3 workers".
// The reason is empty while the world works.
func (r *Rendezvous) Waiting() (arrived int, why string) { return 0, "" }
