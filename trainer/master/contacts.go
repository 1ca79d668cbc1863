package master

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/verdict"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// contact holds a pod's reports of itself.
type contact struct {
	joined bool
	// process of a ring's worker that has arrived; 0: none
	process uint64
	// its last heartbeat, by clock; zero before the first since it joined
	heard time.Time
	// it was asked to leave: it gets no new task
	leaves bool
	// of a worker: why the storage fails for which its leases wait
	waits []string
	// of a worker that runs a program: how far its processes have come
	stage verdict.Stage
	// of a worker that runs a program: why its newest checkpoint could not be written; "": it was
	unsaved string
	// the others continue without it as soon as they can
	departs bool
	// of a server that leaves: the version that a checkpoint must contain before
	leavesAt int64
	// it was deleted or replaced, or is not needed any more: calls of it are answered with an order
	// to leave
	dismiss  bool
	steps    int64
	rejected int64
	loss     float32
	// number of its heartbeats to this master
	heartbeats int64
	// the master before this one knew it
	former bool
	// of a worker: where its time went, as it has measured it; nil: it does not measure that
	spent *wire.Spent

	// of a program's worker: those that it has reported last, as the status has them, and as it has
	// reported them, in the world of a generation
	processes  []*wire.ProcessStatus
	reports    []*wire.ProcessReport
	generation int64
	// where it serves its metrics on this machine; "": nowhere
	metrics string
}

// contacts holds the reports of the pods that have not ended.
type contacts struct {
	clock *clock
	all   map[pod.ID]*contact
	// rejected gradients of workers that have ended
	rejectedBefore int64
	// the last mean loss
	loss float32
}

func newContacts(c *clock) *contacts { return &contacts{clock: c, all: make(map[pod.ID]*contact)} }

// of returns the reports of a pod, and when it was heard last.
func (c *contacts) of(id pod.ID) *contact {
	found := c.all[id]
	if found == nil {
		found = new(contact)
		c.all[id] = found
	}
	return found
}

// get returns the last report of a pod; nil: none.
func (c *contacts) get(id pod.ID) *contact { return c.all[id] }

// heardFrom notes that a pod was heard. From its first heartbeat on its silence is judged, so the
// timer may have to be set earlier.
func (c *contacts) heardFrom(of *contact, now time.Time) {
	if of.heard.IsZero() {
		c.clock.look()
	}
	of.heard = now
}

// forget drops the reports of a pod that has ended.
func (c *contacts) forget(id pod.ID) {
	c.rejectedBefore += c.of(id).rejected
	delete(c.all, id)
}

// rejected returns the number of gradients that servers have rejected.
func (c *contacts) rejected() int64 {
	n := c.rejectedBefore
	for _, of := range c.all {
		n += of.rejected
	}
	return n
}

// meanLoss returns the mean loss of the workers among these pods that have made a step, or the last
// such mean if there are none.
func (c *contacts) meanLoss(pods []pod.Pod) float32 {
	var sum float32
	reporting := 0
	for _, p := range pods {
		if of := c.all[p.ID]; of != nil && of.steps > 0 && !p.Phase.Ended() {
			sum += of.loss
			reporting++
		}
	}
	if reporting > 0 {
		c.loss = sum / float32(reporting)
	}
	return c.loss
}

// problems returns what pods report that is wrong around them, although they continue.
func (c *contacts) problems() (all []string) {
	waiting := make(map[string][]string) // workers, by what they wait for
	for id, of := range c.all {
		for _, why := range of.waits {
			waiting[why] = append(waiting[why], id.String())
		}
		if of.unsaved != "" {
			all = append(all, fmt.Sprintf("a checkpoint cannot be written by the program of %v, "+
				"which continues: %s", id, of.unsaved))
		}
	}
	for _, why := range slices.Sorted(maps.Keys(waiting)) {
		slices.Sort(waiting[why])
		all = append(all, fmt.Sprintf("%s: waited for by %s", why, strings.Join(waiting[why], ", ")))
	}
	return all
}
