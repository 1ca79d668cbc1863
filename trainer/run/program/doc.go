// Package program runs a user's training program on one node: the processes, their environment,
// their output, and how they end. It does what torchrun's agent does to them, so that a script
// which runs under torchrun runs here unchanged.
//
//	p, _ := program.New(program.Options{Command: []string{"main.py", "--epochs=2"}, Threads: 1})
//	group, _ := p.Start(ctx, position)     // one process for each local rank
//	for exit := range group.Exits() {   // each process once
//		...
//	}
//	group.Stop(syscall.SIGTERM, grace)  // returns when none of their processes is left
//	group, _ = p.Start(ctx, next)       // the same program with other ranks
//
// # How processes start
//
// Exec starts the interpreter for each process. Fork, the default, asks a fork server: one Python
// process per program that has imported torch and forks a process that runs the script. That saves
// the import, seconds of CPU for each process. Programs that are not Python scripts, and
// interpreters without torch, are started by Exec; so is everything once the fork server cannot be
// trusted, and the log says why. A fork is safe from a process that has one thread and no GPU open,
// nor CUDA initialized: the fork server looks after each import and before each fork. Threads of
// libraries that are prepared for forks do not count: their names are known. Nevertheless
// a forked process may crash where a fresh one does not. If one does soon after its start, all
// others are started by Exec, and [Exit].Forked has the master not count it.
//
// Modules that start threads are imported by standbys: processes like the fork server that import
// everything, and become the processes of the next start instead of forking them. They are fresh
// processes, as those by Exec are.
//
//	agent ──orders, stdio──> fork server ──fork──> helper ──fork──> rank 0, rank 1, …
//	  ^                                              └ exits: the ranks become children of the agent
//	  └────────────── waits for each rank itself ──────────────────────┘
//
// The agent is a subreaper, so a process that the fork server made is the agent's own child as soon
// as the helper has exited. No process depends on the fork server's life, and exit codes come from
// the kernel.
//
// # Stacks
//
// Each Python script has a handler of faulthandler's that writes the stacks of its threads to a
// memfd of the agent's when the agent sends a signal, also while the process holds the
// interpreter's lock in C. [Group.Stack] asks for them. The fork server registers the handler in
// the process that it has forked, and a process that is started by exec registers it by a
// sitecustomize of ours. A process without the handler ignores the signal, also after it has called
// exec. The signal is sent to one thread of one rank, and only if /proc shows that a handler
// catches it and that the descriptor is still the memfd: otherwise the stacks would be written to a
// file of the program. It is not sent to a process that is stopped or that a debugger holds. It
// interrupts sleeps in C, so nothing takes stacks periodically.
//
// # Laws
//
//  1. Each process leads a session. When it ends, the rest of its process group is killed before it
//     is reaped: a forked DataLoader worker holds the sockets of its parent.
//  2. No process outlives the agent: leaders are killed by the kernel (PR_SET_PDEATHSIG), and a
//     watchdog, a small shell, kills their groups, and those that the agent had just started, which
//     it finds by their environment.
//  3. A line of output is written whole: lines of different ranks are not mixed.
//  4. A script finds the same world under Fork and Exec: sys.argv, sys.path, __main__, directory,
//     environment, one thread. A handler of SIGURG is there under both.
//  5. A request for stacks ends no process, and no process but a rank gets its signal. It takes 2 s
//     at most, and names the reason if there are no stacks.
//
// A process that starts a session of its own (a daemon) is not ended when the program ends, as
// under torchrun.
package program
