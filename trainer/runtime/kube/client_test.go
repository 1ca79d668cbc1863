package kube

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	api "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	kubetesting "k8s.io/client-go/testing"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/elasticdl/elasticdl/test/kubetest"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// testClient returns a client of a fake cluster with the objects.
func testClient(objects ...runtime.Object) (*Client, *fake.Clientset) {
	set := fake.NewClientset(objects...)
	kubetest.Serve(set)
	return &Client{set: kubetest.Set(set), namespace: "default", server: "https://cluster"}, set
}

// isDry reports whether a request is a dry run.
func isDry(a kubetesting.Action) bool {
	create, ok := a.(kubetesting.CreateActionImpl)
	return ok && len(create.CreateOptions.DryRun) > 0
}

// submitted returns the objects of a submitted job, and its Job, which is one of them.
func submitted(t *testing.T, change func(*job.Job)) (objects []runtime.Object, root *batch.Job) {
	t.Helper()
	j := kubetest.Job()
	if change != nil {
		change(j)
	}
	s, err := manifest.Submit(j)
	if err != nil {
		t.Fatal(err)
	}
	s.Job.UID = "the-job"
	s.OwnedBy(s.Job.UID)
	return s.Objects(), s.Job
}

// verbs returns the requests that changed the cluster, as in "create configmaps".
func verbs(set *fake.Clientset) []string {
	var all []string
	for _, a := range set.Actions() {
		if v := a.GetVerb(); v != "get" && v != "list" && !isDry(a) {
			all = append(all, v+" "+a.GetResource().Resource)
		}
	}
	return all
}

// TestSubmitOrder checks that the Job is suspended until all objects that it owns exist.
func TestSubmitOrder(t *testing.T) {
	for _, suspend := range []bool{false, true} {
		c, set := testClient()
		j := kubetest.Job()
		j.Suspend = suspend
		created, err := c.Submit(t.Context(), j)
		if err != nil {
			t.Fatal(err)
		}
		if want := "job/elasticdl-test-master configmap/elasticdl-test " +
			"configmap/elasticdl-test-state secret/elasticdl-test-identity serviceaccount/elasticdl-test " +
			"role/elasticdl-test rolebinding/elasticdl-test service/elasticdl-test-master " +
			"service/elasticdl-test-ps-0 poddisruptionbudget/elasticdl-test " +
			"networkpolicy/elasticdl-test"; strings.Join(created, " ") != want {
			t.Errorf("created %v", created)
		}
		root, err := set.BatchV1().Jobs("default").Get(t.Context(), "elasticdl-test-master", meta.GetOptions{})
		if err != nil || *root.Spec.Suspend != suspend {
			t.Errorf("suspend %t: %v, %v", suspend, root.Spec.Suspend, err)
		}
		did := verbs(set)
		if did[0] != "create jobs" || slices.Contains(did, "delete jobs") || !suspend &&
			did[len(did)-1] != "patch jobs" {
			t.Errorf("asked for %v", did)
		}
		made := slices.IndexFunc(set.Actions(), func(a kubetesting.Action) bool {
			return a.GetVerb() == "create" && !isDry(a)
		})
		if first := set.Actions()[made].(kubetesting.CreateAction).GetObject().(*batch.Job); !*first.Spec.Suspend {
			t.Error("the job starts before all of it is there")
		}
		spec, err := set.CoreV1().ConfigMaps("default").Get(t.Context(), "elasticdl-test", meta.GetOptions{})
		if err != nil || len(spec.OwnerReferences) != 1 || spec.OwnerReferences[0].Name != root.Name {
			t.Errorf("spec is owned by %v, %v", spec.OwnerReferences, err)
		}
	}
}

// TestSubmitWithoutPolicies checks that a job is submitted although its user may not create a
// NetworkPolicy, with a note of what stays open.
func TestSubmitWithoutPolicies(t *testing.T) {
	c, set := testClient()
	var notes strings.Builder
	c.notes = &notes
	kubetest.Fail(set, "create", "networkpolicies", 1, kubetest.Forbidden("create", "networkpolicies"))
	created, err := c.Submit(t.Context(), kubetest.Job())
	if err != nil || slices.Contains(created, "networkpolicy/elasticdl-test") ||
		!slices.Contains(created, "poddisruptionbudget/elasticdl-test") {
		t.Errorf("created %v, %v", created, err)
	}
	if said := notes.String(); !strings.Contains(said, "create networkpolicy elasticdl-test: ") ||
		!strings.Contains(said, "NCCL") {
		t.Errorf("said %q", said)
	}
	if did := verbs(set); slices.Contains(did, "delete jobs") || did[len(did)-1] != "patch jobs" {
		t.Errorf("asked for %v", did)
	}
	c, set = testClient()
	kubetest.Fail(set, "create", "networkpolicies", 1, api.NewBadRequest("no"))
	if _, err := c.Submit(t.Context(), kubetest.Job()); err == nil {
		t.Error("what fails otherwise is passed over")
	}
}

