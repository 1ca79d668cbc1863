package trainer

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A reader may not be a native speaker. testdata/patterns.txt lists patterns of language that stop
// one. None of them is in comments, errors, help texts, logs, pages, Python docstrings and narrated
// scripts. A false hit is reworded, too.
func TestLanguageIsPlain(t *testing.T) {
	all := patterns(t)
	files := texts(t, ".go", ".py", ".md", ".proto", ".yaml", ".yml", ".sh", ".tmpl", ".txtar", ".txt")
	counts := make(map[string]int)
	for _, name := range append(files, "Makefile", ".ci/run") {
		if strings.HasPrefix(name, "test/seeds/") && path.Ext(name) == ".txtar" {
			continue // published tutorials
		}
		if narrated, _ := path.Match(narrations, name); path.Ext(name) == ".txt" && !narrated {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range passages(t, name, string(text)) {
			for _, pattern := range all {
				for _, at := range pattern.re.FindAllStringIndex(p.text, -1) {
					counts[pattern.re.String()]++
					t.Errorf("%s:%d: %q: write as in %q", name, p.line(at[0]), around(p.text, at), pattern.instead)
				}
			}
		}
	}
	for _, pattern := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%d hits of %s", counts[pattern], pattern)
	}
}

// narrations are the narrated scripts of the pure packages.
const narrations = "trainer/elastic/*/testdata/*.txt"

// Each pattern finds its example, in each kind of text, and not the text to write instead.
func TestLanguageFindsItsPatterns(t *testing.T) {
	for _, pattern := range patterns(t) {
		if pattern.re.MatchString(pattern.instead) {
			t.Errorf("%s finds %q, which is to be written", pattern.re, pattern.instead)
		}
		first, rest, _ := strings.Cut(pattern.example, " ")
		for name, text := range map[string]string{
			"a.go":    "package a\n\n// " + first + "\n// " + rest + "\nvar _ = 1\n",
			"b.go":    "package b\n\nvar _ = \"" + first + " \" +\n\t\"" + rest + "\"\n",
			"c.py":    "def f():\n    \"\"\"" + first + "\n    " + rest + "\"\"\"\n",
			"d.py":    "x = 1  # " + pattern.example + "\n",
			"e.md":    first + "\n" + rest + "\n",
			"f.yaml":  "a: b # " + pattern.example + "\n",
			"g.proto": "// " + first + "\n// " + rest + "\n",
			"h.txt":   "# " + first + "\n# " + rest + "\n",
			"i.txt":   "leave 1 killed\n    " + pattern.example + "\n",
		} {
			if !slices.ContainsFunc(passages(t, name, text), func(p passage) bool {
				return pattern.re.MatchString(p.text)
			}) {
				t.Errorf("%s is not found in %s:\n%s", pattern.re, name, text)
			}
		}
	}
}

