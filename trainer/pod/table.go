package pod

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Table is the machine. It is not safe for concurrent use: the shell holds a lock round it.
type Table struct {
	policy     Policy
	pods       []*entry // in the order in which they were wanted
	byID       map[ID]*entry
	next       int // worker number
	relaunched int
	failed     []string  // lines of workers that ended by their own fault
	freed      time.Time // when the last worker ended
	err        error
	over       bool
	leaveBy    time.Time // when over: what is still there then is deleted
	swept      bool      // when over: that was done
}

// entry is one pod of the table. A server that is launched again keeps its entry.
type entry struct {
	Pod
	line     *line
	created  bool      // Create was handed out
	due      time.Time // if not: when it will be
	refused  int       // how often it could not be performed,
	since    time.Time // from when on,
	full     bool      // and that the last time it was for want of room
	doomed   string    // why its Delete was handed out
	followed bool      // it is leaving, and its line has another
}

// line is a pod and those that replaced it.
type line struct {
	Past
	unwanted bool // scaled down
}

// New makes an empty table.
func New(p Policy) *Table {
	p.Backoff = cmp.Or(p.Backoff, time.Second)
	return &Table{policy: p, byID: make(map[ID]*entry)}
}

// Start creates the job's servers, and its workers when those are there.
func (t *Table) Start(now time.Time) []Action {
	for i := range t.policy.Servers {
		t.add(ID{PS, i}, i, new(line), now)
	}
	return append(t.Tick(now), t.Scale(t.policy.Workers, now)...)
}

func (t *Table) add(id ID, original int, l *line, due time.Time) {
	e := &entry{Pod: Pod{ID: id, Original: original, Launch: 1, Phase: Initial, OOMs: l.OOMs}, line: l, due: due}
	t.pods = append(t.pods, e)
	t.byID[id] = e
}

// Scale makes the number of worker lines n. More are created as soon as the servers are, in the lowest free slots;
// of more than n the newest are deleted, those that do not run first.
func (t *Table) Scale(n int, now time.Time) []Action {
	if t.over {
		return nil
	}
	var actions []Action
	workers := t.workers()
	slices.SortStableFunc(workers, func(a, b *entry) int { return cmp.Compare(b.Phase, a.Phase) }) // Running first
	for _, e := range workers[min(n, len(workers)):] {
		e.line.unwanted = true
		actions = append(actions, t.remove(e, "scaled down", now)...)
	}
	used := make(map[int]bool)
	for _, e := range workers {
		used[e.Original] = true
	}
	for slot, missing := 0, n-len(workers); missing > 0; slot++ {
		if !used[slot] {
			t.add(ID{Worker, t.next}, slot, new(line), now)
			t.next++
			missing--
		}
	}
	return append(actions, t.Tick(now)...)
}

// workers is those that are wanted and not ended, oldest first.
func (t *Table) workers() []*entry {
	return slices.DeleteFunc(slices.Clone(t.pods), func(e *entry) bool { return !e.wanted() })
}

// Workers is how many workers there are, or will be when they have started.
func (t *Table) Workers() int {
	n := 0
	for _, e := range t.pods {
		if e.wanted() {
			n++
		}
	}
	return n
}

// wanted says that the pod is a worker which the job shall have.
func (e *entry) wanted() bool {
	return e.ID.Role == Worker && !e.line.unwanted && !e.followed && !e.Phase.Ended()
}

// remove ends a pod: one that was never created is gone with that.
func (t *Table) remove(e *entry, reason string, now time.Time) []Action {
	if e.Phase.Ended() {
		return nil
	}
	if !e.created {
		e.Phase, e.Exit, e.Ended = Deleted, Exit{Deleted: true, Reason: reason}, now
		return nil
	}
	e.doomed = reason
	return []Action{{Verb: Delete, ID: e.ID, Launch: e.Launch, Reason: reason}}
}

