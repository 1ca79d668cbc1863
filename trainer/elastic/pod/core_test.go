package pod

import (
	"slices"
	"testing"
	"time"
)

// runs makes a table of a job in a queue, all of whose pods run.
func runs(t *testing.T, p Policy) *Table {
	t.Helper()
	table := New(p)
	perform(table, table.Start(start))
	return table
}

// perform has pods created and run.
func perform(table *Table, actions []Action) {
	for len(actions) > 0 {
		a := actions[0]
		actions = actions[1:]
		if a.Verb == Create {
			actions = append(actions, table.Observe(Event{ID: a.ID, Incarnation: a.Incarnation,
				Phase: Running, Core: a.Core}, start)...)
		}
	}
}

// cores returns the numbers of the workers of the core.
func cores(table *Table) (numbers []int) {
	for _, p := range table.List() {
		if p.Core && !p.Phase.Ended() {
			numbers = append(numbers, p.ID.Index)
		}
	}
	return numbers
}

func deleted(actions []Action) (ids []ID) {
	for _, a := range actions {
		if a.Verb == Delete {
			ids = append(ids, a.ID)
		}
	}
	return ids
}

func TestCoreIsKeptByScale(t *testing.T) {
	table := runs(t, Policy{Workers: 4, Core: 2, Relaunches: 1})
	if got := cores(table); !slices.Equal(got, []int{0, 1}) {
		t.Fatalf("core: workers %v", got)
	}
	// worker 0 is replaced, by the newest
	table.Observe(Event{ID: worker(0), Phase: Deleted}, start)
	perform(table, table.Tick(start.Add(time.Second)))
	if got := cores(table); !slices.Equal(got, []int{1, 4}) {
		t.Fatalf("core: workers %v", got)
	}
	if got := deleted(table.Scale(2, start)); !slices.Equal(got, []ID{worker(2), worker(3)}) {
		t.Errorf("scaled down to the core: %v deleted", got)
	}
}

func TestPromotedAfterLineIsGivenUp(t *testing.T) {
	table := runs(t, Policy{Workers: 3, Core: 2})
	did := table.Observe(Event{ID: worker(0), Phase: Failed, Exit: Exit{Code: 1}}, start)
	if got := deleted(did); !slices.Equal(got, []ID{worker(2)}) {
		t.Fatalf("%v deleted, expected worker-2 to be replaced: %v", got, did)
	}
	perform(table, table.Observe(Event{ID: worker(2), Phase: Deleted}, start.Add(time.Second)))
	if got := cores(table); !slices.Equal(got, []int{1, 3}) {
		t.Errorf("core: workers %v", got)
	}
}

func TestRestoreReplacesNoCore(t *testing.T) {
	p := Policy{Workers: 3, Core: 2}
	table := runs(t, p)
	var observed []Event
	// in an order in which the core is known last
	for _, n := range []int{2, 1, 0} {
		observed = append(observed, Event{ID: worker(n), Incarnation: 1, Phase: Running, Core: n < 2})
	}
	_, actions, err := Restore(p, table.Snapshot(), observed, start)
	if err != nil || len(actions) > 0 {
		t.Errorf("restored: %v, %v", actions, err)
	}
	// and if one of the core is lost, its successor is of the core
	table, actions, err = Restore(p, table.Snapshot(), observed[:2], start)
	if err != nil || len(deleted(actions)) > 0 {
		t.Fatalf("restored without worker-0: %v, %v", actions, err)
	}
	perform(table, table.Tick(start.Add(time.Second)))
	if got := cores(table); !slices.Equal(got, []int{1, 3}) {
		t.Errorf("core: workers %v", got)
	}
}

func TestQuota(t *testing.T) {
	table := New(Policy{Servers: 1, Workers: 4, Core: 2})
	table.Start(start)
	see := func(id ID, core, queued bool) {
		table.Observe(Event{ID: id, Phase: Pending, Core: core, Queued: queued}, start)
	}
	want := func(want Quota) {
		t.Helper()
		if got := table.Quota(); got != want {
			t.Errorf("quota %+v, expected %+v", got, want)
		}
	}
	see(ID{PS, 0}, false, true)
	want(Quota{Core: 4, CoreAdmitted: 1, CoreWaiting: 1})
	see(worker(0), true, true)
	see(worker(1), true, true)
	see(worker(2), false, false)
	see(worker(3), false, true)
	want(Quota{Core: 4, CoreAdmitted: 2, CoreWaiting: 2})
	// the two others do what those of the core would do
	see(worker(3), false, false)
	want(Quota{Core: 4, CoreAdmitted: 3, CoreWaiting: 1})
	see(worker(1), true, false)
	want(Quota{Core: 4, CoreAdmitted: 3, CoreWaiting: 1, Elastic: 1})
	if got := deleted(table.Shed(1, start)); !slices.Equal(got, []ID{worker(3)}) {
		t.Errorf("%v deleted", got)
	}
	want(Quota{Core: 4, CoreAdmitted: 3, CoreWaiting: 1})
	if got := deleted(table.Shed(5, start)); !slices.Equal(got, []ID{worker(2)}) {
		t.Errorf("%v deleted, not workers of the core", got)
	}
}

func TestCoreIsCreatedFirst(t *testing.T) {
	table := New(Policy{Workers: 4, Core: 2, Backoff: time.Second})
	did := table.Start(start)
	if got := created(did); !slices.Equal(got, []ID{worker(0), worker(1)}) {
		t.Fatalf("%v created first", got)
	}
	if _, ok := table.Deadline(); ok {
		t.Error("the others are due before the core is created")
	}
	if did := table.Observe(Event{ID: worker(0), Phase: Pending, Core: true}, start); len(did) > 0 {
		t.Errorf("one of the core is created: %v", did)
	}
	// worker-1 cannot be created now: the next one is of the core in its place
	did = table.Refused(worker(1), 1, Refusal{Reason: "full", Full: true}, start)
	if got := created(did); !slices.Equal(got, []ID{worker(2)}) || !did[0].Core {
		t.Errorf("%v follows a refusal", did)
	}
	did = table.Observe(Event{ID: worker(2), Phase: Running, Core: true}, start)
	if got := created(did); !slices.Equal(got, []ID{worker(3)}) || did[0].Core {
		t.Errorf("%v follows the core", did)
	}
}

func created(actions []Action) (ids []ID) {
	for _, a := range actions {
		if a.Verb == Create {
			ids = append(ids, a.ID)
		}
	}
	return ids
}
