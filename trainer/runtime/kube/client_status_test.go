package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	kubetesting "k8s.io/client-go/testing"

	"github.com/elasticdl/elasticdl/test/kubetest"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

var morning = meta.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))

// podOf returns a pod of the job test, on node-0.
func podOf(id pod.ID, phase core.PodPhase, change func(*core.Pod)) *core.Pod {
	name := manifest.PodName("test", id)
	p := &core.Pod{
		ObjectMeta: meta.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid of " + name),
			Labels: manifest.PodLabels("test", id), CreationTimestamp: morning},
		Spec: core.PodSpec{NodeName: "node-0", Containers: []core.Container{{Name: "sidecar"},
			{Name: id.Role.String()}}},
		Status: core.PodStatus{Phase: phase},
	}
	p.Labels[manifest.LabelIncarnation] = "2"
	if change != nil {
		change(p)
	}
	return p
}

// launcherOf returns a pod of the launcher of the job test.
func launcherOf(phase core.PodPhase, change func(*core.Pod)) *core.Pod {
	return podOf(pod.ID{Role: pod.Master}, phase, func(p *core.Pod) {
		p.Name, p.UID = "elasticdl-test-master-x7k2p", "uid of the launcher"
		p.Labels[manifest.LabelRole] = manifest.RoleLauncher
		delete(p.Labels, manifest.LabelIndex)
		if change != nil {
			change(p)
		}
	})
}

func unschedulable(p *core.Pod) {
	p.Spec.NodeName = ""
	p.Status.Conditions = []core.PodCondition{{Type: core.PodScheduled, Status: core.ConditionFalse,
		Reason: "Unschedulable", Message: "0/2 nodes are available"}}
}

func exited(code int32, reason, message string) func(*core.Pod) {
	return func(p *core.Pod) {
		p.Status.ContainerStatuses = []core.ContainerStatus{{Name: p.Labels[manifest.LabelRole],
			State: core.ContainerState{
				Terminated: &core.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message,
					FinishedAt: meta.NewTime(morning.Add(time.Minute))},
			}}}
	}
}

func conditioned(kind batch.JobConditionType, reason, message string) func(*batch.Job) {
	return func(j *batch.Job) {
		j.Status.Conditions = append(j.Status.Conditions, batch.JobCondition{
			Type: kind, Status: core.ConditionTrue, Reason: reason, Message: message,
			LastTransitionTime: meta.NewTime(morning.Add(time.Hour)),
		})
	}
}

func say(t *testing.T, state *core.ConfigMap, s *wire.JobStatus) {
	t.Helper()
	text, err := protojson.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	state.Data = map[string]string{manifest.KeyStatus: string(text)}
}

