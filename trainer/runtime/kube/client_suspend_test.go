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

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	api "k8s.io/apimachinery/pkg/api/errors"
	mapping "k8s.io/apimachinery/pkg/api/meta"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	kubetesting "k8s.io/client-go/testing"

	"github.com/elasticdl/elasticdl/test/flags"
	"github.com/elasticdl/elasticdl/test/kubetest"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// The pod of a master that waits for room, or in a queue, is deleted by Suspend if its launcher is
// away, which would do that otherwise.
func TestSuspendDeletesWaitingMaster(t *testing.T) {
	for name, present := range map[string]bool{"launcher present": true, "launcher away": false} {
		t.Run(name, func(t *testing.T) {
			objects, _ := submitted(t, nil)
			master := podOf(pod.ID{Role: pod.Master}, core.PodPending, nil)
			objects = append(objects, master)
			if present {
				launcher := podOf(pod.ID{Role: pod.Master}, core.PodRunning, nil)
				launcher.Name += "-launcher"
				launcher.Labels[manifest.LabelRole] = manifest.RoleLauncher
				objects = append(objects, launcher)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			c, set := testClient(objects...)
			c.Suspend(ctx, "test", func(int) {}) // which waits for the launcher
			_, err := set.CoreV1().Pods("default").Get(t.Context(), master.Name, meta.GetOptions{})
			if deleted := api.IsNotFound(err); deleted == present {
				t.Errorf("deleted: %t, %v", deleted, err)
			}
		})
	}
}

// A suspended job has no pods when Suspend returns; one that has ended is not suspended.
func TestSuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects, root := submitted(t, nil)
		master := podOf(pod.ID{Role: pod.Master}, core.PodRunning, nil)
		c, set := testClient(append(objects, master, podOf(pod.ID{Role: pod.Worker}, core.PodSucceeded, nil))...)
		began := time.Now()
		go func() {
			time.Sleep(7 * time.Second)
			set.CoreV1().Pods("default").Delete(t.Context(), master.Name, meta.DeleteOptions{})
		}()
		var left []int
		err := c.Suspend(t.Context(), "test", func(pods int) { left = append(left, pods) })
		now, _ := set.BatchV1().Jobs("default").Get(t.Context(), root.Name, meta.GetOptions{})
		if err != nil || !*now.Spec.Suspend || time.Since(began) < 7*time.Second || !slices.Equal(left, []int{1}) {
			t.Errorf("%v after %v: suspended %v, %v pods left", err, time.Since(began), *now.Spec.Suspend, left)
		}
	})
	for want, change := range map[string]func(*batch.Job){
		"suspend job test: it has ended: Succeeded": conditioned(batch.JobComplete, "", ""),
		"suspend job test: it has ended: Failed":    conditioned(batch.JobFailureTarget, "", ""),
		"suspend job test: it is being deleted": func(j *batch.Job) {
			j.DeletionTimestamp, j.Finalizers = &morning, []string{"f"}
		},
		"job nobody not found in namespace default": nil,
	} {
		objects, root := submitted(t, nil)
		name := "nobody"
		if change != nil {
			name = "test"
			change(root)
		}
		c, set := testClient(objects...)
		if err := c.Suspend(t.Context(), name, nil); err == nil || err.Error() != want ||
			slices.Contains(verbs(set), "patch jobs") {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// withCheckpoints makes j a job that can be resumed.
func withCheckpoints(j *job.Job) {
	j.Volumes = []job.Volume{{ClaimName: "c", MountPath: "/data"}}
	j.TrainingData, j.CheckpointDir, j.CheckpointSteps = "/data/mnist", "/data/ckpt", 10
}

// asProgram makes j a job that runs a program, which makes no checkpoints of ElasticDL's.
func asProgram(j *job.Job) {
	c, err := flags.Job(job.Run, "--job_name=test", "--image_name=pytorch/pytorch:2.9.0",
		"--agent_image_name=elasticdl:v1", "--", "main.py")
	if err != nil {
		panic(err)
	}
	*j = *c.Job
}

// Resume returns an error for a job that is neither suspended nor failed, or that has no
// checkpoints.
func TestResumeRefused(t *testing.T) {
	for _, test := range []struct {
		change func(*batch.Job)
		of     func(*job.Job)
		is     error
		want   string
	}{
		{nil, withCheckpoints, job.ErrRunning, "job test is running"},
		{conditioned(batch.JobComplete, "", ""), withCheckpoints, job.ErrSucceeded,
			"job test has succeeded: there is nothing to continue"},
		{conditioned(batch.JobFailed, "", ""), nil, job.ErrNoCheckpoints,
			"job test has no checkpoints to continue from (--checkpoint_dir)"},
	} {
		objects, root := submitted(t, test.of)
		if test.change != nil {
			test.change(root)
		}
		c, set := testClient(objects...)
		if err := c.Resume(t.Context(), "test"); !errors.Is(err, test.is) || err.Error() != test.want ||
			len(verbs(set)) > 0 {
			t.Errorf("%v, want %s; asked for %v", err, test.want, verbs(set))
		}
	}
	c, _ := testClient()
	if err := c.Resume(t.Context(), "nobody"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

func TestResumeSuspended(t *testing.T) {
	objects, root := submitted(t, nil)
	root.Spec.Suspend = new(true)
	c, set := testClient(objects...)
	if err := c.Resume(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	now, err := set.BatchV1().Jobs("default").Get(t.Context(), root.Name, meta.GetOptions{})
	if err != nil || *now.Spec.Suspend || now.UID != root.UID {
		t.Errorf("%v, %v", now.Spec, err)
	}
}

// Resume replaces the Job of a failed job by another, which continues from the checkpoints, or
// begins the program again. Objects that the Job does not own stay unchanged, and the annotations
// that a stack has set on the Job are kept.
func TestResumeFailed(t *testing.T) {
	for n, is := range []func(*job.Job){withCheckpoints, withCheckpoints, asProgram} {
		owned := n != 1
		synctest.Test(t, func(t *testing.T) {
			objects, root := submitted(t, is)
			conditioned(batch.JobFailed, "", "")(root)
			root.Spec.BackoffLimit = new(int32(0)) // as the master of a failed job sets it
			root.Annotations = map[string]string{"pulumi.com/skipAwait": "true"}
			root.Spec.Template.Annotations[manifest.AnnotationSpec] += " of a stack"
			spec := objects[1].(*core.ConfigMap)
			spec.Data[manifest.KeyNumWorkers] = "5"
			say(t, objects[2].(*core.ConfigMap), &wire.JobStatus{
				State: "Failed", Reason: "no data", EndedUnixMs: 9,
			})
			objects[2].(*core.ConfigMap).Data[manifest.KeyRecord] =
				`{"journal":{"entries":[{"n":1,"kind":"PodLost","pod":"worker-1","text":"\"evicted\""}]}}`
			if !owned {
				for _, o := range objects[1:] {
					o.(meta.Object).SetOwnerReferences(nil)
				}
			}
			c, set := testClient(objects...)
			c.reached.Store(true)
			set.PrependReactor("create", "jobs", func(a kubetesting.Action) (bool, runtime.Object, error) {
				a.(kubetesting.CreateAction).GetObject().(*batch.Job).UID = "another"
				return false, nil, nil
			})
			set.PrependReactor("delete", "jobs", func(kubetesting.Action) (bool, runtime.Object, error) {
				if !owned {
					return false, nil, nil
				}
				// as the garbage collector of the cluster does
				go func() {
					time.Sleep(3 * time.Second)
					for _, o := range objects[1:] {
						plural, _ := mapping.UnsafeGuessKindToResource(o.GetObjectKind().GroupVersionKind())
						set.Tracker().Delete(plural, "default", o.(meta.Object).GetName())
					}
				}()
				return false, nil, nil
			})
			if err := c.Resume(t.Context(), "test"); err != nil {
				t.Fatal(err)
			}
			now, err := set.BatchV1().Jobs("default").Get(t.Context(), root.Name, meta.GetOptions{})
			if err != nil || now.UID != "another" || *now.Spec.Suspend ||
				now.Annotations["pulumi.com/skipAwait"] != "true" ||
				!strings.HasSuffix(now.Spec.Template.Annotations[manifest.AnnotationSpec],
					" of a stack") || len(now.Status.Conditions) > 0 {
				t.Errorf("owned %t: %+v, %v", owned, now, err)
			}
			s, err := manifest.Submit(func() *job.Job { j := kubetest.Job(); is(j); return j }())
			if err != nil || *now.Spec.BackoffLimit != *s.Job.Spec.BackoffLimit {
				t.Errorf("owned %t: backoff limit %d, %v", owned, *now.Spec.BackoffLimit, err)
			}
			marked, err := set.CoreV1().ConfigMaps("default").Get(t.Context(), "elasticdl-test", meta.GetOptions{})
			if err != nil || marked.Data[manifest.KeyResume] != "another" ||
				marked.Data[manifest.KeyNumWorkers] != "5" ||
				marked.Data[manifest.KeyJob] != spec.Data[manifest.KeyJob] {
				t.Errorf("owned %t: spec %v, %v", owned, marked.Data, err)
			}
			past, err := role.DecodeJournal([]byte(marked.Data[manifest.KeyJournal]))
			if all := past.Entries; err != nil || len(all) != 2 || all[0].Words() != `worker-1: "evicted"` ||
				all[1].Words() != "the job Failed: no data" || all[1].UnixMs == 0 {
				t.Errorf("owned %t: journal %v, %v", owned, past, err)
			}
			if remade := slices.Contains(verbs(set), "create services"); remade != owned {
				t.Errorf("owned %t: asked for %v", owned, verbs(set))
			}
		})
	}
}

// Submit does not start a job that a queue of the cluster suspends.
func TestSubmitToAQueue(t *testing.T) {
	c, set := testClient()
	var notes strings.Builder
	c.notes = &notes
	set.PrependReactor("create", "jobs", func(a kubetesting.Action) (bool, runtime.Object, error) {
		// as the webhook of the queue does
		a.(kubetesting.CreateAction).GetObject().(*batch.Job).Spec.Suspend = new(true)
		return false, nil, nil
	})
	if _, err := c.Submit(t.Context(), kubetest.Job()); err != nil {
		t.Fatal(err)
	}
	if did := verbs(set); slices.Contains(did, "patch jobs") ||
		!strings.Contains(notes.String(), "the cluster suspends job test") {
		t.Errorf("asked for %v, and said %q", did, notes.String())
	}
}

// Wait reports each suspension of the job once.
func TestWaitSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects, root := submitted(t, nil)
		c, set := testClient(objects...)
		set.PrependWatchReactor("jobs", func(kubetesting.Action) (bool, watch.Interface, error) {
			return true, nil, kubetest.Forbidden("watch", "jobs")
		})
		go func() {
			for i := range 6 {
				time.Sleep(10 * time.Second)
				root.Spec.Suspend = new(i%2 == 0)
				if i == 5 {
					conditioned(batch.JobComplete, "", "")(root)
				}
				set.BatchV1().Jobs("default").Update(t.Context(), root.DeepCopy(), meta.UpdateOptions{})
			}
		}()
		said := 0
		s, err := c.Wait(t.Context(), "test", func() { said++ })
		if err != nil || s.State != "Succeeded" || said != 3 {
			t.Errorf("%v, %v; said %d times", fmt.Sprint(s), err, said)
		}
	})
}
