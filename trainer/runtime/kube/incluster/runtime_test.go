package incluster

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	core "k8s.io/api/core/v1"
	api "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/elasticdl/elasticdl/test/kubetest"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

var (
	ps0     = pod.ID{Role: pod.PS, Index: 0}
	worker0 = pod.ID{Role: pod.Worker, Index: 0}
)

func testRuntime(t *testing.T, s *apiServer) *Runtime {
	t.Helper()
	r := NewRuntime(RuntimeConfig{
		Client: s.client(), Job: kubetest.Job(), Owner: manifest.Owner("elasticdl-test-master",
			"the-job"), Rate: 10_000,
		Log: slog.New(logline.New(t.Output(), slog.LevelDebug)),
	})
	t.Cleanup(r.Close)
	return r
}

func (s *apiServer) create(r *Runtime, id pod.ID, incarnation int) {
	s.Helper()
	if err := r.Create(s.Context(), master.Pod{ID: id, Incarnation: incarnation}); err != nil {
		s.Fatal(err)
	}
}

// expect returns the next event, and checks that it is about the pod, of that incarnation and with
// that phase.
func (s *apiServer) expect(r *Runtime, id pod.ID, incarnation int, phase pod.Phase) pod.Event {
	s.Helper()
	select {
	case e := <-r.Events():
		if e.ID != id || e.Incarnation != incarnation || e.Phase != phase {
			s.Fatalf("%+v, expected %v (incarnation %d) %v", e, id, incarnation, phase)
		}
		return e
	case <-time.After(30 * time.Second):
		s.Fatalf("no event, expected %v (incarnation %d) %v", id, incarnation, phase)
	}
	panic("unreachable")
}

// quiet checks that there are no more events: it creates a pod, whose event must be the next.
func (s *apiServer) quiet(r *Runtime) {
	s.Helper()
	last := pod.ID{Role: pod.Worker, Index: 999}
	s.create(r, last, 1)
	s.expect(r, last, 1, pod.Pending)
}

func TestRuntimeTellsThePodsLives(t *testing.T) {
	s := newAPIServer(t)
	r := testRuntime(t, s)
	s.create(r, worker0, 1)
	s.expect(r, worker0, 1, pod.Pending)
	p := s.get("elasticdl-test-worker-0")
	if o := p.OwnerReferences; len(o) != 1 || o[0].UID != "the-job" || p.Labels[manifest.LabelIncarnation] != "1" {
		t.Errorf("%v is owned by %v, labels %v", p.Name, o, p.Labels)
	}
	s.change(p.Name, runs)
	if e := s.expect(r, worker0, 1, pod.Running); e.Node != "node-1" {
		t.Errorf("it runs on %q", e.Node)
	}
	s.change(p.Name, func(p *core.Pod) { p.Annotations = map[string]string{"what": "ever"} })
	s.change(p.Name, exits(3))
	if e := s.expect(r, worker0, 1, pod.Failed); e.Exit.Code != 3 {
		t.Errorf("it ended with %v", e.Exit)
	}
	s.change(p.Name, nil)
	s.quiet(r)

	if err := r.Delete(t.Context(), worker0); err != nil {
		t.Errorf("delete a deleted pod: %v", err)
	}
	s.create(r, ps0, 1)
	s.expect(r, ps0, 1, pod.Pending)
	if err := r.Delete(t.Context(), ps0); err != nil {
		t.Fatal(err)
	}
	s.expect(r, ps0, 1, pod.Leaving)
	s.change("elasticdl-test-ps-0", nil)
	if e := s.expect(r, ps0, 1, pod.Deleted); e.Exit.String() != "deleted" {
		t.Errorf("it ended: %v", e.Exit)
	}
}

// The event of a pod's end has the reason for which the pod was asked to leave.
func TestRuntimeKeepsTheCause(t *testing.T) {
	s := newAPIServer(t)
	r := testRuntime(t, s)
	for _, gap := range []bool{false, true} {
		s.create(r, worker0, 1)
		s.expect(r, worker0, 1, pod.Pending)
		s.change("elasticdl-test-worker-0", preempted)
		s.expect(r, worker0, 1, pod.Leaving)
		if gap {
			s.away(true)
		}
		s.change("elasticdl-test-worker-0", nil)
		s.compact()
		s.away(false)
		if e := s.expect(r, worker0, 1, pod.Deleted); e.Exit.String() != "preempted: preempting" {
			t.Errorf("gap %v: it ended: %v", gap, e.Exit)
		}
	}
}

