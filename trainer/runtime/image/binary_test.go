package image

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Law 4.
func TestInspectRefuses(t *testing.T) {
	other := t.TempDir()
	write(t, filepath.Join(other, "go.mod"), "module other\n\ngo 1.26\n")
	write(t, filepath.Join(other, "go.sum"), "")
	write(t, filepath.Join(other, "main.go"), "package main\n\nfunc main() {}\n")
	_, err := Compile(t.Context(), other, t.TempDir(), []string{"linux/amd64"}, quiet)
	if err == nil || !strings.Contains(err.Error(), "holds no ElasticDL") {
		t.Errorf("a program without ElasticDL: %v", err)
	}
	shell, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		shell:            "C library",
		"binary_test.go": "no executable of Linux",
		write(t, filepath.Join(other, "empty"), ""): "no executable of Linux",
		"nothing": "no such file",
	} {
		if _, err := Inspect(path); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if _, err := Inspect(programs(t, 1)[0].Path); err != nil {
		t.Error(err)
	}
}

// The compiler's output is the error.
func TestCompileErrors(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module broken\n\ngo 1.26\n")
	write(t, filepath.Join(dir, "go.sum"), "")
	write(t, filepath.Join(dir, "main.go"), "package main\n\nfunc main() { nothing() }\n")
	_, err := Compile(t.Context(), dir, t.TempDir(), []string{"linux/amd64"}, quiet)
	if err == nil || !strings.Contains(err.Error(), "main.go:3:15: undefined: nothing") {
		t.Errorf("%v, want where the mistake is", err)
	}
	if _, err := Compile(t.Context(), t.TempDir(), t.TempDir(), []string{"linux/amd64"}, quiet); err == nil {
		t.Error("no error without a module")
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := Compile(t.Context(), dir, t.TempDir(), []string{"linux/amd64"}, quiet); err == nil ||
		!strings.Contains(err.Error(), "https://go.dev/dl") {
		t.Errorf("without go: %v, want where it is to be had", err)
	}
}

// A user's own build tags are of the binary, too.
func TestTags(t *testing.T) {
	for flags, want := range map[string]string{
		"":                            Tags,
		"-mod=mod -trimpath":          Tags,
		"-tags=a,b":                   Tags + ",a,b",
		"-mod=mod --tags=c '-tags=d'": Tags + ",d",
		"-tags=":                      Tags,
	} {
		if got := tags(flags); got != want {
			t.Errorf("GOFLAGS=%q: %s, want %s", flags, got, want)
		}
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module tagged\n\ngo 1.26\n")
	write(t, filepath.Join(dir, "go.sum"), "")
	write(t, filepath.Join(dir, "main.go"), "package main\n\nfunc main() { own() }\n")
	constraint := strings.ReplaceAll(Tags, ",", " && ")
	write(t, filepath.Join(dir, "own.go"), "//go:build own && "+constraint+"\n\npackage main\n\nfunc own() {}\n")
	t.Setenv("GOFLAGS", "-tags=own")
	if err := compile(t.Context(), dir, ".", filepath.Join(t.TempDir(), "binary"), "linux/amd64", quiet); err != nil {
		t.Error(err)
	}
}

func TestPlatforms(t *testing.T) {
	for platform, ok := range map[string]bool{
		"linux/amd64": true, "linux/arm64": true, "linux/arm/v7": true, "linux/riscv64": true,
		"": false, "linux": false, "amd64": false, "windows/amd64": false, "linux/amd64/v3": false,
		"linux/arm/v7/x": false,
	} {
		if err := CheckPlatform(platform); (err == nil) != ok {
			t.Errorf("CheckPlatform(%q): %v", platform, err)
		}
	}
}

func TestCertificates(t *testing.T) {
	file := write(t, filepath.Join(t.TempDir(), "ca.pem"), "authorities")
	for given, want := range map[string]string{file: file, filepath.Dir(file): "", "/nothing": ""} {
		t.Setenv("SSL_CERT_FILE", given)
		if got := Certificates(); got != want {
			t.Errorf("SSL_CERT_FILE=%s: %q, want %q", given, got, want)
		}
	}
}

func TestStore(t *testing.T) {
	store := Store(filepath.Join(t.TempDir(), "images"))
	if names := store.Names(); len(names) > 0 {
		t.Errorf("names %q in a store that is not there", names)
	}
	first := assemble(t, Config{Name: "localhost:1/a/elasticdl:1", Binaries: binaries(t, 1)})
	second := assemble(t, Config{Name: first.Name, Binaries: binaries(t, 2)})
	for _, made := range []*Image{first, second, first} {
		if err := store.Save(t.Context(), made, quiet); err != nil {
			t.Fatal(err)
		}
		if opened, err := store.Open(made.Name); err != nil || opened.Digest != made.Digest {
			t.Errorf("opened %+v, %v, want %s", opened, err, made.Digest)
		}
	}
	if names := store.Names(); len(names) != 1 || names[0] != first.Name {
		t.Errorf("names %q, want %s", names, first.Name)
	}
	if _, err := store.Open("a/elasticdl:2"); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v, want ErrNotFound", err)
	}
	if err := os.Remove(filepath.Join(store.dir(first.Name), "index.json")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(store.dir(first.Name), "index.json"), "{}")
	if _, err := store.Open(first.Name); err == nil {
		t.Error("no error from a store without the image in it")
	}
}

func TestArchive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "elasticdl.tar")
	several := assemble(t, Config{Name: "r/elasticdl:1", Binaries: binaries(t, 2)})
	if err := WriteArchive(several, path); err == nil {
		t.Error("an archive of two platforms")
	}
	one := assemble(t, Config{Name: "r/elasticdl:1", Binaries: binaries(t, 1)})
	if err := WriteArchive(one, path); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("r/elasticdl:1")
	if err != nil {
		t.Fatal(err)
	}
	read, err := tarball.ImageFromPath(path, &tag)
	if err != nil {
		t.Fatal(err)
	}
	got, err := read.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	if want, err := one.plain.ConfigName(); err != nil || got != want {
		t.Errorf("read %s, %v, want %s", got, err, want)
	}
	if err := WriteArchive(one, filepath.Join(t.TempDir(), "nothing", "x.tar")); err == nil {
		t.Error("no error without the directory")
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(left) != 1 {
		t.Errorf("files %q, want one", left)
	}
}
