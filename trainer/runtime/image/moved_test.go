package image

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// For a module that imports packages by their former paths the error names the new ones.
func TestFormerImportPaths(t *testing.T) {
	dir := t.TempDir()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for name, text := range map[string]string{
		"go.mod": strings.Replace(read("go.mod"), "module github.com/elasticdl/elasticdl\n", "module mine\n", 1) +
			"\nrequire github.com/elasticdl/elasticdl v0.0.0\n\nreplace " +
			"github.com/elasticdl/elasticdl => " + root + "\n",
		"go.sum": read("go.sum"),
		"main.go": `package main

import (
	_ "github.com/elasticdl/elasticdl/trainer/data/example"
	_ "github.com/elasticdl/elasticdl/trainer/zoo"
)

func main() {}
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	err = compile(t.Context(), dir, ".", filepath.Join(dir, "program"), "linux/amd64", func(Progress) {})
	for _, want := range []string{
		"import github.com/elasticdl/elasticdl/trainer/train/data/example in place of " +
			"trainer/data/example, which has moved",
		"import github.com/elasticdl/elasticdl/trainer/train/zoo in place of trainer/zoo, which has moved",
	} {
		if err == nil || strings.Count(err.Error(), want) != 1 {
			t.Errorf("%v, want once %q", err, want)
		}
	}
}
