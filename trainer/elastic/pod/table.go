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
	policy Policy
	// in the order in which they were wanted
	pods []*entry
	byID map[ID]*entry
	// worker number
	next int
	// workers, as it was reported last
	desired    int
	relaunched int
	// the roles of which a pod has run
	ran map[Role]bool
	// lines of workers that ended by their own fault
	failed []string
	// when the last worker ended
	freed  time.Time
	err    error
	course course
	// ending: what is still there then is deleted
	leaveBy time.Time
	// nothing more is created
	held bool
}

// course is the progress of the job.
type course int

const (
	going course = iota
	// End was called: workers leave on their own until leaveBy
	ending
	swept // every pod that had not left was deleted
)

// entry is one pod of the table. A server that is launched again keeps its entry.
type entry struct {
	Pod
	line *line
	// in the phases Wanted and Creating; zero in all others
	creation creation
	// the reason of the Delete that was handed out, "" if none was; "" in the phase Wanted and
	// after the end
	order string
}

// line is a pod and those that replaced it.
type line struct {
	Past
	// current is the pod that holds the line's place. A worker that is leaving is current no more
	// when it has a successor, nor is one that is scaled down, whose line has none.
	current *entry
}

// New makes an empty table.
func New(p Policy) *Table {
	p.Backoff = cmp.Or(p.Backoff, time.Second)
	return &Table{policy: p, byID: make(map[ID]*entry), ran: make(map[Role]bool)}
}

// Start creates the job's servers, and its workers when those are there.
func (t *Table) Start(now time.Time) []Action {
	for i := range t.policy.Servers {
		t.add(ID{PS, i}, i, new(line), now)
	}
	return append(t.Tick(now), t.Scale(t.policy.Workers, now)...)
}

// add has a line's next pod, which becomes its current one, created at due.
func (t *Table) add(id ID, original int, l *line, due time.Time) *entry {
	e := &entry{Pod: Pod{ID: id, Original: original, Incarnation: 1, Phase: Wanted, OOMs: l.OOMs}, line: l,
		creation: creation{due: due}}
	l.current = e
	t.pods = append(t.pods, e)
	t.byID[id] = e
	return e
}

