package cli

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// goInternals matches messages of Go that only Go programmers understand.
var goInternals = regexp.MustCompile(
	`strconv\.|accepts .*arg\(s\)|&\{|\b0xc0[0-9a-f]{6}|%![a-zA-Z(]|nil pointer|\bgoroutine |context (deadline exceeded|canceled)|rpc error: code|` +
		`"github\.com/elasticdl/|\bmap\[|\b(unmarshal|marshal) .*Go (value|struct)|reflect\.|runtime error|panic:|invalid argument ".*" for|path escapes from parent|<nil>`)

// listener runs script tests, and checks everything that elasticdl prints in them.
type listener struct{ t *testing.T }

func (l listener) Skip(args ...any)  { l.t.Helper(); l.t.Skip(args...) }
func (l listener) Fatal(args ...any) { l.t.Helper(); l.t.Fatal(args...) }
func (l listener) Parallel()         { l.t.Parallel() }
func (l listener) FailNow()          { l.t.FailNow() }

// Verbose makes testscript keep the output of sections that have succeeded.
func (l listener) Verbose() bool { return true }

// Run runs a script test.
func (l listener) Run(name string, f func(testscript.T)) {
	l.t.Run(name, func(t *testing.T) { f(listener{t}) })
}

// Log gets the log of a script test, and prints it if the test failed.
func (l listener) Log(args ...any) {
	l.t.Helper()
	for _, line := range internals(fmt.Sprint(args...)) {
		l.t.Errorf("elasticdl speaks Go to its users: %s", line)
	}
	if testing.Verbose() || l.t.Failed() {
		l.t.Log(args...)
	}
}

// internals returns the lines of a log that elasticdl has printed and that only a Go programmer
// understands. It skips completions, which are programs for a shell.
func internals(log string) (found []string) {
	ours := false
	for line := range strings.Lines(log) {
		line = strings.TrimSuffix(line, "\n")
		if command, ok := strings.CutPrefix(line, "> "); ok {
			words := strings.Fields(strings.TrimPrefix(command, "! "))
			ours = slices.Contains(words, "elasticdl") && !slices.Contains(words, "completion")
			continue
		}
		if ours && goInternals.MatchString(line) {
			found = append(found, line)
		}
	}
	return found
}

func TestInternals(t *testing.T) {
	for _, line := range []string{
		`elasticdl logs: invalid argument "many" for "--tail" flag: strconv.ParseInt: parsing "many": invalid syntax`,
		"elasticdl status: accepts 1 arg(s), received 0",
		"pod &{ID:1}", "at 0xc000123456", "job %!v(MISSING)", "panic: nil pointer dereference",
		"goroutine 7 [running]:", "list jobs: context deadline exceeded",
		"rpc error: code = Unavailable desc = connection lost", `"github.com/elasticdl/elasticdl/trainer"`,
		"metrics map[loss:1]", "statat train.csv: path escapes from parent", "loss <nil>",
	} {
		if found := internals("> ! elasticdl do\n[stderr]\n" + line + "\n> exec other\n" + line +
			"\n> elasticdl completion bash\n" + line + "\n"); !slices.Equal(found, []string{line}) {
			t.Errorf("%s: found %q", line, found)
		}
	}
	for _, line := range []string{"Evaluation metrics[v=50]: {'loss': 1}",
		"job j Failed: worker-0: exit code 1", "100% of 0xff"} {
		if found := internals("> elasticdl do\n" + line + "\n"); len(found) > 0 {
			t.Errorf("found %q", found)
		}
	}
}