// Observe takes an event and answers what is to be done about it.
func (t *Table) Observe(ev Event, now time.Time) []Action {
	e := t.byID[ev.ID]
	switch {
	case e == nil && ev.Phase.Ended():
		return nil
	case e == nil:
		return []Action{{Verb: Delete, ID: ev.ID, Launch: ev.Launch, Reason: "not one of the job's pods"}}
	case e.Phase.Ended() && !e.created && ev.Phase < Leaving && ev.ID.Role == Worker: // its creation was given up, and yet performed
		return []Action{{Verb: Delete, ID: ev.ID, Launch: ev.Launch, Reason: "it is not needed any more"}}
	case ev.Launch != 0 && ev.Launch != e.Launch, !slices.Contains(moves[e.Phase], ev.Phase):
		return nil
	}
	asked, unseen := e.Phase == Leaving, e.Phase == Initial
	e.created = true
	e.Phase = ev.Phase
	e.Waiting = ev.Waiting
	e.Address = cmp.Or(ev.Address, e.Address)
	e.Node = cmp.Or(ev.Node, e.Node)
	e.PID = cmp.Or(ev.PID, e.PID)
	switch {
	case e.Phase.Ended():
		return t.ended(e, ev.Exit, asked, now)
	case e.Phase == Leaving:
		return t.leaving(e, ev.Exit, now)
	case e.Phase == Running && e.Started.IsZero():
		e.Started = now
	case e.Phase == Pending && ev.Hopeless && t.err == nil:
		t.err = fmt.Errorf("%v cannot run: %s", e.ID, e.Waiting)
	}
	if unseen {
		return t.made(e, now)
	}
	return nil
}

// made goes on when a pod is created: others may have waited for that.
func (t *Table) made(e *entry, now time.Time) []Action {
	if e.refused > 0 { // there is room, perhaps for the next one too
		if i := slices.IndexFunc(t.pods, func(next *entry) bool { return next.waits() && next.full }); i >= 0 {
			t.pods[i].soon(t.policy)
		}
	}
	return t.Tick(now)
}

// leaving has a worker followed that was asked to go. A server is followed when it is gone: the next one has its name.
func (t *Table) leaving(e *entry, why Exit, now time.Time) []Action {
	e.Exit = why
	e.Exit.Deleted = true
	if t.over || e.followed || !e.wanted() {
		return nil
	}
	e.followed = true
	t.follow(e, e.Created.Add(t.policy.Backoff))
	return t.Tick(now)
}

// follow puts another worker in a worker's place.
func (t *Table) follow(e *entry, due time.Time) {
	t.relaunched++
	t.add(ID{Worker, t.next}, e.Original, e.line, due)
	t.next++
	t.forget()
}

// ended decides what follows the end of a pod, which may have been asked to go.
func (t *Table) ended(e *entry, exit Exit, asked bool, now time.Time) []Action {
	why := e.Exit // if so
	e.Exit, e.Ended = exit, now
	if e.ID.Role == Worker {
		t.freed = now
		for _, server := range t.pods {
			if server.lacksRoom() {
				server.soon(t.policy)
			}
		}
	}
	if asked || e.doomed != "" || e.Phase == Deleted { // it was told to go: how it went is no matter
		if e.Phase == Failed {
			e.Phase = Deleted
		}
		e.Exit.Deleted = true
		e.Exit.Evicted, e.Exit.Preempted = exit.Evicted || why.Evicted, exit.Preempted || why.Preempted
		e.Exit.Reason = cmp.Or(e.Exit.Reason, why.Reason, e.doomed)
	}
	lost := Action{Verb: Lost, ID: e.ID, Launch: e.Launch, Reason: e.Exit.String()}
	if t.over || e.line.unwanted || e.followed {
		if e.Phase == Succeeded {
			lost.Reason = "left"
		}
		return append([]Action{lost}, t.Tick(now)...)
	}
	v := Judge(e.ID.Role, e.Exit, t.policy, e.line.Past)
	lost.Charged, lost.Reason = v.Charged, v.Reason
	due := e.Created.Add(t.policy.Backoff)
	if v.Charged {
		e.line.Charged++
		due = now.Add(t.policy.delay(e.line.Charged, maxBackoff))
	}
	if v.Grow {
		e.line.OOMs++
	}
	if !v.Relaunch {
		t.endLine(e, v)
		return []Action{lost}
	}
	if e.ID.Role == Worker {
		t.follow(e, due)
	} else {
		t.relaunched++
		e.Pod = Pod{ID: e.ID, Original: e.Original, Launch: e.Launch + 1, Phase: Initial, Address: e.Address, OOMs: e.line.OOMs}
		e.created, e.refused, e.full, e.doomed, e.due = false, 0, false, "", due
	}
	return append([]Action{lost}, t.Tick(now)...)
}

// remembered is how many ended workers the table keeps: a job may lose one every few seconds, for weeks.
const remembered = 100

