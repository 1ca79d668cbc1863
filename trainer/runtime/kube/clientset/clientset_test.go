package clientset_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	authorization "k8s.io/api/authorization/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/elasticdl/elasticdl/test/kubetest"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/clientset"
)

// use makes one request of each kind.
func use(ctx context.Context, set clientset.Interface) {
	object := meta.ObjectMeta{Name: "a", Namespace: "n"}
	all(ctx, set.CoreV1().ConfigMaps("n"), &core.ConfigMap{ObjectMeta: object})
	all(ctx, set.CoreV1().Events("n"), &core.Event{ObjectMeta: object})
	all(ctx, set.CoreV1().Namespaces(), &core.Namespace{ObjectMeta: object})
	all(ctx, set.CoreV1().Nodes(), &core.Node{ObjectMeta: object})
	all(ctx, set.CoreV1().PersistentVolumeClaims("n"), &core.PersistentVolumeClaim{ObjectMeta: object})
	all(ctx, set.CoreV1().Pods("n"), &core.Pod{ObjectMeta: object})
	all(ctx, set.CoreV1().ResourceQuotas("n"), &core.ResourceQuota{ObjectMeta: object})
	all(ctx, set.CoreV1().Secrets("n"), &core.Secret{ObjectMeta: object})
	all(ctx, set.CoreV1().ServiceAccounts("n"), &core.ServiceAccount{ObjectMeta: object})
	all(ctx, set.CoreV1().Services("n"), &core.Service{ObjectMeta: object})
	all(ctx, set.BatchV1().Jobs("n"), &batch.Job{ObjectMeta: object})
	all(ctx, set.NetworkingV1().NetworkPolicies("n"), &networking.NetworkPolicy{ObjectMeta: object})
	all(ctx, set.PolicyV1().PodDisruptionBudgets("n"), &policy.PodDisruptionBudget{ObjectMeta: object})
	all(ctx, set.RbacV1().Roles("n"), &rbac.Role{ObjectMeta: object})
	all(ctx, set.RbacV1().RoleBindings("n"), &rbac.RoleBinding{ObjectMeta: object})
	set.SchedulingV1().PriorityClasses().Get(ctx, "a", meta.GetOptions{})
	set.SchedulingV1().PriorityClasses().List(ctx, meta.ListOptions{})
	set.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
		&authorization.SelfSubjectAccessReview{Spec: authorization.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorization.ResourceAttributes{Verb: "get"}}}, meta.CreateOptions{})
	lines := int64(3)
	set.CoreV1().Pods("n").GetLogs("a", &core.PodLogOptions{Follow: true, TailLines: &lines}).DoRaw(ctx)
	set.CoreV1().RESTClient().Post().Namespace("n").Resource("pods").Name("a").SubResource("exec").
		VersionedParams(&core.PodExecOptions{Command: []string{"b", "c"}, Stdin: true}, clientset.ParameterCodec).
		Do(ctx)
	set.Discovery().RESTClient().Get().AbsPath("/openid/v1/jwks").DoRaw(ctx)
	set.Discovery().ServerVersion()
}

// all makes one request of each method.
func all[T, L any](ctx context.Context, o clientset.Objects[T, L], one T) {
	seconds := int64(5)
	o.Create(ctx, one, meta.CreateOptions{DryRun: []string{meta.DryRunAll}})
	o.Update(ctx, one, meta.UpdateOptions{FieldManager: "m"})
	o.Delete(ctx, "a", meta.DeleteOptions{GracePeriodSeconds: &seconds})
	o.Get(ctx, "a", meta.GetOptions{ResourceVersion: "7"})
	o.List(ctx, meta.ListOptions{LabelSelector: "b=c", Limit: 9})
	o.Watch(ctx, meta.ListOptions{TimeoutSeconds: &seconds, AllowWatchBookmarks: true})
	o.Patch(ctx, "a", types.StrategicMergePatchType, []byte(`{}`), meta.PatchOptions{FieldManager: "m"}, "status")
}

// Requests are those of client-go's own clients, byte by byte.
func TestRequests(t *testing.T) {
	var requests []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Header.Del("Kubectl-Command")
		requests = append(requests, fmt.Sprintf("%s %s %v %q", r.Method, r.URL, r.Header, body))
		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL, BearerToken: "token", QPS: -1}
	own, err := clientset.New(config)
	if err != nil {
		t.Fatal(err)
	}
	use(t.Context(), own)
	ours := requests
	requests = nil
	theirs, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	use(t.Context(), kubetest.Set(theirs))
	for i := range max(len(ours), len(requests)) {
		if i >= len(ours) || i >= len(requests) || ours[i] != requests[i] {
			t.Fatalf("request %d is\n%s, want\n%s", i, ours[i:min(i+1, len(ours))], requests[i:min(i+1, len(requests))])
		}
	}
	if len(ours) < 100 {
		t.Errorf("%d requests", len(ours))
	}
}

// Answers of a server are read as by client-go's own clients.
func TestAnswers(t *testing.T) {
	const groups = `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"kueue.x-k8s.io",` +
		`"versions":[{"groupVersion":"kueue.x-k8s.io/v1beta1","version":"v1beta1"}],` +
		`"preferredVersion":{"groupVersion":"kueue.x-k8s.io/v1beta1","version":"v1beta1"}}]}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		text, ok := map[string]string{"/apis": groups, "/version": `{"gitVersion":"v1.36.0"}`,
			"/api/v1/namespaces/n/pods/a": `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}`,
			"/api/v1/namespaces/n/pods":   `{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"b"}}]}`,
		}[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusForbidden)
			text = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`
		}
		io.WriteString(w, text)
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	own, err := clientset.New(config)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	read := func(set clientset.Interface) (all []any) {
		pod, err := set.CoreV1().Pods("n").Get(t.Context(), "a", meta.GetOptions{})
		all = append(all, pod, err)
		pods, err := set.CoreV1().Pods("n").List(t.Context(), meta.ListOptions{})
		all = append(all, pods, err)
		_, err = set.CoreV1().Nodes().Get(t.Context(), "a", meta.GetOptions{})
		all = append(all, err)
		info, err := set.Discovery().ServerVersion()
		return append(all, info, err)
	}
	if got, want := read(own), read(kubetest.Set(whole)); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	got, err := own.Discovery().ServerGroups()
	if err != nil || len(got.Groups) != 1 || got.Groups[0].Name != "kueue.x-k8s.io" ||
		got.Groups[0].PreferredVersion.Version != "v1beta1" {
		t.Errorf("%v, %v", got, err)
	}
}
