package incluster

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/elasticdl/elasticdl/test/kubetest"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

const masterPod = "elasticdl-test-master"

// yard is an API server with a submitted job, whose launcher runs here. The test acts as the
// kubelet of the master.
type yard struct {
	*apiServer
	leave context.CancelFunc
	ended chan error
}

func newYard(t *testing.T) *yard {
	t.Helper()
	y := &yard{apiServer: newAPIServer(t)}
	y.describe(kubetest.Job())
	y.root(func(*batch.Job) {})
	y.launch()
	return y
}

// describe writes the description of the job.
func (y *yard) describe(j *job.Job) {
	y.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		y.Fatal(err)
	}
	y.put(&core.ConfigMap{ObjectMeta: meta.ObjectMeta{Name: "elasticdl-test", Namespace: "default"},
		Data: map[string]string{manifest.KeyJob: string(text), manifest.KeyNumWorkers: "2"}})
}

// root changes the Job, which the launcher reads.
func (y *yard) root(how func(*batch.Job)) {
	y.mu.Lock()
	defer y.mu.Unlock()
	o := y.jobs[masterPod].DeepCopy()
	if o == nil {
		o = &batch.Job{ObjectMeta: meta.ObjectMeta{Name: masterPod, Namespace: "default", UID: "the-job"},
			Spec: batch.JobSpec{BackoffLimit: new(int32(math.MaxInt32))}}
	}
	how(o)
	y.jobs[masterPod] = o
	y.wake()
}

// launch starts a launcher.
func (y *yard) launch() {
	y.Helper()
	l, err := newLauncher(MasterConfig{Job: "test", Namespace: "default", Client: y.client(),
		Output: y.Output(), Environ: []string{job.EnvUID + "=the-job"}})
	if err != nil {
		y.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.run(ctx) }()
	y.leave, y.ended = cancel, ended
	y.Cleanup(func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			y.Error("the launcher does not end")
		}
	})
}

// master waits for a pod of the master other than those with the UIDs, and makes it run.
func (y *yard) master(except ...types.UID) *core.Pod {
	y.Helper()
	var p *core.Pod
	y.await("there is a master", func() bool {
		p = y.pods[masterPod]
		for _, uid := range except {
			if p != nil && p.UID == uid {
				return false
			}
		}
		return p != nil
	})
	y.change(masterPod, func(p *core.Pod) {
		runs(p)
		p.Status.Conditions = []core.PodCondition{{Type: core.PodReady, Status: core.ConditionTrue}}
	})
	return p
}

// end returns how the launcher ends.
func (y *yard) end() error {
	y.Helper()
	select {
	case err := <-y.ended:
		y.ended <- err
		return err
	case <-y.Context().Done():
		y.Fatal("the launcher does not end")
		return nil
	}
}

// A launcher creates the master under its fixed name, again whenever it is lost, and ends with its
// success.
func TestLauncherKeepsAMaster(t *testing.T) {
	y := newYard(t)
	p := y.master()
	if p.Spec.RestartPolicy != core.RestartPolicyNever || p.OwnerReferences[0].UID != "the-job" {
		t.Errorf("%+v", p)
	}
	for i, lose := range []func(){
		func() { y.change(masterPod, exits(1)) },
		func() { y.change(masterPod, exits(137)) },
		func() { y.change(masterPod, nil) }, // deleted at once by somebody
		// a container that admission has added runs on
		func() {
			y.change(masterPod, func(p *core.Pod) {
				exits(137)(p)
				p.Status.Phase = core.PodRunning
			})
			y.await("it is deleted", func() bool {
				return y.pods[masterPod] == nil || y.pods[masterPod].DeletionTimestamp != nil
			})
			y.change(masterPod, nil)
		},
		// evicted: it ends, and its object stays until the launcher deletes it
		func() {
			y.change(masterPod, func(p *core.Pod) { p.Status.Phase, p.Status.Reason = core.PodFailed, "Evicted" })
		},
		func() { // drained
			y.change(masterPod, func(p *core.Pod) {
				p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(meta.Now()), new(int64(30))
			})
			y.change(masterPod, nil)
		},
		// its node does not answer: it would stay for ever
		func() {
			y.change(masterPod, func(p *core.Pod) {
				p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(meta.Now()), new(int64(30))
				p.Status.Conditions = []core.PodCondition{{Type: core.PodReady, Status: core.ConditionFalse},
					{Type: core.DisruptionTarget, Status: core.ConditionTrue, Reason: "DeletionByTaintManager"}}
			})
		},
		func() { // as before, while the API server is away
			y.away(true)
			y.mu.Lock()
			delete(y.pods, masterPod)
			y.mu.Unlock()
			y.compact()
			y.away(false)
		},
	} {
		lose()
		next := y.master(p.UID)
		if next.UID == p.UID {
			t.Errorf("%d: it is the same", i)
		}
		p = next
	}
	y.change(masterPod, exits(0))
	if err := y.end(); err != nil {
		t.Error(err)
	}
	if y.get(masterPod) == nil {
		t.Error("the last master is deleted, with its log")
	}
}

