package cli

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/elasticdl/elasticdl/trainer/runtime/image"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube"
)

// TestZoo runs the scripts testdata/zoo/*.txtar with a registry, this checkout, and Go's caches,
// but without a network.
func TestZoo(t *testing.T) {
	checkout, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	caches, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	// Images are compressed, which takes minutes under the race detector; trainer/runtime/image has
	// tests for that.
	fast := t.TempDir()
	build := exec.Command("go", "build", "-C", checkout, "-trimpath", "-buildvcs=false", "-tags", image.Tags,
		"-ldflags=-dumpdep", "-o", fast, "./cmd/elasticdl")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	isSmall(t, out)
	cache := strings.Fields(string(caches))
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	testscript.RunT(listener{t}, testscript.Params{
		Dir:           "testdata/zoo",
		UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			for key, value := range map[string]string{
				"ELASTICDL_HOME": filepath.Join(env.WorkDir, "state"), "CHECKOUT": checkout,
				"FAST": fast, "REGISTRY": server.Listener.Addr().String(),
				"DIGITS":  filepath.Join(checkout, "examples/mnist/data"),
				"GOCACHE": cache[0], "GOMODCACHE": cache[1], "GOPROXY": "off", "GOFLAGS": "-trimpath",
				"GOTOOLCHAIN": "local", "GOWORK": "off",
			} {
				env.Setenv(key, value)
			}
			bin := filepath.Join(env.WorkDir, "bin")
			if err := os.Mkdir(bin, 0o755); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(bin, "minikube"), []byte(minikube), 0o755)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"extract": extract},
	})
}

// isSmall checks that no function of a program looks up methods by reflection, for which the linker
// would keep all exported methods, 25 MB, and that no package has all groups of Kubernetes' API,
// 9 MB. It takes the linker's list of what needs what.
func isSmall(t *testing.T, needs []byte) {
	t.Helper()
	for line := range bytes.Lines(needs) {
		if bytes.Contains(line, []byte(" <ReflectMethod> -> ")) {
			t.Errorf("the linker keeps all exported methods, because of %s", line)
		}
		// of the sets of client-go, in place of package clientset
		if bytes.HasPrefix(line, []byte("type:k8s.io/api/extensions/")) {
			t.Errorf("the linker keeps all groups of Kubernetes' API: %s", line)
			break
		}
	}
	makefile, err := os.ReadFile(filepath.Join(repository, "Makefile"))
	if err != nil || !bytes.Contains(makefile, []byte("-tags "+image.Tags+" ")) {
		t.Errorf("make build does not use the tags %s: %v", image.Tags, err)
	}
}

// minikube is a fake with the profile mine: it records its arguments, and keeps the image.
const minikube = `#!/bin/sh
[ "$2" = mine ] || { echo "Profile \"$2\" not found." >&2; exit 85; }
echo "$1 $2 $3 $4" >>loaded
cp "$5" mine.tar
`

// extract takes the binary out of an image: extract IMAGE.tar FILE
func extract(ts *testscript.TestScript, _ bool, args []string) {
	var tag *name.Tag // any tag
	packed, err := tarball.ImageFromPath(ts.MkAbs(args[0]), tag)
	ts.Check(err)
	files := mutate.Extract(packed)
	defer files.Close()
	for archive := tar.NewReader(files); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			ts.Fatalf("%s has no binary", args[0])
		}
		ts.Check(err)
		if header.Name != "elasticdl" {
			continue
		}
		program, err := io.ReadAll(archive)
		ts.Check(err)
		ts.Check(os.WriteFile(ts.MkAbs(args[1]), program, 0o755))
		return
	}
}

// The permissions in the file at ElasticDL's path are those that elasticdl rbac prints, without the
// namespace, which is the current one.
func TestPermissionsAtElasticDLsPath(t *testing.T) {
	want, err := kube.Permissions("", "elasticdl")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"elasticdl-rbac.yaml", "examples/elasticdl-rbac.yaml"} {
		text, err := os.ReadFile(filepath.Join(repository, "examples/elasticdl/elasticdl/manifests", name))
		if err != nil {
			t.Fatal(err)
		}
		_, got, _ := strings.Cut(string(text), "\n") // the first line says what they are
		if got != string(want) {
			t.Errorf("%s: expected what elasticdl rbac prints:\n%s\nfound:\n%s", name, want, got)
		}
	}
}
