// Package role holds what every process of a job does, wherever it runs: a process of this machine (package local) and
// the container of a pod (package incluster) differ in who starts them and in nothing else.
//
//	cmd: elasticdl ps, elasticdl worker ──> RunPS, RunWorker ──> ps.Run, worker.Main
//	local.RunMaster, incluster.RunMaster ─> Plan             ──> master.Run
//	                                        Logger, LastWords
//
// The address that a role advertises tells which of both it is: only in a container a role leaves its reason in the
// termination log, and only there it gives up a master that is away for too long; on this machine the lifeline of
// package local tells.
package role
