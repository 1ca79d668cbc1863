package kube

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	network "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	api "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/observe"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// collectLimit is the time that the deletion of an earlier job's objects may take.
const collectLimit = 30 * time.Second

// Preflight returns, joined, all problems that would keep a job from running on this cluster and
// can be known before. Objects that it may not read count as correct. err says that the cluster
// does not answer. Like [Client.Submit] it sets the job's QueuePriorities if they are not given.
func (c *Client) Preflight(ctx context.Context, j *job.Job) (problems, err error) {
	namespace, problem, err := c.checkNamespace(ctx)
	if problem == nil && err == nil {
		c.prioritize(ctx, j)
	}
	s, flaws := manifest.Submit(j)
	if problem != nil || err != nil {
		return errors.Join(flaws, problem), err
	}
	flaws = errors.Join(flaws, restricted(j, namespace))
	checks := []func() error{func() error { return c.checkName(ctx, j.Name) }}
	for class, flag := range classes(j) {
		checks = append(checks, func() error {
			_, err := c.set.SchedulingV1().PriorityClasses().Get(ctx, class, meta.GetOptions{})
			return missing(err, "--%s: the cluster has no PriorityClass %s", flag, class)
		})
	}
	for _, v := range j.Volumes {
		if v.ClaimName != "" {
			checks = append(checks, func() error {
				_, err := c.set.CoreV1().PersistentVolumeClaims(c.namespace).Get(ctx, v.ClaimName, meta.GetOptions{})
				return missing(err, "--volume=claim_name=%s: namespace %s has no such "+
					"PersistentVolumeClaim", v.ClaimName, c.namespace)
			})
		}
	}
	if j.ServiceAccount != "" {
		checks = append(checks, func() error {
			_, err := c.set.CoreV1().ServiceAccounts(c.namespace).Get(ctx, j.ServiceAccount, meta.GetOptions{})
			return missing(err, "--service_account=%s: namespace %s has no such ServiceAccount; an "+
				"administrator makes it of what elasticdl rbac prints", j.ServiceAccount, c.namespace)
		})
	}
	if j.Queue != "" {
		c.noteUnsaved(j)
		checks = append(checks, func() error { return c.checkQueue(ctx, j) },
			func() error { return c.checkPriorities(ctx, j) })
	}
	checks = append(checks, c.secretChecks(ctx, j)...)
	if s != nil && flaws == nil {
		checks = append(checks, func() error {
			return c.checkPods(ctx, j, s)
		}, func() error { c.notePriorities(ctx, j, s); return nil })
	}
	found := make([]error, len(checks))
	var all sync.WaitGroup
	for i, check := range checks {
		all.Go(func() { found[i] = check() })
	}
	all.Wait()
	slices.SortFunc(found, func(a, b error) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return errors.Join(flaws, errors.Join(found...)), nil
}

// secretChecks look for the Secrets that a job's pods name, and for the keys in them: without one a
// pod waits for ever.
func (c *Client) secretChecks(ctx context.Context, j *job.Job) (checks []func() error) {
	get := func(name string) (*core.Secret, error) {
		return c.set.CoreV1().Secrets(c.namespace).Get(ctx, name, meta.GetOptions{})
	}
	// variables, by the Secret that they are of
	wanted := make(map[string][]string)
	for _, name := range slices.Sorted(maps.Keys(j.EnvSecrets)) {
		wanted[j.EnvSecrets[name].Secret] = append(wanted[j.EnvSecrets[name].Secret], name)
	}
	for secret, vars := range wanted {
		checks = append(checks, func() error {
			o, err := get(secret)
			if err != nil {
				return missing(err, "--env_secret=%s=%v: namespace %s has no Secret %s: kubectl "+
					"create secret generic %[4]s --from-literal=%[5]s=...%[6]s",
					vars[0], j.EnvSecrets[vars[0]], c.namespace, secret, j.EnvSecrets[vars[0]].Key, c.place)
			}
			var problems []error
			for _, name := range vars {
				if _, has := o.Data[j.EnvSecrets[name].Key]; !has {
					problems = append(problems, fmt.Errorf("--env_secret=%s=%v: the Secret has no key %s: it has %s",
						name, j.EnvSecrets[name], j.EnvSecrets[name].Key,
						cmp.Or(strings.Join(slices.Sorted(maps.Keys(o.Data)), ", "), "none")))
				}
			}
			return errors.Join(problems...)
		})
	}
	for _, name := range j.ImagePullSecrets {
		checks = append(checks, func() error {
			o, err := get(name)
			if err == nil && o.Type != core.SecretTypeDockerConfigJson && o.Type != core.SecretTypeDockercfg {
				return fmt.Errorf("--image_pull_secret=%s: the Secret is of type %s: expected %s, "+
					"as kubectl create secret docker-registry makes it", name, o.Type, core.SecretTypeDockerConfigJson)
			}
			return missing(err, "--image_pull_secret=%s: namespace %s has no such Secret; make it "+
				"with kubectl create secret docker-registry %[1]s%[3]s", name, c.namespace, c.place)
		})
	}
	return checks
}

// checkNamespace makes the first request, which also shows whether the cluster can be reached.
func (c *Client) checkNamespace(ctx context.Context) (found *core.Namespace, problem, err error) {
	found, err = ask(ctx, c, "get namespace "+c.namespace, func(ctx context.Context) (*core.Namespace, error) {
		n, err := c.set.CoreV1().Namespaces().Get(ctx, c.namespace, meta.GetOptions{})
		if api.IsForbidden(err) {
			err = nil
		}
		return n, err
	})
	if api.IsNotFound(err) {
		return nil, fmt.Errorf("--namespace=%s: the cluster has no such namespace", c.namespace), nil
	}
	return found, nil, err
}

// enforces is the label that sets which pods a namespace refuses.
const enforces = "pod-security.kubernetes.io/enforce"

// restricted returns why a namespace that enforces restricted would refuse a job's pods. It does
// not judge pods that --cluster_spec_json changes.
func restricted(j *job.Job, namespace *core.Namespace) error {
	if namespace == nil || namespace.Labels[enforces] != "restricted" || j.ClusterSpecJSON != "" {
		return nil
	}
	var problems []error
	if j.RunAsUser == 0 {
		problems = append(problems,
			fmt.Errorf("--run_as_user is missing: namespace %s enforces restricted, and runs no pod "+
				"that may be root's: give the number of a user, as --run_as_user=1000", namespace.Name))
	}
	for _, v := range j.Volumes {
		if v.HostPath != "" {
			problems = append(problems,
				fmt.Errorf("--volume=%v: namespace %s enforces restricted, and runs no pod with a "+
					"host_path: give a claim_name", v, namespace.Name))
		}
	}
	return errors.Join(problems...)
}

// checkName returns an error if a job of that name exists.
func (c *Client) checkName(ctx context.Context, name string) error {
	s, err := c.Status(ctx, name)
	switch {
	case errors.Is(err, ErrNotFound) || api.IsForbidden(err):
		return nil
	case err != nil:
		return err
	case s.State == string(job.Stopping):
		return fmt.Errorf("--job_name=%s: a job of that name is being deleted; wait for it with "+
			"elasticdl stop %[1]s%[2]s, or give another name", name, c.place)
	case s.EndedUnixMs > 0:
		return fmt.Errorf("--job_name=%s: there is a job of that name, which has ended: %s; remove "+
			"it with elasticdl stop %[1]s%[3]s, or give another name", name, s.State, c.place)
	}
	return fmt.Errorf("--job_name=%s: there is a job of that name: %s; give another name, or: "+
		"elasticdl stop %[1]s%[3]s", name, s.State, c.place)
}

// classes returns the priority classes of a job's pods, each with a flag that names it.
func classes(j *job.Job) map[string]string {
	found := make(map[string]string)
	for flag, p := range map[string]job.Priority{"master_pod_priority": j.Master.Priority,
		"ps_pod_priority": j.PS.Priority, "worker_pod_priority": j.Worker.Priority} {
		if flag == "ps_pod_priority" && j.NumPS == 0 || p.Class == "" {
			continue
		}
		found[p.Class] = max(flag, found[p.Class])
		if p.Share > 0 {
			found["low"] = max(flag, found["low"])
		}
	}
	return found
}

// missing returns the problem if err says that something is not found, otherwise nil.
func missing(err error, problem string, args ...any) error {
	if api.IsNotFound(err) {
		return fmt.Errorf(problem, args...)
	}
	return nil // of another error the creation tells
}

// Submit creates a job and starts it, unless the job is suspended, or a queue of the cluster
// suspends it, which starts it later. It returns what was created, as in "configmap/elasticdl-j".
// If not all objects can be created, none remains. It sets the job's QueuePriorities, if they are
// not given, to what the cluster has.
func (c *Client) Submit(ctx context.Context, j *job.Job) (created []string, err error) {
	c.prioritize(ctx, j)
	s, err := manifest.Submit(j)
	if err != nil {
		return nil, err
	}
	return c.start(ctx, j, s, func(ctx context.Context, uid types.UID) ([]string, error) {
		return c.createRest(ctx, s, uid)
	})
}

// start creates the Job, suspended until rest has created all other objects, and starts it.
func (c *Client) start(ctx context.Context, j *job.Job, s *manifest.Submission,
	rest func(context.Context, types.UID) ([]string, error)) (created []string, err error) {
	withheld := !j.Suspend && c.withheld(ctx, s.Job)
	s.Job.Spec.Suspend = new(true) // until all is there
	root, err := c.createRoot(ctx, j.Name, s.Job)
	if err != nil {
		return nil, err
	}
	created = []string{"job/" + root.Name}
	defer func() {
		if err != nil {
			err = c.undo(ctx, j.Name, root.UID, created, err)
			created = nil
		}
	}()
	owned, err := rest(ctx, root.UID)
	created = append(created, owned...)
	if err != nil {
		return created, err
	}
	switch {
	case j.Suspend:
		return created, nil
	case withheld:
		c.note("the cluster suspends job %s: a queue or another controller that admits jobs there starts it", j.Name)
		return created, nil
	}
	return created, c.setSuspend(ctx, j.Name, false)
}

// undo deletes what was created of a job that cannot be submitted because of err, and says what it
// was. If that cannot be deleted, it says how to.
func (c *Client) undo(ctx context.Context, name string, uid types.UID, created []string, err error) error {
	if ctx.Err() != nil {
		c.note("interrupted: deleting what was created of job %s: %s", name, strings.Join(created, ", "))
	}
	undoing, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerLimit)
	defer cancel()
	e := c.remove(undoing, name, uid)
	if e == nil {
		c.note("deleted again: %s", strings.Join(created, ", "))
		return err
	}
	c.note("still there: %s; delete it with: elasticdl stop %s%s, or: kubectl delete %[4]s%[3]s, "+
		"with which the cluster deletes the others",
		strings.Join(created, ", "), name, c.place, created[0])
	return fmt.Errorf("%w; and what was created is still there: %w", err, e)
}

