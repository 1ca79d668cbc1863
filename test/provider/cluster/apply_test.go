package cluster

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc/status"
)

// api simulates an API server with one namespace, "ns", of claims and Jobs, without controllers.
type api struct {
	mu sync.Mutex
	// objects by path
	objects map[string]object
	// requests: method, path and parameters; for a deletion also the policy
	asked []string
	// claims are bound
	bound bool
	// message with which changes of an existing object are refused; "" = they are accepted
	refuses string
	// how many more times a deleted object is returned
	kept int
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	answer := func(code int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		json.NewEncoder(w).Encode(v)
	}
	list := func(version, plural, kind string) map[string]any {
		return map[string]any{"kind": "APIResourceList", "groupVersion": version, "resources": []any{
			map[string]any{"name": plural, "kind": kind, "namespaced": true, "verbs": []any{"get", "patch", "delete"}}}}
	}
	switch r.URL.Path {
	case "/api":
		answer(200, map[string]any{"kind": "APIVersions", "versions": []any{"v1"}})
		return
	case "/apis":
		version := map[string]any{"groupVersion": "batch/v1", "version": "v1"}
		answer(200, map[string]any{"kind": "APIGroupList",
			"groups": []any{map[string]any{"name": "batch", "versions": []any{version}, "preferredVersion": version}}})
		return
	case "/api/v1":
		answer(200, list("v1", "persistentvolumeclaims", "PersistentVolumeClaim"))
		return
	case "/apis/batch/v1":
		answer(200, list("batch/v1", "jobs", "Job"))
		return
	}
	failure := func(code int, reason string) {
		answer(code, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure",
			"code": code, "reason": reason, "message": reason})
	}
	asked := r.Method + " " + r.URL.Path + "?" + r.URL.RawQuery
	var body map[string]any
	if r.Body != nil {
		json.NewDecoder(r.Body).Decode(&body)
	}
	if policy, ok := body["propagationPolicy"].(string); ok {
		asked += policy
	}
	if r.Method != http.MethodGet {
		a.asked = append(a.asked, asked)
	}
	there := a.objects[r.URL.Path]
	switch {
	case !strings.Contains(r.URL.Path, "/namespaces/ns/"):
		failure(404, "NotFound")
	case r.Method == http.MethodPatch && there != nil && a.refuses != "":
		answer(422, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure",
			"code": 422, "reason": "Invalid", "message": a.refuses})
	case r.Method == http.MethodPatch:
		if r.URL.Query().Get("dryRun") == "" {
			a.objects[r.URL.Path] = body
		}
		live := maps.Clone(body)
		if a.bound {
			live["status"] = map[string]any{"phase": "Bound"}
		}
		answer(200, live)
	case there == nil:
		failure(404, "NotFound")
	case r.Method == http.MethodDelete:
		there["deleted"] = true
		answer(200, there)
	default:
		if there["deleted"] == true {
			if a.kept--; a.kept < 0 {
				delete(a.objects, r.URL.Path)
				failure(404, "NotFound")
				return
			}
		}
		answer(200, there)
	}
}

const claim = `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c, namespace: ns}, spec: {volumeName: v}}`

// last returns the last request to the server.
func (a *api) last() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked[len(a.asked)-1]
}

func newAPI(t *testing.T) (*api, *Provider, pulumirpc.ResourceProviderClient) {
	t.Helper()
	a := &api{objects: make(map[string]object), bound: true}
	p, client := served(t, a.ServeHTTP)
	if _, err := client.Configure(t.Context(),
		&pulumirpc.ConfigureRequest{Args: message(t, map[string]any{"kubeconfig": kubeconfig})}); err != nil {
		t.Fatal(err)
	}
	return a, p, client
}

