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
	create := func(name, app string, phase core.PodPhase) *core.Pod {
		t.Helper()
		p, err := pods.Create(ctx, &core.Pod{
			ObjectMeta: meta.ObjectMeta{Name: name, Namespace: "n", UID: types.UID(name), Labels: map[string]string{"app": app}},
			Spec:       core.PodSpec{Containers: []core.Container{{Name: name, Image: "i"}}},
			Status:     core.PodStatus{Phase: phase, StartTime: new(meta.Now())},
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
	wantStarted("b") // neither what is not to be played, nor what does not run
	a.Status.Phase = core.PodRunning
	for range 2 { // it is not started again
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
	create("c", "elasticdl", core.PodRunning)
	wantStarted("c")
	watch, err := pods.Watch(ctx, meta.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	result <- Exit(3)
	result <- nil
	phases := make(map[core.PodPhase]int32)
	for len(phases) < 2 {
		select {
		case e := <-watch.ResultChan():
			for _, c := range e.Object.(*core.Pod).Status.ContainerStatuses {
				phases[e.Object.(*core.Pod).Status.Phase] = c.State.Terminated.ExitCode
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("told: %v", phases)
		}
	}
	if code, ok := phases[core.PodFailed]; !ok || code != 3 {
		t.Errorf("told: %v, want a failure with code 3", phases)
	}
	if code, ok := phases[core.PodSucceeded]; !ok || code != 0 {
		t.Errorf("told: %v, want a success with code 0", phases)
	}
	create("d", "elasticdl", core.PodRunning)
	wantStarted("d")
	cancel()
	<-ended
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