// The end of a launcher leaves the master alone, and the next one continues with it.
func TestLauncherIsReplaced(t *testing.T) {
	y := newYard(t)
	p := y.master()
	y.leave()
	if err := y.end(); err == nil || !strings.Contains(err.Error(), "the job continues") {
		t.Errorf("it ends with %v: success would complete the Job", err)
	}
	y.launch()
	y.change(masterPod, exits(1))
	if next := y.master(p.UID); next.UID == p.UID {
		t.Error("the next launcher does not replace the master")
	}
	if y.creates != 2 {
		t.Errorf("%d masters were created", y.creates)
	}
}

// A launcher whose Job is over ends the master first, with its grace period, and keeps its pod.
func TestLauncherEndsWithItsJob(t *testing.T) {
	for name, tt := range map[string]struct {
		over func(*batch.Job)
		want string
	}{
		"suspended": {func(o *batch.Job) { o.Spec.Suspend = new(true) }, "suspended"},
		"late": {func(o *batch.Job) {
			o.Spec.ActiveDeadlineSeconds = new(int64(1))
			o.Status.StartTime = new(meta.NewTime(time.Now().Add(-time.Hour)))
		}, "--deadline"},
		"deleted": {func(o *batch.Job) { o.UID = "the next of its name" }, "deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			y := newYard(t)
			y.master()
			y.root(tt.over)
			y.leave()
			y.await("the master is asked to leave", func() bool { return y.pods[masterPod].DeletionTimestamp != nil })
			y.change(masterPod, nil)
			if err := y.end(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("it ends with %v, want %s", err, tt.want)
			}
			if y.creates != 1 {
				t.Errorf("%d masters were created", y.creates)
			}
		})
	}
}

// When the master has ended its Job, no other follows, its pod stays, and the launcher ends with
// its reason.
func TestLauncherOfAFailedJob(t *testing.T) {
	y := newYard(t)
	y.master()
	y.root(func(o *batch.Job) { o.Spec.BackoffLimit = new(int32(0)) })
	y.change(masterPod, func(p *core.Pod) {
		exits(1)(p)
		p.Status.ContainerStatuses[0].State.Terminated.Message = "no data"
	})
	if err := y.end(); err == nil || !strings.Contains(err.Error(), "no data") {
		t.Errorf("it ends with %v", err)
	}
	if y.get(masterPod) == nil || y.creates != 1 {
		t.Errorf("%d masters were created", y.creates)
	}
}

// A launcher waits for permissions that are granted late, and leaves the pod of a former job of the
// name alone.
func TestLauncherWaits(t *testing.T) {
	y := newYard(t)
	p := y.master()
	y.change(masterPod, nil)
	p = y.master(p.UID)
	y.change(masterPod, func(p *core.Pod) { p.OwnerReferences[0].UID = "a former job" })
	y.change(masterPod, exits(1))
	refusals := make(chan struct{}, 100)
	y.mu.Lock()
	y.refuse = func(method, _ string) error {
		if method != "POST" {
			return nil
		}
		refusals <- struct{}{}
		return kubetest.Forbidden("create", "pods")
	}
	if y.creates != 2 {
		t.Errorf("%d masters were created, and the pod of a former job is there", y.creates)
	}
	y.mu.Unlock()
	y.change(masterPod, nil)
	<-refusals
	<-refusals
	y.mu.Lock()
	y.refuse = nil
	y.mu.Unlock()
	if next := y.master(p.UID); next.OwnerReferences[0].UID != "the-job" {
		t.Errorf("%+v", next.OwnerReferences)
	}
}
