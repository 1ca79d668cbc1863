package program

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// StartMethod is the way to start processes.
type StartMethod int

const (
	// Fork forks processes from the fork server, and falls back to Exec.
	Fork StartMethod = iota
	// Exec starts the interpreter or program again for each process.
	Exec
)

// String returns the name of the method.
func (m StartMethod) String() string {
	if m == Exec {
		return "exec"
	}
	return "fork"
}

// Options describe a program and how it is run on this node.
type Options struct {
	// Command is the user's command: a Python script or an interpreter with one ("main.py",
	// "python3 main.py", "python3 -m pkg.mod"), or any other program, which runs unchanged.
	Command []string
	// Module makes the first word of Command the name of a Python module, as torchrun -m does.
	Module bool
	// NoPython runs Command unchanged, even if its first word looks like a script.
	NoPython bool
	// Python is the interpreter of scripts that are named without one; "": PYTHON_EXEC of the
	// environment, else python3.
	Python string
	// Dir is the working directory; "": this process's.
	Dir string
	// Env is the environment to start from, as os.Environ; nil: this process's.
	Env []string
	// Threads is the OMP_NUM_THREADS of the fork server, unless the user sets it. 0: it is not set.
	Threads int
	// Role is torchrun's --role; "": "default".
	Role string
	// RunID is the value of TORCHELASTIC_RUN_ID, and the prefix of the log directory's name.
	RunID string
	// MaxRestarts is the value of TORCHELASTIC_MAX_RESTARTS.
	MaxRestarts int
	// LogDir is the directory in which the log directory is made; "": that of temporary files. Then
	// Close removes the log directory, unless it has an error file, or output by Redirects or Tee.
	LogDir string
	// Redirects are the streams that go to files only.
	Redirects Streams
	// Tee are the streams that go to files and, with a prefix, to the log and the display.
	Tee Streams
	// LocalRanksFilter are the local ranks whose lines the log and the display show; empty: all.
	LocalRanksFilter []int
	// StartMethod is Fork or Exec.
	StartMethod StartMethod
	// Stdout and Stderr are the log: they get whole lines; nil: this process's.
	Stdout, Stderr io.Writer
	// Display shows what the processes write as they write it, and has their standard input; nil:
	// nobody looks, and it is /dev/null.
	Display *Display
	// Log receives the package's messages; nil: none are written.
	Log *slog.Logger

	// overrides the constant learnAfter; 0: it does not
	learnAfter time.Duration
	// overrides the variable devices; nil: it does not
	devices []string
	// directory that has /proc and /sys, for the memory that is left; "": that of the system
	root string
}

// invocation is the parsed command line of the program.
type invocation struct {
	// path of the executable
	path string
	// all arguments; the first is the executable's name as given
	args   []string
	python bool
	// flags of the interpreter, without -u
	flags []string
	// script as given; "" for modules and other programs
	script string
	module string
	// arguments after the script or module
	rest []string
	// name of the program in reports
	display string
}

// Check returns what keeps the program from being started on this machine: a script or an
// interpreter that is not there.
func (o Options) Check() error {
	_, err := o.normalize()
	return err
}

// Hides returns the paths of modules with these names that Python finds before those of PYTHONPATH:
// in the script's directory or, for -m, in the working directory. It returns nil if the program is
// not a Python script or module, or cannot be started.
func (o Options) Hides(names ...string) (paths []string) {
	it, err := o.normalize()
	if err != nil || !it.python || parseEnviron(o.Env)["PYTHONSAFEPATH"] != "" {
		return nil
	}
	dir := o.Dir
	if it.script != "" {
		if dir, err = filepath.EvalSymlinks(o.inDir(it.script)); err != nil {
			return nil
		}
		// else the directory's __main__.py is run
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			dir = filepath.Dir(dir)
		}
	}
	for _, name := range names {
		for _, file := range []string{filepath.Join(name, "__init__.py"), name + ".py"} {
			if _, err := os.Stat(filepath.Join(dir, file)); err == nil {
				paths = append(paths, filepath.Join(dir, file))
				break
			}
		}
	}
	return paths
}

// normalize fills in defaults and returns the command line; errors say what is wrong with which
// option.
func (o *Options) normalize() (*invocation, error) {
	o.Role = cmp.Or(o.Role, "default")
	o.RunID = cmp.Or(o.RunID, "none")
	o.learnAfter = cmp.Or(o.learnAfter, learnAfter)
	if o.devices == nil {
		o.devices = devices
	}
	if o.Env == nil {
		o.Env = os.Environ()
	}
	if o.Stdout == nil {
		o.Stdout = os.Stdout
	}
	if o.Stderr == nil {
		o.Stderr = os.Stderr
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	o.Dir = dir
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("working directory %s: expected a directory that exists: create it or name another", dir)
	}
	switch {
	case len(o.Command) == 0 || o.Command[0] == "":
		return nil, errors.New("no program to run: name a script or a program after the flags")
	case o.Module && o.NoPython:
		return nil, errors.New("--module and --no_python exclude each other: a module needs Python")
	case o.Threads < 0 || o.MaxRestarts < 0:
		return nil, fmt.Errorf("threads %d, restarts %d: expected numbers that are not negative",
			o.Threads, o.MaxRestarts)
	}
	return o.invocation()
}