// Docstrings are as PEP 257 asks. That of a function is in the imperative: "Return the sum." So its
// first word is no verb in the third person, which ends in s. Each begins with a summary of one
// line.
func TestPythonDocstringsFollowPEP257(t *testing.T) {
	all := 0
	for _, name := range texts(t, ".py") {
		if strings.Contains(name, "/testdata/") {
			continue // a user's script
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		words, long := docstrings(string(text))
		all += len(words)
		for _, line := range slices.Sorted(maps.Keys(words)) {
			if isThirdPerson(words[line]) {
				t.Errorf("%s:%d: the docstring begins with %q: write the imperative", name, line, words[line])
			}
		}
		for _, line := range long {
			t.Errorf("%s:%d: the summary of the docstring continues on the next line: write one line", name, line)
		}
	}
	if all < 100 {
		t.Fatalf("only %d docstrings", all)
	}
}

func TestDocstringsAreThoseOfFunctions(t *testing.T) {
	const text = `# a comment
"""Words of a module,
continued."""

class A(B):
    """Names of a class."""

    def f(self,
          x: int):
        """Returns x."""
        text = """
        """
        """Sums nothing."""

    async def g(
        self, x: int
    ) -> None:
        """Process x.

        Returns nothing.
        """

    def h(self):
        """Process x
        and more.
        """
`
	got, long := docstrings(text)
	if want := map[int]string{10: "Returns", 18: "Process", 24: "Process"}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if want := []int{2, 24}; !slices.Equal(long, want) {
		t.Errorf("got the summaries of lines %v, want %v", long, want)
	}
	for word, want := range map[string]bool{"Returns": true, "Does": true, "Return": false, "Process": false} {
		if isThirdPerson(word) != want {
			t.Errorf("isThirdPerson(%q) is %v", word, !want)
		}
	}
}

// isThirdPerson reports whether a word looks like "returns". Words such as "pass" do not.
func isThirdPerson(word string) bool {
	others := []string{"Always", "Bias", "Focus"}
	return strings.HasSuffix(word, "s") && !strings.HasSuffix(word, "ss") && !slices.Contains(others, word)
}

// docstring finds the first word of a docstring, function the head of a Python function.
var (
	docstring = regexp.MustCompile(`^ *"""(\pL+)`)
	function  = regexp.MustCompile(`^ *(async )?def `)
)

// docstrings returns the first word of the docstring of each function of Python code, by line, and
// the lines of all docstrings, also those of classes and of the module, whose summary is longer.
func docstrings(text string) (all map[int]string, long []int) {
	all = make(map[int]string)
	lines := strings.Split(text, "\n")
	// behind the comments at the beginning of the file
	begun := false
	for i, line := range lines {
		word := docstring.FindStringSubmatch(line)
		isOfModule := !begun && word != nil
		begun = begun || line != "" && !strings.HasPrefix(line, "#")
		if word == nil || !isOfModule && !strings.HasSuffix(lines[i-1], ":") {
			continue
		}
		if strings.Count(line, `"""`) == 1 && i+1 < len(lines) && strings.Trim(lines[i+1], ` "`) != "" {
			long = append(long, i+1)
		}
		// The head begins at the last line that is indented less, apart from a closing bracket.
		indent := strings.IndexByte(line, '"')
		for _, head := range slices.Backward(lines[:i]) {
			if rest := strings.TrimLeft(head, " "); len(head)-len(rest) < indent && !strings.HasPrefix(rest, ")") {
				if function.MatchString(head) {
					all[i+1] = word[1]
				}
				break
			}
		}
	}
	return all, long
}

// pattern is a line of testdata/patterns.txt.
type pattern struct {
	re               *regexp.Regexp
	example, instead string
}

func patterns(t *testing.T) (all []pattern) {
	t.Helper()
	list, err := os.ReadFile("testdata/patterns.txt")
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(list), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.Split(line, " | ")
		if len(cells) != 3 {
			t.Fatalf("testdata/patterns.txt:%d: expected pattern | example | instead", i+1)
		}
		re, err := regexp.Compile(cells[0])
		if err != nil {
			t.Fatalf("testdata/patterns.txt:%d: %v", i+1, err)
		}
		all = append(all, pattern{re: re, example: cells[1], instead: cells[2]})
	}
	if len(all) < 10 {
		t.Fatalf("only %d patterns", len(all))
	}
	return all
}

// around returns the text at a hit with up to 40 bytes on both sides.
func around(text string, at []int) string {
	const margin = 40
	text = text[max(0, at[0]-margin):min(len(text), at[1]+margin)]
	return strings.ToValidUTF8(strings.Join(strings.Fields(text), " "), "")
}

// passage is a text that is read as one: a comment, a paragraph or a string. Its lines are joined
// by spaces, so that a pattern is found across the end of a line. An empty line is a newline.
type passage struct {
	text string
	// line of the file at which each part begins, and its offset in text
	lines, offsets []int
}

// add appends a line of the file.
func (p *passage) add(line int, text string) {
	text = strings.TrimSpace(text)
	switch {
	case text == "":
		text = "\n"
	case p.text != "" && !strings.HasSuffix(p.text, "\n"):
		p.text += " "
	}
	p.lines, p.offsets = append(p.lines, line), append(p.offsets, len(p.text))
	p.text += text
}

// line returns the line of the file to which an offset of the text belongs.
func (p *passage) line(offset int) int {
	i, found := slices.BinarySearch(p.offsets, offset)
	if !found {
		i--
	}
	return p.lines[max(i, 0)]
}