// createRest creates what a Job owns, and returns what it has created. If the user may not create
// network policies, a note says which ports stay open.
func (c *Client) createRest(ctx context.Context, s *manifest.Submission,
	owner types.UID) (created []string, err error) {
	s.OwnedBy(owner)
	for _, o := range s.Objects()[1:] { // the first is the Job
		name := o.(meta.Object).GetName()
		kind := strings.ToLower(o.GetObjectKind().GroupVersionKind().Kind)
		err := c.create(ctx, kind+" "+name, o)
		if _, is := o.(*network.NetworkPolicy); is && api.IsForbidden(err) {
			c.note("%v; without it every pod of the cluster reaches the ports of the job's pods: "+
				"the job's own ask for its certificate, but those that a program "+
				"opens, as NCCL and gloo do, ask nobody", err)
			continue
		}
		if err != nil {
			return created, err
		}
		created = append(created, kind+"/"+name)
	}
	return created, nil
}

// annotationSubmission distinguishes the Job of one submission from that of another.
const annotationSubmission = "elasticdl-submission"

// createRoot creates the Job, unless an earlier attempt without an answer has. If it stays unknown
// whether one has, it deletes what may have been created.
func (c *Client) createRoot(ctx context.Context, name string, o *batch.Job) (*batch.Job, error) {
	mark := rand.Text()
	meta.SetMetaDataAnnotation(&o.ObjectMeta, annotationSubmission, mark)
	jobs := c.set.BatchV1().Jobs(c.namespace)
	find := func(ctx context.Context) (*batch.Job, error) {
		there, err := absent(jobs.Get(ctx, o.Name, meta.GetOptions{}))
		if err != nil || there == nil || there.Annotations[annotationSubmission] != mark {
			return nil, err
		}
		return there, nil
	}
	root, err := ask(ctx, c, "create job "+name, func(ctx context.Context) (*batch.Job, error) {
		made, err := jobs.Create(ctx, o, meta.CreateOptions{})
		if !api.IsAlreadyExists(err) {
			return made, err
		}
		if mine, e := find(ctx); mine != nil || e != nil && observe.Transient(e) {
			return mine, e
		}
		return nil, err
	})
	if err == nil || api.ReasonForError(err) != meta.StatusReasonUnknown {
		return root, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerLimit)
	defer cancel()
	switch mine, e := once(ctx, answerLimit, find); {
	case e != nil:
		c.note("whether job/%s was created is not known: elasticdl status %s%s says it, and "+
			"elasticdl stop %[2]s%[3]s deletes it", o.Name, name, c.place)
	case mine != nil:
		err = c.undo(ctx, name, mine.UID, []string{"job/" + o.Name}, err)
	}
	return nil, err
}

