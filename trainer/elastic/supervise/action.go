package supervise

import (
	"fmt"
	"strings"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/rendezvous"
)

// Action is an order to the agent, which performs actions in the order in which they are returned.
type Action interface {
	fmt.Stringer
	action()
}

// Warm orders the agent to make the program ready to be started. [Ready] answers it.
type Warm struct{}

// Start orders the agent to start one process for each local rank. [Started] answers it before any
// other event, or [End] if that is impossible.
type Start struct {
	// of the world that the processes start in; 0: they learn their first world later
	Generation int64
	Locals     []int
	// rank of local rank 0, number of processes of this worker, and world size, for the environment
	First, LocalSize, Size int
}

// Kill orders the agent to end a process: SIGTERM, and SIGKILL after the grace. A process gets
// SIGTERM once; a further Kill can only give it more time, or kill it at once with a grace of 0.
type Kill struct {
	Local, Pid int
	Grace      time.Duration
}

// Accept says that a connection is that of a process of this worker.
type Accept struct{ Conn, Local int }

// Refuse orders the agent to tell the process of a connection to end.
type Refuse struct {
	Conn, Pid int
	Why       string
}

// Drain orders the agent to end a connection as soon as everything is read that was sent on it.
type Drain struct{ Conn int }

// Free gives the leases of a connection to the other processes of this worker.
type Free struct{ Conn int }

// Open lets the processes use the store of a world, and ends leases that are void in it. [Opened]
// answers it.
type Open struct{ Generation int64 }

// Shut ends the use of the store of the world for the processes of this worker.
type Shut struct{}

// Enter tells a process its world.
type Enter struct {
	Conn, Local, Rank int
	Restarts          Restarts
}

// Outside tells a process that has arrived early that others train: it comes when its model is
// made. Rank and Size are those that it would have if it joined them now.
type Outside struct{ Conn, Local, Rank, Size int }

// Origin reports to the master what a world without a source begins with: the state with which the
// process of a connection has arrived.
type Origin struct{ Conn int }

// Recall tells a process to leave its world: at once, or together with the others after a round.
type Recall struct {
	Conn       int
	Generation int64
	Now        bool
}

// TellLeave tells a process that its worker is to leave by a time.
type TellLeave struct {
	Conn int
	By   time.Time
}

// TellStop tells a process that the job is to stop by a time.
type TellStop struct {
	Conn int
	By   time.Time
}

// AskAccount asks a process which records are in the state of every rank.
type AskAccount struct{ Conn int }

// AnnounceEnd tells the other members of a world that a rank has ended with 0 without having used
// the package: those that use it would wait for the rank.
type AnnounceEnd struct {
	Generation int64
	Rank       int
}

// Report sets what heartbeats report.
type Report struct {
	Beat
	// the next heartbeat is due at once
	Urgent bool
}

// Beat is the state of the processes as heartbeats report it.
type Beat struct {
	// of the world that the processes are in; 0: they are in none
	Generation int64
	// newest generation of which all ranks are known to have the state that it began with
	Met int64
	// generation in which all processes of this worker have ended with 0; 0: they have not
	Finished int64
	// processes keep their state
	Keeps bool
	// this worker was asked to leave and can go
	Leaving bool
	// processes use the package, and can be asked for a checkpoint
	Asks bool
}

// SendAccount answers the master's question which records are in the state of every rank.
type SendAccount struct{ Ledger []byte }

// ReportSaved reports the newest checkpoint.
type ReportSaved struct {
	Round int64
	Path  string
	At    time.Time
}

// ReportUnsaved reports why the newest checkpoint could not be written.
type ReportUnsaved struct{ Path, Why string }

// ReportRest reports that the processes have completed their last round before the job stops.
type ReportRest struct {
	Round int64
	// why no checkpoint has that round; "": one has
	Problem string
}

// ClearFailure says that the program continues: a failure that was written to the error file is
// over.
type ClearFailure struct{}