var interpreters = regexp.MustCompile(`^python(\d+(\.\d+)*)?$`)

func (o *Options) invocation() (*invocation, error) {
	first := o.Command[0]
	env := parseEnviron(o.Env)
	python := cmp.Or(o.Python, env["PYTHON_EXEC"], "python3")
	var it *invocation
	switch {
	case o.Module:
		it = &invocation{args: []string{python, "-u", "-m"}, python: true, module: first, rest: o.Command[1:]}
		it.args = append(it.args, o.Command...)
	case !o.NoPython && interpreters.MatchString(filepath.Base(first)):
		it = interpreted(o.Command)
	case !o.NoPython && o.isScript(first):
		it = &invocation{args: append([]string{python, "-u"}, o.Command...), python: true,
			script: first, rest: o.Command[1:]}
	default:
		it = &invocation{args: slices.Clone(o.Command), display: first}
	}
	it.display = cmp.Or(it.display, it.script, it.module, first)
	var err error
	if it.path, err = find(it.args[0], o.Dir, env["PATH"]); err != nil {
		return nil, err
	}
	if err := checkExecutable(it.args[0], it.path); err != nil {
		return nil, err
	}
	if it.script != "" {
		if _, err := os.Stat(o.inDir(it.script)); err != nil {
			return nil, fmt.Errorf("script %s: not found in %s: name one that exists there, or its "+
				"whole path", it.script, o.Dir)
		}
	}
	return it, nil
}

// isScript reports whether a name without an interpreter is for Python: by its ending, as one
// writes it after torchrun.
func (o *Options) isScript(name string) bool {
	switch filepath.Ext(name) {
	case ".py", ".pyc", ".pyz":
		return true
	}
	info, err := os.Stat(filepath.Join(o.inDir(name), "__main__.py"))
	return err == nil && !info.IsDir()
}

func (o *Options) inDir(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(o.Dir, name)
}

// interpreted parses a command line that names the interpreter. An unknown command line runs
// unchanged.
func interpreted(command []string) *invocation {
	it := &invocation{args: []string{command[0], "-u"}}
	for i := 1; i < len(command); i++ {
		word := command[i]
		switch {
		case word == "-u":
			continue
		case word == "-m" && i+1 < len(command):
			it.python, it.module, it.rest = true, command[i+1], command[i+2:]
		case (word == "-X" || word == "-W") && i+1 < len(command):
			it.flags = append(it.flags, word, command[i+1])
			i++
			continue
		case strings.HasPrefix(word, "-X") || strings.HasPrefix(word, "-W") ||
			slices.Contains([]string{"-B", "-O", "-OO", "-b", "-bb", "-d", "-q", "-v"}, word):
			it.flags = append(it.flags, word)
			continue
		case !strings.HasPrefix(word, "-"):
			it.python, it.script, it.rest = true, word, command[i+1:]
		}
		break
	}
	it.args = append(it.args, it.flags...)
	switch {
	case !it.python:
		// -c, -, an option that changes how modules are found
		return &invocation{args: slices.Clone(command), display: command[0]}
	case it.module != "":
		it.args = append(it.args, "-m", it.module)
	default:
		it.args = append(it.args, it.script)
	}
	it.args = append(it.args, it.rest...)
	return it
}

// find looks for an executable as a shell would in the directory dir, with the given PATH.
func find(name, dir, path string) (string, error) {
	if strings.ContainsRune(name, filepath.Separator) {
		full := name
		if !filepath.IsAbs(full) {
			full = filepath.Join(dir, full)
		}
		if found, err := exec.LookPath(full); err == nil {
			return found, nil
		}
		switch info, err := os.Stat(full); {
		case err == nil && info.IsDir():
			return "", fmt.Errorf("program %s: it is a directory: name the program or script in it", name)
		case err == nil:
			return "", fmt.Errorf("program %s: not executable: chmod +x it, or name its interpreter", name)
		}
		return "", fmt.Errorf("program %s: not found in %s: name one that exists there, or its whole path", name, dir)
	}
	for _, entry := range filepath.SplitList(path) {
		if !filepath.IsAbs(entry) {
			entry = filepath.Join(dir, entry)
		}
		if found, err := exec.LookPath(filepath.Join(entry, name)); err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("program %s: not found in PATH (%s): install it, or name its whole path", name, path)
}
