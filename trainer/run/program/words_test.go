package program

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// lastWords returns the last exception in a text, or else its last line, as printable text of at
// most 240 characters.
func TestLastWords(t *testing.T) {
	const stack = "Traceback (most recent call last):\n  File \"main.py\", line 3, in <module>\n    " +
		"main()\n  File \"main.py\", line 2, in main\n\n    raise ValueError\n"
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{" \n\n", ""},
		{"one\ntwo\n\n", "two"},
		{"no end", "no end"},
		{stack + "ValueError: no label\n", "ValueError: no label"},
		{stack + "ValueError: no label\n[W socket.cpp:436] a warning at the end\n", "ValueError: no label"},
		{stack + "KeyError: 'a'\n\nDuring handling of the above exception, another exception " +
			"occurred:\n\n" + stack + "ValueError: no label\n", "ValueError: no label"},
		{"[rank1]: " + strings.ReplaceAll(strings.TrimSpace(stack), "\n", "\n[rank1]: ") +
			"\n[rank1]: RuntimeError: [gloo/pair.cc:589] Connection closed\n",
			"RuntimeError: [gloo/pair.cc:589] Connection closed"},
		{stack, "raise ValueError"}, // the text is cut off before the exception
		{"\x1b[31mred\x1b[0m \x1b]0;title\a\ttab\r\n", `red \x1b]0;title\a tab`},
		{"\xff\n", `\xff`},
		{strings.Repeat("é", 300), strings.Repeat("é", 240) + "…"},
	} {
		if got := lastWords(c.text); got != c.want {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}

// The words of a group of exceptions name the group and what is in it, as Python 3.11 and later
// write it.
func TestLastWordsOfAGroup(t *testing.T) {
	const one = "  + Exception Group Traceback (most recent call last):\n  |   File \"main.py\", " +
		"line 1, in <module>\n  |     raise ExceptionGroup(\n" +
		"  | ExceptionGroup: several (2 sub-exceptions)\n  +-+---------------- 1 " +
		"----------------\n    | ValueError: a\nmore of a\n    +---------------- 2 ----------------\n" +
		"    | TypeError: b\n    +------------------------------------\n"
	const tasks = "  + Exception Group Traceback (most recent call last):\n  |   File \"main.py\", " +
		"line 9, in <module>\n  |     asyncio.run(main())\n" +
		"  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)\n  " +
		"+-+---------------- 1 ----------------\n" +
		"    | Traceback (most recent call last):\n    |   File \"main.py\", line 4, in f\n    " +
		"|     1 / 0\n    |     ~~^~~\n    | ZeroDivisionError: division by zero\n" +
		"    | \n    | During handling of the above exception, another exception occurred:\n    | " +
		"\n    | Traceback (most recent call last):\n    |   File \"main.py\", line 6, in f\n" +
		"    | RuntimeError: first line\n    | second line\n    +------------------------------------\n"
	const nested = "  + Exception Group Traceback (most recent call last):\n  |   File \"main.py\", " +
		"line 1, in <module>\n  | ExceptionGroup: outer (2 sub-exceptions)\n" +
		"  +-+---------------- 1 ----------------\n    | Exception Group Traceback (most recent " +
		"call last):\n    |   File \"main.py\", line 2, in g\n" +
		"    | ExceptionGroup: inner (1 sub-exception)\n    +-+---------------- 1 " +
		"----------------\n      | ValueError: x\n      +------------------------------------\n" +
		"    +---------------- 2 ----------------\n    | OSError: y\n    +------------------------------------\n"
	for _, c := range []struct{ text, want string }{
		{one, "ExceptionGroup: several (2 sub-exceptions): ValueError: a; TypeError: b"},
		{one + "[W socket.cpp:436] a warning at the end\n",
			"ExceptionGroup: several (2 sub-exceptions): ValueError: a; TypeError: b"},
		{"[rank0]: " + strings.ReplaceAll(strings.TrimSuffix(one, "\n"), "\n", "\n[rank0]: ") + "\n",
			"ExceptionGroup: several (2 sub-exceptions): ValueError: a; TypeError: b"},
		{tasks, "ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception): RuntimeError: first line"},
		{nested, "ExceptionGroup: outer (2 sub-exceptions): ValueError: x; OSError: y"},
		{one + "\nThe above exception was the direct cause of the following exception:\n\n" +
			traceback + "\n  File \"main.py\", line 3, in <module>\nRuntimeError: last\n", "RuntimeError: last"},
		{traceback + "\n  File \"main.py\", line 3, in <module>\nRuntimeError: before\n\nDuring " +
			"handling of the above exception, another exception occurred:\n\n" + one,
			"ExceptionGroup: several (2 sub-exceptions): ValueError: a; TypeError: b"},
	} {
		if got := lastWords(c.text); got != c.want {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}

// The error of a failed import names the interpreter, which may be the wrong one, whether the
// message comes from standard error or from the error file. Other errors do not name it.
func TestInterpreterIsNamed(t *testing.T) {
	needPython(t)
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ script, want string }{
		{"import no_such_module", "ModuleNotFoundError: No module named 'no_such_module' (Python: " +
			python + "; to run another, name it, as in: -- /path/to/python3 main.py) (exit code 1)"},
		{"from os import no_such_name", "(Python: " + python +
			"; to run another, name it, as in: -- /path/to/python3 main.py) (exit code 1)"},
		{"raise ValueError('no label')", "ValueError: no label (exit code 1)"},
		{"import json, os, sys\njson.dump({'message': \"ModuleNotFoundError: No module named " +
			"'torch'\"}, open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w'))\nsys.exit(1)",
			"ModuleNotFoundError: No module named 'torch' (Python: " + python +
				"; to run another, name it, as in: -- /path/to/python3 main.py)"},
	} {
		for _, method := range []StartMethod{Fork, Exec} {
			path := filepath.Join(t.TempDir(), "main.py")
			if err := os.WriteFile(path, []byte(c.script), 0o600); err != nil {
				t.Fatal(err)
			}
			b := newBench(t, Options{Command: []string{"python3", path}, StartMethod: method}, nil)
			if got := b.ends(b.start(1))[0].Message(); !strings.HasSuffix(got, c.want) {
				t.Errorf("%q by %v: it says %q, want %q", c.script, method, got, c.want)
			}
		}
	}
}

// The last error message of a process that fails on its own is reported, whether its standard error
// is shown, shown and kept, or only kept. The message of an error file, and of a signal, has
// precedence.
func TestWords(t *testing.T) {
	for _, c := range []struct{ name, redirects, tee, script, want string }{
		{"filtered", "", "", "echo no data >&2; exit 3", "no data (exit code 3)"},
		{"shown", "", "", "echo no data >&2; exit 3", "no data (exit code 3)"},
		{"much", "", "", "yes | head -c 200000 >&2; echo no data >&2; exit 3", "no data (exit code 3)"},
		{"tee", "", "3", "echo no data >&2; exit 3", "no data (exit code 3)"},
		{"redirected", "3", "", "yes | head -c 200000 >&2; echo no data >&2; exit 3", "no data (exit code 3)"},
		{"on standard output", "", "", "echo no data; exit 3", "exit code 3"},
		{"error file", "", "",
			`echo other >&2; echo '{"message": "no label", "timestamp": 5}' > $TORCHELASTIC_ERROR_FILE; exit 3`,
			"no label"},
		{"killed", "", "", "echo other >&2; kill -9 $$", "Signal 9 (SIGKILL) received by PID "},
	} {
		t.Run(c.name, func(t *testing.T) {
			redirects, err := ParseStreams("redirects", c.redirects)
			if err != nil {
				t.Fatal(err)
			}
			tee, err := ParseStreams("tee", c.tee)
			if err != nil {
				t.Fatal(err)
			}
			b := newBench(t, Options{Command: []string{"sh", "-c", c.script}, Redirects: redirects,
				Tee: tee, LocalRanksFilter: map[string][]int{"filtered": {1}}[c.name]}, nil)
			e := b.ends(b.start(1))[0]
			if got := e.Message(); got != c.want && (c.name != "killed" || !strings.HasPrefix(got, c.want)) {
				t.Errorf("it says %q, want %q", got, c.want)
			}
		})
	}
}
