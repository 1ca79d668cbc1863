package cluster

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"
)

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "%s"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`

// served returns a provider with an API server that is a function, and a client connected to it.
func served(t *testing.T, api http.HandlerFunc) (*Provider, pulumirpc.ResourceProviderClient) {
	t.Helper()
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, fmt.Appendf(nil, kubeconfig, server.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := New(path)
	if err != nil {
		t.Fatal(err)
	}
	port, stop, err := p.Serve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	conn, err := grpc.NewClient(fmt.Sprintf("127.0.0.1:%d", port),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return p, pulumirpc.NewResourceProviderClient(conn)
}

func message(t *testing.T, o map[string]any) *structpb.Struct {
	t.Helper()
	s, err := wire(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConfigure(t *testing.T) {
	_, client := served(t, http.NotFound)
	for _, test := range []struct {
		args map[string]any
		want string // part of the error; "" = no error
	}{
		{map[string]any{"kubeconfig": unknown}, ""},
		{map[string]any{"kubeconfig": kubeconfig}, ""},
		{map[string]any{"kubeconfig": map[string]any{signature: "1b47061264138c4ac30d75fd1eb44270",
			"value": kubeconfig}, "context": "x"}, ""},
		{map[string]any{"kubeconfig": kubeconfig, "context": "y"}, `no context "y"`},
		{map[string]any{"kubeconfig": ".kube/config"}, "is none"},
		{map[string]any{"kubeconfig": "clusters: {\n"}, "kubeconfig: "},
	} {
		_, err := client.Configure(t.Context(), &pulumirpc.ConfigureRequest{Args: message(t, test.args)})
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: %v, want %q", test.args, err, test.want)
		}
	}
}

// A changed provider replaces all objects only if its cluster is another one: by its identity or,
// without one, by its kubeconfig.
func TestDiffConfig(t *testing.T) {
	_, client := served(t, http.NotFound)
	for _, test := range []struct {
		what     string
		old, now map[string]any
		want     []string
	}{
		{"a kubeconfig", map[string]any{"kubeconfig": "a"}, map[string]any{"kubeconfig": "b"}, []string{"kubeconfig"}},
		{"a kubeconfig to come", map[string]any{"kubeconfig": "a"},
			map[string]any{"kubeconfig": unknown}, []string{"kubeconfig"}},
		{"that of the same cluster", map[string]any{"kubeconfig": "a", "clusterIdentifier": "c"},
			map[string]any{"kubeconfig": unknown, "clusterIdentifier": "c"}, nil},
		{"that of another", map[string]any{"kubeconfig": "a", "clusterIdentifier": "c"},
			map[string]any{"kubeconfig": "a", "clusterIdentifier": "d"}, []string{"clusterIdentifier"}},
		{"an option", map[string]any{"kubeconfig": "a"},
			map[string]any{"kubeconfig": "a", "enableConfigMapMutable": "true"}, nil},
	} {
		answer, err := client.DiffConfig(t.Context(),
			&pulumirpc.DiffRequest{OldInputs: message(t, test.old), News: message(t, test.now)})
		if err != nil {
			t.Fatal(err)
		}
		if answer.Changes != pulumirpc.DiffResponse_DIFF_SOME || !slices.Equal(answer.Replaces, test.want) {
			t.Errorf("%s: %v, replaces for %v, want %v", test.what, answer.Changes, answer.Replaces, test.want)
		}
	}
	same := message(t, map[string]any{"kubeconfig": "a"})
	if answer, err := client.DiffConfig(t.Context(),
		&pulumirpc.DiffRequest{OldInputs: same, News: same}); err != nil ||
		answer.Changes != pulumirpc.DiffResponse_DIFF_NONE {
		t.Errorf("%v, %v", answer, err)
	}
}

func TestCheckNamesObjects(t *testing.T) {
	_, client := served(t, http.NotFound)
	const urn = "urn:pulumi:s::p::kubernetes:core/v1:ConfigMap::settings"
	check := func(old, now map[string]any) object {
		t.Helper()
		answer, err := client.Check(t.Context(),
			&pulumirpc.CheckRequest{Urn: urn, Olds: message(t, old), News: message(t, now)})
		if err != nil {
			t.Fatal(err)
		}
		return plain(answer.Inputs)
	}
	if o := check(object{}, parse(t,
		`{kind: ConfigMap, metadata: {name: contract}}`)); o.name() != "contract" || o.annotation("autonamed") != "" {
		t.Errorf("%v", o)
	}
	o := check(object{}, parse(t, `{kind: ConfigMap}`))
	if !strings.HasPrefix(o.name(), "settings-") || o.annotation("autonamed") != "true" {
		t.Errorf("%v", o)
	}
	if again := check(o, parse(t, `{kind: ConfigMap}`)); again.name() != o.name() {
		t.Errorf("named %s, then %s", o.name(), again.name())
	}
}

// The answers of a cluster that does not exist yet are unknown.
func TestPreviewOfACloudToCome(t *testing.T) {
	asked := false
	p, client := served(t, func(http.ResponseWriter, *http.Request) { asked = true })
	if _, err := client.Configure(t.Context(),
		&pulumirpc.ConfigureRequest{Args: message(t, map[string]any{"kubeconfig": unknown})}); err != nil {
		t.Fatal(err)
	}
	o := parse(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {b: c}}`)
	answer, err := client.Create(t.Context(), &pulumirpc.CreateRequest{Properties: message(t, o), Preview: true})
	if err != nil || object(plain(answer.Properties)).text("data", "b") != "c" || asked || len(p.Calls()) != 0 {
		t.Errorf("%v, %v, asked: %v", answer, err, asked)
	}
}
