package scale

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// ErrKilled is the cause of a container's cancelled context: its pod is deleted.
var ErrKilled = errors.New("the pod is deleted")

// Exit is the error of a container that ends with an exit code other than 0 and 1.
type Exit int

func (e Exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// hands is the number of pods whose status is written at the same time: the API server of a single
// machine has few processors.
const hands = 50

// killedBy is the exit code of a container that is killed.
const killedBy Exit = 128 + 9

// Kubelet runs the simulated containers of pods, and reports to the cluster how they ended.
type Kubelet struct {
	Client kubernetes.Interface
	Pods   cache.SharedIndexInformer
	// selects the pods to simulate
	Plays func(*core.Pod) bool
	// Main runs the container of a pod. It runs as long as the pod exists, and must end when ctx is
	// done.
	Main func(ctx context.Context, p *core.Pod) error
	Log  *slog.Logger

	// semaphore for patches of pods
	telling chan struct{}

	mu sync.Mutex
	// nil = it has ended or was killed, and its pod still exists
	playing map[types.UID]context.CancelCauseFunc
	wg      sync.WaitGroup
}

// Run simulates pods until ctx is done.
func (k *Kubelet) Run(ctx context.Context) error {
	k.telling = make(chan struct{}, hands)
	k.playing = make(map[types.UID]context.CancelCauseFunc)
	events, err := k.Pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { k.see(ctx, o.(*core.Pod)) },
		UpdateFunc: func(_, o any) { k.see(ctx, o.(*core.Pod)) },
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			k.kill(o.(*core.Pod).UID, true)
		},
	})
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	<-ctx.Done()
	if err := k.Pods.RemoveEventHandler(events); err != nil {
		return fmt.Errorf("watch pods no more: %w", err)
	}
	k.wg.Wait()
	return context.Cause(ctx)
}

// see starts the container of a running pod, unless it has started, and kills that of a pod that is
// being deleted.
func (k *Kubelet) see(ctx context.Context, p *core.Pod) {
	if p.DeletionTimestamp != nil {
		k.kill(p.UID, false)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, seen := k.playing[p.UID]; seen || p.Status.Phase != core.PodRunning || !k.Plays(p) || ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancelCause(ctx)
	k.playing[p.UID] = cancel
	k.wg.Go(func() {
		err := k.Main(ctx, p)
		switch killed := context.Cause(ctx) == ErrKilled; {
		case killed && len(p.Finalizers) > 0:
			// the finalizer means that its end is awaited
			k.ended(context.WithoutCancel(ctx), p, killedBy)
		case ctx.Err() == nil:
			k.ended(ctx, p, err)
		}
		cancel(nil)
	})
}

func (k *Kubelet) kill(uid types.UID, gone bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if cancel := k.playing[uid]; cancel != nil {
		cancel(ErrKilled)
		k.playing[uid] = nil
	}
	if gone {
		delete(k.playing, uid)
	}
}

// ended writes the result of a container to its pod, and retries until that succeeds.
func (k *Kubelet) ended(ctx context.Context, p *core.Pod, err error) {
	phase, reason, code := core.PodSucceeded, "Completed", 0
	if err != nil {
		phase, reason, code = core.PodFailed, "Error", 1
		if exit, ok := errors.AsType[Exit](err); ok {
			code = int(exit)
		}
		k.Log.Warn("Container failed", "pod", p.Name, "error", err)
	}
	terminated := core.ContainerStateTerminated{ExitCode: int32(code), Reason: reason,
		FinishedAt: meta.Now(), StartedAt: *p.Status.StartTime}
	if err != nil {
		terminated.Message = err.Error()
	}
	status := core.PodStatus{Phase: phase,
		Conditions: []core.PodCondition{{Type: core.PodReady, Status: core.ConditionFalse, Reason: "PodCompleted"}}}
	for _, c := range p.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, core.ContainerStatus{
			Name: c.Name, Image: c.Image, State: core.ContainerState{Terminated: &terminated},
		})
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID}, "status": status})
	if err != nil {
		panic(err)
	}
	k.telling <- struct{}{}
	defer func() { <-k.telling }()
	for {
		_, err := k.Client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType,
			patch, meta.PatchOptions{}, "status")
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) ||
			apierrors.IsInvalid(err) || ctx.Err() != nil {
			return
		}
		k.Log.Warn("Tell how a container ended", "pod", p.Name, "error", err)
		if sleep(ctx, time.Second) != nil {
			return
		}
	}
}
