package trainer

import (
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestFilesAreShort(t *testing.T) {
	const most, mostOfFunction = 600, 100
	for _, s := range load(t) {
		if s.generated {
			continue
		}
		if s.lines > most {
			t.Errorf("%s has %d lines, more than %d: it has more than one idea", s.path, s.lines, most)
		}
		for _, decl := range s.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || s.test {
				continue
			}
			if n := s.fset.Position(f.End()).Line - s.fset.Position(f.Pos()).Line; n > mostOfFunction {
				t.Errorf("%s: %s has %d lines, more than %d", s.path, f.Name.Name, n, mostOfFunction)
			}
		}
	}
}

// Comments are read in diffs and in terminals: they are at most 100 columns wide, and those of more
// than 40 characters stand above what they describe.
func TestCommentsAreNarrow(t *testing.T) {
	const widest, aside = 100, 40
	for _, s := range load(t) {
		if s.generated {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, s.path))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(text), "\n")
		for _, group := range s.Comments {
			for _, c := range group.List {
				at := s.fset.Position(c.Pos())
				before := strings.TrimSpace(lines[at.Line-1][:at.Column-1])
				n := utf8.RuneCountInString(strings.TrimPrefix(c.Text, "// "))
				switch {
				case !strings.HasPrefix(c.Text, "// ") && !strings.HasPrefix(c.Text, "//\t"): // a directive
				case before == "" && columns(lines[at.Line-1]) > widest:
					t.Errorf("%s:%d: the comment is %d columns wide, more than %d", s.path, at.Line,
						columns(lines[at.Line-1]), widest)
				case before != "" && n > aside && !strings.HasPrefix(before, "}"):
					t.Errorf("%s:%d: the comment has %d characters: more than %d stand above what "+
						"they describe", s.path, at.Line, n, aside)
				}
			}
		}
	}
}

// aligned finds the spaces by which gofmt aligns the cells of a table.
var aligned = regexp.MustCompile(` {2,}`)

// A line of code has at most 120 columns. A longer line ends with a string literal that would not
// fit if it stood alone at the indentation of the line: a text that is cut cannot be searched for.
// Only punctuation follows it. The spaces by which gofmt aligns a table do not count.
func TestCodeIsNarrow(t *testing.T) {
	const widest = 120
	for _, s := range load(t) {
		if s.generated {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, s.path))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(text), "\n")
		long := make(map[int]bool) // lines with such a literal
		ast.Inspect(s.File, func(n ast.Node) bool {
			l, ok := n.(*ast.BasicLit)
			if !ok || l.Kind != token.STRING {
				return true
			}
			at := s.fset.Position(l.Pos())
			before := at.Column - 1
			for i, part := range strings.Split(l.Value, "\n") {
				line := lines[at.Line-1+i]
				behind := strings.Trim(line[before+len(part):], punctuation)
				if indentation(line)+columns(part) > widest && behind == "" {
					long[at.Line+i] = true
				}
				before = 0
			}
			return true
		})
		for i, line := range lines {
			n := columns(aligned.ReplaceAllString(line, " "))
			if n > widest && !long[i+1] && !strings.HasPrefix(strings.TrimSpace(line), "//") {
				t.Errorf("%s:%d: the line is %d columns wide, more than %d", s.path, i+1, n, widest)
			}
		}
	}
}

// punctuation may follow the string literal of a long line.
const punctuation = " .,:;+(){}[]"

// indentation returns the columns of the white space at the beginning of a line.
func indentation(line string) int {
	return columns(line[:len(line)-len(strings.TrimLeft(line, " \t"))])
}

// columns returns how wide a line is on a screen with a tab stop every four columns.
func columns(line string) int {
	n := 0
	for _, r := range line {
		if n++; r == '\t' {
			n += (4 - n%4) % 4
		}
	}
	return n
}

// quoted finds the string literals in a line of Python or YAML.
var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'`)