// TestSubmitFails checks that a job of which one object cannot be created is deleted, and that the
// error says why.
func TestSubmitFails(t *testing.T) {
	c, set := testClient()
	kubetest.Fail(set, "create", "roles", 1, kubetest.Forbidden("create", "roles"))
	_, err := c.Submit(t.Context(), kubetest.Job())
	if err == nil || !strings.Contains(err.Error(), "create role elasticdl-test: ") ||
		!strings.Contains(err.Error(), "elasticdl rbac --namespace=default") {
		t.Errorf("got %v", err)
	}
	if did := verbs(set); did[len(did)-1] != "delete jobs" {
		t.Errorf("asked for %v", did)
	}
}

// TestSubmitUnanswered checks that Submit adopts a Job that it created without an answer, and
// deletes it if it is interrupted.
func TestSubmitUnanswered(t *testing.T) {
	for _, interrupted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c, set := testClient()
			c.reached.Store(true)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			unanswered := false
			set.PrependReactor("create", "jobs", func(a kubetesting.Action) (bool, runtime.Object, error) {
				if unanswered || isDry(a) {
					return false, nil, nil
				}
				unanswered = true
				root := a.(kubetesting.CreateAction).GetObject().(*batch.Job).DeepCopy()
				root.UID = "the-job"
				root.Namespace = "default"
				set.Tracker().Add(root)
				if interrupted {
					cancel()
				}
				return true, nil, kubetest.Refused
			})
			_, err := c.Submit(ctx, kubetest.Job())
			root, absent := set.BatchV1().Jobs("default").Get(t.Context(), "elasticdl-test-master", meta.GetOptions{})
			switch {
			case interrupted && (!errors.Is(err, context.Canceled) || !api.IsNotFound(absent)):
				t.Errorf("interrupted: %v, and of the job %v", err, absent)
			case !interrupted && (err != nil || absent != nil || *root.Spec.Suspend):
				t.Errorf("%v, %v", err, absent)
			}
		})
	}
	_, before := submitted(t, nil)
	c, set := testClient(before)
	if _, err := c.Submit(t.Context(), kubetest.Job()); !api.IsAlreadyExists(err) ||
		slices.Contains(verbs(set), "delete jobs") {
		t.Errorf("another job: %v, %v", err, verbs(set))
	}
}

// TestSubmitAgain checks that Submit accepts an object that it created without an answer, and waits
// for the deletion of an earlier job's.
func TestSubmitAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, _ := submitted(t, nil)
		spec := old[1].(*core.ConfigMap)
		spec.OwnerReferences[0].UID = "the-job-before"
		c, set := testClient(spec)
		c.reached.Store(true)
		var unanswered bool
		set.PrependReactor("create", "services", func(a kubetesting.Action) (bool, runtime.Object, error) {
			if unanswered {
				return false, nil, nil
			}
			unanswered = true
			set.Tracker().Add(a.(kubetesting.CreateAction).GetObject())
			return true, nil, kubetest.Refused
		})
		go func() {
			time.Sleep(3 * time.Second)
			set.CoreV1().ConfigMaps("default").Delete(t.Context(), spec.Name, meta.DeleteOptions{})
		}()
		if _, err := c.Submit(t.Context(), kubetest.Job()); err != nil {
			t.Error(err)
		}
	})
	// An object that no Job owns is not waited for.
	foreign := &core.ConfigMap{ObjectMeta: meta.ObjectMeta{Name: "elasticdl-test", Namespace: "default"}}
	c, _ := testClient(foreign)
	if _, err := c.Submit(t.Context(), kubetest.Job()); !api.IsAlreadyExists(err) {
		t.Errorf("got %v", err)
	}
}