func TestStatus(t *testing.T) {
	master := pod.ID{Role: pod.Master}
	training := &wire.JobStatus{State: "Running", RecordsTotal: 100, RecordsPerSecond: 10, Workers: 2,
		StartedUnixMs: morning.UnixMilli()}
	for _, test := range []struct {
		name   string
		change func(*batch.Job)
		pods   []*core.Pod
		said   *wire.JobStatus
		want   string // state and reason
	}{
		{"just made", nil, nil, nil, "Pending: FailedCreate: exceeded quota"},
		{"suspended", func(j *batch.Job) {
			j.Spec.Suspend = new(true)
		}, nil, nil, "Suspended: by --suspend, or by who admits jobs to this cluster"},
		{"suspended while it ran", func(j *batch.Job) { j.Spec.Suspend = new(true) }, nil,
			&wire.JobStatus{State: "Suspended", RecordsTotal: 100, Workers: 2, EndedUnixMs: 1},
			"Suspended: it continues from its newest checkpoint with elasticdl resume test"},
		{"its pods end", func(j *batch.Job) {
			j.Spec.Suspend = new(true)
		}, []*core.Pod{podOf(master, core.PodRunning, nil)}, training,
			"Suspended: its pods are ending, after a checkpoint"},
		{"resumed", nil, []*core.Pod{podOf(master, core.PodRunning, nil)},
			&wire.JobStatus{State: "Suspended", RecordsTotal: 100, Workers: 2, EndedUnixMs: 1}, "Pending"},
		{"resumed, without a pod yet", nil, nil, &wire.JobStatus{State: "Suspended", RecordsTotal: 100,
			Workers: 2, EndedUnixMs: 1}, "Pending: FailedCreate: exceeded quota"},
		{"no room for the master", nil, []*core.Pod{podOf(master, core.PodPending, unschedulable)}, nil,
			"Pending: master: Unschedulable: 0/2 nodes are available"},
		{"no room for the launcher", nil, []*core.Pod{launcherOf(core.PodPending, unschedulable)}, nil,
			"Pending: launcher: Unschedulable: 0/2 nodes are available"},
		{"the launcher begins", nil, []*core.Pod{launcherOf(core.PodRunning, nil)}, nil, "Pending"},
		{"the launcher replaces the master", nil, []*core.Pod{launcherOf(core.PodRunning, nil)}, training,
			"Running, waiting: its master comes back"},
		{"launcher and master are lost for the third time", func(j *batch.Job) { j.Status.Failed = 3 },
			[]*core.Pod{launcherOf(core.PodFailed, exited(137, "Error", ""))}, training,
			"Running, waiting: its launcher was lost 3 times, and is started again at about " +
				morning.Add(time.Minute+40*time.Second).Local().Format(time.TimeOnly) + ": killed (signal 9)"},
		{"the master was evicted", nil, []*core.Pod{launcherOf(core.PodRunning, nil),
			podOf(master, core.PodFailed, func(p *core.Pod) { p.Status.Reason = "Evicted" })}, training,
			"Running, waiting: its master comes back: evicted: Evicted"},
		{"the master's node does not answer", nil, []*core.Pod{launcherOf(core.PodRunning, nil),
			podOf(master, core.PodRunning, func(p *core.Pod) {
				p.DeletionTimestamp, p.Finalizers = &morning, []string{"f"}
			})}, training, "Running, waiting: its master comes back: deleted"},
		{"the master has succeeded, and the launcher not yet", nil, []*core.Pod{launcherOf(core.PodRunning, nil),
			podOf(master, core.PodSucceeded, nil)}, &wire.JobStatus{State: "Succeeded"}, "Succeeded"},
		{"the launcher alone is lost", func(j *batch.Job) { j.Status.Failed = 3 },
			[]*core.Pod{podOf(master, core.PodRunning, nil), launcherOf(core.PodFailed, exited(137, "Error", ""))},
			training, "Running"},
		{"master begins", nil, []*core.Pod{podOf(master, core.PodRunning, nil)}, nil, "Pending"},
		{"training", nil, []*core.Pod{podOf(master, core.PodRunning, nil)}, training, "Running"},
		{"succeeded", conditioned(batch.JobComplete, "", ""),
			[]*core.Pod{podOf(master, core.PodSucceeded, nil)}, &wire.JobStatus{State: "Succeeded"}, "Succeeded"},
		{"failed by its own word", conditioned(batch.JobFailed, "BackoffLimitExceeded",
			"Job has reached the specified backoff limit"),
			[]*core.Pod{podOf(master, core.PodFailed, exited(1, "Error", "bye"))},
			&wire.JobStatus{State: "Failed", Reason: "worker-0 failed"}, "Failed: worker-0 failed"},
		{"failed by its own report, and its pod is deleted",
			conditioned(batch.JobFailed, "BackoffLimitExceeded", "Job has reached the specified backoff limit"),
			nil, &wire.JobStatus{State: "Failed", Reason: "worker-0 failed"}, "Failed: worker-0 failed"},
		{"the master moves", nil, []*core.Pod{podOf(master, core.PodPending, unschedulable)}, training,
			"Running, waiting: master: Unschedulable: 0/2 nodes are available"},
		{"resumed", nil, []*core.Pod{podOf(master, core.PodRunning, nil)},
			&wire.JobStatus{State: "Suspended"}, "Pending"},
		{"master out of memory", conditioned(batch.JobFailed, "BackoffLimitExceeded",
			"Job has reached the specified backoff limit"),
			[]*core.Pod{podOf(master, core.PodFailed, exited(137, "OOMKilled", ""))}, training,
			"Failed: master: out of memory"},
		{"deadline", conditioned(batch.JobFailed, batch.JobReasonDeadlineExceeded,
			"Job was active longer than specified deadline"),
			nil, &wire.JobStatus{State: "Failed", Reason: "terminated"},
			"Failed: it has run for longer than its --deadline"},
		{"master lost", conditioned(batch.JobFailed, "BackoffLimitExceeded",
			"Job has reached the specified backoff limit"), nil, training,
			"Failed: Job has reached the specified backoff limit"},
		{"being deleted", func(j *batch.Job) { j.DeletionTimestamp, j.Finalizers = &morning, []string{"f"} },
			[]*core.Pod{podOf(master, core.PodRunning, func(p *core.Pod) {
				p.DeletionTimestamp, p.Finalizers = &morning, []string{"f"}
			})}, training, "Stopping"},
	} {
		objects, root := submitted(t, nil)
		root.CreationTimestamp = morning
		if test.change != nil {
			test.change(root)
		}
		if test.said != nil {
			say(t, objects[2].(*core.ConfigMap), test.said)
		}
		for _, p := range test.pods {
			objects = append(objects, p)
		}
		objects = append(objects, &core.Event{
			ObjectMeta:     meta.ObjectMeta{Name: "e", Namespace: "default"},
			InvolvedObject: core.ObjectReference{UID: root.UID},
			Type:           core.EventTypeWarning, Reason: "FailedCreate", Message: "exceeded quota",
		}, &core.Event{
			// of an earlier master, so it is not the reason why the Job has no pod
			ObjectMeta:     meta.ObjectMeta{Name: "anew", Namespace: "default"},
			InvolvedObject: core.ObjectReference{UID: root.UID},
			Type:           core.EventTypeWarning, Reason: "TrainingStartedOver", LastTimestamp: morning,
			Source: core.EventSource{Component: "elasticdl-master"},
		})
		c, _ := testClient(objects...)
		s, err := c.Status(t.Context(), "test")
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if s.Waiting != "" {
			s.Reason, s.State = s.Waiting, s.State+", waiting"
		}
		if got := strings.TrimSuffix(s.State+": "+s.Reason, ": "); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
		over := test.change != nil && s.State != "Suspended" && s.State != "Stopping" && root.Status.Failed == 0
		if over != (s.EndedUnixMs > 0) || over && s.RecordsPerSecond > 0 {
			t.Errorf("%s: ended %d, %v records/s", test.name, s.EndedUnixMs, s.RecordsPerSecond)
		}
		if s.Name != "test" || s.Namespace != "default" || s.StartedUnixMs == 0 || !over && s.Workers != 2 {
			t.Errorf("%s: %v", test.name, s)
		}
	}
}

