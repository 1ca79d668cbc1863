//go:build !e2e

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The index of the stacks' pages has the right numbers of resources.
func TestResourcesAreCounted(t *testing.T) {
	page, err := os.ReadFile(guide + "README.md")
	if err != nil {
		t.Fatal(err)
	}
	row := []string{"\n| resources"}
	for _, name := range []string{"existing", "gke", "eks", "minikube"} {
		golden, err := os.ReadFile(filepath.Join("stacks", "testdata", name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		n, _, _ := strings.Cut(string(golden), " ")
		row = append(row, n)
	}
	if want := strings.Join(row, " | ") + " |"; !strings.Contains(string(page), want) {
		t.Errorf("%sREADME.md has not the row %s", guide, want)
	}
}