func TestPreflight(t *testing.T) {
	namespace := &core.Namespace{ObjectMeta: meta.ObjectMeta{Name: "default"}}
	j := kubetest.Job()
	j.Master.Priority, j.Worker.Priority = job.Priority{Class: "urgent"}, job.Priority{Class: "high", Share: 0.5}
	j.Volumes = []job.Volume{{ClaimName: "data", MountPath: "/data"}, {HostPath: "/tmp", MountPath: "/tmp"}}
	j.ServiceAccount = "trainer"
	j.EnvSecrets = map[string]job.SecretRef{"A": {Secret: "absent", Key: "key"},
		"B": {Secret: "there", Key: "key"}, "C": {Secret: "there", Key: "other"}}
	j.ImagePullSecrets = []string{"there", "nowhere", "registry"}
	there := &core.Secret{ObjectMeta: meta.ObjectMeta{Name: "there", Namespace: "default"},
		Type: core.SecretTypeOpaque, Data: map[string][]byte{"key": nil, "more": nil}}
	registry := &core.Secret{ObjectMeta: meta.ObjectMeta{Name: "registry", Namespace: "default"},
		Type: core.SecretTypeDockerConfigJson}
	objects, _ := submitted(t, nil)
	c, _ := testClient(append(objects, namespace, there, registry)...)
	problems, err := c.Preflight(t.Context(), j)
	want := []string{
		"--env_secret=A=absent/key: namespace default has no Secret absent: kubectl create secret generic absent --from-literal=key=...",
		"--env_secret=C=there/other: the Secret has no key other: it has key, more",
		"--image_pull_secret=nowhere: namespace default has no such Secret; make it with kubectl " +
			"create secret docker-registry nowhere",
		"--image_pull_secret=there: the Secret is of type Opaque: expected " +
			"kubernetes.io/dockerconfigjson, as kubectl create secret docker-registry makes it",
		"--job_name=test: there is a job of that name: Pending; give another name, or: elasticdl stop test",
		"--master_pod_priority: the cluster has no PriorityClass urgent",
		"--service_account=trainer: namespace default has no such ServiceAccount; an administrator " +
			"makes it of what elasticdl rbac prints",
		"--volume=claim_name=data: namespace default has no such PersistentVolumeClaim",
		"--worker_pod_priority: the cluster has no PriorityClass high",
		"--worker_pod_priority: the cluster has no PriorityClass low",
	}
	if err != nil || problems == nil || problems.Error() != strings.Join(want, "\n") {
		t.Errorf("got\n%v\n%v, want\n%s", problems, err, strings.Join(want, "\n"))
	}

	c, set := testClient(namespace)
	for _, resource := range []string{"namespaces", "jobs", "priorityclasses", "persistentvolumeclaims",
		"serviceaccounts", "secrets"} {
		kubetest.Fail(set, "get", resource, 9, kubetest.Forbidden("get", resource))
	}
	if problems, err := c.Preflight(t.Context(), j); problems != nil || err != nil {
		t.Errorf("what may not be looked at: %v, %v", problems, err)
	}
	c, _ = testClient()
	if problems, err := c.Preflight(t.Context(), j); err != nil || problems == nil ||
		problems.Error() != "--namespace=default: the cluster has no such namespace" {
		t.Errorf("no namespace: %v, %v", problems, err)
	}
}

// Preflight reports what a namespace that enforces the restricted profile would refuse, before the
// pod of the master is created.
func TestPreflightRestricted(t *testing.T) {
	namespace := &core.Namespace{ObjectMeta: meta.ObjectMeta{Name: "default",
		Labels: map[string]string{enforces: "restricted"}}}
	c, _ := testClient(namespace)
	j := kubetest.Job()
	j.Volumes = []job.Volume{{HostPath: "/tmp", MountPath: "/tmp"}}
	problems, err := c.Preflight(t.Context(), j)
	want := "--run_as_user is missing: namespace default enforces restricted, and runs no pod that " +
		"may be root's: give the number of a user, as --run_as_user=1000\n" +
		"--volume=host_path=/tmp,mount_path=/tmp: namespace default enforces restricted, and runs no pod with a host_path: give a claim_name"
	if err != nil || problems == nil || strings.TrimSpace(problems.Error()) != want {
		t.Errorf("got\n%v\n%v, want\n%s", problems, err, want)
	}
	j.Volumes, j.RunAsUser = nil, 1000
	if problems, err := c.Preflight(t.Context(), j); problems != nil || err != nil {
		t.Errorf("a job as it wants it: %v, %v", problems, err)
	}
	namespace.Labels[enforces] = "baseline"
	c, _ = testClient(namespace)
	j.Volumes, j.RunAsUser = nil, 0
	if problems, err := c.Preflight(t.Context(), j); problems != nil || err != nil {
		t.Errorf("baseline: %v, %v", problems, err)
	}
}