// An object is applied with strict validation, under a field manager of its own that does not
// change, and by force only if the object reports it.
func TestApply(t *testing.T) {
	a, p, client := newAPI(t)
	made, err := client.Create(t.Context(), &pulumirpc.CreateRequest{Properties: message(t, parse(t, claim))})
	if err != nil || made.Id != "ns/c" {
		t.Fatalf("%v, %v", made, err)
	}
	manager := object(plain(made.Properties)).text(managerKey)
	if want := "PATCH /api/v1/namespaces/ns/persistentvolumeclaims/c?fieldManager=" + manager +
		"&fieldValidation=Strict&force=false"; a.last() != want || !strings.HasPrefix(manager, "pulumi-kubernetes-") {
		t.Errorf("%s, want %s", a.last(), want)
	}
	forced := parse(t, claim)
	forced.annotate("pulumi.com/patchForce", "true")
	if _, err := client.Update(t.Context(), &pulumirpc.UpdateRequest{Id: made.Id, Olds: made.Properties,
		News: message(t, forced)}); err != nil {
		t.Fatal(err)
	}
	if want := "PATCH /api/v1/namespaces/ns/persistentvolumeclaims/c?fieldManager=" + manager +
		"&fieldValidation=Strict&force=true"; a.last() != want {
		t.Errorf("%s, want %s", a.last(), want)
	}
	if calls := p.Calls(); len(calls) != 2 || calls[1].String() != "update v1/PersistentVolumeClaim ns/c" {
		t.Errorf("%v", calls)
	}
}

// A preview changes nothing. It returns the inputs if the server cannot know the result: for an
// object in a namespace that does not exist yet.
func TestPreview(t *testing.T) {
	a, p, client := newAPI(t)
	for _, namespace := range []string{"ns", "tocome"} {
		o := parse(t, claim)
		o.metadata()["namespace"] = namespace
		seen, err := client.Create(t.Context(), &pulumirpc.CreateRequest{Properties: message(t, o), Preview: true})
		if err != nil || seen.Id != "" || object(plain(seen.Properties)).text("spec", "volumeName") != "v" {
			t.Errorf("in %s: %v, %v", namespace, seen, err)
		}
		if !strings.Contains(a.last(), "dryRun=All") {
			t.Errorf("in %s: %s", namespace, a.last())
		}
	}
	if len(a.objects) != 0 || len(p.Calls()) != 0 {
		t.Errorf("the preview made %v", p.Calls())
	}
}

// A deleted object cannot be updated, not even in a preview; a create takes over an existing
// object.
func TestUpdateOfNothing(t *testing.T) {
	a, _, client := newAPI(t)
	made, err := client.Create(t.Context(), &pulumirpc.CreateRequest{Properties: message(t, parse(t, claim))})
	if err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	clear(a.objects)
	a.mu.Unlock()
	for _, preview := range []bool{true, false} {
		_, err := client.Update(t.Context(),
			&pulumirpc.UpdateRequest{Id: made.Id, Olds: made.Properties, News: made.Properties, Preview: preview})
		if err == nil || !strings.Contains(err.Error(), "NotFound") ||
			!strings.Contains(err.Error(), "unable to get cluster state") {
			t.Errorf("preview %v: %v", preview, err)
		}
	}
	if len(a.objects) > 0 {
		t.Errorf("there is now %v", a.objects)
	}
}

// An error of the server ends a preview, with the server's message; except for an immutable field
// of an object that is replaced.
func TestPreviewRefused(t *testing.T) {
	for _, test := range []struct {
		refusal  string
		replaced bool
	}{
		{"spec.template: Invalid value: {}: field is immutable", true},
		{"value: Forbidden: may not be changed in an update.", false},
	} {
		a, _, client := newAPI(t)
		made, err := client.Create(t.Context(), &pulumirpc.CreateRequest{Properties: message(t, parse(t, claim))})
		if err != nil {
			t.Fatal(err)
		}
		a.refuses = test.refusal
		_, err = client.Update(t.Context(), &pulumirpc.UpdateRequest{Id: made.Id, Olds: made.Properties,
			News: message(t, parse(t, claim)), Preview: true})
		if err == nil || !strings.Contains(err.Error(), test.refusal) {
			t.Errorf("an update in a preview: %v, want %s", err, test.refusal)
		}
		_, err = client.Create(t.Context(),
			&pulumirpc.CreateRequest{Properties: message(t, parse(t, claim)), Preview: true})
		if (err == nil) != test.replaced || err != nil && !strings.Contains(err.Error(), test.refusal) {
			t.Errorf("a replacement in a preview: %v, refused for %s", err, test.refusal)
		}
	}
}