// During an outage of the API server no request fails, and afterwards the events of the outage are
// reported.
func TestRuntimeSurvivesAnOutage(t *testing.T) {
	s := newAPIServer(t)
	r := testRuntime(t, s)
	s.create(r, ps0, 1)
	s.expect(r, ps0, 1, pod.Pending)
	s.create(r, worker0, 1)
	s.expect(r, worker0, 1, pod.Pending)
	s.away(true)
	worker1 := pod.ID{Role: pod.Worker, Index: 1}
	asked := make(chan error, 2)
	go func() { asked <- r.Create(t.Context(), master.Pod{ID: worker1, Incarnation: 1}) }()
	go func() { asked <- r.Delete(t.Context(), ps0) }()
	s.change("elasticdl-test-worker-0", nil)
	s.compact()
	again := func() (bool, chan struct{}) { // each request was made again
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.missed["POST"] > 1 && s.missed["DELETE"] > 1 && s.missed["GET"] > 1, s.changed
	}
	for all, changed := again(); !all; all, changed = again() {
		select {
		case err := <-asked:
			t.Fatalf("a request was answered: %v", err)
		case e := <-r.Events():
			t.Fatalf("an event: %+v", e)
		case <-changed:
		}
	}
	s.away(false)
	for range 2 {
		if err := <-asked; err != nil {
			t.Error(err)
		}
	}
	got := make(map[pod.ID]pod.Phase)
	for range 3 {
		e := <-r.Events()
		got[e.ID] = e.Phase
	}
	if got[worker0] != pod.Deleted || got[worker1] != pod.Pending || got[ps0] != pod.Leaving {
		t.Errorf("after the outage: %v", got)
	}
}

// If a server was deleted and another was created under its name while the API server was away,
// both the end and the beginning are reported.
func TestRuntimeDistinguishesIncarnations(t *testing.T) {
	s := newAPIServer(t)
	r := testRuntime(t, s)
	s.create(r, ps0, 1)
	s.expect(r, ps0, 1, pod.Pending)
	s.change("elasticdl-test-ps-0", runs)
	s.expect(r, ps0, 1, pod.Running)
	s.away(true)
	again := s.get("elasticdl-test-ps-0").DeepCopy()
	s.change("elasticdl-test-ps-0", nil)
	again.Labels[manifest.LabelIncarnation] = "2"
	s.put(again)
	s.compact()
	s.away(false)
	s.expect(r, ps0, 1, pod.Deleted)
	s.expect(r, ps0, 2, pod.Running)
	s.quiet(r)
}

// The end of a pod is reported even if the pod was deleted before the watch had seen it.
func TestRuntimeMissesNoPodThatItNeverSaw(t *testing.T) {
	s := newAPIServer(t)
	blind := func(method, path string) error {
		if method == http.MethodGet {
			return api.NewServiceUnavailable("starting")
		}
		return nil
	}
	s.mu.Lock()
	s.refuse = blind
	s.mu.Unlock()
	r := testRuntime(t, s)
	s.create(r, worker0, 1)
	s.change("elasticdl-test-worker-0", nil)
	s.mu.Lock()
	s.refuse = nil
	s.mu.Unlock()
	s.expect(r, worker0, 1, pod.Deleted)
	s.quiet(r)
}

// A list of pods that is older than a pod does not end that pod.
func TestRuntimeDoesNotMissWhatCameLater(t *testing.T) {
	s := newAPIServer(t)
	r := testRuntime(t, s)
	r.Close() // the test acts as the watch
	s.create(r, worker0, 1)
	made := s.get("elasticdl-test-worker-0").ResourceVersion
	m := mirror{r}
	if err := m.Replace(nil, "1"); err != nil {
		t.Fatal(err)
	}
	if r.known[s.get("elasticdl-test-worker-0").UID] == nil {
		t.Error("a list of before the pod was made ends it")
	}
	m.Replace(nil, made)
	if len(r.known) > 0 {
		t.Error("a list without the pod does not end it")
	}
}

// A pod is created once, although the answer to its creation is lost.
func TestRuntimeCreatesOnce(t *testing.T) {
	s := newAPIServer(t)
	r := testRuntime(t, s)
	lost := 2
	s.mu.Lock()
	s.after = func(method, path string) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if lost--; method == http.MethodPost && lost >= 0 {
			return errors.New("lost")
		}
		return nil
	}
	s.mu.Unlock()
	s.create(r, worker0, 1)
	s.expect(r, worker0, 1, pod.Pending)
	s.quiet(r)
	if err := r.Delete(t.Context(), worker0); err != nil {
		t.Fatal(err)
	}
	s.expect(r, worker0, 1, pod.Leaving)
}

