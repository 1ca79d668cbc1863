// Package generated keeps tables of pages equal to the code that they describe.
package generated

import (
	"os"
	"strings"
	"testing"
)

// begin and end enclose the tables of a page.
const begin, end = "<!-- tables: begin -->\n\n", "<!-- tables: end -->"

// Tables compares the tables of a page with those that the code has. With update it writes them;
// without, the test fails if they differ, and names the command that writes them.
func Tables(t testing.TB, page, tables string, update bool, command string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no place for its tables", page)
	}
	want := before + begin + tables + end + after
	if want == string(text) {
		return
	}
	if !update {
		t.Fatalf("%s is out of date: %s", page, command)
	}
	if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}
