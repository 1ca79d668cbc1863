package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	api "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/observe"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Polling intervals of a job whose end is awaited, and of one that is being deleted.
const (
	endEvery      = time.Second
	deletionEvery = 250 * time.Millisecond
)

// pause waits for d. It returns an error if ctx ends before.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *Client) notFound(name string) error {
	return &Missing{Name: name, namespace: c.namespace, Names: c.Names}
}

// Wait waits until a job has ended, and returns its status; a deleted job counts as stopped. It
// continues waiting while the job is suspended, and calls rests when it finds that.
func (c *Client) Wait(ctx context.Context, name string, rests func()) (*wire.JobStatus, error) {
	last, err := c.Status(ctx, name)
	if err != nil {
		return nil, err
	}
	j, err := c.job(ctx, name)
	for rested := false; err == nil && j != nil && !ended(j) && j.DeletionTimestamp == nil; j, err = c.next(ctx, j) {
		if observe.Suspended(j) && !rested {
			rests()
		}
		rested = observe.Suspended(j)
	}
	if err != nil {
		return nil, err
	}
	s, err := c.Status(ctx, name)
	switch {
	case err == nil && s.EndedUnixMs > 0 && s.State != string(job.Stopping):
		return s, nil
	case err != nil && !errors.Is(err, ErrNotFound):
		return nil, err
	case err == nil:
		last = s
	}
	switch {
	case j != nil && ended(j): // and deleted at once, by its --ttl
		j.DeletionTimestamp = nil
		(&objects{name: name, job: j}).settle(last)
	default:
		last.State, last.Reason, last.EndedUnixMs = string(job.Stopped), "it was deleted", time.Now().UnixMilli()
	}
	return last, nil
}

// next returns a Job after its next change: its last state if it was deleted, nil if that is
// unknown. Without the permission to watch it polls.
func (c *Client) next(ctx context.Context, j *batch.Job) (*batch.Job, error) {
	w, err := c.set.BatchV1().Jobs(c.namespace).Watch(ctx, v1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector(v1.ObjectNameField, j.Name).String(),
		ResourceVersion: j.ResourceVersion,
	})
	if err == nil {
		defer w.Stop()
		e := <-w.ResultChan() // which is closed with ctx
		now, ok := e.Object.(*batch.Job)
		switch {
		case ok && e.Type == watch.Deleted && !ended(now):
			return nil, nil
		case ok:
			return now, nil
		}
	}
	if err := pause(ctx, endEvery); err != nil {
		return nil, err
	}
	return c.job(ctx, j.Labels[manifest.LabelJob])
}

// OfStack reports whether the job is managed by a Pulumi stack, which recreates what others delete,
// and reverts what others change. It returns false if that is unknown.
func (c *Client) OfStack(ctx context.Context, name string) bool {
	j, err := c.job(ctx, name)
	if err != nil || j == nil {
		return false
	}
	for key := range j.Annotations {
		if strings.HasPrefix(key, "pulumi.com/") {
			return true
		}
	}
	return j.Labels["app.kubernetes.io/managed-by"] == "pulumi"
}

// Stop deletes a job with all its objects, and returns when they are deleted. It calls progress
// with the number of remaining pods whenever that changes.
func (c *Client) Stop(ctx context.Context, name string, progress func(pods int)) error {
	j, err := c.job(ctx, name)
	if err != nil {
		return err
	}
	if j != nil && j.DeletionTimestamp == nil {
		if err := c.remove(ctx, name, j.UID); err != nil {
			return err
		}
	}
	its := map[types.UID]bool(nil)
	for told, found := 1<<30, j != nil; ; found = true {
		if now, err := c.job(ctx, name); err != nil {
			return err
		} else if j != nil && now != nil && now.UID != j.UID {
			// another job of that name was created meanwhile: it is not to be stopped
			return nil
		}
		pods, err := c.pods(ctx, name)
		if err != nil {
			return err
		}
		rest, err := c.rest(ctx, name, its == nil)
		if err != nil {
			return err
		}
		if its == nil {
			its = rest
		}
		// made meanwhile, of the next job
		maps.DeleteFunc(rest, func(u types.UID, _ bool) bool { return !its[u] })
		switch {
		case len(pods)+len(rest) == 0 && !found:
			return c.notFound(name)
		case len(pods)+len(rest) == 0:
			return nil
		case len(pods) < told && len(pods) > 0:
			told = len(pods)
			progress(told)
		}
		if err := pause(ctx, deletionEvery); err != nil {
			return err
		}
	}
}

