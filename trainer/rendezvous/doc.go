// Package rendezvous decides which workers form the ring, with which ranks, and whose state they take.
//
// A [Rendezvous] is told who arrives and who is gone, and answers with [Action]s, which the master's shell
// performs outside its lock. Nobody polls it, and it waits for nobody but by a [Rendezvous.Deadline]:
//
//	           all expected are here, or Settle is over         a newcomer, one departs: Recall
//	           since there were Min                             one left, or came by itself: Abort
//	gathering ────────────────────────────────────────> working ────────────────────────────────> changing
//	    ^                      Form                        ^                                         │
//	    │                                                  │   all that are left are back: Form      │
//	    │                                                  └─────────────────────────────────────────┤
//	    └────────────────────────── none is left: Anew with the next Form ───────────────────────────┘
//
// A process is the member, not its number or its address: one that is started again under the number of
// another, or whose stream was renewed, is a newcomer, and the one before has left. What a process says is
// heard once for each world that it was given, and only if it comes from that one: a message from before
// is late or told twice, and the world that answers it is on its way already.
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
//     after an Abort. So whoever is missing has been told.
//  6. Joins wait for one another, Settle at most, whoever trickles in. Departures wait for nobody.
//  7. Nobody is waited for who is gone, and a suspect not longer than Patience after all the others. One whose
//     worlds break Attempts times without a round is evicted. So the ring comes to work without those that
//     cannot be reached, but neither costs the last one that has the state.
//  8. When nothing more happens and whoever was called is back, the world has all processes that live, as far as
//     Max allows, and there is no deadline.
//  9. One that departs is called back with the others, after a round. It is in no world after that one but to pass the
//     state on, or if too few are left without it, and is released once. As long as it is there Max does not count it.
//  10. Same calls, same actions.
package rendezvous
