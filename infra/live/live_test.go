package live

import (
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/elasticdl/elasticdl/infra"
)

// Get returns what the API server has: an object, nil if it does not exist, or an error that says
// why it cannot be read. Only a server that knows the kind may report that an object does not
// exist.
func TestGet(t *testing.T) {
	answers := map[string]string{
		"/api/v1/namespaces/training": "200 " +
			`{"kind":"Namespace","metadata":{"name":"training"}}`,
		"/api/v1/namespaces/training/configmaps/spec": "200 " +
			`{"kind":"ConfigMap","metadata":{"name":"spec"}}`,
		"/api/v1/namespaces/training/persistentvolumeclaims/data": "200 " +
			`{"kind":"PersistentVolumeClaim","metadata":{"name":"data"}}`,
		"/apis/batch/v1/namespaces/training/jobs/master": "200 " +
			`{"kind":"Job","metadata":{"name":"master"}}`,
		"/apis/scheduling.k8s.io/v1/priorityclasses/high": "200 " +
			`{"kind":"PriorityClass","metadata":{"name":"high"}}`,
		"/apis/networking.k8s.io/v1/namespaces/training/networkpolicies/deny": "200 " +
			`{"kind":"NetworkPolicy","metadata":{"name":"deny"}}`,
		"/apis/rbac.authorization.k8s.io/v1/namespaces/training/rolebindings/admin": "200 " +
			`{"kind":"RoleBinding","metadata":{"name":"admin"}}`,
		"/api/v1/namespaces/theirs": "403 " +
			`{"kind":"Status","message":"namespaces \"theirs\" is forbidden"}`,
		"/api/v1/namespaces/broken": "200 <html>",
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, text, found := strings.Cut(answers[r.URL.Path], " ")
		switch {
		case r.Method != http.MethodGet || r.Header.Get("Authorization") != "Bearer of-stack":
			w.WriteHeader(http.StatusUnauthorized)
		case !found:
			w.WriteHeader(http.StatusNotFound)
		case code == "403":
			w.WriteHeader(http.StatusForbidden)
		}
		fmt.Fprint(w, text)
	}))
	t.Cleanup(server.Close)
	absent := httptest.NewTLSServer(http.NotFoundHandler())
	absent.Close()
	config := kubeconfig(server, absent)
	network := schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}
	binding := schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"}
	for _, test := range []struct {
		of, namespace, name string
		kind                schema.GroupVersionKind
		there               bool
		err                 string
	}{
		{"", "", "training", infra.KindNamespace, true, ""},
		{"", "training", "spec", infra.KindConfigMap, true, ""},
		{"", "training", "data", infra.KindClaim, true, ""},
		{"", "training", "master", infra.KindJob, true, ""},
		{"", "", "high", infra.KindPriorityClass, true, ""},
		{"", "training", "deny", network, true, ""},
		{"", "training", "admin", binding, true, ""},
		{"stack", "", "high", infra.KindPriorityClass, true, ""},
		{"", "", "low", infra.KindPriorityClass, false, ""},
		{"", "another", "master", infra.KindJob, false, ""},
		{"", "", "theirs", infra.KindNamespace, false, "get Namespace theirs: the API server says 403 Forbidden"},
		{"nobody", "", "training", infra.KindNamespace, false,
			"get Namespace training: the API server says 401 Unauthorized"},
		{"", "", "broken", infra.KindNamespace, false, "get Namespace broken: "},
		{"absent", "", "training", infra.KindNamespace, false, "connection refused"},
		{"other", "", "training", infra.KindNamespace, false, `read the kubeconfig: context "other" does not exist`},
	} {
		is, err := Reader{}.Get(t.Context(), config, test.of, test.kind, test.namespace, test.name)
		if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s %s in %q: %v, want %q", test.kind.Kind, test.name, test.of, err, test.err)
		}
		if errors.Is(err, infra.ErrForbidden) != (test.name == "theirs") {
			t.Errorf("%s %s in %q: %v", test.kind.Kind, test.name, test.of, err)
		}
		if (is != nil) != test.there || is != nil && is["kind"] != test.kind.Kind {
			t.Errorf("%s %s in %q: there is %v", test.kind.Kind, test.name, test.of, is)
		}
	}
}

// The context of an adopted cluster is found in this machine's kubeconfig, whatever its current
// context is.
func TestGetOfContext(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"kind":"Namespace"}`)
	}))
	t.Cleanup(server.Close)
	absent := httptest.NewTLSServer(http.NotFoundHandler())
	absent.Close()
	file := filepath.Join(t.TempDir(), "config")
	t.Setenv("KUBECONFIG", file)
	get := func(of string) (map[string]any, error) {
		return Reader{}.Get(t.Context(), "", of, infra.KindNamespace, "", "n")
	}
	if is, err := get("absent"); err == nil {
		t.Errorf("without a file there is %v", is)
	}
	if err := os.WriteFile(file, []byte(kubeconfig(absent, server)), 0o600); err != nil {
		t.Fatal(err)
	}
	if is, err := get("absent"); err != nil || !slices.Equal(slices.Collect(maps.Keys(is)), []string{"kind"}) {
		t.Errorf("got %v, %v", is, err)
	}
	if is, err := get("stack"); err == nil {
		t.Errorf("in a cluster that does not answer there is %v", is)
	}
}

// kubeconfig returns a kubeconfig with three contexts: "stack", the current one; "nobody", with the
// same cluster but without rights; and "absent", with another cluster.
func kubeconfig(stack, absent *httptest.Server) string {
	authority := func(s *httptest.Server) string {
		return base64.StdEncoding.EncodeToString(
			pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- {name: stack, cluster: {server: %q, certificate-authority-data: %s}}
- {name: absent, cluster: {server: %q, certificate-authority-data: %s}}
users:
- {name: stack, user: {token: of-stack}}
- {name: nobody, user: {token: of-nobody}}
contexts:
- {name: stack, context: {cluster: stack, user: stack}}
- {name: nobody, context: {cluster: stack, user: nobody}}
- {name: absent, context: {cluster: absent, user: stack}}
current-context: stack
`, stack.URL, authority(stack), absent.URL, authority(absent))
}