// Python and YAML follow the same rule: comments have at most 100 columns, and lines of code 120,
// unless they end with a string that would not fit alone. A comment that is indented behind its #
// shows a command and counts as code.
func TestPythonAndYAMLAreNarrow(t *testing.T) {
	const widestComment, widest = 100, 120
	files := 0
	for _, path := range append(texts(t, ".py", ".yaml", ".yml"), "infra/policy/testdata/rules.yaml") {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		files++
		for i, line := range strings.Split(string(text), "\n") {
			n, most, trimmed := columns(line), widest, strings.TrimSpace(line)
			if strings.HasPrefix(trimmed, "#") && !strings.HasPrefix(trimmed, "#  ") {
				most = widestComment
			}
			long := slices.ContainsFunc(quoted.FindAllStringIndex(line, -1), func(at []int) bool {
				return indentation(line)+columns(line[at[0]:at[1]]) > widest &&
					strings.Trim(line[at[1]:], punctuation) == ""
			})
			if n > most && (most == widestComment || !long) {
				t.Errorf("%s:%d: the line is %d columns wide, more than %d", path, i+1, n, most)
			}
		}
	}
	if files < 50 {
		t.Fatalf("only %d files found", files)
	}
}

var (
	// fence finds the first and the last line of a code block in Markdown.
	fence = regexp.MustCompile("^(?:`{3,}|~{3,})")
	// longLink finds a line of Markdown that is one link, or the end of one.
	longLink = regexp.MustCompile(`^(?:[-*] |\d+\. )?(?:\[[^\]]*|\S*)(?:\]\(|://)\S*$`)
)

// Markdown prose is at most 100 columns wide, except in code blocks, tables and lines that are one
// long link. So are comments of .proto files, shell scripts and the Makefile. A comment behind code
// counts as code.
func TestProseIsNarrow(t *testing.T) {
	const widest = 100
	files := append(texts(t, ".md", ".proto", ".sh"), "Makefile")
	// simulated commands: texts leaves out this directory, too
	simulated, err := filepath.Glob(filepath.Join(root, "stacks/testdata/page/*.sh"))
	if err != nil || len(simulated) == 0 {
		t.Fatalf("%d scripts in stacks/testdata/page, %v", len(simulated), err)
	}
	for _, path := range simulated {
		files = append(files, strings.TrimPrefix(filepath.ToSlash(path), root+"/"))
	}
	for _, path := range files {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		block := "" // the fence of the code block, in Markdown
		for i, line := range strings.Split(string(text), "\n") {
			trimmed := strings.TrimSpace(line)
			prose := strings.HasPrefix(trimmed, "#") || strings.HasPrefix(trimmed, "//")
			if filepath.Ext(path) == ".md" {
				mark := fence.FindString(trimmed)
				prose = block == "" && mark == "" && !strings.HasPrefix(trimmed, "|") &&
					!longLink.MatchString(trimmed)
				switch {
				case block == "":
					block = mark
				case strings.HasPrefix(mark, block):
					block = ""
				}
			}
			if n := columns(line); prose && n > widest {
				t.Errorf("%s:%d: the line is %d columns wide, more than %d", path, i+1, n, widest)
			}
		}
		if block != "" {
			t.Errorf("%s: a code block has no end", path)
		}
	}
	if len(files) < 40 {
		t.Fatalf("only %d files found", len(files))
	}
}

// texts returns the files of the repository with one of the extensions, also those of the modules
// below it, except golden files of resource graphs, which are generated.
func texts(t *testing.T, extensions ...string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if slices.Contains([]string{"build", ".git"}, rel) || d.Name() == "__pycache__" ||
				d.Name() == "testdata" && within(rel, "infra stacks trainer/runtime test/provider") {
				return filepath.SkipDir
			}
			return nil
		}
		if slices.Contains(extensions, filepath.Ext(path)) {
			all = append(all, rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
