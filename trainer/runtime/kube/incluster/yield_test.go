package incluster

import (
	"context"
	"errors"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elasticdl/elasticdl/test/kubetest"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// A master whose job has given back its quota ends the pods, and writes until when the job rests.
// The next master removes that.
func TestMasterYields(t *testing.T) {
	c := newNodes(t, nil)
	yields := func(_ context.Context, config master.Config) (*wire.JobStatus, error) {
		err := config.Pods.Create(t.Context(), master.Pod{ID: pod.ID{Role: pod.Worker}, Incarnation: 1})
		if err != nil {
			t.Error(err)
		}
		return &wire.JobStatus{Name: "test", State: string(job.Suspended), EndedUnixMs: 1},
			&master.Yielded{Pause: time.Hour, Reason: "1 of 3 pods has quota"}
	}
	var yielded *master.Yielded
	if err := <-c.beginWith(t.Context(), "master-a", yields); !errors.As(err, &yielded) || !c.swept() {
		t.Errorf("%v, swept: %t", err, c.swept())
	}
	until, err := time.Parse(time.RFC3339, c.state()[manifest.KeyRest])
	if rest := time.Until(until); err != nil || rest < 59*time.Minute || rest > time.Hour {
		t.Errorf("rests for %v, %v", rest, err)
	}
	if s := c.status(); s.State != string(job.Pending) || s.Reason != "1 of 3 pods has quota" || s.EndedUnixMs != 0 {
		t.Errorf("%v", s)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	second := c.beginWith(ctx, "master-b", c.never)
	c.await("the next master has begun", func() bool {
		return c.maps[manifest.StateName("test")].Data[manifest.KeyRest] == ""
	})
	cancel()
	<-second
}

// A launcher starts no master while the job rests, also if it is itself started then, and the next
// one when that is over.
func TestLauncherRests(t *testing.T) {
	y := newYard(t)
	p := y.master()
	until := time.Now().Add(3 * time.Second).Truncate(time.Second).Add(time.Second)
	y.put(&core.ConfigMap{ObjectMeta: meta.ObjectMeta{Name: manifest.StateName("test"), Namespace: "default"},
		Data: map[string]string{manifest.KeyUID: "the-job", manifest.KeyRest: until.Format(time.RFC3339)}})
	y.change(masterPod, exits(1))
	y.leave()
	y.end()
	y.launch()
	y.master(p.UID)
	if early := time.Until(until); early > 0 {
		t.Errorf("the next master begins %v too early", early)
	}
}

// The pods of a job whose master waits for quota for too long are deleted.
func TestLauncherSweeps(t *testing.T) {
	y := newYard(t)
	j := kubetest.Job()
	j.Queue, j.QueueTimeout = "team-a", job.Duration{Duration: time.Second}
	y.describe(j)
	first := y.master()
	worker, err := manifest.Pod(j, manifest.PodSpec{ID: pod.ID{Role: pod.Worker}, Incarnation: 1},
		manifest.Owner(masterPod, "the-job"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := y.client().CoreV1().Pods("default").Create(t.Context(), worker, meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	y.change(masterPod, nil)
	y.await("the next master", func() bool { return y.pods[masterPod] != nil && y.pods[masterPod].UID != first.UID })
	y.change(masterPod, func(p *core.Pod) {
		p.Spec.SchedulingGates = []core.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}}
	})
	y.await("the worker is deleted, and the master is not", func() bool {
		w := y.pods[worker.Name]
		return (w == nil || w.DeletionTimestamp != nil) && y.pods[masterPod].DeletionTimestamp == nil
	})
}
