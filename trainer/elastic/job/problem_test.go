package job

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/source"
)

func TestProblemByFlagAndField(t *testing.T) {
	missing := newProblem(setting("job_name"), "give the job a name")
	missing.missing = true
	for _, test := range []struct {
		problem            *Problem
		flags, field, text string
	}{
		{newProblem(setting("num_workers", 0), "expected %d or more", 1),
			"--num_workers=0: expected 1 or more", "numWorkers", "0: expected 1 or more"},
		{newProblem(setting("min-workers", 3), "more than %v", setting("max_workers", 2)),
			"--min-workers=3: more than --max_workers=2", "minWorkers", "3: more than maxWorkers=2"},
		{missing, "--job_name is missing: give the job a name", "name", "missing: give the job a name"},
		{newProblem(setting("use_async"), "with %v all", setting("distribution_strategy", AllReduce)),
			"--use_async: with --distribution_strategy=AllreduceStrategy all", "useAsync",
			"with strategy=AllreduceStrategy all"},
		{newProblem(setting("role", ""), "expected a name"), "--role=: expected a name", "role", "expected a name"},
		{newProblem(setting("train_data_dir", "d"), "is none"), "--train_data_dir=d: is none",
			"trainingData", "d: is none"},
		// of the command
		{newProblem(setting("yaml", "x"), "with %v", setting("num_workers")),
			"--yaml=x: with --num_workers", "", "--yaml=x: with numWorkers"},
		{newProblem(fieldOf("master.image", "X"), "expected an image"),
			"master.image=X: expected an image", "master.image", "X: expected an image"},
		{newProblem(theProgram("ftp://h/m"), "give %v", either{"this", "that"}),
			"program ftp://h/m: give this", "command", "ftp://h/m: give that"},
		{newProblem(setting("nothing", 1), "unknown"), "--nothing=1: unknown", "", "--nothing=1: unknown"},
		{newProblem(mention{}, "%v", "unexpected"), "unexpected", "", "unexpected"},
		{NewProblem("cluster_spec_json", "100%d"), "--cluster_spec_json: 100%d", "clusterSpecJSON", "100%d"},
	} {
		field, text := test.problem.ByField()
		if got := test.problem.Error(); got != test.flags || field != test.field || text != test.text {
			t.Errorf("got  %q; %q: %q\nwant %q; %q: %q", got, field, text, test.flags, test.field, test.text)
		}
	}
}

func TestProblemsIn(t *testing.T) {
	a, b := NewProblem("seed", "a"), NewProblem("seed", "b")
	all := ProblemsIn(errors.Join(errors.Join(a, nil), fmt.Errorf("write it: %w", b), os.ErrNotExist))
	if len(all) != 3 || all[0] != a || all[1] != b {
		t.Fatalf("got %v, want a, b and one more", all)
	}
	if field, text := all[2].ByField(); field != "" || text != os.ErrNotExist.Error() {
		t.Errorf("got %q: %q, want an error with no field", field, text)
	}
	if all := ProblemsIn(nil); all != nil {
		t.Errorf("got %v from no error", all)
	}
}

// A flag that was refused is not refused for its value, too, however the user has spelled it.
func TestOneProblemOfASetting(t *testing.T) {
	for _, spelled := range []string{"job_name", "job-name"} {
		_, err := Parse(Train, []string{"--runtime=local", "--model_def=m", "--training_data=d",
			"--" + spelled + "=\xff"})
		if err == nil || lines(err) != 1 || !strings.Contains(err.Error(), "--"+spelled+"=\xff: expected UTF-8") {
			t.Errorf("--%s: %v, want one problem", spelled, err)
		}
	}
}

// Two checksums of a program are a problem of the flag, not of the program.
func TestProblemOfChecksum(t *testing.T) {
	j := DefaultOf(Run)
	j.Name, j.Program.Command, j.Program.SHA256 = "j",
		[]string{"main.py#sha256=" + strings.Repeat("1", 64)}, strings.Repeat("0", 64)
	all := ProblemsIn(j.Validate())
	if len(all) != 1 {
		t.Fatalf("got %v, want one problem", all)
	}
	if field, text := all[0].ByField(); field != "sha256" || !strings.Contains(text, source.ErrTwoChecksums.Error()) {
		t.Errorf("got %q: %q", field, text)
	}
}

// Every setting that is named in a problem is there, and is named by [setting]: no text has a flag
// in it, as it would be one to those who gave a field.
func TestProblemsNameSettings(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	flagIn := regexp.MustCompile(`--([a-z]+(?:_[a-z]+)*)`)
	settings := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			switch name := nameOfCall(call); name {
			case "setting":
				if flag := literal(call.Args[0]); flag != "" && !strings.HasPrefix(flag, "_") {
					if settings++; Find(flag) == nil {
						t.Errorf("%s: there is no --%s", file, flag)
					}
				}
			case "check", "given", "newProblem":
				for _, arg := range call.Args {
					for _, m := range flagIn.FindAllStringSubmatch(literal(arg), -1) {
						if Find(m[1]) != nil {
							t.Errorf("%s: %s has --%s in its text: give setting(%[3]q)", file, name, m[1])
						}
					}
				}
			}
			return true
		})
	}
	if settings < 50 {
		t.Errorf("%d settings are named in problems: this looks at the wrong places", settings)
	}
}

func nameOfCall(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// literal is the text of an expression: "" if it is none.
func literal(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, _ := strconv.Unquote(e.Value)
		return text
	case *ast.BinaryExpr:
		return literal(e.X) + literal(e.Y)
	}
	return ""
}
