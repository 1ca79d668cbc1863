package trainingjob

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// Pause waits for some time. It returns early with an error if the context ends.
type Pause func(ctx context.Context, d time.Duration) error

// lookEvery is the interval between two looks at a job that has not started.
const lookEvery = 3 * time.Second

// Standing is the progress of a job that was submitted a moment ago.
type Standing struct {
	// its workers train, or it has ended already
	Started bool
	// why it has failed; "" = it has not
	Failed string
	// why it has not started
	Why string
}

// Stand judges a job by its Job, which has the conditions that the master writes, and by the pod of
// its master; nil = there is none.
func Stand(job, master map[string]any) Standing {
	if job == nil {
		return Standing{Why: "its Job is not there"}
	}
	if failed := condition(job, "Failed"); is(failed, "True") {
		return Standing{Failed: words(failed)}
	}
	running := condition(job, manifest.ConditionPrefix+"Running")
	if is(running, "True") || is(condition(job, "Complete"), "True") {
		return Standing{Started: true}
	}
	if suspended, _, _ := unstructured.NestedBool(job, "spec", "suspend"); suspended {
		return Standing{Why: "it is suspended: by job.suspend, or by a queue that has not admitted it"}
	}
	if admitted := condition(job, manifest.ConditionPrefix+"Admitted"); is(admitted, "False") {
		return Standing{Why: words(admitted)}
	}
	if running != nil {
		return Standing{Why: words(running)}
	}
	if master == nil {
		return Standing{Why: "its master is not created yet"}
	}
	if why := waits(master); why != "" {
		return Standing{Why: "its master waits: " + why}
	}
	return Standing{Why: "its master starts"}
}

// waits returns why a pod does not run; "" if it says nothing.
func waits(pod map[string]any) string {
	statuses, _, _ := unstructured.NestedSlice(pod, "status", "containerStatuses")
	for _, s := range statuses {
		s, _ := s.(map[string]any)
		waiting, _, _ := unstructured.NestedMap(s, "state", "waiting")
		if reason, _ := waiting["reason"].(string); reason != "" && reason != "ContainerCreating" &&
			reason != "PodInitializing" {
			return words(waiting)
		}
	}
	if scheduled := condition(pod, "PodScheduled"); is(scheduled, "False") {
		return words(scheduled)
	}
	return ""
}

// condition returns a condition of an object, or nil.
func condition(object map[string]any, kind string) map[string]any {
	all, _, _ := unstructured.NestedSlice(object, "status", "conditions")
	for _, c := range all {
		if c, ok := c.(map[string]any); ok && c["type"] == kind {
			return c
		}
	}
	return nil
}

func is(condition map[string]any, status string) bool {
	return condition != nil && condition["status"] == status
}

// words returns the reason and message of a condition, on one line.
func words(condition map[string]any) string {
	var parts []string
	for _, key := range []string{"reason", "message"} {
		if text, _ := condition[key].(string); text != "" {
			parts = append(parts, strings.Join(strings.Fields(text), " "))
		}
	}
	return strings.Join(parts, ": ")
}

// starter waits until a job that this update has submitted trains.
type starter struct {
	ctx       *pulumi.Context
	guard     *infra.Guard
	hook      func(name string) string
	most      time.Duration
	pause     Pause
	name      string
	namespace string
	// the update has created its Job
	created atomic.Bool
}

// option returns the option of the Job by which the starter learns that it was created.
func (s *starter) option() (pulumi.ResourceOption, error) {
	hook, err := s.guard.Hook(s.hook("training starts"), func(*pulumi.ResourceHookArgs) error {
		s.created.Store(true)
		return nil
	})
	if hook == nil || err != nil {
		return pulumi.ResourceHooks(nil), err
	}
	return pulumi.ResourceHooks(&pulumi.ResourceHookBinding{AfterCreate: []*pulumi.ResourceHook{hook}}), nil
}

// after returns a text that is resolved when the job trains, or does not in time. It is rejected if
// the job fails, which ends the update.
func (s *starter) after(job pulumi.Resource, text pulumi.StringOutput) pulumi.StringOutput {
	return pulumi.All(job.URN(), text).ApplyT(func(all []any) (string, error) {
		return all[1].(string), s.await()
	}).(pulumi.StringOutput)
}

func (s *starter) await() error {
	if s.ctx.DryRun() || !s.created.Load() {
		return nil
	}
	for waited := time.Duration(0); ; waited += lookEvery {
		began := time.Now()
		standing := s.look()
		// a cluster that does not answer takes its time
		waited += time.Since(began)
		switch {
		case standing.Failed != "":
			return fmt.Errorf("job %[1]s has failed: %[2]s: see `elasticdl logs %[1]s --namespace=%[3]s`",
				s.name, standing.Failed, s.namespace)
		case standing.Started:
			return s.ctx.Log.Info(fmt.Sprintf("job %s: training has started, %v after it was submitted", s.name,
				waited.Round(time.Second)), nil)
		case waited >= s.most:
			return s.ctx.Log.Warn(fmt.Sprintf("job %[1]s has not started to train within %[2]v (wait): %[3]s. It is "+
				"not given up: `elasticdl status %[1]s --namespace=%[4]s` shows the rest", s.name, s.most,
				standing.Why, s.namespace), nil)
		}
		if err := s.pause(s.ctx.Context(), lookEvery); err != nil {
			return err
		}
	}
}

// look returns the present standing. A cluster that does not answer is a reason to wait.
func (s *starter) look() Standing {
	get := func(find func() (*infra.Found, error)) (map[string]any, error) {
		found, err := find()
		if err != nil || found == nil {
			return nil, err
		}
		return found.Object, nil
	}
	name := manifest.MasterName(s.name)
	job, wrong := get(func() (*infra.Found, error) { return s.guard.Find(infra.KindJob, s.namespace, name) })
	master, alsoWrong := get(func() (*infra.Found, error) { return s.guard.Find(infra.KindPod, s.namespace, name) })
	if errors.Is(alsoWrong, infra.ErrForbidden) {
		alsoWrong = nil
	}
	if err := errors.Join(wrong, alsoWrong); err != nil {
		return Standing{Why: err.Error()}
	}
	return Stand(job, master)
}
