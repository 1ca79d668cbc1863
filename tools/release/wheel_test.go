package main

import (
	"archive/zip"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestPublicVersions(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3": "1.2.3", "v1.2.3-rc.1": "1.2.3rc1", "v0.4.0-beta2": "0.4.0b2", "v01.2": "1.2",
		"v1.2.3-4-gabcdef": "1.2.3+4.gabcdef", "v1.2.3-rc.1-4-gabc-dirty": "1.2.3rc1+4.gabc.dirty",
		"1.2.3-dirty": "1.2.3+dirty", "568029be": "0+568029be", "12345678": "0+12345678", "dev": "0+dev",
		"568029be-dirty": "0+568029be.dirty", "": "0",
	} {
		if got := public(version); got != want {
			t.Errorf("%q: %s, want %s", version, got, want)
		}
	}
}

func FuzzPublicVersion(f *testing.F) {
	for _, version := range []string{"v1.2.3-rc.1-4-gabc-dirty", "dev", "568029be", "v1..2", "-", "v1.2-ä"} {
		f.Add(version)
	}
	valid := regexp.MustCompile(`^(0|[1-9]\d*)(\.(0|[1-9]\d*))*((a|b|rc)(0|[1-9]\d*))?(\+[a-z0-9]+(\.[a-z0-9]+)*)?$`)
	f.Fuzz(func(t *testing.T, version string) {
		if got := public(version); !valid.MatchString(got) {
			t.Errorf("%q: %s is no version of Python", version, got)
		}
	})
}

// The same package makes the same wheel, which has every file that pip needs to install it.
func TestWheel(t *testing.T) {
	name, content, err := wheel("v1.2.3", "../../LICENSE", "../../NOTICE")
	if err != nil {
		t.Fatal(err)
	}
	if _, again, err := wheel("v1.2.3", "../../LICENSE", "../../NOTICE"); err != nil || !bytes.Equal(again, content) {
		t.Errorf("a second wheel differs: %v", err)
	}
	if want := "elasticdl-1.2.3-py3-none-any.whl"; name != want {
		t.Errorf("%s, want %s", name, want)
	}
	z, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[f.Name] = string(text)
	}
	const info = "elasticdl-1.2.3.dist-info/"
	for file, want := range map[string]string{
		"elasticdl/__init__.py": "__all__", "elasticdl/integrations/transformers.py": "class ElasticTrainer",
		info + "LICENSE": "Apache License", info + "NOTICE": "ElasticDL", info + "WHEEL": "Tag: py3-none-any",
		info + "METADATA": "\nVersion: 1.2.3\n", info + "top_level.txt": "elasticdl",
	} {
		if !strings.Contains(files[file], want) {
			t.Errorf("%s lacks %q", file, want)
		}
	}
	if _, ok := files["elasticdl/py.typed"]; !ok {
		t.Error("no py.typed: type checkers ignore the package")
	}
	for file := range files {
		if !strings.Contains(files[info+"RECORD"], file+",") {
			t.Errorf("RECORD lacks %s", file)
		}
	}
	dir := t.TempDir()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	// Python's own reader checks the sums of the archive.
	if out, err := exec.Command("python3", "-m", "zipfile", "-t", path).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestWheelWithoutLicense(t *testing.T) {
	_, _, err := wheel("v1.2.3", "absent/LICENSE")
	if err == nil || !strings.Contains(err.Error(), "license of the wheel") {
		t.Errorf("%v, want an error that names the license", err)
	}
}
