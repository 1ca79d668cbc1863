// Package master runs a job. It is the shell round the machines that decide:
//
//	workers, servers ──gRPC──> service ─┐  one mutex  ┌─ task.Queue          records of each worker
//	runtime ────────pod.Event─> loop ───┼─────────────┼─ pod.Table           who lives, who follows
//	timer ──────────────────────────────┘  (advance)  ├─ evaluation.Schedule what is measured when
//	                                            │     ├─ custody.Servers     who holds the model, as
//	                                            │     │  and Ring            servers, as a ring
//	                                            │     ├─ custody.Cut         when it is copied
//	                                            │     ├─ rendezvous          who is in the ring
//	                                            │     ├─ verdict.Judge       what a failure means
//	                                            │     └─ lifecycle           the stage of the job
//	     executor: create and delete pods  <────┤ actions, performed outside the mutex
//	     links:    tell and ask the servers <───┤
//	     members:  worlds and recalls       <───┤
//	     records of checkpoints             <───┘
//
// Whatever happens, a call, an event or the timer, steps a machine under the
// mutex and then calls advance, which looks at where the job stands and does
// what is next. There is one timer, set to the least of the machines'
// deadlines. Nothing polls: a worker's GetTask waits for a change.
//
// In which stage a job is, and when it ends, is package lifecycle's matter:
//
//	Preparing: indexing the data
//	   │
//	Training ── last epoch settled ──> Completing: measuring, exporting ──> Ending ──> Run returns
//	   ^ │                             (validation data) (--output)           ^
//	   │ └── a machine's Err, Stop, ctx ──────────────────────────────────────┘
//	   └──── the model, or a part of it, is lost: the next generation begins with a checkpoint
//	         (also out of Completing)
//
// The parts of the master, such as servers, ring, program and checkpoints, do not have the master:
// each declares an interface of its requests to the master (parts.go).
//
// Where the model is, in servers or in the workers of a ring, is the strategy's matter
// (strategy.go). A job that trains nothing has a model that does not change (fixed.go): it begins
// where the training is done, with the evaluation, or with the prediction and the task that puts
// its parts together.
//
// Laws:
//
//  1. A job succeeds if and only if every record of every epoch was credited; one that trains
//     nothing, if every record was measured or predicted. Otherwise Run's error says why, and names
//     what was not done.
//  2. The leases of a lost pod stay held until the servers were asked how much of them they have,
//     for timing.Account at most; the least that any of them has is credited. In a ring they stay
//     held until a world without the pod is formed; what the state that it begins with has of them
//     is credited, no more and no less.
//  3. An epoch ends when every lease of it is settled and every server has applied what it
//     gathered. The next one opens then. A ring applies what it gathered at the end of the
//     training, and reports the version of the trained model with that.
//  4. A GetTask whose reply was lost loses nothing: the worker says what it holds, and
//     gets first what it was granted and does not know of.
//  5. A pod that is unknown or was replaced is asked to leave. One that has sent a heartbeat since
//     it joined and is silent for --task_timeout, timing.Silence at least, a worker of a ring for
//     --heartbeat_timeout, or shows no progress for as long as [task.Policy] says, is deleted and
//     replaced. The time in which the master itself was away, or what they wait for, does not
//     count: a server, the storage under the checkpoint that a ring begins with. Of a ring that
//     stands still one worker is replaced at a time. A worker that was asked to leave gets no new
//     task, and has a successor at once. Its leases go to other workers when it hands them back,
//     when the ring has released it, or when its pod has ended, whichever comes first.
//  6. When a server that had joined is lost, or every worker that had a ring's model, a new
//     generation of the model begins, with the newest checkpoint that can be read, or with the
//     initial values if there is none. Exactly what is in that is credited then, no lease of before
//     is held, no evaluation of a later version counts, and no word of before about the model is
//     believed. The status says why it began.
//  7. A worker whose stream broke keeps its leases as long as its pod lives.
//  8. A caller is the living incarnation of one of the job's pods, and speaks of itself; a user,
//     who may look, scale and stop, has calls of his own, and only where they are served.
//  9. A job without a running pod waits for one without a limit, and its status says what it waits
//     for.
//  10. The master listens before it indexes its data, which may take hours: a pod that calls
//     meanwhile gets "not yet" and calls again, no caller is refused as unknown, no pod is created,
//     and the status says how far it is. (index.go)
//  11. A checkpoint is kept when all of its shards and its record are at rest, and it is of the
//     current generation. A job with checkpoints succeeds when the trained model is one, or is
//     exported and could not be made one. (checkpoint.go, base.go)
//  12. When Run returns, every pod has ended, or the runtime did not report it for the grace period
//     and timing.EndSlack. A master that was asked to leave, and one that another has followed,
//     leave the pods unchanged.
//  13. State for the next master is written before it is reported: the model generation and that
//     something was trained on in it, the number of a pod before its creation and of a checkpoint
//     before its order, a ring's world before its members, the end before the pods. If it cannot be
//     written for recordLimit, it is reported all the same, but no pod is created, and no
//     checkpoint begun; should the master die then, the job may return to a checkpoint, and nothing
//     worse. (memory.go, record.go)
//  14. A restored master credits exactly what the holders of the model have: what all servers have,
//     or what the state has that a ring goes on with. No worker gets a task before that is known.
//     If one of the holders is lost, a new generation begins, as by law 6. (restore.go)
//  15. A number that a master gave out, of a pod, a lease, a session, an order, a generation or a
//     checkpoint, is given out by no other.
//
// # A restored master
//
//	record of the master before ──┐
//	pods, as the runtime lists ───┼─> generation, pods, world ──> Recovering
//	newest checkpoint ────────────┘                    │
//	                                                   ├─ all servers have said what they hold,
//	                                                   │  a ring's members have arrived or are lost
//	                                                   │  ──> the training goes on
//	                                                   └─ values are lost
//	                                                      ──> a generation of the newest checkpoint
//
// Workers and servers work on what they hold meanwhile. A worker's next heartbeat says which leases
// it works on, and they are its own again; a server is asked to join again.
package master