// The pod of an earlier incarnation of a server is deleted to free space for the next, which has
// the same name.
func TestRuntimeRemovesTheFormerIncarnation(t *testing.T) {
	for name, gone := range map[string]func(*apiServer, *Runtime){
		"failed": func(s *apiServer, r *Runtime) {
			s.change("elasticdl-test-ps-0", exits(1))
			s.expect(r, ps0, 1, pod.Failed)
		},
		"failed while it was deleted": func(s *apiServer, r *Runtime) {
			s.change("elasticdl-test-ps-0", preempted)
			s.expect(r, ps0, 1, pod.Leaving)
			s.change("elasticdl-test-ps-0", exits(1))
			s.expect(r, ps0, 1, pod.Failed)
			go func() {
				s.await("another is made", func() bool { return s.creates > 2 })
				s.change("elasticdl-test-ps-0", nil)
			}()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer(t)
			r := testRuntime(t, s)
			s.create(r, ps0, 1)
			s.expect(r, ps0, 1, pod.Pending)
			gone(s, r)
			s.create(r, ps0, 2)
			s.expect(r, ps0, 2, pod.Pending)
			s.quiet(r)
		})
	}
}

// The pods of an earlier job of the same name are neither taken over nor deleted.
func TestRuntimeLeavesOthersAlone(t *testing.T) {
	s := newAPIServer(t)
	old, err := manifest.Pod(kubetest.Job(), manifest.PodSpec{ID: worker0, Incarnation: 1},
		manifest.Owner("elasticdl-test-master", "the-job-before"))
	if err != nil {
		t.Fatal(err)
	}
	s.put(old)
	s.change(old.Name, runs)
	r := testRuntime(t, s)
	err = r.Create(t.Context(), master.Pod{ID: worker0, Incarnation: 1})
	if err == nil || !strings.Contains(err.Error(), "not this job's") || errors.Is(err, master.ErrHopeless) {
		t.Errorf("create a pod where another is: %v", err)
	}
	if err := errors.Join(r.Delete(t.Context(), worker0), r.Sweep(t.Context())); err != nil {
		t.Error(err)
	}
	if s.get(old.Name).DeletionTimestamp != nil {
		t.Error("another job's pod was deleted")
	}
	s.change(old.Name, nil)
	s.quiet(r)
}

