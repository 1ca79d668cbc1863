package trainer

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// wrongNames are words that say nothing as a name, or that have a better one; wrongWords may not be
// in a longer name, either.
var (
	wrongNames = []string{"here", "there", "what", "where", "who", "whose", "told", "began",
		"had", "back", "away", "life", "letgo", "makeroom", "takeback"}
	wrongWords = []string{"anew", "beside", "befall", "charged", "formation", "gone", "guardian",
		"keeper", "seat", "told", "vigil", "whoever"}
)

// A reader can search for the names of types, functions, methods, fields and variables of packages:
// none is a pronoun, and each thing has one word.
func TestNamesArePlain(t *testing.T) {
	names := 0
	for _, s := range load(t) {
		if s.test || s.generated {
			continue
		}
		for _, id := range declared(s.File) {
			names++
			if word := wrongWord(id.Name); word != "" {
				t.Errorf("%s: %s has the word %q: choose a name in plain words", s.fset.Position(id.Pos()),
					id.Name, word)
			}
		}
	}
	if names < 5000 {
		t.Fatalf("only %d names", names)
	}
	for name, want := range map[string]string{"here": "here", "Began": "began", "podGone": "gone", "isGone": "gone",
		"hadMessage": "", "there": "there", "seatOf": "seat", "recharged": "", "comeback": ""} {
		if got := wrongWord(name); got != want {
			t.Errorf("wrongWord(%q) is %q, want %q", name, got, want)
		}
	}
}

// capital finds the words of a name, each of which begins with a capital letter.
var capital = regexp.MustCompile(`\p{Lu}`)

// wrongWord returns the word for which a name is refused, "" if there is none.
func wrongWord(name string) string {
	if whole := strings.ToLower(name); slices.Contains(wrongNames, whole) {
		return whole
	}
	words := strings.Fields(strings.ToLower(capital.ReplaceAllString(name, " $0")))
	if i := slices.IndexFunc(words, func(w string) bool { return slices.Contains(wrongWords, w) }); i >= 0 {
		return words[i]
	}
	return ""
}

// declared returns the names that a file declares outside of functions, and those of all fields and
// methods.
func declared(file *ast.File) (all []*ast.Ident) {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			all = append(all, d.Name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					all = append(all, spec.Name)
				case *ast.ValueSpec:
					all = append(all, spec.Names...)
				}
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		var fields *ast.FieldList
		switch n := n.(type) {
		case *ast.StructType:
			fields = n.Fields
		case *ast.InterfaceType:
			fields = n.Methods
		default:
			return true
		}
		for _, f := range fields.List {
			all = append(all, f.Names...)
		}
		return true
	})
	return all
}

// A package is named by its idea.
func TestPackagesHaveAnIdea(t *testing.T) {
	for _, s := range load(t) {
		for part := range strings.SplitSeq(s.dir, "/") {
			if slices.Contains([]string{"pkg", "util", "utils", "common", "helper", "helpers", "types",
				"constants", "misc"}, part) {
				t.Errorf("%s: %q says nothing", s.path, part)
			}
		}
	}
}
