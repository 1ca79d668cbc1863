package agent

import (
	"context"
	"net"
	"time"

	"github.com/elasticdl/elasticdl/trainer/run/program"
)

// Backend runs an agent's processes: this machine, or a simulated one. Its owner closes it when no
// process is left.
type Backend interface {
	// Listen returns where the processes that use the package connect to the agent.
	Listen(ctx context.Context) (Listener, error)
	// Load fetches the program, and makes it ready to be started.
	Load(ctx context.Context) (Program, error)
	// ListenStore listens for the clients of a world's key-value store. Other workers reach it at
	// the address of the listener.
	ListenStore() (net.Listener, error)
	// DialStore connects to the key-value store of a world.
	DialStore(ctx context.Context, address string) (net.Conn, error)
	// Close removes what the backend has made.
	Close()
}

// Listener accepts the connections of processes that use the package.
type Listener interface {
	// Accept returns the next connection; [net.ErrClosed] after Close.
	Accept() (Connection, error)
	Close() error
}

// Connection is that of one process, in the protocol of trainer/run/python/PROTOCOL.md.
type Connection interface {
	net.Conn
	// Peer returns the pid of the process, and that of the leader of its session, which the agent
	// has started. 0: not known, or ended.
	Peer() (pid, leader int)
	// Ended reports whether the process has ended.
	Ended() bool
	// CloseRead lets reading end behind what was sent: children of the process may have the
	// connection, too.
	CloseRead() error
}

// Program is a user's program that can be started. Its owner closes it.
type Program interface {
	// Start starts a process for each of the position's local ranks. They run until they end on
	// their own, Kill, or Close.
	Start(ctx context.Context, position program.Position) (Group, error)
	// Ready returns when processes can be started at once, or ctx ends.
	Ready(ctx context.Context)
	// Stopped returns those of some processes that are stopped by a signal.
	Stopped(pids []int) []int
	// Checkpoint returns the modification time of the newest file of --checkpoint_file; zero: there
	// is none.
	Checkpoint() time.Time
	// OOMKills returns how many processes of this worker the system has killed because memory was
	// used up; 0 if that is unknown.
	OOMKills() int
	// Cores returns by pid how many processors each process and its descendants have used on
	// average since the call before; -1: that is not known.
	Cores(now time.Time, pids []int) map[int]float64
	// Close kills the processes that are left, and returns when all have ended.
	Close()
}

// Group is the processes of one start.
type Group interface {
	// Pids returns the processes, in the order of their local ranks.
	Pids() []int
	// Exits returns a channel with the end of each process, once and at once. It is closed when
	// nothing of them is left.
	Exits() <-chan program.Exit
	// Kill begins to end the process of a local rank: SIGTERM, and SIGKILL after the grace. A
	// process gets SIGTERM once; a further call can only give it more time, or with a grace of 0
	// kill it.
	Kill(local int, grace time.Duration)
	// Wrote reports whether the process of a local rank has written anything.
	Wrote(local int) bool
	// Output returns the last line that the process has written, without secrets.
	Output(local int, secrets []string) program.Output
}
