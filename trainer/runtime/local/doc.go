// Package local runs a job on this machine: every role is a process of this
// binary. It is the only package that starts processes for roles.
//
// # Roles
//
// The launcher owns a job: it starts the master, and the servers and workers that the master
// requests. It is the process of elasticdl train --runtime=local itself or, with --detach, a
// process of its own. The commands of the roles are hidden; their flags are
//
//	elasticdl launcher --job_dir=DIR [--resume]                      [RunLauncher]
//	elasticdl master   --job_dir=DIR [--launch=1] [--resume]         [RunMaster]
//	elasticdl ps       --master_address=HOST:PORT --index=I          [role.RunPS]
//	                   [--launch=1] [--address=HOST:PORT] [--log_level=INFO]
//	elasticdl worker   --master_address=HOST:PORT --index=N          [role.RunWorker]
//	                   [--launch=1] [--threads=N] [--workers=N] [--log_level=INFO]
//
// A master reads its job from DIR/job.json; servers and workers get it from the master's JoinReply.
// --address is a server's address; a server that replaces another gets the same address. Processes
// listen on the loopback interface only, on ports that the kernel chooses: at 127.0.0.1, or at ::1
// if the machine has no IPv4. A role writes its log to standard error, which is its log file, and
// exits 0 when its work is done and 1 otherwise. Servers and workers start with
//
//	ctx, stop := local.Lifeline(cmd.Context())
//	defer stop()
//
// # Which process ends which
//
//	               ┌─────────────── launcher ───────────────┐
//	               │ lifeline          │ lifeline           │ lifeline
//	               v    create, delete v                    v
//	[session] ── master ─ ─ ─ ─ ─ ─> ps-0 …              worker-0 …
//
// A lifeline is a pipe: the child holds the read end, its parent alone the write end. However the
// parent dies, kill -9 included, the kernel closes the write end, and the child reads the end of
// the file. A server or worker then cancels its context with [role.ErrOrphaned] and ends a second
// later at most; a master ends at once. When a planned stop begins, the launcher writes a byte into
// each lifeline: if it is killed from then on, as by a notebook, a worker that runs a program still
// gives that its grace period. The launcher of a detached job has no lifeline; only the end of its
// job, a signal or [Stop] ends it.
//
// Every role leads a process group of its own, so that its children end with it, and so that Ctrl-C
// reaches only the launcher, which stops the job. A launcher that is stopped (Ctrl-Z) starts and
// ends no process meanwhile.
//
// # Streams of a program
//
// A program writes to pipes of its worker, or to pseudo-terminals where the command that started
// the job has a terminal. The worker copies what comes to its log, in lines, and to pipes of the
// launcher, which shows it at once on the streams of its command; a detached job has no such pipes.
// A command that does not read what the program writes makes it wait, as a pipe does.
//
//	program ─ stdout, stderr ─> worker ─┬─ logs/worker-N.log
//	   ^                                └─ pipes ─> launcher ─> stdout, stderr of the command
//	   └── stdin, of the only process: that of the command itself, or what is typed at its terminal
//
// # Restart of the master
//
// A master that dies before it has written the end of the job, by a signal or by a panic, is
// replaced: the first time at once, and after a pause that doubles from 100 ms to 10 s if it
// crashes repeatedly within ten seconds. One that was killed from outside is always replaced at
// once. The servers and workers continue meanwhile.
//
//	launcher:  incarnation + 1 on the disk ──> start the master, with      --launch  its incarnation
//	                                                                       a session, new for each
//	                                                                       the listening socket
//	master:    Former = DIR/record, Pods.Adopt ──────────────────────────> master.Run
//
// The launcher owns the socket on which the masters listen, so their address stays the same, and a
// connection made between two masters waits for the next. A session is a pair of connected sockets
// with net/rpc: the master requests pods, as on a cluster from the API server, and receives their
// events. Adopt lists the pods that all earlier masters have created. If a master died without a
// record, its pods are killed, because no later master knows them.
//
// The job is Failed if its first master dies before it listens, or if ten masters in a row die
// before they run the job. SIGTERM to a master stops the job, as SIGTERM to the launcher does.
//
// # State
//
// The state of a job is a directory, $ELASTICDL_HOME/jobs/NAME, where
// ELASTICDL_HOME is by default $XDG_STATE_HOME/elasticdl or ~/.local/state/elasticdl:
//
//	lock           held (flock) by the launcher and by each process that it has started
//	job.json       job.Job, written by the command that starts the job, and by the one that
//	               resumes it after it was scaled
//	uid            of the job, written by that command too
//	authority.pem  certificate and key that sign the certificates of the job: its reader can
//	               pose as any process of the job
//	launcher.json  pid of the launcher and, if the job runs a program, the scratch directory for its
//	               workers' sockets and packages, which is a temporary one because the path of a
//	               socket must be short.
//	               The launcher removes the files of a worker that has ended; if the launcher was
//	               killed, the next job of the name removes the directory
//	incarnation    number of masters started, written by the launcher before it starts the next
//	record         state for the next master, written by each master: [master.Memory]
//	master.json    pid, address and incarnation, written by each master when it listens
//	status.json    wire.JobStatus, written by the master each second and at the end; by the
//	               launcher if no master could write the end
//	stop.json      why the job was asked to stop, written by the launcher at once; it may be
//	               killed the next moment
//	logs/          master.log, ps-0.log, worker-0.log … ; a restarted process appends, and the
//	               launcher appends to the master's
//	*.room         room on the disk for the last status, and for the address of a master that
//	               replaces another
//
// A disk that is full, or cannot be written for another reason, ends no job. The launcher keeps
// in memory what a master could not write of incarnation, record, master.json and status.json,
// gives it to the next master, and writes it when that is possible. Such a file is written by the
// launcher alone until it has written it, so that no older version replaces a newer one. The last
// status goes into the room that is reserved for it.
//
// The directory and all that is in it is readable by its user only. The launcher gives each server
// and worker its certificate and key by an inherited pipe, never by the environment or an argument;
// --launch is the process's incarnation. Files are replaced atomically (written aside, then
// renamed), so no reader sees half of one. The incarnation and the record are on the disk (fsync),
// or with the launcher, before any other process learns of them. Resume begins without both,
// because no process of earlier masters is left.
//
// Laws:
//
//  1. A job is alive if and only if its lock is held. While the lock is free, no process of the job
//     exists, so a job that is started or resumed meets no process of an earlier one.
//  2. One job of a name lives at a time; an ended one is replaced by the next of its name.
//  3. The launcher owns every process that was started: it waits for it, and ends it before it ends
//     itself. It tells the end of a process, after killing its whole process group, to the living
//     master or to the next one, and once to each.
//  4. One master lives at a time. A request of a dead master that the launcher has not carried out
//     yet is dropped.
//  5. A job whose launcher died before a final state was written is Failed: "launcher died", and
//     how to resume it. If its disk is full, the reason says that the end could not be written. If
//     it was asked to stop before, it is Stopped.
//  6. A planned stop begins with a checkpoint, for which the job has --grace_period. Then each pod
//     gets one SIGTERM, and as long to end. A second request kills at once.
package local
