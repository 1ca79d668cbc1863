// Package rendezvous decides which workers form the ring, with which ranks, and whose state they
// take.
//
// The shell reports to a [Rendezvous] which processes arrive and which have left. It returns
// [Action]s, which the master performs outside its lock. It has no goroutines and no timers:
// [Rendezvous.Deadline] returns when [Rendezvous.Tick] is to be called.
//
//	     all expected workers have arrived, or     a newcomer waits, a member departs
//	     at least Min, and Settle (Gather) is      or was aside: Recall; a member left,
//	     over: Form                                or came back uncalled: Abort
//	gathering ────────────────────────> working ────────────────────────────> changing
//	    ^                                  ^                                     │
//	    │                                  │ all remaining members are back: Form│
//	    │                                  └─────────────────────────────────────┤
//	    └────────── no member remains: StateLost with the next Form ─────────────┘
//
// A member is a process, not the number or address of a worker. A process that starts under the
// number of another, or in another session, is a newcomer, and the earlier process has left. An
// arrival counts once for each world that the process was given, and only if the process comes from
// that world. Any other arrival is late or a repetition and is ignored: the world that answers it
// was sent already.
//
// # A world outlives its streams
//
// Members exchange gradients with each other, not with the master. So a world continues while the
// master is away, or while the stream of a member is broken:
//
//   - The end of a stream does not end a membership. A worker whose stream has ended keeps its
//     world, and opens another stream as soon as it can. Its first message there is an arrival if
//     it is between two rounds; otherwise it names the generation in which it works.
//   - The master reports the end of a stream by [Rendezvous.Disconnected], and a member that works
//     and has a stream again by [Rendezvous.Present]. In between the member counts as present. No
//     order to it is lost: Present returns what it missed. After Absence the member has left. The
//     end of its pod or of its heartbeats shows this sooner, and so does a broken link: the worker
//     at the other end arrives and names the member as its suspect. A suspect whose stream has
//     ended since this master started is not waited for.
//   - If a snapshot could not be written for some time, members may be in a later world than that
//     of the snapshot. Then the master sets Snapshot.Given, so that generation numbers are skipped.
//     A process that reports an unknown generation is called back from it.
//   - A [Snapshot] is written before a new world is sent. So no member is in a later world than
//     that of the last snapshot. [Restore] treats the members of that world as if their streams had
//     just ended: they keep it, and no generation number is given out twice.
//   - Processes that wait for a world, newcomers and members that are back, are not in the
//     snapshot: they arrive again, on new streams. The round of the state that a member brought as
//     a newcomer is in it, so that this state is not taken for that of the others.
//   - A process that is between two rounds when its stream ends has strayed. The others continue
//     without it, unless it alone has the state. Strays are not in the snapshot.
//   - The master numbers the sessions, from its incarnation · 2³² on, so that they rise over
//     restarts. It also keeps which process the session of each member belongs to.
//   - Arrivals, and the heartbeats of members, report which records are in the state. The custody
//     of a ring is restored from the world. It is safe again as soon as the heartbeat of a member
//     names the generation of that world.
//
// # Narrated scripts
//
// testdata/*.txt tell what happens, as commands and the actions that the rendezvous returns:
// a_worker_is_lost.txt, a_worker_joins.txt, a_worker_departs.txt, a_link_breaks.txt, the_end.txt,
// master_restarts.txt and others. TestNarration runs them, and rewrites them with -rewrite.
//
// Laws:
//
//  1. The ID of the world changes exactly when its members do. Its generation rises each time a
//     world is formed.
//  2. Survivors keep their order and precede newcomers, so rank 0 is a survivor if there is one. A
//     survivor that takes no part in the rounds of its world comes behind the others, and stays
//     there when it takes part again: the process that it brings is new.
//  3. A world has Min to Max members. Each of them has arrived since its last world, and none of
//     them has left. Survivors come first, then newcomers in the order of their arrival. A newcomer
//     for which there is no room waits until there is.
//  4. Sources are the survivors that have the newest state among the survivors: that of the latest
//     beginning, and of those the one with the most rounds. The state that a newcomer brings is
//     ignored, also after it has become a survivor, until it has taken another: its state may come
//     from other rounds. Behind are the other survivors that have a state: if all sources are lost
//     before the others have theirs, one of these becomes the model. If there was a world before
//     and no member has the state, StateLost precedes Form.
//  5. Recall and Abort are sent to members that have not arrived from that generation, each at most
//     once, and no Recall after an Abort. So every missing member has been called. When a member
//     breaks off, the missing members are called at once, even if they are finishing a round
//     because another joins or departs: in that round they would wait for the member that broke
//     off.
//  6. Joins wait for each other, but at most for Settle, however many newcomers follow. Departures
//     do not wait, except by law 15.
//  7. A process that has left is not waited for. After all others are back, a suspect is waited for
//     at most for Patience, and not at all if its stream has ended, too. A suspect is evicted if
//     its worlds break Attempts times without a round, though there was work to do. So the ring
//     works again without members that cannot be reached. Neither rule removes the last process
//     that has the state. A stray is waited for while no process that is present has the state.
//  8. When nothing more happens and every member that was called is back, the world has all live
//     processes, as far as Max allows, and there is no deadline.
//  9. A member that departs is called back with the others, after a round. A later world has it
//     only to pass on the state, or if too few members would be left without it. It is released
//     once. Until then it does not count against Max.
//  10. The same calls return the same actions.
//  11. A member that works and has no stream stays in its world, for at most Absence. All members
//     that are away for so long leave together. A member that is present again is notified again if
//     it has been called back.
//  12. Laws 1 to 11, 14 and 15 hold over restarts, whatever happens to processes meanwhile. A
//     restored rendezvous to which all processes report where they are has the same world,
//     members, calls, suspicions and guests as the one that was saved. Waits of laws 6 and 15
//     start over.
//  13. The size of a snapshot is proportional to that of the world: 64 KiB for 1,000 members.
//     Restore refuses an impossible snapshot.
//  14. When a member has finished, the others are at their end, too: nobody is called back for a
//     newcomer, or because a member departs, and if it is lost itself, or asked to leave, the
//     others continue. If a member is lost that has not finished, all begin again, those that have
//     finished, too. So they do if it comes back, also after a Recall, which a member that has
//     finished need not follow: nobody waits without end for one that has finished. When all have
//     finished, nothing more is formed. A member that takes no part in the rounds need not finish,
//     and is as little missed as one that has.
//  15. A world in which nobody has a state waits for workers: the first for all that are expected,
//     a later one for as many as the last world had, as far as that many are expected. It is formed
//     at once when they are there, or are expected no more, and Gather after the last member has
//     come back at the latest. A loss costs such a world its work anyway, so that starting twice
//     would cost more than waiting. If a member has the state, nobody waits for a worker that was
//     lost: it joins when it is there.
package rendezvous
