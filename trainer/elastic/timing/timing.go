package timing

import "time"

const (
	// Beat is the time between two heartbeats, unless a limit on silence needs them more often: see
	// Interval.
	Beat = 500 * time.Millisecond
	// Beats is the least number of heartbeats in any limit on silence.
	Beats = 4
	// BeatLimit is how long a heartbeat waits for its answer.
	BeatLimit = 5 * time.Second
	// Silence is the least limit on the silence of a parameter server, and of a worker that uses
	// servers. The limit for a member of a ring is the job's --heartbeat_timeout.
	Silence = 5 * time.Second

	// Order is how long the master waits for a server's answer to an order.
	Order = 2 * time.Second
	// Account is how long the servers have to tell how many records of a lost worker's lease are in
	// the model.
	Account = 3 * time.Second

	// Hold is how long the holders of a model accept no new gradients at most, while they come to a
	// common state for a checkpoint. After that the master gives the checkpoint up.
	Hold = 2 * time.Second
	// HoldMost is the most that Hold grows to when checkpoints are given up because gradients take
	// longer to arrive.
	HoldMost = 16 * Hold
	// HoldLimit is how long a holder waits before it accepts gradients again by itself, because the
	// master may be lost.
	HoldLimit = 2 * HoldMost

	// Write is how long the holders of a model may take to write a checkpoint.
	Write = 10 * time.Minute

	// Connect is how long one attempt to connect may take. While a node of a cluster learns of a
	// service's new endpoint, a lost first packet may take a minute to be answered, and that of
	// another attempt is answered at once.
	Connect = 3 * time.Second
	// Reconnect is the longest pause between two attempts to connect, without jitter of up to half
	// of it.
	Reconnect = time.Second
	// Return is how long a pod may take to find a master that has come back, before its silence is
	// judged.
	Return = 5 * time.Second
	// Greeting is how long a process whose connection was accepted may take to identify itself.
	Greeting = 5 * time.Second

	// Patience is how long a worker waits for the next byte of a parameter server's answer: the
	// pushes of many workers may be queued before its own. A vanished node is noticed sooner, after
	// Vanish at most: when the control connection to a server breaks, the worker closes the data
	// connections.
	Patience = 2 * time.Minute

	// Storage is how long a process waits for failing storage of its data or output, such as a
	// network file system whose server is replaced, or a full volume. After that a worker hands its
	// lease back, and a checkpoint counts as lost.
	Storage = 2 * time.Minute
	// StoragePause is the longest time between two attempts to reach the storage.
	StoragePause = 5 * time.Second

	// Poll is how long the master leaves a call unanswered that waits for news.
	Poll = 5 * time.Second
	// Call is how long a call without a deadline of its own may take.
	Call = 15 * time.Second

	// Alive is the time without a byte after which a gRPC connection is tested, also without calls
	// on it. The library uses at least 10 s.
	Alive = 10 * time.Second
	// AliveAnswer is how long the answer to that test may take. On Linux it also limits how long
	// sent bytes may stay unacknowledged.
	AliveAnswer = 5 * time.Second
	// Vanish is how long it takes at most to notice that the node at the other end of a gRPC
	// connection has vanished.
	Vanish = Alive + AliveAnswer

	// KernelIdle is the time without a byte after which the kernel tests a TCP connection. A
	// stopped or busy process passes the test, because its kernel answers.
	KernelIdle = time.Second
	// KernelInterval is the time between two such tests.
	KernelInterval = time.Second
	// KernelTests is the number of failed tests after which the connection breaks.
	KernelTests = 5
	// KernelAlive is how long it takes to notice that the node at the other end of an idle TCP
	// connection has vanished.
	KernelAlive = KernelIdle + KernelInterval*KernelTests

	// Drain is how long a worker that uses servers goes on with its minibatch after it is asked to
	// leave.
	Drain = 5 * time.Second
	// Grace is the default of --grace_period: how long a pod has to end after it is asked to,
	// before it is killed.
	Grace = 30 * time.Second
	// GraceSlack is how much later than that this machine kills a process of a job, and how much
	// sooner than its pod is killed the worker of a cluster ends its program: it reports the end.
	GraceSlack = 2 * time.Second
	// LeaveSlack is how much sooner than it is killed a worker or server ends by itself.
	LeaveSlack = time.Second
	// Farewell is how long the workers of a completed job have to leave by themselves.
	Farewell = 10 * time.Second
	// EndSlack is how long the runtime has to end the pods of an ended job, beyond their grace
	// period.
	EndSlack = 10 * time.Second

	// Abandoned is how long the master may be away before the pods on a cluster end by themselves.
	Abandoned = 10 * time.Minute
)

// Leave returns how long a worker or server has to end by itself after it is asked to leave, if it
// is killed after a time.
func Leave(killed time.Duration) time.Duration { return max(killed-LeaveSlack, killed/2) }

// Script returns how long the processes of a program have to end after SIGTERM, if their worker is
// killed after a time.
func Script(killed time.Duration) time.Duration { return max(killed-GraceSlack, killed/2) }

// Explain returns how long a program's process waits, after a connection to another process failed,
// for the news that a worker is lost. The connections of a dying node may be reset at once, while
// the master notices the loss only after limit, by silence. Time without a master does not count.
func Explain(limit time.Duration) time.Duration { return limit + explained }

// explained is how long the news may take from the master through the agent to the process.
const explained = 2 * time.Second

// Interval returns the time between two heartbeats of a pod whose silence is judged after limit;
// limit 0: silence is not judged.
func Interval(limit time.Duration) time.Duration {
	if limit <= 0 {
		return Beat
	}
	return min(Beat, limit/Beats)
}
