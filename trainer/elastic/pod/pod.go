package pod

import (
	"cmp"
	"fmt"
	"time"
)

// Role is the role of a pod: master, parameter server or worker.
type Role int

const (
	Master Role = iota + 1
	PS
	Worker
)

func (r Role) String() string {
	switch r {
	case Master:
		return "master"
	case PS:
		return "ps"
	case Worker:
		return "worker"
	}
	return fmt.Sprintf("Role(%d)", int(r))
}

// ID names a pod within its job.
type ID struct {
	Role  Role
	Index int
}

func (id ID) String() string {
	if id.Role == Master {
		return "master"
	}
	return fmt.Sprintf("%v-%d", id.Role, id.Index)
}

// Compare orders pods by role and index.
func (id ID) Compare(other ID) int {
	return cmp.Or(cmp.Compare(id.Role, other.Role), cmp.Compare(id.Index, other.Index))
}

// Phase is a pod's phase. Each incarnation goes through its phases once, forward; only a creation
// that is refused returns, from Creating to Wanted.
type Phase int

const (
	// to be created when it is due: there is no such pod
	Wanted Phase = iota + 1
	// its creation was asked for, and it was not seen yet
	Creating
	Pending   // there, and not running
	Running   //
	Leaving   // asked to stop, and not ended yet
	Cancelled // given up before it was ever seen
	Succeeded // ended with code 0
	Failed    // ended otherwise
	Deleted   // gone
)

var phases = [...]string{
	Wanted: "Wanted", Creating: "Creating", Pending: "Pending", Running: "Running", Leaving: "Leaving",
	Cancelled: "Cancelled", Succeeded: "Succeeded", Failed: "Failed", Deleted: "Deleted",
}

func (p Phase) String() string {
	if p < Wanted || p > Deleted {
		return fmt.Sprintf("Phase(%d)", int(p))
	}
	return phases[p]
}

// Public returns the phase by which statuses go: a pod that is yet to be created is pending, one
// that was given up is deleted.
func (p Phase) Public() Phase {
	switch p {
	case Wanted, Creating:
		return Pending
	case Cancelled:
		return Deleted
	}
	return p
}

// Is reports whether a status means the phase: statuses carry its text.
func (p Phase) Is(text string) bool { return text == p.String() }

// Ended reports whether the pod's life is over.
func (p Phase) Ended() bool { return p >= Cancelled }

// moves holds the transitions that a cluster can make: the phases that can be observed after each.
// Other observations change nothing.
var moves = map[Phase][]Phase{
	// created, and the answer was lost
	Wanted:   {Pending, Running, Leaving, Succeeded, Failed, Deleted},
	Creating: {Pending, Running, Leaving, Succeeded, Failed, Deleted},
	Pending:  {Pending, Running, Leaving, Succeeded, Failed, Deleted},
	Running:  {Running, Leaving, Succeeded, Failed, Deleted},
	Leaving:  {Leaving, Succeeded, Failed, Deleted},
}

// Event reports a change of a pod.
type Event struct {
	ID ID
	// which incarnation of the pod it is about; 0: the latest
	Incarnation int
	Phase       Phase
	// of an ended pod; of one that is leaving, why
	Exit Exit
	// why a pending pod does not run, as in "Unschedulable: 0/3 nodes are available"
	Waiting string
	// it never will, as far as the cluster can tell
	Hopeless bool
	// it waits for quota of the job's queue
	Queued bool
	// Image reports whether a pending pod has a node, which fetches its image or makes its
	// containers.
	Image bool
	// of a worker: it was created as one of the job's core
	Core bool
	// where it listens, once known
	Address string
	// the machine that it is on, once known
	Node string
	// of a local process, once known
	PID int
	// Started is since when a pod runs, where the runtime knows; zero: since it was first observed
	// to.
	Started time.Time
}

// Pod is a pod as users see it.
type Pod struct {
	ID ID
	// the slot of its line: the index of the line's first pod, which priorities go by
	Original int
	// from 1
	Incarnation int
	Phase       Phase
	Exit        Exit
	// why one that is pending does not run, or one that is wanted is not created
	Waiting string
	// it waits for quota of the job's queue
	Queued bool
	// it has a node, which fetches its image or makes its containers
	Image bool
	// of a worker of a job in a queue: it is one of those that the job needs at least
	Core    bool
	Address string
	Node    string
	PID     int
	// how many pods of its line ran out of memory before
	OOMs int
	// it has failed, and nobody follows: its line may fail no more
	GivenUp bool

	Created, Started, Ended time.Time
}

// Verb is the kind of an [Action].
type Verb int

const (
	Create Verb = iota + 1 // start the pod
	Delete                 // end the pod, if it is still there
	Lost                   // the pod has ended: take its leases back
)

func (v Verb) String() string {
	switch v {
	case Create:
		return "create"
	case Delete:
		return "delete"
	case Lost:
		return "lost"
	}
	return fmt.Sprintf("Verb(%d)", int(v))
}

// Action is an order for the shell. Actions are performed in their order.
type Action struct {
	Verb        Verb
	ID          ID
	Incarnation int
	// Create: the slot that priorities go by
	Original int
	// Create: a worker of the job's core
	Core bool
	// Create: where its predecessor listened, for a server to listen there again
	Address string
	// Create: how many pods of its line ran out of memory; each gets twice as much as the one
	// before
	OOMs int
	// Lost: by its own fault, so that the lease it was at is counted
	Counted bool
	// Lost: its node would not have it
	Rejected bool
	// Lost: the cause, as [Exit.Cause] has it
	Cause string
	// Lost: nobody follows, as its line may fail no more
	GivenUp bool
	// Delete, Lost
	Reason string
}

func (a Action) String() string {
	s := fmt.Sprintf("%v %v", a.Verb, a.ID)
	if a.Incarnation > 1 {
		s += fmt.Sprintf(" (incarnation %d)", a.Incarnation)
	}
	if a.Counted {
		s += " counted"
	}
	if a.GivenUp {
		s += " and given up"
	}
	if a.Reason != "" {
		s += ": " + a.Reason
	}
	return s
}
