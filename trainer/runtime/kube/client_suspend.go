package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/elasticdl/elasticdl/trainer/elastic/curve"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/observe"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
)

// Suspend suspends a job until it is resumed, and returns when its pods have ended. Its master
// makes a checkpoint before. It calls progress with the number of remaining pods whenever that
// changes.
func (c *Client) Suspend(ctx context.Context, name string, progress func(pods int)) error {
	root, err := c.alive(ctx, "suspend", name, "")
	switch {
	case err != nil:
		return err
	case outcomeOf(root) != "":
		return fmt.Errorf("suspend job %s: it has ended: %s", name, outcomeOf(root))
	case !observe.Suspended(root):
		if err := c.setSuspend(ctx, name, true); err != nil {
			return err
		}
	}
	for told := 1 << 30; ; {
		pods, err := c.pods(ctx, name)
		if err != nil {
			return err
		}
		left := 0
		for i := range pods {
			if !observe.Pod(&pods[i]).Phase.Ended() {
				left++
			}
		}
		c.dropPending(ctx, &objects{name: name, pods: pods})
		if left == 0 {
			return nil
		}
		if left < told {
			told = left
			progress(left)
		}
		if err := pause(ctx, deletionEvery); err != nil {
			return err
		}
	}
}

// dropPending deletes the pod of a suspended job's master that never started, if no launcher is
// there to do it.
func (c *Client) dropPending(ctx context.Context, o *objects) {
	m := o.master()
	if m == nil || m.Status.Phase != core.PodPending || m.DeletionTimestamp != nil || o.launcher() != nil {
		return
	}
	err := c.set.CoreV1().Pods(c.namespace).Delete(ctx, m.Name,
		meta.DeleteOptions{Preconditions: &meta.Preconditions{UID: &m.UID}})
	if err != nil {
		c.note("pod %s waits for room, and could not be deleted: %v", m.Name, err)
	}
}

// Resume resumes a suspended job. For a job that has ended without success it creates a new Job of
// the same spec, which continues from the newest checkpoint. The error says why a job cannot be
// resumed: its queue holds it, or [ErrNotFound], [job.ErrRunning], [job.ErrSucceeded],
// [job.ErrNoCheckpoints].
func (c *Client) Resume(ctx context.Context, name string) error {
	root, err := c.alive(ctx, "resume", name,
		"; its checkpoints are there: start a job with --checkpoint_dir_for_init")
	switch {
	case err != nil:
		return err
	case outcomeOf(root) != "":
		return c.again(ctx, name, root)
	}
	o := &objects{name: name, job: root}
	if o.pods, err = c.pods(ctx, name); err != nil {
		return err
	}
	if o.state, err = c.configMap(ctx, manifest.StateName(name)); err != nil {
		return err
	}
	switch held := c.held(ctx, o); {
	case held != nil:
		return held
	case !observe.Suspended(root):
		return fmt.Errorf("job %s %w", name, job.ErrRunning)
	}
	return c.setSuspend(ctx, name, false)
}

// alive returns the Job of a job that exists and is not being deleted. An error about the latter
// ends with instead.
func (c *Client) alive(ctx context.Context, doing, name, instead string) (*batch.Job, error) {
	root, err := c.job(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case root == nil:
		return nil, c.notFound(name)
	case root.DeletionTimestamp != nil:
		return nil, fmt.Errorf("%s job %s: it is being deleted%s", doing, name, instead)
	}
	return root, nil
}

// outcomeOf returns the state in which a Job has ended, or is about to; "" if it has not.
func outcomeOf(root *batch.Job) job.State {
	switch {
	case observe.JobCondition(root, batch.JobComplete) != nil ||
		observe.JobCondition(root, batch.JobSuccessCriteriaMet) != nil:
		return job.Succeeded
	case observe.Failure(root) != nil:
		return job.Failed
	}
	return ""
}

func (c *Client) setSuspend(ctx context.Context, name string, suspend bool) error {
	doing := map[bool]string{true: "suspend job ", false: "start job "}[suspend] + name
	_, err := ask(ctx, c, doing, func(ctx context.Context) (*batch.Job, error) {
		patch := fmt.Appendf(nil, `{"spec":{"suspend":%t}}`, suspend)
		return c.set.BatchV1().Jobs(c.namespace).Patch(ctx, manifest.MasterName(name),
			types.MergePatchType, patch, meta.PatchOptions{})
	})
	return err
}

// withheld reports whether the cluster suspends a Job that is created to run, as queues of jobs do:
// they start it.
func (c *Client) withheld(ctx context.Context, o *batch.Job) bool {
	o = o.DeepCopy()
	o.Spec.Suspend = new(false)
	would, err := once(ctx, c.limit(), func(ctx context.Context) (*batch.Job, error) {
		return c.set.BatchV1().Jobs(c.namespace).Create(ctx, o, meta.CreateOptions{DryRun: []string{meta.DryRunAll}})
	})
	return err == nil && observe.Suspended(would)
}

