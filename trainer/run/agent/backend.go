package agent

import (
	"context"
	"net"
	"time"

	"github.com/elasticdl/elasticdl/trainer/run/program"
)

// Backend runs an agent's processes: on this machine, or on a simulated one. Its owner closes it
// when no process is left.
type Backend interface {
	// Listen returns the listener to which processes connect that use the Python package.
	Listen(ctx context.Context) (Listener, error)
	// Load fetches the program and prepares it for its start.
	Load(ctx context.Context) (Program, error)
	// ListenStore listens for the clients of a world's key-value store. Other workers reach it at
	// the address of the listener.
	ListenStore() (net.Listener, error)
	// DialStore connects to the key-value store of a world.
	DialStore(ctx context.Context, address string) (net.Conn, error)
	// Close removes the files that the backend has created.
	Close()
}

// Listener accepts the connections of processes that use the Python package.
type Listener interface {
	// Accept returns the next connection; [net.ErrClosed] after Close.
	Accept() (Connection, error)
	Close() error
}

// Connection is the connection of one process. Its protocol is trainer/run/python/PROTOCOL.md.
type Connection interface {
	net.Conn
	// Peer returns the pid of the process, and the pid of its session leader, which is the process
	// that the agent has started. 0: unknown, or ended.
	Peer() (pid, leader int)
	// Ended reports whether the process has ended.
	Ended() bool
	// CloseRead ends reading after the data that was already sent, as children of the process may
	// keep the connection open.
	CloseRead() error
}

// Program is a user's program that can be started. Its owner closes it.
type Program interface {
	// Start starts a process for each of the position's local ranks. They run until they end on
	// their own, Kill, or Close.
	Start(ctx context.Context, position program.Position) (Group, error)
	// Ready returns when processes can be started without delay, or when ctx ends.
	Ready(ctx context.Context)
	// Stopped returns those of the pids whose processes are stopped by a signal, such as SIGSTOP.
	Stopped(pids []int) []int
	// Checkpoint returns the modification time of the newest file of --checkpoint_file; zero: there
	// is none.
	Checkpoint() time.Time
	// OOMKills returns the number of processes of this worker that the kernel's OOM killer has
	// killed; 0 if it is unknown.
	OOMKills() int
	// Cores returns, by pid, the average number of processors that the process and its descendants
	// have used since the previous call; -1: unknown.
	Cores(now time.Time, pids []int) map[int]float64
	// Vitals returns, by pid, what distinguishes a process that works from one that hangs; nothing
	// for one that has ended. It looks at all descriptors of the processes, so it is for those that
	// are quiet. It follows a call of Cores, whose look at the machine it uses.
	Vitals(pids []int) map[int]program.Vital
	// Close kills the remaining processes, and returns when all have ended.
	Close()
}

// Group is the processes of one start.
type Group interface {
	// Pids returns the processes, in the order of their local ranks.
	Pids() []int
	// Exits returns a channel that receives the end of each process once, without delay. It is
	// closed when all processes of the group have ended.
	Exits() <-chan program.Exit
	// Kill sends SIGTERM to the process of a local rank, and SIGKILL after the grace. A process
	// gets SIGTERM once. A further call can only give it more time, or, with a grace of 0, kill it.
	Kill(local int, grace time.Duration)
	// Wrote reports whether the process of a local rank has written anything.
	Wrote(local int) bool
	// Output returns the last line that the process has written, with the secrets masked.
	Output(local int, secrets []string) program.Output
	// Stack returns the Python stacks of the process of a local rank, in 2 s at most. It interrupts
	// sleeps of the process.
	Stack(ctx context.Context, local int) program.Stack
	// Place returns what the kernel shows of the main thread of that process. It disturbs nothing.
	Place(local int) program.Place
}
