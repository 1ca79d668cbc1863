package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/job"
)

const repository = "../../.."

// markdown are the repository's pages, by their paths.
func markdown(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	err := fs.WalkDir(os.DirFS(repository), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() && path != "." && (name == "build" || name == "shared" || name == "testdata" || strings.HasPrefix(name, ".")) {
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

// Pages state what is so, and their commands harm nobody.
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
)

// Links lead to files and headings that there are.
func TestMarkdownLinks(t *testing.T) {
	pages := markdown(t)
	for path, text := range pages {
		for _, found := range link.FindAllStringSubmatch(text, -1) {
			target := path
			if found[1] != "" {
				target = filepath.Join(filepath.Dir(path), found[1])
				if _, err := os.Stat(filepath.Join(repository, target)); err != nil {
					t.Errorf("%s: %s: %v", path, found[0], err)
					continue
				}
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

// anchor returns what GitHub makes of a heading.
func anchor(heading string) string {
	text := regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(strings.ToLower(heading), "")
	return strings.ReplaceAll(text, " ", "-")
}

var (
	invoked = regexp.MustCompile("(?m)(?:^|[|&;(`])[ \t]*(?:[A-Z_]+=\\S+ )*elasticdl ([a-z][^\n#|&;`)]*)")
	made    = regexp.MustCompile("(?m)(?:^|[|&;(`])[ \t]*make ([a-z][a-z0-9-]*)")
)

// Commands on pages, and their flags, are those of the program; targets are the Makefile's.
func TestMarkdownCommands(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(repository, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for path, text := range markdown(t) {
		for _, found := range invoked.FindAllStringSubmatch(code(text), -1) {
			words := strings.Fields(found[1])
			command, _, err := newRoot().Find(words)
			if err != nil || !command.HasParent() {
				t.Errorf("%s: elasticdl %s: there is no such command: %v", path, found[1], err)
				continue
			}
			n++
			for _, word := range words {
				if word == "--" { // what follows is the user's program
					break
				}
				name, isFlag := strings.CutPrefix(word, "--")
				name, _, _ = strings.Cut(name, "=")
				if !isFlag || name == "help" || strings.Contains(name, "…") {
					continue
				}
				known := command.Flags().Lookup(name) != nil || command.InheritedFlags().Lookup(name) != nil
				if slices.Contains([]string{"train", "evaluate", "predict", "run"}, command.Name()) { // whose flags are those of a job
					known = job.Find(name) != nil
				}
				if !known {
					t.Errorf("%s: elasticdl %s: there is no flag --%s", path, found[1], name)
				}
			}
		}
		for _, found := range made.FindAllStringSubmatch(code(text), -1) {
			if !strings.Contains(string(makefile), "\n"+found[1]+":") {
				t.Errorf("%s: make %s: there is no such target", path, found[1])
			}
		}
	}
	if n < 40 {
		t.Errorf("%d commands were found", n)
	}
}

// code returns a page's code, of which a backslash joins lines.
func code(text string) string {
	var parts []string
	for _, found := range regexp.MustCompile("(?s)```(?:bash|sh)\n(.*?)```").FindAllStringSubmatch(text, -1) {
		parts = append(parts, strings.ReplaceAll(found[1], "\\\n", " "))
	}
	for _, found := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(text, -1) {
		parts = append(parts, found[1])
	}
	return strings.Join(parts, "\n")
}