// again replaces a Job that has ended without success by one that continues from its checkpoints.
// Objects that the old Job owns are deleted with it and created again; others, of a job that was
// made with kubectl apply or by a stack, stay.
func (c *Client) again(ctx context.Context, name string, root *batch.Job) error {
	spec, err := c.configMap(ctx, manifest.SpecName(name))
	if err != nil {
		return err
	}
	if spec == nil {
		return fmt.Errorf("resume job %s: configmap %s, the description of the job, does not exist; start "+
			"a job with --checkpoint_dir_for_init", name, manifest.SpecName(name))
	}
	j, err := resumed(spec, outcomeOf(root))
	if err != nil {
		return err
	}
	j.Namespace = c.namespace
	s, err := manifest.Submit(j)
	if err != nil {
		return fmt.Errorf("resume job %s: %w", name, err)
	}
	s.Spec.Data[manifest.KeyNumWorkers] = spec.Data[manifest.KeyNumWorkers]
	inherit(s.Job, root)
	lineage := strings.TrimSpace(spec.Data[manifest.KeyLineage] + " " + string(root.UID))
	// the state may be deleted with the old Job
	last, err := c.Status(ctx, name)
	if err != nil {
		return fmt.Errorf("resume job %s: %w", name, err)
	}
	past, err := c.Journal(ctx, name)
	if err != nil { // the job can continue without it
		past = journal.Snapshot{}
	}
	drawn, err := c.curve(ctx, name)
	if err != nil {
		drawn = curve.Snapshot{}
	}
	text, err := role.EncodePast(role.Concluded(past, last), drawn)
	if err != nil {
		return fmt.Errorf("resume job %s: %w", name, err)
	}
	if err := c.deleteRoot(ctx, name, root); err != nil {
		return err
	}
	if len(spec.OwnerReferences) > 0 {
		_, err = c.start(ctx, j, s, func(ctx context.Context, uid types.UID) ([]string, error) {
			s.Spec.Data[manifest.KeyResume], s.Spec.Data[manifest.KeyLineage] = string(uid), lineage
			s.Spec.Data[manifest.KeyJournal] = string(text)
			return c.createRest(ctx, s, uid)
		})
	} else {
		_, err = c.start(ctx, j, s, func(ctx context.Context, uid types.UID) ([]string, error) {
			return nil, c.mark(ctx, spec.Name, uid, lineage, string(text))
		})
	}
	switch {
	case err != nil && j.Runs():
		return fmt.Errorf(
			"resume job %s: %w; start it again with elasticdl run: files of the program stay in their place",
			name, err)
	case err != nil:
		return fmt.Errorf("resume job %s: %w; its checkpoints are in %s: start a job with "+
			"--checkpoint_dir_for_init", name, err, j.CheckpointDir)
	}
	return nil
}

// Job returns what a job is, as it was submitted.
func (c *Client) Job(ctx context.Context, name string) (*job.Job, error) {
	spec, err := c.configMap(ctx, manifest.SpecName(name))
	if err != nil {
		return nil, err
	}
	if spec == nil {
		return nil, c.notFound(name)
	}
	j := new(job.Job)
	if err := json.Unmarshal([]byte(spec.Data[manifest.KeyJob]), j); err != nil {
		return nil, fmt.Errorf("read %s of configmap %s: %w", manifest.KeyJob, spec.Name, err)
	}
	return j, nil
}

// resumed returns the job of a spec, if it can be resumed after it has ended in a state.
func resumed(spec *core.ConfigMap, ended job.State) (*job.Job, error) {
	j := new(job.Job)
	if err := json.Unmarshal([]byte(spec.Data[manifest.KeyJob]), j); err != nil {
		return nil, fmt.Errorf("read %s of configmap %s: %w", manifest.KeyJob, spec.Name, err)
	}
	return j, j.Resumable(ended)
}

// inherit copies to a Job what others have written to the one before it: a stack's annotations, and
// its hash of the spec.
func inherit(o, before *batch.Job) {
	theirs := maps.Clone(before.Annotations)
	maps.DeleteFunc(theirs, func(key, _ string) bool {
		return key == annotationSubmission || strings.HasPrefix(key, "batch.kubernetes.io/")
	})
	maps.Copy(theirs, o.Annotations)
	o.Annotations = theirs
	for key, value := range before.Labels {
		if _, own := o.Labels[key]; !own && !strings.HasPrefix(key, "batch.kubernetes.io/") {
			meta.SetMetaDataLabel(&o.ObjectMeta, key, value)
		}
	}
	if hash := before.Spec.Template.Annotations[manifest.AnnotationSpec]; hash != "" {
		meta.SetMetaDataAnnotation(&o.Spec.Template.ObjectMeta, manifest.AnnotationSpec, hash)
	}
}

// deleteRoot deletes a Job, and returns when it is deleted.
func (c *Client) deleteRoot(ctx context.Context, name string, root *batch.Job) error {
	if err := c.remove(ctx, name, root.UID); err != nil {
		return err
	}
	for {
		now, err := c.job(ctx, name)
		switch {
		case err != nil:
			return err
		case now == nil:
			return nil
		case now.UID != root.UID:
			return fmt.Errorf("resume job %s: another job of that name was made meanwhile", name)
		}
		if err := pause(ctx, deletionEvery); err != nil {
			return err
		}
	}
}

// mark writes to an existing spec which Job continues from its checkpoints, which Jobs were before
// it, and their journal.
func (c *Client) mark(ctx context.Context, spec string, uid types.UID, lineage, past string) error {
	_, err := ask(ctx, c, "change configmap "+spec, func(ctx context.Context) (*core.ConfigMap, error) {
		patch, err := json.Marshal(map[string]any{"data": map[string]string{
			manifest.KeyResume: string(uid), manifest.KeyLineage: lineage, manifest.KeyJournal: past,
		}})
		if err != nil {
			return nil, err
		}
		return c.set.CoreV1().ConfigMaps(c.namespace).Patch(ctx, spec, types.MergePatchType, patch, meta.PatchOptions{})
	})
	return err
}