// Scale makes the number of worker lines n. More are created as soon as the servers are, in the
// lowest free slots; of more than n the newest are deleted, those that do not run first.
func (t *Table) Scale(n int, now time.Time) []Action {
	if t.course != going {
		return nil
	}
	t.desired = n
	var actions []Action
	workers := t.workers()
	slices.SortStableFunc(workers, keepFirst)
	for _, e := range workers[min(n, len(workers)):] {
		e.line.current = nil
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

// workers returns those that are wanted and not ended, oldest first.
func (t *Table) workers() []*entry {
	return slices.DeleteFunc(slices.Clone(t.pods), func(e *entry) bool { return !e.wanted() })
}

// Workers returns how many workers there are, or will be when they have started.
func (t *Table) Workers() int {
	n := 0
	for _, e := range t.pods {
		if e.wanted() {
			n++
		}
	}
	return n
}

// Asked returns how many workers were asked for. There are fewer if lines of them may fail no more.
func (t *Table) Asked() int { return t.desired }

// wanted reports whether the pod is a worker that the job shall have.
func (e *entry) wanted() bool {
	return e.ID.Role == Worker && e.line.current == e && !e.Phase.Ended()
}

// remove ends a pod. One that is yet to be created is cancelled.
func (t *Table) remove(e *entry, reason string, now time.Time) []Action {
	switch {
	case e.Phase.Ended():
		return nil
	case e.Phase == Wanted:
		e.cancel(reason, now)
		return nil
	}
	e.order = reason
	return []Action{{Verb: Delete, ID: e.ID, Incarnation: e.Incarnation, Reason: reason}}
}

// cancel ends a pod that was never seen.
func (e *entry) cancel(reason string, now time.Time) {
	e.Phase, e.Exit, e.Ended = Cancelled, Exit{Deleted: true, Reason: reason}, now
	e.creation, e.order = creation{}, ""
}

// Observe takes an event and answers what is to be done about it.
func (t *Table) Observe(ev Event, now time.Time) []Action {
	e := t.byID[ev.ID]
	switch {
	case e == nil && ev.Phase.Ended():
		return nil
	case e == nil:
		return []Action{{Verb: Delete, ID: ev.ID, Incarnation: ev.Incarnation, Reason: "not one of the job's pods"}}
	case ev.Incarnation != 0 && ev.Incarnation != e.Incarnation:
		return nil
	case e.Phase == Cancelled && ev.Phase < Leaving: // its creation was performed after all
		return []Action{{Verb: Delete, ID: ev.ID, Incarnation: ev.Incarnation, Reason: "it is not needed any more"}}
	case !slices.Contains(moves[e.Phase], ev.Phase):
		return nil
	}
	before, refused := e.Phase, e.creation.refused > 0
	e.apply(ev)
	switch {
	case e.Phase.Ended():
		return t.ended(e, ev.Exit, before == Leaving, now)
	case e.Phase == Leaving:
		return t.leaving(e, ev.Exit, now)
	case e.Phase == Running:
		t.ran[e.ID.Role] = true
		if e.Started.IsZero() {
			e.Started = now
		}
	case e.Phase == Pending && ev.Hopeless:
		t.impossible(e, "cannot run: "+e.Waiting)
	}
	if before < Pending {
		return t.made(refused, now)
	}
	return nil
}

// apply notes what an event says of a pod.
func (e *entry) apply(ev Event) {
	e.Phase, e.creation = ev.Phase, creation{}
	e.Waiting, e.Queued, e.Image = ev.Waiting, ev.Queued, ev.Image
	e.Core = e.Core || ev.Core
	e.Address = cmp.Or(ev.Address, e.Address)
	e.Node = cmp.Or(ev.Node, e.Node)
	e.PID = cmp.Or(ev.PID, e.PID)
	if e.Started.IsZero() {
		e.Started = ev.Started
	}
}

// impossible fails a job that can never start. A job of which a pod of that role has run continues
// without the one that cannot.
func (t *Table) impossible(e *entry, why string) {
	if t.err == nil && !t.ran[e.ID.Role] {
		t.err = fmt.Errorf("%v %s", e.ID, why)
	}
}

// leaving schedules a successor for a worker that was asked to go. A server's is scheduled when it
// has ended: it has its name.
func (t *Table) leaving(e *entry, why Exit, now time.Time) []Action {
	e.Exit = why
	e.Exit.Deleted = true
	if t.course != going || !e.wanted() {
		return nil
	}
	e.forgive(now)
	t.addReplacement(e, e.Created.Add(t.policy.Backoff))
	return t.Tick(now)
}

// addReplacement adds a worker that replaces e, and is created at due.
func (t *Table) addReplacement(e *entry, due time.Time) *entry {
	t.relaunched++
	next := t.add(ID{Worker, t.next}, e.Original, e.line, due)
	t.next++
	t.forget()
	return next
}

// again makes a server's entry that of its next incarnation.
func (t *Table) again(e *entry, due time.Time) *entry {
	t.relaunched++
	e.Pod = Pod{ID: e.ID, Original: e.Original, Incarnation: e.Incarnation + 1, Phase: Wanted, Address: e.Address,
		OOMs: e.line.OOMs}
	e.creation, e.order = creation{due: due}, ""
	return e
}

// ended decides what follows the end of a pod, which may have been asked to go.
func (t *Table) ended(e *entry, exit Exit, asked bool, now time.Time) []Action {
	e.close(exit, asked, now)
	if e.ID.Role == Worker {
		t.freed = now
		for _, server := range t.pods {
			if server.lacksResources() {
				server.soon(t.policy)
			}
		}
	}
	lost := Action{Verb: Lost, ID: e.ID, Incarnation: e.Incarnation, Reason: e.Exit.String(), Cause: e.Exit.Cause()}
	if t.course != going || e.line.current != e {
		if e.Phase == Succeeded {
			lost.Reason, lost.Cause = causeLeft, causeLeft
		}
		return append([]Action{lost}, t.Tick(now)...)
	}
	v := Judge(e.ID.Role, e.Exit, t.policy, e.line.Past)
	lost.Counted, lost.Rejected, lost.GivenUp, lost.Reason = v.Counted, v.Rejected, !v.Relaunch, v.Reason
	due, waiting := t.settle(e, v, now)
	if !v.Relaunch {
		t.endLine(e, v)
		return append([]Action{lost}, t.Tick(now)...)
	}
	next := t.again
	if e.ID.Role == Worker {
		next = t.addReplacement
	}
	next(e, due).Waiting = waiting
	return append([]Action{lost}, t.Tick(now)...)
}

// close notes how a pod ended. If it was asked to go, how it went is no matter.
func (e *entry) close(exit Exit, asked bool, now time.Time) {
	why, order := e.Exit, e.order
	e.Exit, e.Ended, e.order = exit, now, ""
	if !asked && order == "" && e.Phase != Deleted {
		return
	}
	if e.Phase == Failed {
		e.Phase = Deleted
	}
	e.Exit.Deleted = true
	e.Exit.Evicted, e.Exit.Preempted = exit.Evicted || why.Evicted, exit.Preempted || why.Preempted
	e.Exit.Reason = cmp.Or(e.Exit.Reason, why.Reason, order)
}

// settle books a verdict with the pod's line. It answers when the line's next pod is due, and what
// is to be reported of it until then.
func (t *Table) settle(e *entry, v Verdict, now time.Time) (due time.Time, waiting string) {
	l := e.line
	if v.Grow {
		l.OOMs++
	}
	e.forgive(now)
	switch {
	case v.Counted:
		l.Counted++
		return now.Add(t.policy.delay(l.Counted, maxBackoff)), ""
	case v.Rejected:
		l.Rejected++
		wait := t.policy.delay(l.Rejected, maxRejected)
		return now.Add(wait), fmt.Sprintf("backs off for %v: %v %s", wait, e.ID, v.Reason)
	}
	return e.Created.Add(t.policy.Backoff), ""
}

// forgive forgets the rejections of the line of a pod that has run for a while.
func (e *entry) forgive(now time.Time) {
	if !e.Started.IsZero() && now.Sub(e.Started) >= steady {
		e.line.Rejected = 0
	}
}

// remembered is the number of ended workers that the table keeps: a job may lose one every few
// seconds, for weeks.
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

// endLine notes that a line has no relaunch left, and fails the job if it cannot continue.
func (t *Table) endLine(e *entry, v Verdict) {
	e.GivenUp = true
	text := fmt.Sprintf("%v: %s", e.ID, v.Reason)
	if t.policy.Relaunches > 0 {
		text += fmt.Sprintf(" (relaunched %d of %d times)", e.line.Counted-1, t.policy.Relaunches)
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

// Replace deletes a pod that is there and does not do its work: a straggler, one that is silent.
// When it has ended, it is replaced like any deleted pod.
func (t *Table) Replace(id ID, reason string, now time.Time) []Action {
	e := t.byID[id]
	if e == nil || e.Phase == Wanted || e.order != "" {
		return nil
	}
	return t.remove(e, reason, now)
}

// Hold notes that the job is about to end: no pod is created any more, in the place of none.
func (t *Table) Hold() { t.held = true }

// End notes that the job is over. Workers may leave on their own for as long as grace lasts; then,
// or when the last of them has ended, the remaining pods are deleted.
func (t *Table) End(grace time.Duration, now time.Time) []Action {
	if by := now.Add(grace); t.course == going || by.Before(t.leaveBy) {
		t.course, t.leaveBy = max(t.course, ending), by
	}
	for _, e := range t.pods {
		if e.Phase == Wanted {
			e.cancel("the job is over", now)
		}
	}
	return t.Tick(now)
}

// Tick returns what is due: creations that were put off, and after End the deletions.
func (t *Table) Tick(now time.Time) []Action {
	var actions []Action
	server := t.awaited()
	for _, e := range t.pods {
		switch {
		case e.Phase != Wanted:
		case t.held:
			e.Waiting = "the job is to stop"
		case e.creation.refused > 0 && now.Before(e.creation.due): // it waits for what refused it
		case e.ID.Role == Worker && server != nil:
			e.Waiting = fmt.Sprintf("waits for %v", server.ID)
		case e.ID.Role == Worker && t.coreComesFirst():
			e.Waiting = "waits until the workers of the core are created"
		case !now.Before(e.creation.due):
			e.Phase, e.Created = Creating, now
			e.Core = e.ID.Role == Worker && t.core() < t.policy.Core
			actions = append(actions, Action{Verb: Create, ID: e.ID, Incarnation: e.Incarnation,
				Original: e.Original, Core: e.Core, Address: e.Address, OOMs: e.OOMs})
		}
	}
	actions = append(actions, t.promote(now)...)
	if t.course == ending && (!now.Before(t.leaveBy) || !t.live(Worker)) {
		t.course = swept
		for _, e := range t.pods {
			if e.order == "" {
				actions = append(actions, t.remove(e, "the job is over", now)...)
			}
		}
	}
	return actions
}

// awaited returns a server that is yet to be created, nil if none is. Until then no worker is: it
// could take the server's room.
func (t *Table) awaited() *entry {
	if i := slices.IndexFunc(t.pods, func(e *entry) bool { return e.ID.Role == PS && e.Phase < Pending }); i >= 0 {
		return t.pods[i]
	}
	return nil
}

// live reports whether a pod of the role is, or may be, there.
func (t *Table) live(r Role) bool {
	return slices.ContainsFunc(t.pods, func(e *entry) bool { return e.ID.Role == r && !e.Phase.Ended() })
}

// Deadline returns when Tick has something to do next, if nothing happens before.
func (t *Table) Deadline() (time.Time, bool) {
	var first time.Time
	held := t.awaited() != nil || t.coreComesFirst()
	for _, e := range t.pods {
		if e.Phase == Wanted && !t.held && (first.IsZero() || e.creation.due.Before(first)) &&
			!(held && e.ID.Role == Worker) {
			first = e.creation.due
		}
	}
	if t.course == ending && (first.IsZero() || t.leaveBy.Before(first)) {
		first = t.leaveBy
	}
	return first, !first.IsZero()
}

// Ended reports whether the job is over and no pod of it is left.
func (t *Table) Ended() bool { return t.course != going && !t.live(Worker) && !t.live(PS) }

// Err returns why the job cannot continue, naming the pods and how they ended; nil while it can.
func (t *Table) Err() error { return t.err }

// Get returns one pod, false if the table does not know it.
func (t *Table) Get(id ID) (Pod, bool) {
	if e := t.byID[id]; e != nil {
		return e.Pod, true
	}
	return Pod{}, false
}

// List returns every pod that there is and the last ones that were, servers first, in the order of
// their numbers.
func (t *Table) List() []Pod {
	pods := make([]Pod, len(t.pods))
	for i, e := range t.pods {
		pods[i] = e.Pod
	}
	slices.SortStableFunc(pods, func(a, b Pod) int {
		return a.ID.Compare(b.ID)
	})
	return pods
}

// Relaunched returns how many pods were put in the place of others.
func (t *Table) Relaunched() int { return t.relaunched }
