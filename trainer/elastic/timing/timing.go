package timing

import "time"

const (
	// Beat is the time between two heartbeats, unless a limit on silence needs them more often: see
	// Interval.
	Beat = 500 * time.Millisecond
	// Beats is the least number of heartbeats in any limit on silence.
	Beats = 4
	// BeatLimit limits the wait of a heartbeat for its answer.
	BeatLimit = 5 * time.Second
	// Silence is the least limit on the silence of a parameter server, and of a worker that uses
	// servers. The limit for a member of a ring is the job's --heartbeat_timeout.
	Silence = 5 * time.Second

	// Order limits the master's wait for a server's answer to an order.
	Order = 2 * time.Second
	// Account limits the time in which servers report how many records of a lost worker's lease are
	// in the model.
	Account = 3 * time.Second

	// Hold limits the time for which holders of a model accept no new gradients, while they agree
	// on a common state for a checkpoint. After that the master gives the checkpoint up.
	Hold = 2 * time.Second
	// HoldMost is the most that Hold grows to when checkpoints are given up because gradients take
	// longer to arrive.
	HoldMost = 16 * Hold
	// HoldLimit is the time after which a holder accepts gradients again on its own, because the
	// master may be lost.
	HoldLimit = 2 * HoldMost

	// Write limits the time in which holders of a model write a checkpoint.
	Write = 10 * time.Minute

	// Connect limits one attempt to connect. While a node of a cluster learns of a service's new
	// endpoint, a lost first packet may take a minute to be answered, and that of another attempt
	// is answered at once.
	Connect = 3 * time.Second
	// Reconnect is the longest pause between two attempts to connect, without jitter of up to half
	// of it.
	Reconnect = time.Second
	// Return is the time in which a pod finds a restarted master, before its silence is judged.
	Return = 5 * time.Second
	// Greeting limits the time in which the peer of an accepted connection identifies itself.
	Greeting = 5 * time.Second

	// Patience limits a worker's wait for the next byte of a parameter server's answer: the pushes
	// of many workers may be queued before its own. A vanished node is noticed sooner, after Vanish
	// at most: when the control connection to a server breaks, the worker closes the data
	// connections.
	Patience = 2 * time.Minute

	// Storage limits a process's wait for failing storage of its data or output, such as a network
	// file system whose server is replaced, or a full volume. After that a worker hands its lease
	// back, and a checkpoint counts as lost.
	Storage = 2 * time.Minute
	// StoragePause is the longest time between two attempts to reach the storage.
	StoragePause = 5 * time.Second

	// Poll is the time for which the master leaves a call for news unanswered.
	Poll = 5 * time.Second
	// Call limits a call without a deadline of its own.
	Call = 15 * time.Second

	// Alive is the time without a byte after which a gRPC connection is tested, also without calls
	// on it. The library uses at least 10 s.
	Alive = 10 * time.Second
	// AliveAnswer limits the wait for the answer to that test. On Linux it also limits how long
	// sent bytes may stay unacknowledged.
	AliveAnswer = 5 * time.Second
	// Vanish limits the time until a lost node at the other end of a gRPC connection is noticed.
	Vanish = Alive + AliveAnswer

	// KernelIdle is the time without a byte after which the kernel tests a TCP connection. A
	// stopped or busy process passes the test, because its kernel answers.
	KernelIdle = time.Second
	// KernelInterval is the time between two such tests.
	KernelInterval = time.Second
	// KernelTests is the number of failed tests after which the connection breaks.
	KernelTests = 5
	// KernelAlive is the time until a lost node at the other end of an idle TCP connection is
	// noticed.
	KernelAlive = KernelIdle + KernelInterval*KernelTests

	// Drain limits the time for which a worker of servers continues its minibatch after it is asked
	// to leave.
	Drain = 5 * time.Second
	// Grace is the default of --grace_period: how long a pod has to end after it is asked to,
	// before it is killed.
	Grace = 30 * time.Second
	// GraceSlack is the margin after which this machine kills a process of a job, and by which a
	// worker of a cluster ends its program before its pod is killed: it reports the end.
	GraceSlack = 2 * time.Second
	// LeaveSlack is the margin by which a worker or server ends on its own before it is killed.
	LeaveSlack = time.Second
	// Farewell limits the time in which workers of a completed job leave on their own. The kubelet
	// of a busy node reports late that a pod has ended: if it is deleted before, its log is lost.
	Farewell = 20 * time.Second
	// EndSlack is the time beyond the grace period in which the runtime ends the pods of an ended
	// job.
	EndSlack = 10 * time.Second

	// Abandoned is the time without a master after which pods on a cluster end on their own.
	Abandoned = 10 * time.Minute
)

// Leave returns how long a worker or server has to end on its own after it is asked to leave, if it
// is killed after a time.
func Leave(killed time.Duration) time.Duration { return max(killed-LeaveSlack, killed/2) }

// Script returns how long the processes of a program have to end after SIGTERM, if their worker is
// killed after a time.
func Script(killed time.Duration) time.Duration { return max(killed-GraceSlack, killed/2) }

// Explain returns how long a program's process waits, after a connection to another process failed,
// for the news that a worker is lost. The connections of a dying node may be reset at once, while
// the master notices the loss only after limit, by silence. Time without a master does not count.
func Explain(limit time.Duration) time.Duration { return limit + explained }

// explained limits the time of news from the master through the agent to the process.
const explained = 2 * time.Second

// Interval returns the time between two heartbeats of a pod whose silence is judged after limit;
// limit 0: silence is not judged.
func Interval(limit time.Duration) time.Duration {
	if limit <= 0 {
		return Beat
	}
	return min(Beat, limit/Beats)
}
