// Package master runs a job. It is the shell around the state machines that decide:
//
//	workers, servers ──gRPC──> service ─┐  one mutex  ┌─ task.Queue          records of each worker
//	runtime ────────pod.Event─> loop ───┼─────────────┼─ pod.Table           pods, replacements
//	timer ──────────────────────────────┘  (advance)  ├─ evaluation.Schedule versions to measure
//	                                            │     ├─ custody.Servers     holders of the model:
//	                                            │     │  and Ring            servers, or a ring
//	                                            │     ├─ custody.Cut         copies of the model
//	                                            │     ├─ rendezvous          members of the ring
//	                                            │     ├─ verdict.Judge       failures of programs
//	                                            │     └─ lifecycle           stage of the job
//	     executor: create and delete pods  <────┤ actions, performed outside the mutex
//	     links:    requests to the servers <────┤
//	     members:  worlds and recalls      <────┤
//	     records of checkpoints            <────┘
//
// Each call, event and timeout steps a state machine under the mutex. Then
// advance performs whatever the state of the job requires next. There is one
// timer, set to the earliest deadline of the state machines. Nothing polls: a
// worker's GetTask waits for a change.
//
// The package imports packages of elastic, wire and store, never of train or run: it coordinates
// training without any code that trains.
//
// Package lifecycle decides in which stage a job is, and when it ends:
//
//	Preparing: indexing the data
//	   │
//	Training ── last epoch settled ──> Completing: measuring, exporting ──> Ending ──> Run returns
//	   ^ │                             (validation data) (--output)           ^
//	   │ └── Err of a state machine, Stop, ctx ───────────────────────────────┘
//	   └──── the model, or a part of it, is lost: the next generation begins with a checkpoint
//	         (also out of Completing)
//
// State that several parts of the master need is in objects, each of which owns some of it:
//
//	work         records of the job, and the queue that leases them       (work.go)
//	evaluations  schedule of evaluations, and their results               (evaluations.go)
//	fleet        pods, and how many there should be                       (fleet.go)
//	contacts     reports of pods about themselves                         (contacts.go)
//	orders       actions that the executor has not taken yet              (actions.go)
//	progress     speed of the training, and its rollbacks                 (progress.go)
//	handover     record of the previous master, and events since          (handover.go)
//	account      time of the workers, by its use                          (goodput.go)
//	clock        time in which the master ran, and time of its timer      (clock.go)
//	events       events, and the incidents among them                     (event.go)
//	waiters      calls that wait for a change                             (parts.go)
//
// The parts, such as servers, ring, program and checkpoints, have those objects that they need, and
// no reference to the master. Each part has an interface of its requests to the master, such as to
// advance or end the job, of eight methods at most.
//
// The strategy (strategy.go) abstracts from where the model is: on servers, or on the workers of a
// ring. A job to evaluate or predict has a model that does not change (fixed.go). Its training is
// complete from the start: only the evaluation remains, or the prediction and the task that merges
// its parts.
//
// Laws:
//
//  1. A job succeeds if and only if every record of every epoch was credited; one that trains
//     nothing, if every record was measured or predicted. Otherwise the error of Run has the reason
//     and names the unfinished work.
//  2. The leases of a lost pod stay held until all servers have reported how many records of each
//     lease they have, for timing.Account at most. The smallest of these numbers is credited. In a
//     ring the leases stay held until a world without the pod is formed. Exactly those of their
//     records are credited that are in the state with which that world begins.
//  3. An epoch ends when every lease of it is settled and every server has applied what it
//     gathered. The next one opens then. A ring applies what it gathered at the end of the
//     training, and reports the version of the trained model with that.
//  4. A GetTask whose reply was lost loses nothing: each request names the leases that the worker
//     holds, and the reply has first those that it was granted and does not name.
//  5. A pod that is unknown or was replaced is asked to leave. One that has sent a heartbeat since
//     it joined and is silent for --task_timeout, timing.Silence at least, a worker of a ring for
//     --heartbeat_timeout, or shows no progress for the time of [task.Policy], is deleted and
//     replaced. Time does not count in which the master itself did not run, or in which the worker
//     waits for a lost server, or for the storage of the checkpoint that a ring begins with. If a
//     whole ring makes no progress, one worker is replaced at a time. A worker that was asked to
//     leave gets no new task, and is replaced at once. Its leases are granted to other workers when
//     it returns them, when the ring has released it, or when its pod has ended, whichever is
//     first.
//  6. When a server that had joined is lost, or every worker that had a ring's model, a new
//     generation of the model begins, with the newest checkpoint that can be read, or with the
//     initial values if there is none. Then exactly the records of that state are credited, no
//     earlier lease is held, no evaluation of a later version counts, and no earlier report about
//     the model counts. The status has the reason of the new generation.
//  7. A worker whose stream broke keeps its leases as long as its pod lives.
//  8. A caller is the current incarnation of one of the job's pods, and reports only about itself.
//     Users have their own calls, to read the status, scale and stop, on servers that offer them.
//  9. A job without a running pod waits for one without a limit, and its status shows the reason
//     for waiting.
//  10. The master listens before it indexes its data, which may take hours. A pod that calls
//     meanwhile gets "not yet" and calls again, no caller is refused as unknown, no pod is created,
//     and the status shows the progress of the index. (index.go)
//  11. A checkpoint counts when all of its shards and its record are stored, and it is of the
//     current generation. A job with checkpoints succeeds when a checkpoint of the trained model
//     is stored, or when the model is exported and its checkpoint failed. (checkpoint.go, base.go)
//  12. When Run returns, every pod has ended, or the runtime did not report it for the grace period
//     and timing.EndSlack. A master that was asked to leave, or that another one has replaced,
//     leaves the pods unchanged.
//  13. State for the next master is written before it is reported: the model generation and that
//     something was trained on in it, the number of a pod before its creation and of a checkpoint
//     before its order, a ring's world before its members, the end before the pods. If it cannot be
//     written for recordLimit, it is reported all the same, but no pod is created, and no
//     checkpoint is begun. If the master ends then, the worst result is that the job returns to a
//     checkpoint. (memory.go, record.go)
//  14. A restored master credits exactly the records that the holders of the model have: those that
//     all servers have, or those of the state with which a ring continues. No worker gets a task
//     before they are known.
//     If a server is lost, or all members of a ring, or no record has the ring's world, a new
//     generation begins, as by law 6. The generation continues only if the last record of the
//     previous master says that nothing was trained on in it. (restore.go)
//  15. A number that a master has assigned to a pod, a lease, a session, an order, a generation or
//     a checkpoint is assigned by no other master.
//
// # A restored master
//
//	record of the master before ──┐
//	pods, as the runtime lists ───┼─> generation, pods, world ──> Recovering
//	newest checkpoint ────────────┘                    │
//	                                                   ├─ all servers have reported their records,
//	                                                   │  a ring's members have arrived or are lost
//	                                                   │  ──> the training continues
//	                                                   └─ values are lost
//	                                                      ──> a new generation, from the newest
//	                                                          checkpoint
//
// Meanwhile workers continue with the leases that they hold. A worker's next heartbeat reports
// them, and the restored master assigns them to it again. A server is asked to join again.
package master
