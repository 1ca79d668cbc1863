package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Each binary has a bill of materials next to it, every file has a digest, and a second run writes
// the same files.
func TestComplete(t *testing.T) {
	dir := t.TempDir()
	// both are built for this machine: compiling everything for another takes minutes
	for _, name := range []string{"elasticdl-linux-amd64", "elasticdl-linux-arm64"} {
		cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", filepath.Join(dir, name), ".")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	var first string
	for range 2 {
		if err := complete(dir, "v1.2.3", "../../LICENSE"); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, sums))
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = string(text)
		} else if string(text) != first {
			t.Errorf("a second run says\n%s, the first\n%s", text, first)
		}
	}
	var want strings.Builder
	for _, name := range []string{"elasticdl-linux-amd64", "elasticdl-linux-amd64.cdx.json",
		"elasticdl-linux-arm64", "elasticdl-linux-arm64.cdx.json", "elasticdl-1.2.3-py3-none-any.whl"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, ".json") &&
			(!strings.Contains(string(content), "go-containerregistry@v") || strings.Contains(string(content), dir)) {
			t.Errorf("%s lacks a module that is linked, or names a directory of this machine:\n%s", name, content)
		}
		fmt.Fprintf(&want, "%x  %s\n", sha256.Sum256(content), name)
	}
	if first != want.String() {
		t.Errorf("%s says\n%s, want\n%s", sums, first, want.String())
	}
}

// An incomplete directory is refused: a release is complete or absent.
func TestIncompleteReleases(t *testing.T) {
	empty, other := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "elasticdl"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{empty: "no binaries", other: "no executable of Linux"} {
		if err := complete(dir, "v1.2.3", "../../LICENSE"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if _, err := os.Stat(filepath.Join(dir, sums)); err == nil {
			t.Error("there are digests of a release that is none")
		}
	}
}