// forget drops the oldest of the workers that have ended, if there are too many.
func (t *Table) forget() {
	gone := func(e *entry) bool { return e.ID.Role == Worker && e.Phase.Ended() }
	excess := -remembered
	for _, e := range t.pods {
		if gone(e) {
			excess++
		}
	}
	if excess <= 0 {
		return
	}
	t.pods = slices.DeleteFunc(t.pods, func(e *entry) bool {
		if excess == 0 || !gone(e) {
			return false
		}
		excess--
		delete(t.byID, e.ID)
		return true
	})
}

// endLine notes that a line has no relaunch left, and fails the job if it cannot go on.
func (t *Table) endLine(e *entry, v Verdict) {
	text := fmt.Sprintf("%v: %s", e.ID, v.Reason)
	if t.policy.Relaunches > 0 {
		text += fmt.Sprintf(" (relaunched %d of %d times)", e.line.Charged-1, t.policy.Relaunches)
	}
	if e.ID.Role == Worker {
		t.failed = append(t.failed, text)
	}
	switch {
	case t.err != nil:
	case v.Fatal:
		t.err = fmt.Errorf("a parameter server is lost: %s", text)
	case t.Workers() < max(1, t.policy.MinWorkers):
		const last = 4
		left := "no worker is left"
		if n := t.Workers(); n > 0 {
			left = fmt.Sprintf("%d of at least %d workers are left", n, t.policy.MinWorkers)
		}
		t.err = fmt.Errorf("%s: %s", left, strings.Join(t.failed[max(0, len(t.failed)-last):], "; "))
	}
}

// refusals is how long the creation of a server may be refused. Without one nothing is done, and the
// workers only hold what others could use.
const refusals = 10 * time.Minute

// Refusal is why a Create could not be performed: no quota, no answer.
type Refusal struct {
	Reason string
	Full   bool // for want of room, so that the end of another pod may help
}

// Refused tells that a Create could not be performed. It is tried again, later each time and without charge: a worker
// without end, a server until that has gone on for ten minutes. A server without room is given a worker's.
func (t *Table) Refused(id ID, launch int, why Refusal, now time.Time) []Action {
	e := t.byID[id]
	if e == nil || e.Launch != launch || e.Phase != Initial || !e.created {
		return nil
	}
	e.created = false
	if t.over || e.line.unwanted {
		t.remove(e, e.doomed, now)
		return t.Tick(now)
	}
	if e.refused == 0 {
		e.since = now
	}
	if e.refused++; why.Full && t.freed.After(e.Created) {
		e.refused = 1 // there may be room since
	}
	e.full, e.doomed = why.Full, ""
	e.Waiting = "cannot be created: " + why.Reason
	e.due = now.Add(t.policy.delay(e.refused, maxRefused))
	if id.Role != PS {
		return nil
	}
	if now.Sub(e.since) >= refusals && t.err == nil {
		t.err = fmt.Errorf("%v could not be created for %v: %s", id, now.Sub(e.since).Round(time.Second), why.Reason)
	}
	return t.makeRoom(now)
}

// makeRoom gives up a worker for each server that lacks room, less those that are going anyway: pending ones before
// running ones, the newest first. One that is only being created holds nothing yet.
func (t *Table) makeRoom(now time.Time) []Action {
	lacking := 0
	for _, e := range t.pods {
		switch {
		case e.lacksRoom() && now.Sub(e.since) >= accounted:
			lacking++
		case e.makesRoom(now):
			lacking--
		}
	}
	workers := slices.DeleteFunc(t.workers(), func(e *entry) bool { return e.Phase == Initial || e.doomed != "" })
	slices.SortStableFunc(workers, func(a, b *entry) int { return cmp.Compare(b.Phase, a.Phase) }) // Running first
	var actions []Action
	for _, e := range workers[max(0, len(workers)-max(0, lacking)):] {
		actions = append(actions, t.remove(e, "a server needs its room", now)...)
	}
	return actions
}

// lacksRoom says that the pod is a server for which there was no room, and that it is to be tried again.
func (e *entry) lacksRoom() bool { return e.ID.Role == PS && e.waits() && e.full }

// accounted is how long it may take until a cluster has noticed that a pod which has ended, such as a server's former
// launch, needs its room no more.
const accounted = 3 * time.Second