func TestRuntimeTellsRefusalsFromDelays(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for name, tt := range map[string]struct {
		err     error
		refused string // "": the pod is created in the end
		is      error  // error that matches as well
	}{
		"conflict": {err: api.NewConflict(schema.GroupResource{Resource: "resourcequotas"}, "quota",
			errors.New("modified"))},
		"busy":   {err: api.NewTooManyRequestsError("too many")},
		"away":   {err: api.NewServiceUnavailable("starting")},
		"broken": {err: api.NewInternalError(errors.New("etcd"))},
		"late":   {err: api.NewServerTimeout(pods, "create", 0)},
		"quota": {err: api.NewForbidden(pods, "x", errors.New("exceeded quota: pods=10")),
			refused: "exceeded quota", is: master.ErrFull},
		"no priority": {err: api.NewForbidden(pods, "x", errors.New("no PriorityClass with name "+
			"none was found")), refused: "no PriorityClass", is: master.ErrDenied},
		"limit": {err: api.NewForbidden(pods, "x", errors.New("maximum memory usage per "+
			"Container is 1Gi, but limit is 4Gi")), refused: "maximum memory", is: master.ErrDenied},
		"policy": {err: api.NewForbidden(pods, "x",
			errors.New(`violates PodSecurity "restricted:latest"`)), refused: "PodSecurity", is: master.ErrDenied},
		"small quota": {err: api.NewForbidden(pods, "x", errors.New("exceeded quota: q, requested: "+
			"pods=1, used: pods=0, limited: pods=0")), refused: "exceeded quota", is: master.ErrDenied},
		"invalid": {
			err:     api.NewInvalid(schema.GroupKind{Kind: "Pod"}, "x", nil),
			refused: "is invalid", is: master.ErrHopeless,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer(t)
			r := testRuntime(t, s)
			times := 3
			s.mu.Lock()
			s.refuse = func(method, _ string) error {
				s.mu.Lock()
				defer s.mu.Unlock()
				if method != http.MethodPost || times == 0 {
					return nil
				}
				times--
				return tt.err
			}
			s.mu.Unlock()
			err := r.Create(t.Context(), master.Pod{ID: worker0, Incarnation: 1})
			if tt.refused == "" {
				if err != nil || s.get("elasticdl-test-worker-0") == nil {
					t.Errorf("created: %v, error %v", s.get("elasticdl-test-worker-0") != nil, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.refused) {
				t.Errorf("error %v", err)
			}
			for _, kind := range []error{master.ErrFull, master.ErrHopeless, master.ErrDenied} {
				if errors.Is(err, kind) != (kind == tt.is) {
					t.Errorf("error %v: is %v", err, kind)
				}
			}
		})
	}
}

// A master whose own pod was deleted has an invalid token: Delete returns ErrDisowned.
func TestRuntimeOfDeletedMaster(t *testing.T) {
	s := newAPIServer(t)
	r := testRuntime(t, s)
	s.create(r, worker0, 1)
	refusal := error(api.NewUnauthorized("token"))
	s.mu.Lock()
	s.refuse = func(method, _ string) error {
		if method != http.MethodDelete {
			return nil
		}
		return refusal
	}
	s.mu.Unlock()
	if err := r.Delete(t.Context(), worker0); !errors.Is(err, master.ErrDisowned) {
		t.Errorf("error %v", err)
	}
	refusal = kubetest.Forbidden("delete", "pods")
	if err := r.Delete(t.Context(), worker0); err == nil || errors.Is(err, master.ErrDisowned) {
		t.Errorf("error %v", err)
	}
}

// A request that the API server fails repeatedly, for example because of a broken webhook, returns
// the error.
func TestRuntimeTellsWhatIsBroken(t *testing.T) {
	s := newAPIServer(t)
	r := testRuntime(t, s)
	r.broken = time.Millisecond
	s.mu.Lock()
	s.refuse = func(string, string) error { return api.NewInternalError(errors.New("failed calling webhook")) }
	s.mu.Unlock()
	if err := r.Create(t.Context(), master.Pod{ID: worker0, Incarnation: 1}); err == nil ||
		!strings.Contains(err.Error(), "failed calling webhook") || errors.Is(err, master.ErrHopeless) {
		t.Errorf("%v", err)
	}
}

// A creation whose context has ended is not tried again.
func TestRuntimeStopsCreating(t *testing.T) {
	s := newAPIServer(t)
	r := testRuntime(t, s)
	s.away(true)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Create(ctx, master.Pod{ID: worker0, Incarnation: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// Close returns although events are not read.
func TestRuntimeClosesUnread(t *testing.T) {
	s := newAPIServer(t)
	r := testRuntime(t, s)
	for i := range cap(r.events) + 16 {
		s.create(r, pod.ID{Role: pod.Worker, Index: i}, 1)
	}
	r.Close()
}

// A request that waits long for its turn at the rate limit does not fail for that.
func TestRuntimeHasPatienceWithItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Runtime{config: RuntimeConfig{Log: slog.New(slog.DiscardHandler)},
			rate: flowcontrol.NewTokenBucketRateLimiter(1, 1)}
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if err := r.insist(t.Context(), "wait", func(context.Context) error { return nil }); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	})
}

// Of failed pods only the newest few are kept, for their logs and reasons, so that a node that
// rejects pods does not fill the cluster with them. Rejected pods, which have no logs, are counted
// apart and do not displace crashed pods.
func TestRuntimeSweepsFailedPods(t *testing.T) {
	s := newAPIServer(t)
	r := testRuntime(t, s)
	rejected := func(p *core.Pod) {
		p.Status.Phase, p.Status.Reason, p.Status.Message = core.PodFailed, "OutOfcpu",
			"Pod was rejected: Node didn't have enough resource: cpu"
	}
	const crashes, rejections = 2 * keepFailed, 2 * keepRejected
	for i := range crashes + rejections {
		id := pod.ID{Role: pod.Worker, Index: i}
		s.create(r, id, 1)
		s.expect(r, id, 1, pod.Pending)
		if i < crashes {
			s.change(manifest.PodName("test", id), exits(1))
		} else {
			s.change(manifest.PodName("test", id), rejected)
		}
		if e := s.expect(r, id, 1, pod.Failed); e.Exit.Rejected != (i >= crashes) {
			t.Errorf("%v: %+v", id, e)
		}
	}
	s.create(r, ps0, 1)
	s.expect(r, ps0, 1, pod.Pending)
	s.change("elasticdl-test-ps-0", runs)
	s.expect(r, ps0, 1, pod.Running)
	s.await("only the newest are left", func() bool { return len(s.pods) == 1+keepFailed+keepRejected })
	for i := range crashes + rejections {
		kept := i >= crashes-keepFailed && i < crashes || i >= crashes+rejections-keepRejected
		if there := s.get(manifest.PodName("test", pod.ID{Role: pod.Worker, Index: i})) != nil; there != kept {
			t.Errorf("worker-%d is there: %t", i, there)
		}
	}
	s.quiet(r) // the deletions are not reported
}

func TestRuntimeSweeps(t *testing.T) {
	s := newAPIServer(t)
	before := testRuntime(t, s)
	for i := range 3 {
		s.create(before, pod.ID{Role: pod.Worker, Index: i}, 1)
	}
	s.change("elasticdl-test-worker-1", exits(0))
	if err := testRuntime(t, s).Sweep(t.Context()); err != nil { // by the next master
		t.Fatal(err)
	}
	var left []string
	for _, name := range []string{"elasticdl-test-worker-0", "elasticdl-test-worker-1", "elasticdl-test-worker-2"} {
		if s.get(name).DeletionTimestamp == nil {
			left = append(left, name)
		}
	}
	if !slices.Equal(left, []string{"elasticdl-test-worker-1"}) {
		t.Errorf("left: %v", left)
	}
}

// A pod whose node does not answer is not deleted there. After some time it is deleted by force, as
// of a lost node.
func TestRuntimeTakesPodsFromDeadNodes(t *testing.T) {
	s := newAPIServer(t)
	r := testRuntime(t, s)
	s.create(r, ps0, 1)
	s.expect(r, ps0, 1, pod.Pending)
	s.change("elasticdl-test-ps-0", func(p *core.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(meta.Now()), new(int64(30))
	})
	s.expect(r, ps0, 1, pod.Leaving)
	now := time.Now()
	if pods := r.stuck(now.Add(30 * time.Second)); len(pods) > 0 {
		t.Errorf("a pod that may still be leaving is stuck: %v", pods)
	}
	pods := r.stuck(now.Add(30*time.Second + overdue + time.Second))
	if len(pods) != 1 {
		t.Fatalf("stuck: %v", pods)
	}
	for uid, name := range pods {
		if err := r.remove(t.Context(), name, uid, new(int64(0))); err != nil {
			t.Fatal(err)
		}
	}
	if e := s.expect(r, ps0, 1, pod.Deleted); e.Exit.String() != "node lost" {
		t.Errorf("it ended: %v", e.Exit)
	}
}

// A pod whose image cannot be pulled is hopeless after pullPatience, unless other pods of the job
// have run.
func TestRuntimeGivesUpOnImages(t *testing.T) {
	waiting := func(reason string) func(*core.Pod) {
		return func(p *core.Pod) {
			p.Status.ContainerStatuses = []core.ContainerStatus{
				{State: core.ContainerState{Waiting: &core.ContainerStateWaiting{Reason: reason}}}}
		}
	}
	for _, tt := range []struct {
		name, reason string
		ran          bool
		at, later    bool // hopeless at once, after five minutes
	}{
		{"pulled and pulled", "ErrImagePull", false, false, true},
		{"pulled and pulled, others have it", "ErrImagePull", true, false, false},
		{"never pulled", "ErrImageNeverPull", false, true, true},
		{"never pulled, others have it", "ErrImageNeverPull", true, false, false},
		{"no name", "InvalidImageName", true, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newAPIServer(t)
			r := testRuntime(t, s)
			r.Close() // the test acts as the watch
			seen := func(id pod.ID, how func(*core.Pod)) pod.Event {
				s.create(r, id, 1)
				p := s.get(manifest.PodName("test", id)).DeepCopy()
				how(p)
				return r.seen(p, time.Now())[0]
			}
			if tt.ran {
				seen(ps0, runs)
			}
			if e := seen(worker0, waiting(tt.reason)); e.Hopeless != tt.at || e.Phase != pod.Pending ||
				e.Waiting != tt.reason {
				t.Errorf("at once: %+v", e)
			}
			if e := r.starved(time.Now().Add(pullPatience - time.Minute)); len(e) > 0 {
				t.Errorf("too soon: %+v", e)
			}
			if e := r.starved(time.Now().Add(pullPatience)); len(e) > 0 != (tt.later && !tt.at) {
				t.Errorf("after five minutes: %+v", e)
			}
		})
	}
}