// TestAsk checks that a cluster that has answered before is waited for, and one that never has only
// for a few seconds.
func TestAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var notes strings.Builder
		c := &Client{server: "https://cluster", notes: &notes}
		asks := 0
		_, err := ask(t.Context(), c, "get job j", func(context.Context) (int, error) {
			asks++
			return 0, kubetest.Refused
		})
		if want := "get job j: the cluster at https://cluster cannot be reached: dial tcp: " +
			"connection refused"; err == nil || err.Error() != want || asks < 2 {
			t.Errorf("%v after %d requests, want %s", err, asks, want)
		}
		if c.reached.Load() || notes.Len() > 0 {
			t.Errorf("reached, or %q", &notes)
		}
		c.reached.Store(true)
		began := time.Now()
		n, err := ask(t.Context(), c, "get job j", func(context.Context) (int, error) {
			if time.Since(began) < time.Minute {
				return 0, kubetest.Refused
			}
			return 7, nil
		})
		if n != 7 || err != nil || time.Since(began) > time.Minute+longestBackoff {
			t.Errorf("%d, %v after %v", n, err, time.Since(began))
		}
		if strings.Count(notes.String(), "\n") != 3 ||
			!strings.HasSuffix(notes.String(), "note: get job j: the cluster answers again\n") {
			t.Errorf("notes: %q", &notes)
		}
		// A cluster that has never answered is waited for a few seconds and named with its context.
		// The same command does not ask it again.
		began, asks = time.Now(), 0
		fresh := &Client{server: "https://cluster", context: " (context a of config)"}
		silent := func(ctx context.Context) (int, error) { asks++; <-ctx.Done(); return 0, ctx.Err() }
		for _, doing := range []string{"list jobs", "get job j", "list pods"} {
			_, err = ask(t.Context(), fresh, doing, silent)
			if want := doing + ": the cluster at https://cluster (context a of config) cannot be " +
				"reached: no answer in 4s"; !errors.Is(err, ErrUnreachable) || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
		}
		if asks != 1 || time.Since(began) > 5*time.Second {
			t.Errorf("%d requests, %v", asks, time.Since(began))
		}
		// With credentials from another program the wait is longer, because that program may ask
		// its user.
		began = time.Now()
		fresh = &Client{server: "https://cluster", config: &rest.Config{ExecProvider: new(clientcmdapi.ExecConfig)}}
		if _, err = ask(t.Context(), fresh, "list jobs", silent); !errors.Is(err, ErrUnreachable) ||
			time.Since(began) != answerLimit {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		// A request that was refused is not repeated.
		asks = 0
		_, err = ask(t.Context(), c, "list jobs", func(context.Context) (int, error) {
			asks++
			return 0, kubetest.Forbidden("list", "jobs")
		})
		if asks != 1 || !api.IsForbidden(err) ||
			!strings.HasSuffix(err.Error(),
				`cannot list resource "jobs"; an administrator of the cluster can allow it`) {
			t.Errorf("%d requests: %v", asks, err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		_, err = ask(ctx, c, "list jobs", func(context.Context) (int, error) {
			cancel(enough)
			return 0, kubetest.Refused
		})
		if !errors.Is(err, enough) {
			t.Errorf("interrupted: %v", err)
		}
	})
}

func TestConnect(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	text := `{"kind": "Config", "current-context": "a",
		"clusters": [{"name": "a", "cluster": {"server": "https://a:6443"}}, {"name": "b", "cluster": {"server": "https://b:6443"}}],
		"users": [{"name": "me", "user": {"token": "x"}}],
		"contexts": [{"name": "a", "context": {"cluster": "a", "user": "me", "namespace": "training"}}, {"name": "b", "context": {"cluster": "b", "user": "me"}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(t.TempDir(), "none")
	for _, test := range []struct {
		env           string
		at            Place
		server, where string // expected if err is ""
		err           string
	}{
		{file, Place{}, "https://a:6443", "training", ""},
		{file, Place{Namespace: "mine"}, "https://a:6443", "mine", ""},
		{file, Place{Context: "b"}, "https://b:6443", "default", ""},
		{none, Place{Kubeconfig: file}, "https://a:6443", "training", ""},
		{file, Place{Context: "c"}, "", "", "--context=c: there is no such context in " + file},
		{file, Place{Kubeconfig: none}, "", "", "--kubeconfig=" + none + ": no such file"},
		{none, Place{}, "", "", "no cluster is known here: there is no kubeconfig at " + none},
	} {
		t.Setenv("KUBECONFIG", test.env)
		c, err := Connect(test.at)
		switch {
		case test.err != "":
			if err == nil || err.Error() != test.err {
				t.Errorf("%+v: %v, want %s", test.at, err, test.err)
			}
		case err != nil:
			t.Errorf("%+v: %v", test.at, err)
		case c.Server() != test.server || c.Namespace() != test.where:
			t.Errorf("%+v: %s of %s", test.at, c.Namespace(), c.Server())
		}
		if test.err == "" && test.at.Context == "b" && c.Flags() != " --context=b" {
			t.Errorf("%+v: flags %q", test.at, c.Flags())
		}
	}
}
