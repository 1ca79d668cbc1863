package rendezvous

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Member is one process of one worker. Another session of the same worker is another member.
type Member struct {
	Worker  int
	Session int64  // a process, or a stream of it, under the worker's number: rises from one to the next, from 1
	Address string // where the others reach it
}

// String is as in "worker-3".
func (m Member) String() string { return fmt.Sprintf("worker-%d", m.Worker) }

// Arrival is what a worker says when it stands between two rounds and needs a world.
type Arrival struct {
	Member
	Formation int64 // of the last world that it was given, even if it never got to work in it; 0 if none
	Round     int64 // rounds that its state has behind it; -1: it has no state
	Broken    bool  // a link of that world failed
	Suspect   int   // if so: the worker at its other end, -1 if that is not known
	Idle      bool  // and it broke when nobody had anything to bring to a round
	Aside     bool  // it had no part in the rounds of that world: nobody waits for it in the middle of one
	BrokeOff  bool  // it may have left in the middle of a round: the others would wait for it there, even after a Recall
}

// World is who works together.
type World struct {
	ID        int64    // changes exactly when the members do
	Formation int64    // rises whenever a world is formed; the first is 1
	Members   []Member // by rank: survivors of the last world in their order, then newcomers in theirs
	Sources   []int    // ranks with the newest state, which the others take; none: all begin with the initial one
	Round     int64    // of the sources' state; 0 if there are none
}

// Policy is how a rendezvous behaves.
type Policy struct {
	Min      int           // a world has no fewer members; 0: 1
	Max      int           // nor more; 0: no limit
	Settle   time.Duration // joins wait for one another so long at most, from the first that could be let in; 0: 300 ms
	Patience time.Duration // after all the others have come, a suspect of theirs is waited for so long; 0: 2 s
	Attempts int           // formations in a row without a round that broke with work to do, until somebody is evicted; 0: 3
	Absence  time.Duration // a member without a stream keeps its world so long at most; 0: 15 s
}

// Verb is what the shell shall do.
type Verb int

// Verbs.
const (
	Form    Verb = iota + 1 // send World to its members
	Recall                  // tell Members to come back from Formation after a round, all together
	Abort                   // tell Members to come back from Formation at once: somebody is missing
	Evict                   // end Member, with which the others cannot talk; it has left already
	Release                 // Member, which was to depart, has: nothing of it is needed any more
	Anew                    // the state is lost: training starts again in the Form that follows
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
	case Anew:
		return "anew"
	}
	return fmt.Sprintf("Verb(%d)", int(v))
}

// Action is what the shell has to do, in the order given.
type Action struct {
	Verb      Verb
	World     World    // Form
	Formation int64    // Recall, Abort: the world that it is about
	Members   []Member // Recall, Abort: whom to tell
	Member    Member   // Evict, Release
	Reason    string   // in words; "" for the first Form
}

func (a Action) String() string {
	s := a.Verb.String()
	switch a.Verb {
	case Form:
		s += fmt.Sprintf(" %d.%d %s", a.World.ID, a.World.Formation, names(a.World.Members))
		if len(a.World.Sources) > 0 {
			s += fmt.Sprintf(" with round %d of rank %s", a.World.Round, join(a.World.Sources, strconv.Itoa))
		}
	case Recall, Abort:
		s += fmt.Sprintf(" %s from %d", names(a.Members), a.Formation)
	case Evict, Release:
		s += " " + a.Member.String()
	}
	if a.Reason != "" {
		s += ": " + a.Reason
	}
	return s
}

// names is as in "worker-1, worker-2".
func names(members []Member) string { return join(members, Member.String) }

// join lists the first few.
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
