package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const repository = "../../.."

// markdown returns the repository's pages, by path.
func markdown(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	err := fs.WalkDir(os.DirFS(repository), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() && path != "." && (name == "build" || name == "shared" ||
			name == "testdata" || strings.HasPrefix(name, ".")) {
			return fs.SkipDir
		}
		if filepath.Ext(path) == ".md" {
			text, err := os.ReadFile(filepath.Join(repository, path))
			if err != nil {
				return err
			}
			pages[path] = string(text)
		}
		return nil
	})
	if err != nil || len(pages) < 10 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	return pages
}

// Pages contain no marks of unverified claims, and no commands that lose settings or state.
func TestMarkdownWords(t *testing.T) {
	for path, text := range markdown(t) {
		for _, guess := range []string{"from memory", "(check)", "; check)"} {
			if strings.Contains(text, guess) {
				t.Errorf("%s says %q: find out, or say that it was not tried", path, guess)
			}
		}
		for line := range strings.Lines(text) {
			if strings.Contains(line, "pulumi stack rm") && !strings.Contains(line, "--preserve-config") {
				t.Errorf("%s: without --preserve-config this deletes the settings that are shipped: %s", path, line)
			}
			if strings.Contains(line, "pulumi state") && strings.Contains(line, "delete") {
				t.Errorf("%s: this leaves what it forgets: %s", path, line)
			}
		}
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^):]*?)(#[^)]+)?\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	// the name of a declaration, as the text of a link
	named = regexp.MustCompile("\\[`(?:\\w+\\.)?(\\w+)`\\]$")
)

// Links lead to existing files and headings. Links to Go files whose text is code name a
// declaration of the file.
func TestMarkdownLinks(t *testing.T) {
	pages := markdown(t)
	for path, text := range pages {
		for _, at := range link.FindAllStringSubmatchIndex(text, -1) {
			found := link.FindStringSubmatch(text[at[0]:at[1]])
			target := path
			if found[1] != "" {
				target = filepath.Join(filepath.Dir(path), found[1])
				if _, err := os.Stat(filepath.Join(repository, target)); err != nil {
					t.Errorf("%s: %s: %v", path, found[0], err)
					continue
				}
			}
			if name := named.FindStringSubmatch(text[:at[0]+1]); name != nil &&
				filepath.Ext(target) == ".go" && !declares(t, target, name[1]) {
				t.Errorf("%s: %s declares no %s", path, target, name[1])
			}
			if found[2] == "" {
				continue
			}
			there := false
			for _, h := range heading.FindAllStringSubmatch(pages[target], -1) {
				there = there || "#"+anchor(h[1]) == found[2]
			}
			if !there {
				t.Errorf("%s: %s: %s has no such heading", path, found[0], target)
			}
		}
	}
}

// declares reports whether a Go file has a function, method, type or field of this name.
func declares(t *testing.T, file, name string) bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, file))
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`(?m)^(func (\([^)]*\) )?|type |\t)` + name + `\b`).Match(text)
}

// anchor returns GitHub's anchor of a heading.
func anchor(heading string) string {
	text := regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(strings.ToLower(heading), "")
	return strings.ReplaceAll(text, " ", "-")
}

// The overviews of test/ and tools/ have a row for each of their directories.
func TestMaps(t *testing.T) {
	for _, dir := range []string{"test", "tools"} {
		page, err := os.ReadFile(filepath.Join(repository, dir, "README.md"))
		if err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(filepath.Join(repository, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			if row := "\n| [" + entry.Name() + "](" + entry.Name() + ") |"; entry.IsDir() &&
				!strings.Contains(string(page), row) {
				t.Errorf("%s/README.md has no row of the directory %s", dir, entry.Name())
			}
		}
	}
}