// An object that exists and never becomes ready is in the state all the same, and can be read
// again.
func TestNeverReady(t *testing.T) {
	a, p, client := newAPI(t)
	a.bound, p.Patience = false, 300*time.Millisecond
	_, err := client.Create(t.Context(), &pulumirpc.CreateRequest{Properties: message(t, parse(t, claim))})
	var failed *pulumirpc.ErrorResourceInitFailed
	for _, d := range status.Convert(err).Details() {
		failed, _ = d.(*pulumirpc.ErrorResourceInitFailed)
	}
	if failed == nil || failed.Id != "ns/c" || object(plain(failed.Properties)).text(managerKey) == "" {
		t.Fatalf("%v, %v", err, failed)
	}
	o := parse(t, claim)
	o.annotate("pulumi.com/skipAwait", "true")
	if _, err := client.Create(t.Context(), &pulumirpc.CreateRequest{Properties: message(t, o)}); err != nil {
		t.Errorf("nobody was to wait: %v", err)
	}
}

// Changes and deletions by others are found.
func TestRead(t *testing.T) {
	a, _, client := newAPI(t)
	inputs := message(t, parse(t, claim))
	made, err := client.Create(t.Context(), &pulumirpc.CreateRequest{Properties: inputs})
	if err != nil {
		t.Fatal(err)
	}
	read := func() *pulumirpc.ReadResponse {
		t.Helper()
		r, err := client.Read(t.Context(),
			&pulumirpc.ReadRequest{Id: made.Id, Properties: made.Properties, Inputs: inputs})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	const path = "/api/v1/namespaces/ns/persistentvolumeclaims/c"
	a.objects[path]["spec"] = map[string]any{"volumeName": "w", "volumeMode": "Filesystem"}
	if spec := plain(read().Inputs)["spec"].(map[string]any); len(spec) != 1 || spec["volumeName"] != "w" {
		t.Errorf("inputs are now %v", spec)
	}
	delete(a.objects, path)
	if r := read(); r.Id != "" {
		t.Errorf("%v, which is deleted", r)
	}
}

// A deletion is in the foreground and awaited, unless the object has an annotation against that.
func TestDelete(t *testing.T) {
	const root = `{apiVersion: batch/v1, kind: Job, metadata: {name: j, namespace: ns, annotations: {pulumi.com/skipAwait: "true", pulumi.com/deletionPropagationPolicy: background}}}`
	for _, test := range []struct{ object, policy, path string }{
		{claim, "Foreground", "/api/v1/namespaces/ns/persistentvolumeclaims/c"},
		{root, "Background", "/apis/batch/v1/namespaces/ns/jobs/j"},
	} {
		a, p, client := newAPI(t)
		inputs := message(t, parse(t, test.object))
		made, err := client.Create(t.Context(), &pulumirpc.CreateRequest{Properties: inputs})
		if err != nil {
			t.Fatal(err)
		}
		a.kept = 2
		p.Done = func(c Call) {
			a.mu.Lock()
			defer a.mu.Unlock()
			if awaited := a.objects[test.path] == nil; awaited != (test.object == claim) {
				t.Errorf("%s: it is deleted: %v", c, awaited)
			}
		}
		if _, err := client.Delete(t.Context(),
			&pulumirpc.DeleteRequest{Id: made.Id, Properties: made.Properties, OldInputs: inputs}); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(a.last(), test.policy) {
			t.Errorf("%s, want %s", a.last(), test.policy)
		}
		if calls := p.Calls(); calls[len(calls)-1].Op != "delete" {
			t.Errorf("%v", calls)
		}
	}
}
