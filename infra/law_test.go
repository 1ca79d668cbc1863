package infra

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// ofStack matches what only the program of the stacks does: it reads a configuration, and exports
// outputs.
var ofStack = regexp.MustCompile(`\b(GetConfig|IsConfigSecret|EnvConfig|config\.New|ctx\.Export)\b`)

// Law 4: the packages are a library for programs with other configurations and outputs.
func TestLibraryHasNoConfiguration(t *testing.T) {
	files := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files++
		text, err := os.ReadFile(path)
		if found := ofStack.Find(text); found != nil {
			t.Errorf("%s has %s, which belongs to the program", path, found)
		}
		return err
	})
	if err != nil || files < 100 {
		t.Errorf("%d files, %v", files, err)
	}
	program, err := os.ReadFile("../stacks/load.go")
	if err != nil || !ofStack.Match(program) {
		t.Errorf("the program of the stacks reads no configuration, or this test does not see it: %v", err)
	}
}