// remove deletes a job's Job; the cluster deletes what that owns.
func (c *Client) remove(ctx context.Context, name string, uid types.UID) error {
	_, err := ask(ctx, c, "delete job "+name, func(ctx context.Context) (any, error) {
		err := c.set.BatchV1().Jobs(c.namespace).Delete(ctx, manifest.MasterName(name), meta.DeleteOptions{
			PropagationPolicy: new(meta.DeletePropagationBackground), Preconditions: &meta.Preconditions{UID: &uid},
		})
		if api.IsNotFound(err) || api.IsConflict(err) { // deleted, or replaced by now
			err = nil
		}
		return nil, err
	})
	return err
}

// create creates what a Job owns.
func (c *Client) create(ctx context.Context, what string, o runtime.Object) error {
	switch o := o.(type) {
	case *core.ConfigMap:
		return createOwned(ctx, c, what, c.set.CoreV1().ConfigMaps(c.namespace), o)
	case *core.Secret:
		return createOwned(ctx, c, what, c.set.CoreV1().Secrets(c.namespace), o)
	case *core.Service:
		return createOwned(ctx, c, what, c.set.CoreV1().Services(c.namespace), o)
	case *core.ServiceAccount:
		return createOwned(ctx, c, what, c.set.CoreV1().ServiceAccounts(c.namespace), o)
	case *rbac.Role:
		return createOwned(ctx, c, what, c.set.RbacV1().Roles(c.namespace), o)
	case *rbac.RoleBinding:
		return createOwned(ctx, c, what, c.set.RbacV1().RoleBindings(c.namespace), o)
	case *policy.PodDisruptionBudget:
		return createOwned(ctx, c, what, c.set.PolicyV1().PodDisruptionBudgets(c.namespace), o)
	case *network.NetworkPolicy:
		return createOwned(ctx, c, what, c.set.NetworkingV1().NetworkPolicies(c.namespace), o)
	}
	panic("kube: no way to create " + what)
}

