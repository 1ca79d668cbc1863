//go:build !e2e

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The README says how many resources there are, and refers to pages that there are.
func TestReadme(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	row := []string{"\n| resources"}
	for _, name := range []string{"gke", "eks", "minikube"} {
		golden, err := os.ReadFile(filepath.Join("stacks", "testdata", name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		n, _, _ := strings.Cut(string(golden), " ")
		row = append(row, n)
	}
	if want := strings.Join(row, " | ") + " |"; !strings.Contains(string(page), want) {
		t.Errorf("the README has not the row %s", want)
	}
	pages, err := filepath.Glob("docs/infrastructure/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, "README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range regexp.MustCompile(`\]\(([^)#:]+)\)`).FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), link[1])); err != nil {
				t.Errorf("%s refers to %s: %v", page, link[1], err)
			}
		}
	}
}
