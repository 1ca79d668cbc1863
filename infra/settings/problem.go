package settings

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// Problems collects the problems of a stack's settings, each by its path: "gke.ranges.pods",
// "gcp:project".
type Problems struct {
	// Project is the prefix of paths in messages: "elasticdl".
	Project string
	all     []problem
}

type problem struct{ path, text string }

// Check adds a problem at path if ok is false, with a text that says what was found and what is
// expected. A path has at most one problem, and none below it: those would follow from the first.
func (p *Problems) Check(ok bool, path, format string, args ...any) {
	if ok || p.has(path) {
		return
	}
	p.add(path, fmt.Sprintf(format, args...))
}

// add adds a problem as one line, also if the path has one already.
func (p *Problems) add(path, text string) {
	p.all = append(p.all, problem{path, strings.NewReplacer("\n", `\n`, "\r", `\r`).Replace(text)})
}

func (p *Problems) has(path string) bool {
	return slices.ContainsFunc(p.all, func(o problem) bool {
		below, ok := strings.CutPrefix(path, o.path)
		return ok && o.path != "" && (below == "" || below[0] == '.' || below[0] == '[')
	})
}

// in reports whether a section, or anything below it, has a problem.
func (p *Problems) in(section string) bool {
	return slices.ContainsFunc(p.all, func(o problem) bool {
		below, ok := strings.CutPrefix(o.path, section)
		return ok && (below == "" || below[0] == '.' || below[0] == '[')
	})
}

// Err returns an error with all problems, one a line, in the order of the settings in a stack's
// file.
func (p *Problems) Err() error {
	slices.SortStableFunc(p.all, func(a, b problem) int { return cmp.Compare(rank(a.path), rank(b.path)) })
	var lines []error
	for _, o := range p.all {
		lines = append(lines, fmt.Errorf("%s: %s", p.full(o.path), o.text))
	}
	return errors.Join(lines...)
}

// full returns a path as `pulumi config set` accepts it, with the namespace of the project unless
// it has another.
func (p *Problems) full(path string) string {
	if path == "" {
		return p.Project
	}
	if head, _, _ := strings.Cut(path, "."); strings.Contains(head, ":") {
		return path
	}
	return p.Project + ":" + path
}

// rank returns the position of a path in a file. Elements of a list or map have the position of the
// list or map; unknown names come at the end of their section, and settings of providers, such as
// gcp:project, at the top.
func rank(path string) int {
	path, _, _ = strings.Cut(path, "[")
	for path != "" {
		if n, ok := order[path]; ok {
			return n
		}
		path = path[:max(0, strings.LastIndexByte(path, '.'))]
		if n, ok := order[path+".*"]; ok {
			return n
		}
	}
	return 0
}

// order has the position of every field.
var order = func() map[string]int {
	m := map[string]int{}
	var walk func(t reflect.Type, prefix string)
	walk = func(t reflect.Type, prefix string) {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			return
		}
		for f := range fields(t) {
			m[prefix+f.name] = len(m) + 1
			walk(f.of.Type, prefix+f.name+".")
		}
		m[prefix+"*"] = len(m) + 1
	}
	walk(reflect.TypeFor[Settings](), "")
	return m
}()

// oneOf checks that a text is one of several choices.
func (p *Problems) oneOf(path, value string, choices ...string) {
	p.Check(slices.Contains(choices, value), path, "%s: expected %s", orMissing(value), list(choices))
}

func (p *Problems) within(path string, n, low, high int) {
	p.Check(n >= low && n <= high, path, "%d: expected %d to %d", n, low, high)
}

// list returns "a, b or c".
func list(choices []string) string {
	if n := len(choices); n > 1 {
		return strings.Join(choices[:n-1], ", ") + " or " + choices[n-1]
	}
	return strings.Join(choices, "")
}

func orMissing(value string) string { return cmp.Or(value, "missing") }

// nearest returns "; did you mean x?" for the choice that is nearest to a mistyped name, or
// nothing. The beginning of a name counts as one wrong letter; of two equally near choices, the one
// with fewer letters to change is returned.
func nearest(name string, choices []string) string {
	best, fewest, found := max(1, len(name)/3)+1, 0, ""
	for _, c := range choices {
		letters := job.Distance(strings.ToLower(name), strings.ToLower(c))
		d := letters
		if len(name) > 2 && (strings.HasPrefix(c, name) || strings.HasPrefix(name, c)) {
			d = min(d, 1)
		}
		if d < best || d == best && found != "" && letters < fewest {
			best, fewest, found = d, letters, c
		}
	}
	if found == "" {
		return ""
	}
	return "; did you mean " + found + "?"
}
