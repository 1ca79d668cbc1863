package rendezvous

import "testing"

// The number of processes that have left and are remembered is bounded.
func TestSessionsAreForgotten(t *testing.T) {
	r := New(Policy{})
	for w := range 5 * remembered {
		member := Member{Worker: w, Session: int64(w + 1)}
		r.Arrive(Arrival{Member: member}, start)
		r.Leave(w, member.Session, "killed", start)
		r.Arrive(Arrival{Member: member}, start) // a late arrival
	}
	if arrived, why := r.Waiting(); arrived != 0 || len(r.known) != remembered || len(r.departed) != remembered {
		t.Fatalf("%d have arrived, %s; %d known, %d departed", arrived, why, len(r.known), len(r.departed))
	}
}

// TestThousand runs a rendezvous of 1,000 workers: the first world, a newcomer, the loss of one
// worker, and the loss of all.
func TestThousand(t *testing.T) {
	const n = 1000
	r := New(Policy{})
	formed := func(actions []Action, members int) {
		t.Helper()
		if w, _ := r.World(); len(actions) == 0 || actions[len(actions)-1].Verb != Form || len(w.Members) != members {
			t.Fatalf("%v, with %d members", actions, len(w.Members))
		}
	}
	join := func(w int) []Action {
		return r.Arrive(Arrival{Member: Member{Worker: w, Session: 1}, Position: NoState}, start)
	}
	back := func(round int64) (last []Action) {
		w, _ := r.World()
		for _, m := range w.Members {
			last = append(last, r.Arrive(Arrival{Member: m, Generation: w.Generation, Position: Position{Round: round},
				Broken: true, Suspect: 7}, start)...)
		}
		return last
	}
	var did []Action
	r.Expect(n, start)
	for w := range n {
		did = append(did, join(w)...)
	}
	formed(did, n)
	r.Expect(n+1, start)
	if did := join(n); len(did) != 1 || did[0].Verb != Recall || len(did[0].Members) != n {
		t.Fatalf("%v", did)
	}
	formed(back(1), n+1)
	if did := r.Leave(7, 0, "killed", start); len(did) != 1 || did[0].Verb != Abort || len(did[0].Members) != n {
		t.Fatalf("%v", did)
	}
	formed(back(2), n)
	for w := range n + 1 {
		did = r.Leave(w, 1, "killed", start)
	}
	if arrived, why := r.Waiting(); len(did) > 0 || arrived != 0 || why != "waiting for 1 of at least 1 workers" {
		t.Fatalf("%v; %d have arrived, %s", did, arrived, why)
	}
}