// passages returns the prose of a file. A string of one word is a name.
func passages(t *testing.T, name, text string) (all []passage) {
	t.Helper()
	switch path.Ext(name) {
	case ".go":
		all = goPassages(t, name, text)
	case ".py":
		all = pythonPassages(text)
	case ".proto":
		return commented(text, "//")
	case ".md", ".tmpl", ".txtar":
		var p passage
		for i, line := range strings.Split(text, "\n") {
			p.add(i+1, line)
		}
		return []passage{p}
	case ".txt":
		all = commented(text, "#")
		for i, line := range strings.Split(text, "\n") {
			if !strings.HasPrefix(line, "#") {
				var p passage
				p.add(i+1, line)
				all = append(all, p)
			}
		}
		return all
	default:
		return commented(text, "#")
	}
	return slices.DeleteFunc(all, func(p passage) bool { return !strings.Contains(strings.TrimSpace(p.text), " ") })
}

// commented returns the comments of a text: lines that follow one another are one passage.
func commented(text, mark string) (all []passage) {
	last := -1
	for i, line := range strings.Split(text, "\n") {
		at := strings.Index(line, mark)
		if at < 0 || at > 0 && line[at-1] != ' ' && line[at-1] != '\t' {
			continue
		}
		if last != i-1 || len(all) == 0 {
			all = append(all, passage{})
		}
		all[len(all)-1].add(i+1, strings.TrimLeft(line[at:], mark))
		last = i
	}
	return all
}

// goPassages returns the comments and the string literals of Go code; literals that are added up
// are one passage. Generated files have none.
func goPassages(t *testing.T, name, text string) (all []passage) {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	if ast.IsGenerated(file) {
		return nil
	}
	for _, group := range file.Comments {
		var p passage
		for _, c := range group.List {
			body := strings.TrimPrefix(c.Text, "//")
			if body != "" && body[0] != ' ' && body[0] != '\t' && !strings.HasPrefix(body, "/*") {
				continue // a directive
			}
			for i, line := range strings.Split(strings.Trim(body, "/*"), "\n") {
				p.add(fset.Position(c.Pos()).Line+i, line)
			}
		}
		all = append(all, p)
	}
	inside := make(map[ast.Node]bool) // literals of a sum, and tags
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			if n.Tag != nil {
				inside[n.Tag] = true
			}
		case *ast.BinaryExpr:
			if n.Op == token.ADD && !inside[n] {
				var p passage
				addends(fset, n, &p, inside)
				all = append(all, p)
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING && !inside[n] {
				var p passage
				literal(fset, n, &p)
				all = append(all, p)
			}
		}
		return true
	})
	return all
}

// addends appends the literals of a sum to a passage. Another addend is a dot.
func addends(fset *token.FileSet, n ast.Expr, p *passage, inside map[ast.Node]bool) {
	inside[n] = true
	if sum, ok := n.(*ast.BinaryExpr); ok && sum.Op == token.ADD {
		addends(fset, sum.X, p, inside)
		addends(fset, sum.Y, p, inside)
		return
	}
	if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
		literal(fset, l, p)
		return
	}
	p.add(fset.Position(n.Pos()).Line, "·")
}

// literal appends the value of a string literal to a passage.
func literal(fset *token.FileSet, n *ast.BasicLit, p *passage) {
	value, err := strconv.Unquote(n.Value)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", n.Value, err))
	}
	for i, line := range strings.Split(value, "\n") {
		if n.Value[0] != '`' {
			i = 0
		}
		p.add(fset.Position(n.Pos()).Line+i, line)
	}
}

// pythonPassages returns the comments and strings of Python code.
func pythonPassages(text string) (all []passage) {
	line, last := 1, -1 // last: the line of the comment before
	for i := 0; i < len(text); {
		switch c := text[i]; c {
		case '\n':
			line++
			i++
		case '#':
			end := i + strings.IndexByte(text[i:]+"\n", '\n')
			if last != line-1 || len(all) == 0 {
				all = append(all, passage{})
			}
			all[len(all)-1].add(line, strings.TrimLeft(text[i:end], "#"))
			last, i = line, end
		case '"', '\'':
			quote := string(c)
			if strings.HasPrefix(text[i:], strings.Repeat(quote, 3)) {
				quote = strings.Repeat(quote, 3)
			}
			end := i + len(quote)
			for end < len(text) && !strings.HasPrefix(text[end:], quote) {
				if text[end] == '\\' {
					end++
				}
				end++
			}
			var p passage
			for j, part := range strings.Split(text[i+len(quote):min(end, len(text))], "\n") {
				p.add(line+j, part)
			}
			line += strings.Count(text[i:min(end, len(text))], "\n")
			all, last, i = append(all, p), -1, end+len(quote)
		default:
			i++
		}
	}
	return all
}
