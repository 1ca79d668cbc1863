// Package role has the main functions of servers and workers, and what the master's needs, wherever
// they run. A process of this machine (package local) and the container of a pod (package
// incluster) differ only in who starts them.
//
//	cmd: elasticdl ps ────────────────────> RunPS     ──> ps.Run
//	cmd: elasticdl worker ────────────────> RunWorker ──> Member.Join ─┬─> worker.Run: a model in Go
//	                                                                   └─> agent.Run: a program
//	local.RunMaster, incluster.RunMaster ─> Plan      ──> master.Run
//	                                        Logger, LastWords
//
// Packages train and run do not know each other. RunWorker chooses between them, by the job that
// the worker has joined.
//
// A role that is given an address to advertise runs in a container. Only there it writes the reason
// of its failure to the termination log, and only there it ends when the master is away for too
// long; on this machine the lifeline of package local ends it.
package role
