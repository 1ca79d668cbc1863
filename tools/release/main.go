// Command release completes a directory of ElasticDL's binaries for Linux, as `make release` builds
// them. Next to each FILE it writes FILE.cdx.json, the modules in the binary (CycloneDX), and in
// SHA256SUMS the digests of all files. The same binaries result in the same files, which contain no
// time and no path.
package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/elasticdl/elasticdl/trainer/runtime/image"
)

// sums is the name of the file with the digests, in the format of sha256sum -c.
const sums = "SHA256SUMS"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: release DIRECTORY")
		os.Exit(2)
	}
	if err := complete(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// complete writes the bills of materials and the digests of the binaries in a directory, and
// replaces existing ones.
func complete(dir string) error {
	files, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return err
	}
	var digests bytes.Buffer
	add := func(name string, content []byte) { fmt.Fprintf(&digests, "%x  %s\n", sha256.Sum256(content), name) }
	n := 0
	for _, f := range files {
		if f.Name() == sums || strings.HasSuffix(f.Name(), ".cdx.json") || strings.HasPrefix(f.Name(), sums+".") {
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
	return os.WriteFile(filepath.Join(dir, sums), digests.Bytes(), 0o644)
}
