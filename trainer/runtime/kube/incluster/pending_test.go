package incluster

import (
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// A pod that fits no node of the cluster is hopeless after --pending_timeout, and not before; one
// that waits for room never is.
func TestRuntimeGivesUpOnNodes(t *testing.T) {
	const (
		selector = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector. " +
			"preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
		large = "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are " +
			"available: 2 Preemption is not helpful for scheduling."
		full = "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are " +
			"available: 2 No preemption victims found for incoming pod."
	)
	for name, c := range map[string]struct {
		message string
		limit   *job.Duration
		after   time.Duration // 0: never
	}{
		"selector":           {selector, nil, time.Hour},
		"too large":          {large, nil, time.Hour},
		"too large, soon":    {large, &job.Duration{Duration: time.Minute}, time.Minute},
		"too large, forever": {large, new(job.Duration), 0},
		"full":               {full, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer(t)
			r := testRuntime(t, s)
			r.Close() // the test acts as the watch
			r.config.Job.PendingTimeout = c.limit
			s.create(r, worker0, 1)
			p := s.get(manifest.PodName("test", worker0)).DeepCopy()
			p.Status.Conditions = []core.PodCondition{
				{Type: core.PodScheduled, Status: core.ConditionFalse,
					Reason: core.PodReasonUnschedulable, Message: c.message}}
			now := time.Now()
			r.seen(p, now)
			r.seen(p, now.Add(time.Second)) // again: the time counts from the first
			if c.after == 0 {
				if e := r.starved(now.Add(1000 * time.Hour)); len(e) > 0 {
					t.Errorf("%+v", e)
				}
				return
			}
			if e := r.starved(now.Add(c.after - time.Second)); len(e) > 0 {
				t.Errorf("too soon: %+v", e)
			}
			e := r.starved(now.Add(c.after))
			if len(e) != 1 || !e[0].Hopeless ||
				!strings.Contains(e[0].Waiting, "no node can run it for "+c.after.String()+
					" (--pending_timeout): Unschedulable: 0/2 nodes") {
				t.Fatalf("%+v", e)
			}
			if e := r.starved(now.Add(2 * c.after)); len(e) > 0 {
				t.Errorf("again: %+v", e)
			}
		})
	}
}

// A pod that fits a node again, as after a node was added, counts from the beginning.
func TestRuntimeWaitsForANewNode(t *testing.T) {
	s := newAPIServer(t)
	r := testRuntime(t, s)
	r.Close()
	s.create(r, worker0, 1)
	p := s.get(manifest.PodName("test", worker0)).DeepCopy()
	now := time.Now()
	says := func(message string) {
		p = p.DeepCopy()
		p.Status.Conditions = []core.PodCondition{{Type: core.PodScheduled, Status: core.ConditionFalse,
			Reason: core.PodReasonUnschedulable, Message: message}}
		r.seen(p, now)
	}
	const unfit = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are " +
		"available: 1 Preemption is not helpful for scheduling."
	says(unfit)
	now = now.Add(59 * time.Minute)
	says("0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 1 No " +
		"preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling.")
	says(unfit)
	if e := r.starved(now.Add(time.Minute)); len(e) > 0 {
		t.Errorf("%+v", e)
	}
}

// A pod that avoids nodes by name may fit one of these, so the time does not count.
func TestAvoidedNodesAreNodes(t *testing.T) {
	s := newAPIServer(t)
	r := testRuntime(t, s)
	r.Close()
	s.create(r, worker0, 1)
	p := s.get(manifest.PodName("test", worker0)).DeepCopy()
	manifest.Avoid(p, []string{"node-1"})
	p.Status.Conditions = []core.PodCondition{{Type: core.PodScheduled, Status: core.ConditionFalse,
		Reason: core.PodReasonUnschedulable, Message: "0/1 nodes are available: 1 node(s) didn't satisfy plugin(s) " +
			"[NodeAffinity]. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."}}
	now := time.Now()
	r.seen(p, now)
	if e := r.starved(now.Add(2 * time.Hour)); len(e) > 0 {
		t.Errorf("%+v", e)
	}
}
