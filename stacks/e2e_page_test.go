//go:build e2e

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/test/provider"
)

// TestMain runs the tests; under another name this binary is the program of the stacks, for the CLI
// in [site.testPage], which then need not compile it.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == programName {
		main()
		return
	}
	os.Exit(m.Run())
}

// The commands of minikube's page run on a real cluster, from the first to the last, and then once
// more: Pulumi, its engine, the program, kubectl, elasticdl and the job are the real ones. Only
// commands that manage a profile have stand-ins.
func (s *site) testPage(t *testing.T) {
	const stack = "minikube"
	tr, debug := s.newProviders(t, stack)
	tr.cluster.Mounts = map[string]string{"/data": s.data}
	bin, home := t.TempDir(), t.TempDir()
	change := map[string]string{
		debugProviders: debug, "ELASTICDL_BUILT": s.elasticdl, "TEST_CLUSTER": s.dir, "TEST_DATA": s.data,
	}
	goes(t, change) // Go's caches depend on the home directory
	for name, is := range map[string]string{
		"minikube": "testdata/page/minikube.sh",
		"docker":   "testdata/page/tools.sh", // answers `docker info`
		"make":     "testdata/page/tools.sh", // the test has run `make build` before
		"kubectl":  s.kubectl,
	} {
		link(t, is, filepath.Join(bin, name))
	}
	r := newReader(t, s.repository, stack, bin, home, tr.cloud, change)
	r.left = func() []string { return append(tr.cloud.Left(), tr.live()...) }
	r.settle([][2]string{
		{"namespace: elasticdl\n", "namespace: " + tr.namespace + "\n"},
		{"source: cmd/elasticdl\n", "source: " + s.zoo + "\n"}, // an image that no other test uses
		// use local files instead of a download
		{"path: mnist #", "source: " + filepath.Join(s.repository, "examples", "mnist", "data") +
			"\n    path: mnist #"},
		{"mnist_functional_api", "mnist_mlp"}, // a model that trains quickly
		{"numEpochs: 2\n", "numEpochs: 1\n"},
	})

	// This process runs the commands of the stack: in the reader's directory, with the reader's
	// environment, and with the elasticdl that the page has built.
	// only the module of this directory has the schema
	if _, err := provider.SchemaOf("command:local:Command"); err != nil {
		t.Fatal(err)
	}
	t.Chdir(r.dir)
	for k, v := range change {
		t.Setenv(k, v)
	}
	t.Setenv("HOME", home)
	for name, is := range map[string]string{"minikube": filepath.Join(bin, "minikube"),
		"kubectl": s.kubectl, "elasticdl": filepath.Join(r.dir, "build", "elasticdl")} {
		path, err := tr.cloud.Find(name)
		if err == nil {
			err = os.Remove(path)
		}
		if err != nil {
			t.Fatal(err)
		}
		link(t, is, path)
	}

	began := time.Now()
	page := script(sections(t, filepath.Join(s.repository, "docs", "infrastructure", stack+".md"),
		"Before the first time", fromNothing), map[string]string{login: loginTo(t)})
	for _, when := range []string{"the first time", "again"} {
		r.run(when, page)
	}
	t.Logf("twice in %v", time.Since(began).Round(100*time.Millisecond))
	made := 0
	for _, c := range tr.cluster.Calls() {
		if c.Op+" "+c.Kind == "create batch/v1/Job" {
			made++
		}
	}
	if made != 2 {
		t.Errorf("the job was made %d times, want once for each time that the page was run", made)
	}
}

// sections returns the commands of a page that are under these headings, in the page's order.
func sections(t *testing.T, file string, of ...string) (all []step) {
	t.Helper()
	n := 0
	for _, b := range blocks(t, file) {
		if slices.Contains(of, b.section) {
			n++
			all = append(all, b.steps(t)...)
		}
	}
	if n < len(of) {
		t.Fatalf("%s: %d blocks of commands in %q", file, n, of)
	}
	return all
}

// goes adds the directories of Go's caches and settings to an environment, because they depend on
// the home directory.
func goes(t *testing.T, environment map[string]string) {
	t.Helper()
	names := []string{"GOCACHE", "GOENV", "GOFLAGS", "GOMODCACHE", "GOPROXY"}
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"env"}, names...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	for i, value := range strings.Split(strings.TrimSuffix(string(out), "\n"), "\n") {
		environment[names[i]] = value
	}
}

// settle changes the shipped settings: each text must occur once.
func (r *reader) settle(changes [][2]string) {
	r.Helper()
	text := r.shipped()
	for _, c := range changes {
		if strings.Count(text, c[0]) != 1 {
			r.Fatalf("%s has not once %q", r.file(), c[0])
		}
		text = strings.Replace(text, c[0], c[1], 1)
	}
	r.write(r.file(), []byte(text))
}

// live returns the objects that the stack has created and that still exist in the cluster.
func (tr *trial) live() (all []string) {
	tr.t.Helper()
	for _, c := range tr.left() {
		if out := tr.run("kubectl", "get", resource(c), c.ID[strings.LastIndex(c.ID, "/")+1:],
			"--namespace="+namespaceOf(c), "--ignore-not-found", "-o", "name"); out != "" {
			all = append(all, c.Kind+" "+c.ID)
		}
	}
	return all
}