// makesRoom says that the pod is a worker that is going, or has just gone.
func (e *entry) makesRoom(now time.Time) bool {
	switch {
	case e.ID.Role != Worker || !e.created:
		return false
	case e.Phase.Ended():
		return now.Sub(e.Ended) < accounted
	}
	return e.doomed != "" || e.Phase == Leaving
}

// soon has a creation that was refused tried again at once, and often.
func (e *entry) soon(p Policy) {
	if at := e.Created.Add(p.Backoff); at.Before(e.due) {
		e.due, e.refused = at, 1
	}
}

// Replace deletes a pod that is there and does not do its work: a straggler, one that is silent.
// When it is gone, it is replaced as any deleted pod is.
func (t *Table) Replace(id ID, reason string, now time.Time) []Action {
	e := t.byID[id]
	if e == nil || !e.created || e.doomed != "" {
		return nil
	}
	return t.remove(e, reason, now)
}

// End tells that the job is over. Workers may leave by themselves for as long as grace lasts; then, or when
// the last of them is gone, what is still there is deleted.
func (t *Table) End(grace time.Duration, now time.Time) []Action {
	if !t.over {
		t.over, t.leaveBy = true, now.Add(grace)
	} else if by := now.Add(grace); by.Before(t.leaveBy) {
		t.leaveBy = by
	}
	for _, e := range t.pods {
		if !e.created {
			t.remove(e, "the job is over", now)
		}
	}
	return t.Tick(now)
}

// Tick answers what is due: creations that were put off, and after End the deletions.
func (t *Table) Tick(now time.Time) []Action {
	var actions []Action
	server := t.awaited()
	for _, e := range t.pods {
		switch {
		case !e.waits():
		case e.ID.Role == Worker && server != nil:
			e.Waiting = fmt.Sprintf("waits for %v", server.ID)
		case !now.Before(e.due):
			e.created, e.Created = true, now
			actions = append(actions, Action{Verb: Create, ID: e.ID, Launch: e.Launch, Original: e.Original, Address: e.Address, OOMs: e.OOMs})
		}
	}
	if t.over && !t.swept && (!now.Before(t.leaveBy) || !t.live(Worker)) {
		t.swept = true
		for _, e := range t.pods {
			if e.doomed == "" {
				actions = append(actions, t.remove(e, "the job is over", now)...)
			}
		}
	}
	return actions
}

// awaited is a server that is yet to be created, nil if none is. Until then no worker is: it could take the server's room.
func (t *Table) awaited() *entry {
	if i := slices.IndexFunc(t.pods, func(e *entry) bool { return e.ID.Role == PS && e.Phase == Initial }); i >= 0 {
		return t.pods[i]
	}
	return nil
}

// waits says that the pod is yet to be created.
func (e *entry) waits() bool { return e.Phase == Initial && !e.created }

// live says that a pod of the role is, or may be, there.
func (t *Table) live(r Role) bool {
	return slices.ContainsFunc(t.pods, func(e *entry) bool { return e.ID.Role == r && !e.Phase.Ended() })
}

// Deadline is when Tick has something to do next, if nothing happens before.
func (t *Table) Deadline() (time.Time, bool) {
	var first time.Time
	held := t.awaited() != nil
	for _, e := range t.pods {
		if e.waits() && (first.IsZero() || e.due.Before(first)) && !(held && e.ID.Role == Worker) {
			first = e.due
		}
	}
	if t.over && !t.swept && (first.IsZero() || t.leaveBy.Before(first)) {
		first = t.leaveBy
	}
	return first, !first.IsZero()
}

// Gone says that the job is over and no pod of it is left.
func (t *Table) Gone() bool { return t.over && !t.live(Worker) && !t.live(PS) }

// Err is why the job cannot go on, naming the pods and how they ended; nil while it can.
func (t *Table) Err() error { return t.err }

// Get is one pod.
func (t *Table) Get(id ID) (Pod, bool) {
	if e := t.byID[id]; e != nil {
		return e.Pod, true
	}
	return Pod{}, false
}

// List is every pod that there is and the last ones that were, servers first, in the order of their numbers.
func (t *Table) List() []Pod {
	pods := make([]Pod, len(t.pods))
	for i, e := range t.pods {
		pods[i] = e.Pod
	}
	slices.SortStableFunc(pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(a.ID.Role, b.ID.Role), cmp.Compare(a.ID.Index, b.ID.Index))
	})
	return pods
}

// Relaunched is how many pods were put in the place of others.
func (t *Table) Relaunched() int { return t.relaunched }
