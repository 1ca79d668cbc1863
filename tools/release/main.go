// Command release completes a directory of ElasticDL's binaries for Linux, as `make release` builds
// them. Next to each FILE it writes FILE.cdx.json, the modules in the binary (CycloneDX). It writes
// the wheel of the Python package, and in SHA256SUMS the digests of all files. The same binaries
// result in the same files, which contain no time and no path.
package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/elasticdl/elasticdl/trainer/runtime/image"
)

// sums is the name of the file with the digests, in the format of sha256sum -c.
const sums = "SHA256SUMS"

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: release DIRECTORY VERSION, in the root of the repository")
		os.Exit(2)
	}
	if err := complete(os.Args[1], os.Args[2], "LICENSE", "NOTICE"); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// complete writes the bills of materials of the binaries in a directory, the wheel of a version,
// and the digests, and replaces existing ones. licenses are files.
func complete(dir, version string, licenses ...string) error {
	files, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return err
	}
	var digests bytes.Buffer
	add := func(name string, content []byte) { fmt.Fprintf(&digests, "%x  %s\n", sha256.Sum256(content), name) }
	n := 0
	for _, f := range files {
		if f.Name() == sums || strings.HasPrefix(f.Name(), sums+".") ||
			slices.Contains([]string{".json", ".whl"}, filepath.Ext(f.Name())) {
			continue
		}
		path := filepath.Join(dir, f.Name())
		binary, err := image.Inspect(path)
		if err != nil {
			return err
		}
		bill, err := binary.BOM()
		if err != nil {
			return fmt.Errorf("write what %s is made of: %w", path, err)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path+".cdx.json", bill, 0o644); err != nil {
			return err
		}
		add(f.Name(), content)
		add(f.Name()+".cdx.json", bill)
		n++
	}
	if n == 0 {
		return fmt.Errorf("%s: no binaries; make release builds them there", dir)
	}
	name, content, err := wheel(version, licenses...)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
		return err
	}
	add(name, content)
	return os.WriteFile(filepath.Join(dir, sums), digests.Bytes(), 0o644)
}