// creator creates objects of one kind.
type creator[T any] interface {
	Create(context.Context, T, meta.CreateOptions) (T, error)
	Get(context.Context, string, meta.GetOptions) (T, error)
}

// createOwned creates an object, unless an earlier attempt without an answer has. It waits for the
// deletion of an object of the previous job of that name.
func createOwned[T meta.Object](ctx context.Context, c *Client, what string, kind creator[T], o T) error {
	owner := o.GetOwnerReferences()[0]
	for began := time.Now(); ; {
		_, err := ask(ctx, c, "create "+what, func(ctx context.Context) (T, error) {
			return kind.Create(ctx, o, meta.CreateOptions{})
		})
		if !api.IsAlreadyExists(err) {
			return err
		}
		there, e := ask(ctx, c, "get "+what, func(ctx context.Context) (T, error) {
			return kind.Get(ctx, o.GetName(), meta.GetOptions{})
		})
		if e != nil && !api.IsNotFound(e) {
			return err
		}
		if e == nil {
			owned := func(r meta.OwnerReference) bool { return r.UID == owner.UID }
			before := func(r meta.OwnerReference) bool { return r.Kind == owner.Kind && r.Name == owner.Name }
			switch owners := there.GetOwnerReferences(); {
			case slices.ContainsFunc(owners, owned):
				return nil
			case !slices.ContainsFunc(owners, before) || time.Since(began) > collectLimit:
				return err
			}
		}
		if err := pause(ctx, firstBackoff); err != nil {
			return err
		}
	}
}

// Manifests returns a job as a file for kubectl apply.
func Manifests(j *job.Job) ([]byte, error) {
	s, err := manifest.Submit(j)
	if err != nil {
		return nil, err
	}
	return s.YAML()
}

// Permissions returns what an administrator applies so that the named jobs of a namespace, or all
// of them, need no ServiceAccount of their own.
func Permissions(namespace, serviceAccount string, jobs ...string) ([]byte, error) {
	account, role, binding := manifest.Permissions(namespace, serviceAccount, jobs...)
	return manifest.YAML(account, role, binding)
}

// NodePermissions returns what an administrator applies so that the masters of a namespace hear
// which nodes will be taken away.
func NodePermissions(namespace string) ([]byte, error) {
	role, binding := manifest.NodePermissions(namespace)
	return manifest.YAML(role, binding)
}

// WorkloadPriorities returns what an administrator applies in a cluster with Kueue so that its
// queues preempt workers that a job can do without before its other pods.
func WorkloadPriorities() ([]byte, error) {
	var all []runtime.Object
	for _, class := range manifest.WorkloadPriorities() {
		all = append(all, class)
	}
	return manifest.YAML(all...)
}

// ReadClusterSpec reads a file of --cluster_spec as [manifest.ClusterSpec] does.
func ReadClusterSpec(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	return manifest.ClusterSpec(text)
}
