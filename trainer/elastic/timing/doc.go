// Package timing defines how long the processes of a job wait for each other, in one place, so that
// the relations between these times can be read and tested. A time that matters to one package only
// is defined there.
//
//	                       0.5  1    2    3      5          10         15        25   30    600 s
//	heartbeat              Beat ─────────────── BeatLimit
//	a pod's silence             ring, least ─── Silence
//	an order to a server             Order Account
//	a new connection                      Connect Greeting
//	any call                                    Poll ─────────────────Call
//	a push or pull                                                                    120 s Patience
//	storage that fails                          StoragePause                          120 s Storage
//	a connection at rest                      KernelAlive   Alive ─── Vanish
//	a worker that leaves                        Drain ─────────────────────── Grace
//	a job's end                                                         Farewell ─ Grace + EndSlack
//	a master that is away                                                                 Abandoned
//
// Laws:
//
//  1. At least Beats heartbeats fit into every limit on silence, whatever the value of
//     --heartbeat_timeout, so that one lost or late heartbeat does not make a pod count as lost.
//  2. A heartbeat's call ends before the silence that it prevents is judged: BeatLimit ≤ Silence.
//  3. The master gives up a request to a server before it gives up the server: Order, Account <
//     Silence.
//  4. A call outlasts one attempt to connect and the master's longest wait for news, with time for
//     the answer: Connect + Poll < Call, and Poll + BeatLimit ≤ Call.
//  5. When a node vanishes, without FIN or RST, its connections end no later than the calls on
//     them: KernelAlive < Vanish ≤ Call. So no call and no stream waits for it longer than Call.
//  6. No pod counts the master as lost before several calls have failed: 4·Call ≤ Abandoned.
//  7. A worker that is asked to leave can complete its minibatch and report it before its grace is
//     over: Drain + Call ≤ Leave(Grace) < Grace. The processes of a program end before their worker
//     does: Script(t) ≤ Leave(t) < t.
//  8. The workers of a completed job leave on their own before its pods are ended, and pods that
//     use their grace period to the end are waited for: Farewell < Grace, and GraceSlack <
//     EndSlack.
//  9. Only the queue at a parameter server may delay a worker longer than a call does, and less
//     than the default limit for a lease without progress: Call < Patience < --task_timeout.
//  10. A worker is patient with a busy server, and not with a node that has vanished: when its
//     control connection to the server breaks, it closes the data connections. Vanish < Patience.
//  11. Failing storage is tried many times, for longer than any process of the job may be away. A
//     worker that waits for storage hands its lease back before the default limit for a lease
//     without progress: Call < Storage, 4·StoragePause ≤ Storage < --task_timeout.
//  12. A server that holds pushes back for a checkpoint accepts them again, if the master is lost,
//     before a worker gives the server up: Hold ≤ HoldMost < HoldLimit < Patience.
//  13. A pod reaches a restarted master before its silence is judged: it pauses, connects, and
//     sends its heartbeat: 3/2·Reconnect + Connect < Return.
//  14. A process whose collective failed hears which worker is lost before it gives its state up,
//     also if the master learns of the loss only by silence: limit < Explain(limit). A restarted
//     master judges no silence before Return, so the time counts from then on.
package timing
