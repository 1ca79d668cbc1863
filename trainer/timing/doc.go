// Package timing has the times for which the processes of a job wait for each other, in one place, so that the laws
// between them can be read and tested. A time that only one package knows, and that no other's depends on, stays there.
//
//	                       0.5  1    2    3      5          10         15        25   30           600 s
//	heartbeat              Beat ─────────────── BeatLimit
//	a pod's silence             ring, least ─── Silence
//	an order to a server             Order Account
//	a new connection                      Connect Greeting
//	any call                                    Poll ─────────────────Call
//	a push or pull                                                                    120 s Patience
//	storage that fails                          StoragePause                          120 s Storage
//	a connection at rest                      KernelAlive   Alive ─── Vanish
//	a worker that leaves                        Drain ───────────────────── LeaveGrace
//	a job's end                                             Farewell ──────────── End
//	a master that is away                                                                          Abandoned
//
// Laws:
//
//  1. Beats heartbeats fit into every limit on silence, whatever --heartbeat_timeout says, so that one that is lost or
//     late condemns nobody.
//  2. A heartbeat ends before the silence that it prevents is judged: BeatLimit ≤ Silence.
//  3. The master gives up what it asks of a server before it gives up the server: Order, Account < Silence.
//  4. A call outlasts a connection's attempt and the master's longest wait for news, with time for the answer:
//     Connect + Poll < Call, and Poll + BeatLimit ≤ Call.
//  5. A node that vanishes, without FIN or RST, ends its connections no later than the calls on them end: KernelAlive <
//     Vanish ≤ Call. So no call and no stream waits for it longer than Call.
//  6. Nobody takes the master for lost before several calls have failed: 4·Call ≤ Abandoned.
//  7. A worker that is asked to leave can end its minibatch and report it before its grace is over: Drain + Call ≤
//     LeaveGrace, which is shorter than the 30 s that Kubernetes gives.
//  8. The workers of a job that is done leave by themselves before its pods are ended: Farewell < End.
//  9. Only the queue at a parameter server may keep a worker longer than a call does, and not as long as a lease may stand
//     still by default: Call < Patience < --task_timeout.
//  10. That a worker is patient with a server that works does not make it patient with a node that has vanished: its control
//     connection tells, and the data connections end with that. Vanish < Patience.
//  11. Storage that fails for longer than any part of the job itself may be away is tried many times, and a worker that waits
//     for it has given its lease back before that may stand still by default: Call < Storage, 4·StoragePause ≤ Storage <
//     --task_timeout.
//  12. A server that holds pushes for a checkpoint whose master is gone lets them in before a worker gives it up:
//     Hold ≤ HoldMost < HoldLimit < Patience.
//  13. A pod finds a master that has come back before it is held for silent: it pauses, connects, and sends its heartbeat:
//     3/2·Reconnect + Connect < Return.
//  14. A process whose collective failed hears who is gone before it gives its state up, if a silence is how the master learns it:
//     limit < Explain(limit). A master that has come back judges nobody before Return, so that time counts from then on.
package timing
