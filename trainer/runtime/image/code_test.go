package image

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/elasticdl/elasticdl/trainer/run/folder"
)

// python is a directory of code.
func python(t *testing.T, main string) *folder.Folder {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"main.py": main, "net/model.py": "", "__pycache__/main.pyc": "x"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700),
			os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "run.sh"), []byte("exit"), 0o700); err != nil {
		t.Fatal(err)
	}
	code, err := folder.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// layersOf returns the digests of an image's layers.
func layersOf(t *testing.T, i *Image) []v1.Hash {
	t.Helper()
	layers, err := i.layers()
	if err != nil {
		t.Fatal(err)
	}
	var all []v1.Hash
	for _, layer := range layers {
		digest, err := layer.Digest()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, digest)
	}
	return all
}

// Code is at its place, for any user to read and nobody to change; what the base says of its user
// and its environment stays.
func TestCode(t *testing.T) {
	host := serve(t, nil)
	base := assemble(t, Config{Name: host + "/pytorch:1", Binaries: binaries(t, 1)})
	config, err := base.plain.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.Config.User, config.Config.WorkingDir, config.Config.Entrypoint = "1000", "/workspace", []string{"/entry.sh"}
	config.Config.Env = []string{"PATH=/opt/conda/bin:/bin", "CUDA=12"}
	if base.plain, err = mutate.ConfigFile(base.plain, config); err != nil {
		t.Fatal(err)
	}
	if _, err := Push(t.Context(), base, nil, false, quiet); err != nil {
		t.Fatal(err)
	}
	c := Config{Name: host + "/mine:1", Binaries: binaries(t, 1), Base: host + "/pytorch:1",
		Code: python(t, "print(1)")}
	made := assemble(t, c)
	pushed, err := Push(t.Context(), made, nil, false, quiet)
	if err != nil {
		t.Fatal(err)
	}
	got, files := pull(t, pushed, "linux/amd64")
	maps.DeleteFunc(files, func(name, _ string) bool {
		return name == "elasticdl" || name == "elasticdl.cdx.json" || name == "tmp"
	})
	want := map[string]string{"app": "-rwxr-xr-x ", "app/main.py": "-rw-r--r-- print(1)",
		"app/run.sh": "-rwxr-xr-x exit", "app/net": "-rwxr-xr-x ", "app/net/model.py": "-rw-r--r-- "}
	if !maps.Equal(files, want) {
		t.Errorf("files %v, want %v", files, want)
	}
	if is := got.Config; is.User != "1000" || is.WorkingDir != "/app" ||
		is.Entrypoint[0] != "/elasticdl" || is.Env[0] != "PATH=/opt/conda/bin:/bin:/" || is.Env[1] != "CUDA=12" {
		t.Errorf("runs as %+v", is)
	}

	// Law 1, and a change of the code changes its layer only.
	c.Code = python(t, "print(1)")
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(c.Code.Dir, "main.py"), later, later); err != nil {
		t.Fatal(err)
	}
	if again := assemble(t, c); again.Digest != made.Digest {
		t.Errorf("the same code elsewhere: digest %s, want %s", again.Digest, made.Digest)
	}
	c.Code = python(t, "print(2)")
	before, after := layersOf(t, made), layersOf(t, assemble(t, c))
	for i := range before {
		if last := i == len(before)-1; (before[i] == after[i]) == last {
			t.Errorf("layer %d of %d is the same: %v", i, len(before), !last)
		}
	}
	os.Remove(filepath.Join(c.Code.Dir, "main.py"))
	if _, err := Assemble(t.Context(), c, t.TempDir(), quiet); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}
