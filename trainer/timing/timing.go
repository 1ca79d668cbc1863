package timing

import "time"

const (
	// Beat is the time between two heartbeats, if no limit on silence asks for more of them: see Interval.
	Beat = 500 * time.Millisecond
	// Beats is how many heartbeats fit into any limit on silence.
	Beats = 4
	// BeatLimit is how long a heartbeat waits for its answer.
	BeatLimit = 5 * time.Second
	// Silence is the least limit on the silence of a server, and of a worker beside servers. That of a member of a
	// ring is the job's --heartbeat_timeout.
	Silence = 5 * time.Second

	// Order is how long the master waits for a server's answer to an order.
	Order = 2 * time.Second
	// Account is how long the servers have to say how much of a lost worker's lease is in the model.
	Account = 3 * time.Second

	// Hold is how long the holders of a model take no new gradients at most, while they come to one state for a
	// checkpoint: then the master gives it up.
	Hold = 2 * time.Second
	// HoldMost is the most that Hold grows to when checkpoints are given up because gradients take longer to arrive.
	HoldMost = 16 * Hold
	// HoldLimit is when a holder goes on by itself: the master may be gone.
	HoldLimit = 2 * HoldMost

	// Write is how long the holders of a model may take to write a checkpoint.
	Write = 10 * time.Minute

	// Connect is how long a connection may take to be made before another attempt: a first packet that is lost while
	// a cluster's node learns of a service's new endpoint may take a minute to be answered, and the next attempt's is
	// at once.
	Connect = 3 * time.Second
	// Reconnect is the longest pause between two attempts to connect, but for jitter of half of it.
	Reconnect = time.Second
	// Return is how long a pod may take to find a master that has come back, before its silence is judged.
	Return = 5 * time.Second
	// Greeting is how long who was accepted may take to say who it is.
	Greeting = 5 * time.Second

	// Patience is how long a worker waits for the next byte of a parameter server's answer: the pushes of many
	// workers may stand before its own. A node that has vanished is found sooner, after Vanish at most: when the
	// control connection to a server is lost, the data connections are closed.
	Patience = 2 * time.Minute

	// Storage is how long a process waits for the storage under its data, or under what it writes, that fails: a network
	// file system whose server is replaced, a volume without room. A worker gives its lease back then, and a checkpoint counts as lost.
	Storage = 2 * time.Minute
	// StoragePause is the longest time between two attempts to reach it.
	StoragePause = 5 * time.Second

	// Poll is how long the master keeps a call that waits for news.
	Poll = 5 * time.Second
	// Call is how long a call may take that has no deadline of its own.
	Call = 15 * time.Second

	// Alive is after how long without a byte a gRPC connection is tested, whether or not calls are on it. The library
	// makes it 10 s if it is less.
	Alive = 10 * time.Second
	// AliveAnswer is how long the answer to that may take. It also bounds, on Linux, how long sent bytes stay
	// without acknowledgement.
	AliveAnswer = 5 * time.Second
	// Vanish is how long it takes at most to notice that the node at the other end of a gRPC connection has vanished.
	Vanish = Alive + AliveAnswer

	// KernelIdle is after how long without a byte the kernel tests a TCP connection, of any kind. A process that is
	// stopped or busy passes, as its kernel answers.
	KernelIdle = time.Second
	// KernelInterval is how long after one such test the next follows.
	KernelInterval = time.Second
	// KernelTests is how many of them fail before the connection breaks.
	KernelTests = 5
	// KernelAlive is how long it takes to notice that the node at the other end of an idle TCP connection has vanished.
	KernelAlive = KernelIdle + KernelInterval*KernelTests

	// Drain is how long a worker beside servers that is asked to leave goes on with the minibatch that it is at.
	Drain = 5 * time.Second
	// LeaveGrace is how long a worker or server that is asked to leave has to end: a little less than a cluster gives it.
	LeaveGrace = 25 * time.Second
	// Farewell is how long the workers of a job that is done have to leave by themselves.
	Farewell = 10 * time.Second
	// End is how long the runtime has to end the pods of a job that is over.
	End = 30 * time.Second

	// Abandoned is how long the master may be away until the pods on a cluster end by themselves.
	Abandoned = 10 * time.Minute
)

// Explain returns how long a process of a program whose connection to another has failed waits for word that a worker is gone, where a silence
// is judged after limit: the connections of a node that dies may be reset at once, and the master knows only then. It is time in which the
// master is there.
func Explain(limit time.Duration) time.Duration { return limit + explained }

// explained is how long that word may take from the master by the agent to the process.
const explained = 2 * time.Second

// Interval returns the time between two heartbeats of a pod whose silence is judged after limit; 0: it is not judged.
func Interval(limit time.Duration) time.Duration {
	if limit <= 0 {
		return Beat
	}
	return min(Beat, limit/Beats)
}
