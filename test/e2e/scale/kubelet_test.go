package scale

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
)

func TestKubelet(t *testing.T) {
	set := fake.NewClientset()
	pods := set.CoreV1().Pods("n")
	factory := informers.NewSharedInformerFactory(set, 0)
	started, ended := make(chan string, 10), make(chan error, 10)
	result := make(chan error)
	k := &Kubelet{
		Client: set, Pods: factory.Core().V1().Pods().Informer(), Log: slog.New(slog.DiscardHandler),
		Plays: func(p *core.Pod) bool { return p.Labels["app"] == "elasticdl" },
		Main: func(ctx context.Context, p *core.Pod) error {
			started <- p.Name
			select {
			case <-ctx.Done():
				ended <- context.Cause(ctx)
				return nil
			case err := <-result:
				return err
			}
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- k.Run(ctx) }()
	factory.Start(ctx.Done())
	cache.WaitForCacheSync(ctx.Done(), k.Pods.HasSynced)
	create := func(name, app string, phase core.PodPhase, finalizers ...string) *core.Pod {
		t.Helper()
		p, err := pods.Create(ctx, &core.Pod{
			ObjectMeta: meta.ObjectMeta{Name: name, Namespace: "n", UID: types.UID(name),
				Labels: map[string]string{"app": app}, Finalizers: finalizers},
			Spec:   core.PodSpec{Containers: []core.Container{{Name: name, Image: "i"}}},
			Status: core.PodStatus{Phase: phase, StartTime: new(meta.Now())},
		}, meta.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	wantStarted := func(name string) {
		t.Helper()
		if got := <-started; got != name {
			t.Fatalf("%s starts, want %s", got, name)
		}
	}
	create("other", "nginx", core.PodRunning)
	a := create("a", "elasticdl", core.PodPending)
	create("b", "elasticdl", core.PodRunning)
	// neither pods that are not selected, nor pods that do not run
	wantStarted("b")
	a.Status.Phase = core.PodRunning
	for range 2 { // a second event does not start it again
		if _, err := pods.UpdateStatus(ctx, a, meta.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	wantStarted("a")
	if err := pods.Delete(ctx, "a", meta.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, ErrKilled) {
		t.Errorf("a deleted pod ends with %v", err)
	}
	result <- nil // the result of b, the only one
	create("c", "elasticdl", core.PodRunning)
	wantStarted("c")
	watch, err := pods.Watch(ctx, meta.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	told := func(name string, phase core.PodPhase, code int32) {
		t.Helper()
		for limit := time.After(10 * time.Second); ; {
			select {
			case e := <-watch.ResultChan():
				p := e.Object.(*core.Pod)
				if p.Name != name || len(p.Status.ContainerStatuses) == 0 {
					continue
				}
				got := p.Status.ContainerStatuses[0].State.Terminated.ExitCode
				if p.Status.Phase != phase || got != code {
					t.Errorf("%s: reported %v with code %d, want %v with %d", name, p.Status.Phase, got, phase, code)
				}
				return
			case <-limit:
				t.Fatalf("it is not reported that %s has ended", name)
			}
		}
	}
	result <- Exit(3)
	told("c", core.PodFailed, 3)
	create("d", "elasticdl", core.PodRunning)
	wantStarted("d")
	result <- nil
	told("d", core.PodSucceeded, 0)
	// The end of a deleted pod that is awaited is reported, too.
	e := create("e", "elasticdl", core.PodRunning, "somebody/waits")
	wantStarted("e")
	e.DeletionTimestamp = new(meta.Now())
	if _, err := pods.Update(ctx, e, meta.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	<-ended
	told("e", core.PodFailed, 137)
	create("f", "elasticdl", core.PodRunning)
	wantStarted("f")
	cancel()
	<-ended
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
