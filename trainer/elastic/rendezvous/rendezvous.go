package rendezvous

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Member names one process of one worker. Another session of the same worker is another member.
type Member struct {
	Worker int
	// number of the process, or of its stream, among those of the worker; from 1, rising
	Session int64
	// at which the others connect to it
	Address string
}

// String returns a text like "worker-3".
func (m Member) String() string { return fmt.Sprintf("worker-%d", m.Worker) }

// Is reports whether m and n are the same process, whatever its address: a program has another one
// in each world.
func (m Member) Is(n Member) bool { return m.Worker == n.Worker && m.Session == n.Session }

// Arrival is the message of a worker that is between two rounds and needs a world.
type Arrival struct {
	Member
	// of its state
	Position
	// generation of the last world that it was given, even if it never worked in it; 0: none
	Generation int64
	// one of its links in that world failed
	Broken bool
	// if Broken: the worker at the other end of the link, -1 if that is not known
	Suspect int
	// if Broken: the link broke when no member had work for a round
	Idle bool
	// it takes no part in the rounds of the next world, so no member waits for it in the middle of
	// one
	Aside bool
	// it may have left in the middle of a round, in which the others would wait for it even after a
	// Recall
	BrokeOff bool
}

// World is the set of members that work together.
type World struct {
	// number that changes exactly when the members do
	ID int64
	// rises each time a world is formed; the first is 1
	Generation int64
	// by rank; see law 2
	Members []Member
	// ranks that have the newest state, which the others take; none: all begin with the initial
	// state
	Sources []int
	// ranks of survivors that have an older state, which becomes the model if all sources are lost
	// before they have passed theirs on
	Behind []int
	// of the sources' state; zero: there are no sources
	Position
}

// Policy has the parameters of a rendezvous.
type Policy struct {
	// least number of members of a world; 0: 1
	Min int
	// greatest number of members of a world; 0: no limit
	Max int
	// longest time for which joins wait for each other, from the first that could be admitted; 0:
	// 300 ms
	Settle time.Duration
	// longest time for which a world without a state waits for expected workers; 0: it does not
	// wait
	Gather time.Duration
	// longest time for which suspects are waited for after all others are back; 0: 2 s
	Patience time.Duration
	// number of worlds in a row that broke without a round, though there was work, after which a
	// suspect is evicted; 0: 3
	Attempts int
	// longest time for which a member without a stream keeps its world; 0: 15 s
	Absence time.Duration
}

// Verb is the kind of an [Action].
type Verb int

// Verbs.
const (
	Form Verb = iota + 1 // send World to its members
	// tell Members to come back from Generation together, after a round
	Recall
	// tell Members to come back from Generation at once: a member is missing
	Abort
	// replace the worker of Member, to which the others have no working links; it is no member any
	// more
	Evict
	// let Member end, which was asked to leave: it is no member any more
	Release
	// no member has the state any more: the training returns to a checkpoint or to the initial
	// values, in the world of the Form that follows
	StateLost
)

func (v Verb) String() string {
	switch v {
	case Form:
		return "form"
	case Recall:
		return "recall"
	case Abort:
		return "abort"
	case Evict:
		return "evict"
	case Release:
		return "release"
	case StateLost:
		return "state lost"
	}
	return fmt.Sprintf("Verb(%d)", int(v))
}

// Action is an order to the master. The master performs actions in the order in which they are
// returned.
type Action struct {
	Verb Verb
	// of Form: the new world
	World World
	// of Recall and Abort: the generation of the world that the members leave
	Generation int64
	// of Recall and Abort: the members to tell
	Members []Member
	// of Evict and Release: the member that leaves
	Member Member
	// text for logs; "" for the first Form
	Reason string
}

func (a Action) String() string {
	s := a.Verb.String()
	switch a.Verb {
	case Form:
		s += fmt.Sprintf(" %d.%d %s", a.World.ID, a.World.Generation, names(a.World.Members))
		if len(a.World.Sources) > 0 {
			s += fmt.Sprintf(" with round %d of rank %s", a.World.Round, join(a.World.Sources, strconv.Itoa))
		}
		if len(a.World.Behind) > 0 {
			s += fmt.Sprintf(", behind: rank %s", join(a.World.Behind, strconv.Itoa))
		}
	case Recall, Abort:
		s += fmt.Sprintf(" %s from %d", names(a.Members), a.Generation)
	case Evict, Release:
		s += " " + a.Member.String()
	}
	if a.Reason != "" {
		s += ": " + a.Reason
	}
	return s
}

// names returns a text like "worker-1, worker-2".
func names(members []Member) string { return join(members, Member.String) }

// join returns the texts of the first few items, and the number of the others.
func join[T any](items []T, text func(T) string) string {
	const few = 8
	var s []string
	for _, item := range items[:min(few, len(items))] {
		s = append(s, text(item))
	}
	if more := len(items) - few; more > 0 {
		s = append(s, fmt.Sprintf("%d more", more))
	}
	return strings.Join(s, ", ")
}
