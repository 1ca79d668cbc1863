package program

import (
	"strings"
	"testing"
	"time"
)

// Variables that a script sets before it imports torch are honoured, set in any way: variables that
// Python code reads, and those that libraries read. A script that sets none of these is forked.
func TestEnvironmentIsSetBeforeTheImport(t *testing.T) {
	const show = `
import torch
print(torch.setting, torch.__name__, torch.__spec__.name, os.environ.get("OMP_PROC_BIND", "none"))
`
	for name, c := range map[string]struct {
		script string
		helper string
		want   string
		again  bool // the process begins again
		exec   bool // it is executed at once
	}{
		"assigned": {script: "os.environ['STUB_SETTING'] = 'set'",
			want: "set torch torch none", exec: true},
		"of a library": {script: "os.environ['OMP_PROC_BIND'] = 'true'",
			want: "none torch torch true", exec: true},
		"default": {script: "os.environ.setdefault('STUB_SETTING', 'set')",
			want: "set torch torch none", exec: true},
		"updated": {script: "os.environ.update(STUB_SETTING='set')",
			want: "set torch torch none", exec: true},
		"updated by a dict": {script: "os.environ.update({'STUB_SETTING': 'set', **{}})",
			want: "set torch torch none", exec: true},
		"in a branch": {script: "if sys.argv:\n  os.environ['STUB_SETTING'] = 'set'",
			want: "set torch torch none", exec: true},
		"by another module": {script: "import helper",
			helper: "import os; os.environ['STUB_SETTING'] = 'set'", want: "set torch torch none", again: true},
		"by a computed name": {script: "os.environ['STUB_' + 'SETTING'] = 'set'",
			want: "set torch torch none", again: true},
		"and another place": {script: "os.environ['STUB_' + 'SETTING'] = 'set'; os.chdir('/')",
			want: "set torch torch none", again: true},
		"before a submodule": {script: "os.environ['STUB_' + 'SETTING'] = 'set'\nfrom torch.nn " +
			"import parallel", want: "set torch torch none", again: true},
		"removed": {script: "os.environ.pop('OMP_WAIT_POLICY')",
			want: "none torch torch none", again: true},
		"nothing":             {script: "", want: "none torch torch none"},
		"of the script's own": {script: "os.environ['MINE'] = 'set'", want: "none torch torch none"},
		"as it was":           {script: "os.environ['OMP_WAIT_POLICY'] = 'passive'", want: "none torch torch none"},
		"not found as default": {script: "os.environ.setdefault('OMP_WAIT_POLICY', 'active')",
			want: "none torch torch none"},
		"too late for all": {script: "import torch\nos.environ['STUB_SETTING'] = 'set'",
			want: "none torch torch none"},
		"looked for": {script: "import importlib.util; assert 'torch' not in sys.modules " +
			"and importlib.util.find_spec('torch')", want: "none torch torch none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newForkBench(t, Options{Command: []string{"main.py"},
				Env: []string{"OMP_WAIT_POLICY=passive"}}, map[string]string{
				"main.py": "import os, sys\nprint('begins in', os.path.basename(os.getcwd()) != '')\n" +
					c.script + show, "helper.py": c.helper,
			})
			for start := range 2 {
				b.out.text.Reset()
				g := b.start(2)
				pids := g.Pids()
				for _, e := range b.ends(g) {
					if e.Failed() || e.Pid != pids[e.Local] {
						t.Errorf("start %d: %+v", start, e)
					}
				}
				begins := 2
				if c.again && start == 0 {
					begins = 4
				}
				want := map[bool]StartMethod{true: Exec, false: Fork}[c.exec || c.again && start > 0]
				if out := b.out.String(); strings.Count(out, c.want+"\n") != 2 ||
					strings.Count(out, "begins in True\n") != begins || g.Method() != want {
					t.Errorf("start %d by %v, want %v: %q, want twice %q, begun %d times", start,
						g.Method(), want, out, c.want, begins)
				}
			}
			if because := strings.Contains(b.log.String(),
				"before the import that reads it"); because != (c.exec || c.again) {
				t.Errorf("the log says why processes are executed: %v", because)
			}
		})
	}
}

// A module from site-packages that the fork server has learned is found by the script as in a fresh
// interpreter, and so are its variables.
func TestEnvironmentOfALearnedModule(t *testing.T) {
	const script = `
import os, site, sys
where = site.getusersitepackages()
if os.path.exists(where + "/learned.py"): os.environ["LEARNED" + "_SETTING"] = "set"
os.makedirs(where, exist_ok=True)
with open(where + "/learned.py", "w") as f: f.write("import os; maker, setting = os.getpid(), os.environ.get('LEARNED_SETTING', 'none')")
sys.path.append(where)
known = "learned" in sys.modules
import torch, learned
print(known, learned.setting)
`
	b := newForkBench(t, Options{Command: []string{"main.py"},
		Env: []string{"PYTHONUSERBASE=" + t.TempDir()}, learnAfter: 2 * time.Second},
		map[string]string{"main.py": script})
	b.ends(b.start(1))
	await(t, "a fork server that has learned", func() bool {
		return strings.Contains(b.log.String(), "has imported what the program imports")
	})
	if b.ends(b.start(1)); b.out.String() != "False none\nFalse set\n" {
		t.Errorf("%q", &b.out)
	}
}
