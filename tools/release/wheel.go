package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/elasticdl/elasticdl/trainer/run/python"
)

// earliest is the first time that the format of archives has.
var earliest = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// metadata is the METADATA of the wheel, without its version.
const metadata = `Metadata-Version: 2.1
Name: elasticdl
Version: %s
Summary: Elastic training in PyTorch: a process keeps its state when the world changes
License: Apache-2.0
License-File: LICENSE
License-File: NOTICE
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Typing :: Typed
Requires-Python: >=3.8
Requires-Dist: torch>=1.13
Description-Content-Type: text/markdown

The Python package of ElasticDL for Go, for editors, type checkers and notebooks. Under
` + "`elasticdl run`" + ` a script has the package of that command, whether or not this one is installed.
`

const kind = `Wheel-Version: 1.0
Generator: elasticdl
Root-Is-Purelib: true
Tag: py3-none-any
`

// wheel returns the name and the content of the wheel of the package elasticdl. version is that of
// the binary. licenses are the paths of the license's texts. The same arguments give the same
// bytes.
func wheel(version string, licenses ...string) (name string, content []byte, err error) {
	version = public(version)
	info := "elasticdl-" + version + ".dist-info/"
	var out, record bytes.Buffer
	z := zip.NewWriter(&out)
	add := func(name string, content []byte) error {
		header := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: earliest}
		header.SetMode(0o644)
		w, err := z.CreateHeader(header)
		if err != nil {
			return err
		}
		digest := sha256.Sum256(content)
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", name, base64.RawURLEncoding.EncodeToString(digest[:]), len(content))
		_, err = w.Write(content)
		return err
	}
	files := python.Files()
	if err := fs.WalkDir(files, "elasticdl", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		return add(path, content)
	}); err != nil {
		return "", nil, err
	}
	for _, license := range licenses {
		content, err := os.ReadFile(license)
		if err != nil {
			return "", nil, fmt.Errorf("read the license of the wheel: %w", err)
		}
		if err := add(info+filepath.Base(license), content); err != nil {
			return "", nil, err
		}
	}
	for _, f := range [][2]string{
		{"METADATA", fmt.Sprintf(metadata, version)}, {"WHEEL", kind}, {"top_level.txt", "elasticdl\n"},
	} {
		if err := add(info+f[0], []byte(f[1])); err != nil {
			return "", nil, err
		}
	}
	// RECORD has no digest of its own.
	fmt.Fprintf(&record, "%sRECORD,,\n", info)
	if err := add(info+"RECORD", bytes.Clone(record.Bytes())); err != nil {
		return "", nil, err
	}
	if err := z.Close(); err != nil {
		return "", nil, err
	}
	return "elasticdl-" + version + "-py3-none-any.whl", out.Bytes(), nil
}

var (
	released = regexp.MustCompile(`^v?(\d+(?:\.\d+)*)(?:-(a|alpha|b|beta|rc)\.?(\d+))?(?:-(.+))?$`)
	notLocal = regexp.MustCompile(`[^a-z0-9]+`)
	short    = map[string]string{"a": "a", "alpha": "a", "b": "b", "beta": "b", "rc": "rc"}
)

// public returns the version of the binary in the form that Python has for versions (PEP 440):
// v1.2.3-rc.1 is 1.2.3rc1. The rest of v1.2.3-4-gabc is a local version, as in 1.2.3+4.gabc. A
// version of no release is 0+NAME.
func public(version string) string {
	number, rest := "0", version
	// All digits are the start of a commit.
	if m := released.FindStringSubmatch(version); m != nil && strings.Contains(m[1], ".") {
		number, rest = plain(m[1]), m[4]
		if m[2] != "" {
			number += short[m[2]] + plain(m[3])
		}
	}
	rest = strings.Trim(notLocal.ReplaceAllString(strings.ToLower(rest), "."), ".")
	if rest == "" {
		return number
	}
	return number + "+" + rest
}

// plain returns numbers with dots between without leading zeros.
func plain(numbers string) string {
	parts := strings.Split(numbers, ".")
	for i, p := range parts {
		parts[i] = strings.TrimLeft(p, "0")
		if parts[i] == "" {
			parts[i] = "0"
		}
	}
	return strings.Join(parts, ".")
}
