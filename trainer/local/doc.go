// Package local runs a job on this machine: every role is a process of this
// binary. It is the only package that starts processes for roles.
//
// # Roles
//
// The launcher owns a job: it starts the master, and whatever servers and workers the master asks it for. It is the process of
// elasticdl train --runtime=local itself, or, with --detach, one of its own. The other commands are hidden; their flags are
//
//	elasticdl launcher --job_dir=DIR [--resume]                      [RunLauncher]
//	elasticdl master   --job_dir=DIR [--launch=1] [--resume]         [RunMaster]
//	elasticdl ps       --master_address=HOST:PORT --index=I          [role.RunPS]
//	                   [--launch=1] [--address=HOST:PORT] [--log_level=INFO]
//	elasticdl worker   --master_address=HOST:PORT --index=N          [role.RunWorker]
//	                   [--launch=1] [--threads=N] [--log_level=INFO]
//
// A master reads its job from DIR/job.json; servers and workers get it from
// the master's JoinReply. --address is where a server listens, 127.0.0.1:0 if
// it is empty; a server that is replaced gets the address of the one before.
// A worker of a ring listens for the others on a port of 127.0.0.1 that the kernel chooses.
// A role writes its log to standard error, which is its log file, and exits 0
// when its work is done and 1 otherwise. Servers and workers start with
//
//	ctx, stop := local.Lifeline(cmd.Context())
//	defer stop()
//
// # Who ends whom
//
//	               ┌─────────────── launcher ───────────────┐
//	               │ lifeline          │ lifeline           │ lifeline
//	               v    create, delete v                    v
//	[session] ── master ─ ─ ─ ─ ─ ─> ps-0 …              worker-0 …
//
// A lifeline is a pipe: the child holds the read end, its parent alone the
// write end. However the parent dies, kill -9 included, the kernel closes the
// write end, and the child reads the end of the file. A server or worker then cancels its context with
// [role.ErrOrphaned] and is gone a second later at most; a master ends at once. The launcher of a detached
// job has no lifeline; only the end of its job, a signal or [Stop] ends it.
//
// Every role leads a process group of its own, so that whatever it starts ends
// with it, and so that Ctrl-C reaches the launcher alone, which stops the job. A launcher that is stopped (Ctrl-Z) starts and ends
// nothing meanwhile.
//
// # The master comes back
//
// A master that dies, by a signal or by a panic, before it has written the end of the job is started again: at once, and after a pause that
// doubles from 100 ms to 10 s if it crashes again and again within ten seconds; one that somebody killed is always replaced at once. The servers and workers go on meanwhile.
//
//	launcher:  incarnation + 1 on the disk ──> start the master, with      --launch  its incarnation
//	                                                                       a session, new for each
//	                                                                       the listening socket, the same for all
//	master:    Former = DIR/record, Pods.Adopt ──────────────────────────> master.Run
//
// The launcher opened the socket that the masters listen on, so their address stays, and who connects between two of them waits for the
// next. A session is a pair of connected sockets with net/rpc on it: the master asks for pods, as that of a cluster asks the API server,
// and hears what becomes of them. Adopt lists the pods that all masters before have created. A master that died without a record
// leaves pods that nobody knows: they are killed.
//
// The job is Failed if its first master dies before it listens, or ten in a row before they run the job. SIGTERM of a master stops the job,
// as that of a launcher does.
//
// # State
//
// The state of a job is a directory, $ELASTICDL_HOME/jobs/NAME, where
// ELASTICDL_HOME is by default $XDG_STATE_HOME/elasticdl or ~/.local/state/elasticdl:
//
//	lock           held (flock) by the launcher and by each process that it has started
//	job.json       job.Job, written by the command that starts the job
//	uid            of the job, written by that command too
//	authority.pem  signs the certificates of the job, with its key: whoever has it, is whom he likes in the job
//	launcher.json  pid of the launcher, written by it, and where its workers have their sockets and packages: among temporary files, as
//	               a socket's path is short. It removes a worker's when that has ended; what is left after its own death, the next job of the name
//	incarnation    how many masters were started, written by the launcher before it starts the next
//	record         what the next master has to know, written by each master: [master.Memory]
//	master.json    pid, address and incarnation, written by each master when it listens
//	status.json    wire.JobStatus, written by the master each second and at the end; the end, by the launcher if no master could
//	logs/          master.log, ps-0.log, worker-0.log … ; who is started again appends, and the launcher to the master's
//
// The directory and all that is in it is readable by its user only. The launcher gives each server and
// worker its certificate and key by an inherited pipe, never by the environment or an argument; --launch says which start of its
// index a process is. Files are replaced whole (written aside, then renamed), so no reader sees half of one. The incarnation and the
// record are on the disk (fsync) before anybody hears of them. Resume begins with neither: nobody is left of the masters before.
//
// Laws:
//
//  1. A job is alive if and only if its lock is held, and while it is not, no process of the job is there: a job that
//     is started or resumed meets none of the one before.
//  2. One job of a name lives at a time; an ended one is replaced by the next of its name.
//  3. A process that was started has an owner that waits for it, the launcher, and that ends it when
//     it ends itself. Its end is told to the master that lives, or to the next one, and once to each; before that its whole group was killed.
//  4. One master lives at a time. What a dead one has asked for and the launcher has not done yet is not done any more.
//  5. A job whose launcher died before a final state was written is Failed: "launcher died", and how to resume it.
package local