// rest returns the set of a job's remaining objects except for its pods. If remove is set, it
// deletes those without an owner, of a job that was made with kubectl apply; the cluster deletes
// the others.
func (c *Client) rest(ctx context.Context, name string, remove bool) (map[types.UID]bool, error) {
	all := map[types.UID]bool{}
	of := v1.ListOptions{LabelSelector: manifest.Selector(name)}
	type deletion = func(context.Context, string, v1.DeleteOptions) error
	jobs, configs, services := c.set.BatchV1().Jobs(c.namespace),
		c.set.CoreV1().ConfigMaps(c.namespace), c.set.CoreV1().Services(c.namespace)
	accounts, roles, bindings := c.set.CoreV1().ServiceAccounts(c.namespace),
		c.set.RbacV1().Roles(c.namespace), c.set.RbacV1().RoleBindings(c.namespace)
	secrets := c.set.CoreV1().Secrets(c.namespace)
	budgets, policies := c.set.PolicyV1().PodDisruptionBudgets(c.namespace),
		c.set.NetworkingV1().NetworkPolicies(c.namespace)
	for _, kind := range []struct {
		name   string
		list   func(context.Context) (runtime.Object, error)
		delete deletion
	}{
		{"jobs", func(ctx context.Context) (runtime.Object, error) { return jobs.List(ctx, of) }, nil},
		{"configmaps", func(ctx context.Context) (runtime.Object, error) {
			return configs.List(ctx, of)
		}, configs.Delete},
		// get, as the permission to list would cover all Secrets
		{"secrets", func(ctx context.Context) (runtime.Object, error) {
			o, err := absent(secrets.Get(ctx, manifest.IdentityName(name), v1.GetOptions{}))
			if err != nil || o == nil || o.Labels[manifest.LabelJob] != name {
				return new(core.SecretList), err
			}
			return &core.SecretList{Items: []core.Secret{*o}}, nil
		}, secrets.Delete},
		{"services", func(ctx context.Context) (runtime.Object, error) {
			return services.List(ctx, of)
		}, services.Delete},
		{"serviceaccounts", func(ctx context.Context) (runtime.Object, error) {
			return accounts.List(ctx, of)
		}, accounts.Delete},
		{"rolebindings", func(ctx context.Context) (runtime.Object, error) {
			return bindings.List(ctx, of)
		}, bindings.Delete},
		{"roles", func(ctx context.Context) (runtime.Object, error) { return roles.List(ctx, of) }, roles.Delete},
		{"poddisruptionbudgets", func(ctx context.Context) (runtime.Object, error) {
			return budgets.List(ctx, of)
		}, budgets.Delete},
		{"networkpolicies", func(ctx context.Context) (runtime.Object, error) {
			return policies.List(ctx, of)
		}, policies.Delete},
	} {
		list, err := ask(ctx, c, "list "+kind.name, kind.list)
		if api.IsForbidden(err) {
			continue // then it is none of the user's
		} else if err != nil {
			return nil, err
		}
		err = meta.EachListItem(list, func(o runtime.Object) error {
			a, err := meta.Accessor(o)
			if err != nil {
				return err
			}
			all[a.GetUID()] = true
			if !remove || len(a.GetOwnerReferences()) > 0 || kind.delete == nil || a.GetDeletionTimestamp() != nil {
				return nil
			}
			_, err = ask(ctx, c, "delete "+kind.name+" "+a.GetName(), func(ctx context.Context) (any, error) {
				err := kind.delete(ctx, a.GetName(), v1.DeleteOptions{})
				if api.IsNotFound(err) {
					err = nil
				}
				return nil, err
			})
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Scale sets the number of workers in a job's specification, which the master follows. It returns
// the number before.
func (c *Client) Scale(ctx context.Context, name string, workers int) (before int, err error) {
	root, err := c.job(ctx, name)
	if err != nil {
		return 0, err
	}
	spec, err := c.configMap(ctx, manifest.SpecName(name))
	switch {
	case err != nil:
		return 0, err
	case root == nil || spec == nil:
		return 0, c.notFound(name)
	case root.DeletionTimestamp != nil:
		return 0, fmt.Errorf("scale job %s: it is being deleted", name)
	case observe.JobCondition(root, "Complete") != nil:
		return 0, fmt.Errorf("scale job %s: it has ended: Succeeded", name)
	case observe.Failure(root) != nil:
		return 0, fmt.Errorf("scale job %s: it has ended: Failed", name)
	}
	var j job.Job
	if err := json.Unmarshal([]byte(spec.Data[manifest.KeyJob]), &j); err != nil {
		return 0, fmt.Errorf("read configmap %s: %w", spec.Name, err)
	}
	before = j.NumWorkers
	if n, err := strconv.Atoi(spec.Data[manifest.KeyNumWorkers]); err == nil {
		before = n
	}
	switch least := max(j.MinWorkers, 1); {
	case workers < least:
		return 0, fmt.Errorf("--num_workers=%d: fewer than %d, the job's --min_workers", workers, least)
	case j.MaxWorkers > 0 && workers > j.MaxWorkers:
		return 0, fmt.Errorf("--num_workers=%d: more than %d, the job's --max_workers", workers, j.MaxWorkers)
	}
	patch := fmt.Appendf(nil, `{"data":{%q:"%d"}}`, manifest.KeyNumWorkers, workers)
	_, err = ask(ctx, c, "scale job "+name, func(ctx context.Context) (*core.ConfigMap, error) {
		return c.set.CoreV1().ConfigMaps(c.namespace).Patch(ctx, spec.Name, types.MergePatchType, patch,
			v1.PatchOptions{})
	})
	return before, err
}

// Has reports whether there is a job of that name. It asks once; without an answer it returns
// false.
func (c *Client) Has(ctx context.Context, name string) bool {
	_, err := c.set.BatchV1().Jobs(c.namespace).Get(ctx, manifest.MasterName(name), v1.GetOptions{})
	return err == nil
}

// Names returns the names of the namespace's jobs.
func (c *Client) Names(ctx context.Context) ([]string, error) {
	list, err := c.set.BatchV1().Jobs(c.namespace).List(ctx, v1.ListOptions{LabelSelector: manifest.Selector("")})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, j := range list.Items {
		names = append(names, j.Labels[manifest.LabelJob])
	}
	slices.Sort(names)
	return names, nil
}
