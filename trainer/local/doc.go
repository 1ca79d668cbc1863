// Package local runs a job on this machine: every role is a process of this
// binary. It is the only package that starts processes for roles.
//
// # Roles
//
// The launcher (elasticdl train --runtime=local) starts the master, the master
// starts the rest. The role commands are hidden; their flags are
//
//	elasticdl master --job_dir=DIR                                   [RunMaster]
//	elasticdl ps     --master_address=HOST:PORT --index=I            [role.RunPS]
//	                 [--launch=1] [--address=HOST:PORT] [--log_level=INFO]
//	elasticdl worker --master_address=HOST:PORT --index=N            [role.RunWorker]
//	                 [--launch=1] [--threads=N] [--log_level=INFO]
//
// A master reads its job from DIR/job.json; servers and workers get it from
// the master's JoinReply. --address is where a server listens, 127.0.0.1:0 if
// it is empty; a server that is replaced gets the address of the one before.
// A worker of a ring listens for the others on a port of 127.0.0.1 that the kernel chooses.
// A role writes its log to standard error, which is its log file, and exits 0
// when its work is done and 1 otherwise. Each role command starts with
//
//	ctx, stop := local.Lifeline(cmd.Context())
//	defer stop()
//
// # Who ends whom
//
//	launcher ──lifeline──> master ──lifeline──> ps-0 … worker-0 …
//
// A lifeline is a pipe: the child holds the read end, its parent alone the
// write end. However the parent dies, kill -9 included, the kernel closes the
// write end, the child reads the end of the file, cancels its context with
// [role.ErrOrphaned] and is gone a second later at most. The master of a detached
// job has no lifeline; only the end of its job or [Stop] ends it.
//
// Every role leads a process group of its own, so that whatever it starts ends
// with it, and so that Ctrl-C reaches the launcher alone, which stops the job.
//
// # State
//
// The state of a job is a directory, $ELASTICDL_HOME/jobs/NAME, where
// ELASTICDL_HOME is by default $XDG_STATE_HOME/elasticdl or ~/.local/state/elasticdl:
//
//	lock          held (flock) by the master from its start to its death
//	job.json      job.Job, written by the launcher
//	uid, secret   the identity of the job, written by the launcher before the master starts
//	master.json   pid and address, written by the master when it listens
//	status.json   wire.JobStatus, written by the master each second and at the end
//	logs/         master.log, ps-0.log, worker-0.log … ; a replaced server appends
//
// The directory and all that is in it is readable by its user only. The master passes UID and secret on to servers and
// workers by their environment (ELASTICDL_JOB_UID, ELASTICDL_JOB_SECRET), never as an argument; --launch says which start of its
// index a process is. Files are replaced whole (written aside, then renamed), so no reader sees half of one.
//
// Laws:
//
//  1. A job is alive if and only if its lock is held: no pid is trusted that was
//     not written by the holder of the lock, so the reuse of a pid harms nobody.
//  2. One job of a name lives at a time; an ended one is replaced by the next of its name.
//  3. A process that was started has an owner that waits for it, and that ends it when
//     it ends itself. Its end is told once, after its whole group was killed.
//  4. A job whose master died before it wrote a final state is Failed: "master died".
package local