// Look orders the agent to look at what no event reports. [Looked] answers it.
type Look struct {
	Pids       []int
	Checkpoint bool
}

// Arrive orders the agent to go to the rendezvous. [World] answers it.
type Arrive struct {
	// of the last world; 0: there was none
	Generation int64
	// number of processes for the next world
	Processes int
	// process among them that has the newest state
	Source int
	// connection of that process; 0: none has a state
	Conn int
	// of that state
	At rendezvous.Position
	// a process may have left the last world in the middle of a round
	BrokeOff bool
	// all processes have ended with 0
	Finished bool
	// the worker was asked to leave
	Leaves bool
	// failures for the master
	Failures []Failure
	// pid of the root cause among Failures, for the error file; 0: there is none
	First int
	// pids of all processes that have failed
	Failed []int
	// pid of the root cause among Failed, if the failures are printed for the user; 0: they are not
	Root int
}

// Farewell ends the work of a worker that leaves and whose processes have ended: the master need
// not know how.
type Farewell struct{}

// GiveUp ends the work of a worker that cannot continue.
type GiveUp struct {
	// why, for the worker's error
	Why string
	// signal that ended the root cause if all failed processes were killed from outside: the worker
	// counts as lost; 0: it counts as failed
	Signal int
}

// Finish says that the work has ended, and no process is left.
type Finish struct{}

// Log is a message for the log.
type Log struct {
	Warn    bool
	Message string
	// names and values in turn, as slog takes them
	Args []any
}

func (Warm) action()          {}
func (Start) action()         {}
func (Kill) action()          {}
func (Accept) action()        {}
func (Refuse) action()        {}
func (Drain) action()         {}
func (Free) action()          {}
func (Open) action()          {}
func (Shut) action()          {}
func (Enter) action()         {}
func (Outside) action()       {}
func (Origin) action()        {}
func (Recall) action()        {}
func (TellLeave) action()     {}
func (TellStop) action()      {}
func (AskAccount) action()    {}
func (AnnounceEnd) action()   {}
func (Report) action()        {}
func (SendAccount) action()   {}
func (ReportSaved) action()   {}
func (ReportUnsaved) action() {}
func (ReportRest) action()    {}
func (ClearFailure) action()  {}
func (Look) action()          {}
func (Arrive) action()        {}
func (Farewell) action()      {}
func (GiveUp) action()        {}
func (Finish) action()        {}
func (Log) action()           {}

func (Warm) String() string { return "warm up" }

func (a Start) String() string {
	if a.Generation == 0 {
		return fmt.Sprintf("start local ranks %v ahead of a world", a.Locals)
	}
	return fmt.Sprintf("start local ranks %v in world %d of size %d", a.Locals, a.Generation, a.Size)
}

func (a Kill) String() string {
	if a.Grace <= 0 {
		return fmt.Sprintf("kill local rank %d, pid %d", a.Local, a.Pid)
	}
	return fmt.Sprintf("terminate local rank %d, pid %d, with a grace of %v", a.Local, a.Pid, a.Grace)
}

func (a Accept) String() string {
	return fmt.Sprintf("accept connection %d as local rank %d", a.Conn, a.Local)
}
func (a Refuse) String() string { return fmt.Sprintf("refuse connection %d: %s", a.Conn, a.Why) }
func (a Drain) String() string  { return fmt.Sprintf("drain connection %d", a.Conn) }
func (a Free) String() string   { return fmt.Sprintf("free the leases of connection %d", a.Conn) }
func (a Open) String() string   { return fmt.Sprintf("open the store of world %d", a.Generation) }
func (Shut) String() string     { return "shut the store" }

func (a Outside) String() string {
	return fmt.Sprintf("tell local rank %d that others train, and rank %d of %d", a.Local, a.Rank, a.Size)
}

func (a Enter) String() string {
	return fmt.Sprintf("tell local rank %d its rank %d, restart %d of %d", a.Local, a.Rank, a.Restarts.Count,
		a.Restarts.Max)
}