// TestStatusOfPods checks that a status joins what the cluster knows, the pods and their nodes,
// with what the master knows, the pods that it wants and why pods ended.
func TestStatusOfPods(t *testing.T) {
	worker := func(n int) pod.ID { return pod.ID{Role: pod.Worker, Index: n} }
	objects, root := submitted(t, nil)
	objects = append(objects,
		podOf(pod.ID{Role: pod.Master}, core.PodRunning, nil),
		podOf(worker(0), core.PodFailed, exited(1, "Error", "no such file")),
		podOf(worker(1), core.PodRunning, func(p *core.Pod) {
			p.DeletionTimestamp, p.Finalizers = &morning, []string{"f"}
		}),
		podOf(worker(3), core.PodPending, unschedulable),
		podOf(worker(4), core.PodPending, nil), // the master does not know it yet
	)
	say(t, objects[2].(*core.ConfigMap), &wire.JobStatus{State: "Running", Workers: 4, Pods: []*wire.PodStatus{
		{Role: wire.Role_WORKER, Index: 0, State: "Failed",
			Reason: "exit code 1: no such file; counted", Pid: 1, EndedUnixMs: 7},
		{Role: wire.Role_WORKER, Index: 1, State: "Running", Pid: 1, Address: "10.244.0.9:4000"},
		{Role: wire.Role_WORKER, Index: 2, State: "Running", Pid: 1}, // its object was deleted
		{Role: wire.Role_WORKER, Index: 5, State: "Pending", Reason: "exceeded quota"},
	}})
	// the master has not read it yet
	objects[1].(*core.ConfigMap).Data[manifest.KeyNumWorkers] = "5"
	c, _ := testClient(objects...)
	check := func(s *wire.JobStatus, want ...string) {
		t.Helper()
		var got []string
		for _, p := range s.Pods {
			got = append(got, strings.TrimSpace(fmt.Sprintf("%s-%d %s %s %d %s",
				strings.ToLower(p.Role.String()), p.Index, p.State, p.Node, p.Incarnation, p.Reason)))
			if p.Pid != 0 {
				t.Errorf("%v: a process of no machine of ours", p)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	s, err := c.Status(t.Context(), "test")
	if err != nil || s.Workers != 5 {
		t.Fatalf("%v, %v", s, err)
	}
	living := []string{
		"master-0 Running node-0 2",
		"worker-0 Failed node-0 2 exit code 1: no such file; counted",
		"worker-1 Leaving node-0 2",
		"worker-2 Deleted  0",
		"worker-3 Pending  2 Unschedulable: 0/2 nodes are available",
		"worker-4 Pending node-0 2",
		"worker-5 Pending  0 exceeded quota",
	}
	check(s, living...)
	list, err := c.List(t.Context(), false)
	if err != nil || len(list) != 1 || list[0].Workers != 5 {
		t.Fatalf("%v, %v", list, err)
	}
	check(list[0], living...)

	// A job that is over has no pending pods.
	conditioned(batch.JobComplete, "", "")(root)
	c, _ = testClient(root, objects[2])
	if s, err = c.Status(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	check(s, "worker-0 Failed  0 exit code 1: no such file; counted", "worker-1 Deleted  0",
		"worker-2 Deleted  0", "worker-5 Deleted  0")
	_, err = c.Status(t.Context(), "ghost")
	missing, ok := errors.AsType[*Missing](err)
	if !ok || !errors.Is(err, ErrNotFound) || missing.Name != "ghost" {
		t.Fatalf("ghost: %v", err)
	}
	if names, err := missing.Names(t.Context()); err != nil || !slices.Equal(names, []string{"test"}) {
		t.Errorf("the namespace has jobs %v, %v", names, err)
	}
}

func TestList(t *testing.T) {
	var objects []runtime.Object
	for _, name := range []string{"b", "a"} {
		all, _ := submitted(t, func(j *job.Job) { j.Name = name })
		objects = append(objects, all...)
	}
	other, _ := submitted(t, func(j *job.Job) { j.Name, j.Namespace = "a", "other" })
	c, set := testClient(append(objects, other...)...)
	for everywhere, want := range map[bool]string{false: "default/a default/b", true: "default/a other/a default/b"} {
		list, err := c.List(t.Context(), everywhere)
		var got []string
		for _, s := range list {
			got = append(got, s.Namespace+"/"+s.Name)
		}
		if strings.Join(got, " ") != want || err != nil {
			t.Errorf("everywhere %t: %v, %v, want %s", everywhere, got, err, want)
		}
	}
	if n := len(set.Actions()); n != 6 {
		t.Errorf("%d requests for two lists", n)
	}
	if names, err := c.Names(t.Context()); err != nil || !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("names %v, %v", names, err)
	}
}

func TestScale(t *testing.T) {
	scale := func(change func(*batch.Job), n int) (int, *core.ConfigMap, error) {
		objects, root := submitted(t, func(j *job.Job) { j.NumWorkers, j.MinWorkers, j.MaxWorkers = 3, 2, 4 })
		if change != nil {
			change(root)
		}
		c, set := testClient(objects...)
		before, err := c.Scale(t.Context(), "test", n)
		spec, e := set.CoreV1().ConfigMaps("default").Get(t.Context(), "elasticdl-test", meta.GetOptions{})
		if e != nil {
			t.Fatal(e)
		}
		return before, spec, err
	}
	if before, spec, err := scale(nil, 4); before != 3 || err != nil ||
		spec.Data[manifest.KeyNumWorkers] != "4" || spec.Data[manifest.KeyJob] == "" {
		t.Errorf("scaled: %d, %v, %v", before, err, spec.Data)
	}
	for _, test := range []struct {
		change func(*batch.Job)
		n      int
		want   string
	}{
		{nil, 1, "--num_workers=1: fewer than 2, the job's --min_workers"},
		{nil, 5, "--num_workers=5: more than 4, the job's --max_workers"},
		{conditioned(batch.JobComplete, "", ""), 4, "scale job test: it has ended: Succeeded"},
		{conditioned(batch.JobFailed, "", ""), 4, "scale job test: it has ended: Failed"},
		{func(j *batch.Job) {
			j.DeletionTimestamp, j.Finalizers = &morning, []string{"f"}
		}, 4, "scale job test: it is being deleted"},
	} {
		if _, spec, err := scale(test.change, test.n); err == nil || err.Error() != test.want ||
			spec.Data[manifest.KeyNumWorkers] != "3" {
			t.Errorf("%d: %v, %v, want %s", test.n, err, spec.Data[manifest.KeyNumWorkers], test.want)
		}
	}
	c, _ := testClient()
	if _, err := c.Scale(t.Context(), "test", 4); !errors.Is(err, ErrNotFound) {
		t.Errorf("ghost: %v", err)
	}
}

// TestWait checks that Wait returns the end of a job, also if the job is deleted at that moment, or
// the user has no permission to watch it.
func TestWait(t *testing.T) {
	for _, watched := range []bool{true, false} {
		for _, test := range []struct {
			change  func(*batch.Job)
			deleted bool
			want    string
		}{
			{conditioned(batch.JobComplete, "", ""), false, "Succeeded"},
			{conditioned(batch.JobFailed, "", "lost"), false, "Failed"},
			{conditioned(batch.JobComplete, "", ""), true, "Succeeded"},
			{nil, true, "Stopped"},
		} {
			if !watched && test.deleted && test.change != nil {
				// without a watch, the end of a deleted job cannot be known
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				objects, root := submitted(t, nil)
				c, set := testClient(objects...)
				// the watch of the fake cluster does not work in bubbles
				events := watch.NewRaceFreeFake()
				set.PrependWatchReactor("jobs", func(kubetesting.Action) (bool, watch.Interface, error) {
					if !watched {
						return true, nil, kubetest.Forbidden("watch", "jobs")
					}
					return true, events, nil
				})
				began := time.Now()
				go func() {
					time.Sleep(time.Minute)
					jobs := set.BatchV1().Jobs("default")
					if test.change != nil {
						test.change(root)
						jobs.Update(t.Context(), root, meta.UpdateOptions{})
					}
					if test.deleted {
						jobs.Delete(t.Context(), root.Name, meta.DeleteOptions{})
						events.Delete(root)
					} else {
						events.Modify(root)
					}
				}()
				s, err := c.Wait(t.Context(), "test", func() {})
				if took := time.Since(began); err != nil || s.State != test.want ||
					s.EndedUnixMs == 0 || took < time.Minute || took > time.Minute+2*endEvery {
					t.Errorf("watched %t: %v, %v after %v, want %s", watched, s, err, took, test.want)
				}
			})
		}
	}
}

// TestWaitUntilDeleted checks that Wait returns the end of a Job that is being deleted, for example
// by its --ttl.
func TestWaitUntilDeleted(t *testing.T) {
	deleted := func(j *batch.Job) { j.DeletionTimestamp, j.Finalizers = &morning, []string{"foregroundDeletion"} }
	for want, change := range map[string]func(*batch.Job){
		"Succeeded": func(j *batch.Job) { conditioned(batch.JobComplete, "", "")(j); deleted(j) },
		"Failed":    func(j *batch.Job) { conditioned(batch.JobFailed, "", "lost")(j); deleted(j) },
		"Stopped":   deleted,
	} {
		objects, root := submitted(t, nil)
		change(root)
		say(t, objects[2].(*core.ConfigMap), &wire.JobStatus{State: "Succeeded", EndedUnixMs: 1, RecordsDone: 7})
		c, _ := testClient(objects...)
		if s, err := c.Wait(t.Context(), "test", func() {}); err != nil || s.State != want ||
			s.EndedUnixMs == 0 || s.RecordsDone != 7 {
			t.Errorf("%v, %v, want %s", s, err, want)
		}
	}
}

// TestStatusOfAnotherJobOfTheName checks that the status that the master of an earlier Job of the
// same name has stored is ignored.
func TestStatusOfAnotherJobOfTheName(t *testing.T) {
	objects, _ := submitted(t, nil)
	state := objects[2].(*core.ConfigMap)
	say(t, state, &wire.JobStatus{State: "Succeeded", EndedUnixMs: 1})
	state.Data[manifest.KeyUID] = "the-job-before"
	c, _ := testClient(objects...)
	if s, err := c.Status(t.Context(), "test"); err != nil || s.State != "Pending" || s.EndedUnixMs > 0 {
		t.Errorf("%v, %v", s, err)
	}
}

// TestStop checks that Stop returns when all objects of the job are deleted, and itself deletes
// those that the Job does not own.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, owned := range []bool{true, false} {
			objects, root := submitted(t, nil)
			for _, o := range objects[1:] {
				if !owned {
					o.(meta.Object).SetOwnerReferences(nil)
				}
			}
			worker := podOf(pod.ID{Role: pod.Worker}, core.PodRunning, nil)
			c, set := testClient(append(objects, worker)...)
			// as the garbage collector of the cluster does
			go func() {
				time.Sleep(5 * time.Second)
				set.CoreV1().Pods("default").Delete(t.Context(), worker.Name, meta.DeleteOptions{})
				if owned {
					time.Sleep(5 * time.Second)
					for _, o := range objects[1:] {
						kind := map[string]string{"ConfigMap": "configmaps", "Secret": "secrets",
							"Service": "services", "ServiceAccount": "serviceaccounts", "Role": "roles",
							"RoleBinding":         "rolebindings",
							"PodDisruptionBudget": "poddisruptionbudgets", "NetworkPolicy": "networkpolicies"}
						gvk := o.GetObjectKind().GroupVersionKind()
						set.Tracker().Delete(gvk.GroupVersion().WithResource(kind[gvk.Kind]), "default",
							o.(meta.Object).GetName())
					}
				}
			}()
			began, told := time.Now(), []int(nil)
			err := c.Stop(t.Context(), "test", func(pods int) { told = append(told, pods) })
			want := 5 * time.Second
			if owned {
				want = 10 * time.Second
			}
			if took := time.Since(began); err != nil || took < want || took > want+4*deletionEvery ||
				!slices.Equal(told, []int{1}) {
				t.Errorf("owned %t: %v after %v, reported %v", owned, err, took, told)
			}
			var deleted *kubetesting.DeleteActionImpl
			for _, a := range set.Actions() {
				if d, ok := a.(kubetesting.DeleteActionImpl); ok && d.Resource.Resource == "jobs" {
					deleted = &d
				}
			}
			if o := deleted.DeleteOptions; deleted.Name != root.Name ||
				*o.PropagationPolicy != meta.DeletePropagationBackground || *o.Preconditions.UID != root.UID {
				t.Errorf("deleted %+v", deleted)
			}
			if err := c.Stop(t.Context(), "test", nil); !errors.Is(err, ErrNotFound) {
				t.Errorf("again: %v", err)
			}
		}
	})
}

