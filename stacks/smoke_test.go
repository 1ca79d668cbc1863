//go:build !e2e

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/test/provider"
)

// Each stack runs as its user runs it: the CLI reads Pulumi.yaml, and builds and runs the program
// on its own.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	bin := linksOnce(t)
	for _, name := range []string{"existing", "gke", "eks", "minikube"} {
		t.Run(name, func(t *testing.T) {
			// for another project of the same name, since `stack init` writes into its directory
			dir := t.TempDir()
			project, err := os.ReadFile("Pulumi.yaml")
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "Pulumi.yaml"), project, 0o600); err != nil {
				t.Fatal(err)
			}
			file := userFile(t, dir, name)
			setIn(t, file, "elasticdl:image.source", "cmd/elasticdl") // as shipped
			env := os.Environ()
			clouds := provider.Start(t).Env()
			if name == "existing" {
				clouds["KUBECONFIG"] = emptyCluster(t)
			}
			for k, v := range clouds {
				env = append(env, k+"="+v)
			}
			env = append(env, "PATH="+bin+string(os.PathListSeparator)+clouds["PATH"], "PULUMI_HOME="+
				t.TempDir(), "PULUMI_BACKEND_URL=file://"+t.TempDir())
			pulumi := func(dir string, args ...string) (string, error) {
				c := exec.CommandContext(t.Context(), "pulumi",
					append(args, "--non-interactive", "--color=never", "--stack", name)...)
				c.Dir, c.Env = dir, env
				out, err := c.CombinedOutput()
				return string(out), err
			}
			if out, err := pulumi(dir, "stack", "init"); err != nil {
				t.Fatalf("stack init: %v\n%s", err, out)
			}
			began := time.Now()
			out, err := pulumi(".", "preview", "--config-file", file)
			if err != nil {
				t.Fatalf("preview: %v\n%s", err, out)
			}
			t.Logf("preview, with the program's build, in %v", time.Since(began).Round(100*time.Millisecond))
			want, err := os.ReadFile(filepath.Join("stacks", "testdata", name+".txt"))
			if err != nil {
				t.Fatal(err)
			}
			n, _, _ := strings.Cut(string(want), " ")
			if !strings.Contains(out, "+ "+n+" to create") {
				t.Errorf("%s resources are expected:\n%s", n, out)
			}
			// only the environment of the real CLI has all keys of a file
			if name == "minikube" {
				setIn(t, file, "elasticdl:jobb", map[string]any{"numWorkers": 3})
				if out, err := pulumi(".", "preview", "--config-file", file); err == nil ||
					!strings.Contains(out, "elasticdl:jobb: unknown field") ||
					strings.Contains(out, "program failed") || strings.Contains(out, "error occurred:") {
					t.Errorf("a section that nobody knows: %v\n%s", err, out)
				}
			}
		})
	}
}

// emptyCluster serves an API server that has no objects but the namespace kube-system, and returns
// the path of a kubeconfig with it.
func emptyCluster(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/namespaces/kube-system" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		fmt.Fprint(w, `{"metadata": {"name": "kube-system", "uid": "uid-of-a-test"}}`)
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: kind-mine, "+
		"clusters: [{name: mine, cluster: {server: %q}}], contexts: [{name: kind-mine, context: {cluster: mine}}]}",
		server.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// linksOnce returns a directory with a go command that links the program at its first call. Later
// calls, for which go would link the same again, get that result. Linking takes seven seconds of
// CPU time.
func linksOnce(t *testing.T) string {
	t.Helper()
	real, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	script := `#!/usr/bin/env bash
program=` + shellQuote(filepath.Join(bin, "program")) + `
[ "$1 $2" = "build -o" ] || exec ` + shellQuote(real) + ` "$@"
[ -e "$program" ] || ` + shellQuote(real) + ` build -o "$program" "${@:4}" || exit
ln -f "$program" "$3" || cp "$program" "$3"
`
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return bin
}