func (a Origin) String() string {
	return fmt.Sprintf("report that the world begins with the state of connection %d", a.Conn)
}

func (a Recall) String() string {
	if a.Now {
		return fmt.Sprintf("recall connection %d from world %d now", a.Conn, a.Generation)
	}
	return fmt.Sprintf("recall connection %d from world %d after a round", a.Conn, a.Generation)
}

func (a TellLeave) String() string  { return fmt.Sprintf("tell connection %d to leave", a.Conn) }
func (a TellStop) String() string   { return fmt.Sprintf("tell connection %d to stop", a.Conn) }
func (a AskAccount) String() string { return fmt.Sprintf("ask connection %d for its account", a.Conn) }

func (a AnnounceEnd) String() string {
	return fmt.Sprintf("announce the end of rank %d of world %d", a.Rank, a.Generation)
}

func (a Report) String() string {
	text := []string{"report"}
	if a.Generation > 0 {
		text = append(text, fmt.Sprintf("world %d", a.Generation))
	} else {
		text = append(text, "no world")
	}
	if a.Met > 0 {
		text = append(text, fmt.Sprintf("met in %d", a.Met))
	}
	if a.Finished > 0 {
		text = append(text, fmt.Sprintf("finished %d", a.Finished))
	}
	for _, f := range []struct {
		set  bool
		name string
	}{{a.Keeps, "keeps state"}, {a.Asks, "uses the package"}, {a.Leaving, "leaving"}, {a.Urgent, "urgent"}} {
		if f.set {
			text = append(text, f.name)
		}
	}
	return text[0] + " " + strings.Join(text[1:], ", ")
}

func (a SendAccount) String() string { return fmt.Sprintf("send the account %q", a.Ledger) }
func (a ReportSaved) String() string {
	return fmt.Sprintf("report the checkpoint %s of round %d", a.Path, a.Round)
}
func (a ReportUnsaved) String() string {
	return fmt.Sprintf("report that %s was not written: %s", a.Path, a.Why)
}

func (a ReportRest) String() string {
	if a.Problem != "" {
		return fmt.Sprintf("report the last round %d: %s", a.Round, a.Problem)
	}
	return fmt.Sprintf("report the last round %d", a.Round)
}

func (ClearFailure) String() string { return "clear the error file" }

func (a Look) String() string {
	if a.Checkpoint {
		return fmt.Sprintf("look at %v and the checkpoint", a.Pids)
	}
	return fmt.Sprintf("look at %v", a.Pids)
}

func (a Arrive) String() string {
	var text strings.Builder
	text.WriteString("arrive")
	if a.Generation > 0 {
		fmt.Fprintf(&text, " from world %d", a.Generation)
	}
	fmt.Fprintf(&text, " with %d processes", a.Processes)
	if a.Conn > 0 {
		fmt.Fprintf(&text, ", round %d of process %d", a.At.Round, a.Source)
	}
	if a.BrokeOff {
		text.WriteString(", broke off")
	}
	if a.Finished {
		text.WriteString(", finished")
	}
	if a.Leaves {
		text.WriteString(", leaves")
	}
	for _, f := range a.Failures {
		fmt.Fprintf(&text, ", %v", f)
	}
	if a.Root > 0 && len(a.Failed) > 1 {
		fmt.Fprintf(&text, ", root cause: pid %d", a.Root)
	}
	return text.String()
}

func (Farewell) String() string { return "leave without the master's answer" }

func (a GiveUp) String() string {
	if a.Signal > 0 {
		return fmt.Sprintf("give up, lost by signal %d: %s", a.Signal, a.Why)
	}
	return "give up: " + a.Why
}

func (Finish) String() string { return "finish" }

func (a Log) String() string {
	text := "log: "
	if a.Warn {
		text = "warn: "
	}
	text += a.Message
	for i := 0; i+1 < len(a.Args); i += 2 {
		text += fmt.Sprintf(" %v=%v", a.Args[i], a.Args[i+1])
	}
	return text
}