// TestStopSparesTheNext checks that Stop neither waits for nor changes a job of the same name that
// is submitted meanwhile.
func TestStopSparesTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects, root := submitted(t, nil)
		worker := podOf(pod.ID{Role: pod.Worker}, core.PodRunning, nil)
		c, set := testClient(append(objects[:1:1], worker)...)
		added := make(chan struct{})
		go func() {
			defer close(added)
			time.Sleep(5 * time.Second)
			next := root.DeepCopy()
			next.UID = "the-next"
			set.Tracker().Add(next)
			for _, o := range objects[1:] { // as kubectl apply creates them
				o.(meta.Object).SetOwnerReferences(nil)
				set.Tracker().Add(o)
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := c.Stop(ctx, "test", func(int) {}); err != nil {
			t.Error(err)
		}
		<-added
		if spec, err := set.CoreV1().ConfigMaps("default").Get(t.Context(), "elasticdl-test",
			meta.GetOptions{}); err != nil {
			t.Errorf("%v, %v", spec, err)
		}
	})
}

// TestStatusOfProcesses checks that the processes of a pod are those that its own incarnation has
// reported, while it runs.
func TestStatusOfProcesses(t *testing.T) {
	worker := func(n int) pod.ID { return pod.ID{Role: pod.Worker, Index: n} }
	objects, _ := submitted(t, nil)
	objects = append(objects,
		podOf(worker(0), core.PodRunning, nil), podOf(worker(1), core.PodRunning, nil),
		podOf(worker(2), core.PodFailed, exited(1, "Error", "")))
	all := func(output string) []*wire.ProcessStatus { return []*wire.ProcessStatus{{Pid: 7, Output: output}} }
	say(t, objects[2].(*core.ConfigMap), &wire.JobStatus{State: "Running", Pods: []*wire.PodStatus{
		{Role: wire.Role_WORKER, Index: 0, State: "Running", Incarnation: 2, Processes: all("its own")},
		{Role: wire.Role_WORKER, Index: 1, State: "Running", Incarnation: 1,
			Processes: all("of the incarnation before")},
		{Role: wire.Role_WORKER, Index: 2, State: "Running", Incarnation: 2, Processes: all("of a pod that has ended")},
		{Role: wire.Role_WORKER, Index: 3, State: "Running", Incarnation: 2,
			Processes: all("of a pod that was deleted")},
	}})
	c, _ := testClient(objects...)
	s, err := c.Status(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range s.Pods {
		if own := p.Role == wire.Role_WORKER && p.Index == 0; own != (len(p.Processes) == 1) {
			t.Errorf("%v", p)
		}
	}
}
