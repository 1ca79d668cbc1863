// Package rendezvous decides which workers form the ring, with which ranks, and whose state they take.
//
// A [Rendezvous] is told who arrives and who is gone, and answers with [Action]s, which the master's shell
// performs outside its lock. Nobody polls it, and it waits for nobody but by a [Rendezvous.Deadline]:
//
//	           all expected are here, or Settle is over         a newcomer, one departs, one aside came: Recall
//	           since there were Min                             one left, or came by itself: Abort
//	gathering ────────────────────────────────────────> working ────────────────────────────────> changing
//	    ^                      Form                        ^                                         │
//	    │                                                  │   all that are left are back: Form      │
//	    │                                                  └─────────────────────────────────────────┤
//	    └────────────────────────── none is left: Anew with the next Form ───────────────────────────┘
//
// A process is the member, not its number or its address: one that is started again under the number of
// another, or comes in another session, is a newcomer, and the one before has left. What a process says is
// heard once for each world that it was given, and only if it comes from that one: a message from before
// is late or told twice, and the world that answers it is on its way already.
//
// # A world outlives its streams
//
// Members talk to each other, not to the master, so a world works on when the master is away, or one of its streams is:
//
//   - The end of a stream ends nothing. A worker whose stream has ended keeps its world, and opens another stream as soon as it can. The
//     first word on that is an arrival if it stands between two rounds, and else that it works in a formation.
//   - The shell tells the end of a stream by [Rendezvous.Away], and the word that one works by [Rendezvous.Present]. In between the member
//     counts as present. Nothing that is told to it meanwhile is lost: Present answers with what it has to know. After Absence it has left.
//     Its pod's end and its heartbeats tell sooner, and a link that breaks does: the other end arrives, and names it. Who has lost its stream
//     since this master is there, and then a link, is waited for no more.
//   - If a snapshot could not be written for some time, members may be in a later world than it says. The shell has formations left out
//     then (Given), and whoever comes from one that is not known is called back from it.
//   - A [Snapshot] is written before a new world is sent. So the world that any member may be in is the one of the last snapshot, and [Restore]
//     has its members as those whose streams have just ended. They keep it, and no formation is given out twice.
//   - Who waits for a world, a newcomer or a member that is back, is not in the snapshot: it arrives again, on a new stream. What a member
//     brought as a newcomer is, so that its state is not taken for that of the others.
//   - One that stands between two rounds when its stream ends has strayed: the others go on without it, unless nobody else has the state.
//     Who has strayed is not in the snapshot.
//   - Sessions are the shell's. It numbers them from the master's incarnation · 2³² on, so that they rise over restarts, and keeps
//     beside the snapshot which process the session of each member is.
//   - Which of the leases are in the state is said by whoever arrives, and by members with their heartbeats: the custody of a ring
//     is restored from the world, and safe again as soon as a member's heartbeat tells that world's formation.
//
// Laws:
//
//  1. The id of the world changes exactly when its members do; its formation rises each time.
//  2. Survivors keep their order and come before newcomers, so rank 0 is a survivor if there is one.
//  3. A world has Min to Max members, each of which has arrived since its last world, and none of which has left.
//     Survivors come first, then newcomers as they came; who finds no room waits until there is some.
//  4. Sources are the survivors whose round is the newest of theirs. What a newcomer brings is ignored, also when it
//     is a survivor and has got no other yet: a state that was apart may have another last round. With no source
//     but a world before it, Anew precedes Form.
//  5. Recall and Abort go to members that have not arrived from that formation, each at most once, and no Recall
//     after an Abort. So whoever is missing has been told. If one breaks off, those that are missing are told to come at once, even if they
//     finish their round for somebody who joins or departs: they would wait for it there.
//  6. Joins wait for one another, Settle at most, whoever trickles in. Departures wait for nobody.
//  7. Nobody is waited for who is gone, and a suspect not longer than Patience after all the others, or not at all if its stream has
//     ended, too. One whose worlds break Attempts times without a round, and not for want of work, is evicted. So the ring comes to work without those that
//     cannot be reached, but neither costs the last one that has the state. A stray is waited for while nobody else who is there has it.
//  8. When nothing more happens and whoever was called is back, the world has all processes that live, as far as
//     Max allows, and there is no deadline.
//  9. One that departs is called back with the others, after a round. It is in no world after that one but to pass the
//     state on, or if too few are left without it, and is released once. As long as it is there Max does not count it.
//  10. Same calls, same actions.
//  11. A member that works and has no stream is in its world as before, for Absence at most; all that are away for so long leave at once.
//     When it is present again it is told once more whether it has been called back.
//  12. Laws 1 to 11 hold over restarts, whatever happens to processes meanwhile. A rendezvous that is restored, and to which all processes
//     say where they are, has the same world, members, calls, suspicions and guests as the one that was saved; joins settle anew.
//  13. A snapshot is of the size of the world: 64 KiB for 1,000 members. One that cannot be is an error.
package rendezvous
