// Report prints the output of `go test -json` as `go test` does, and at the end the skipped tests
// with their reasons, and the slowest ones:
//
//	go test -json ./... | go run ./test/report
//
// It never fails: the exit status is go test's, which a shell with pipefail returns.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

func main() {
	if err := report(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

// event is one line of `go test -json`; `go doc test2json` describes it.
type event struct {
	Action  string
	Package string
	Test    string
	Elapsed float64 // seconds
	Output  string
}

// test names one test.
type test struct{ pkg, name string }

func (t test) String() string {
	return strings.TrimPrefix(t.pkg, "github.com/elasticdl/elasticdl/") + " " + t.name
}

// took is the time that a test ran, with its subtests.
type took struct {
	test
	seconds float64
}

// account collects the events that were read.
type account struct {
	// what unfinished tests have said
	running map[test][]string
	// by package, the line that says in which order its tests run
	order map[string]string
	// reasons by test
	skipped map[string]string
	passed  int
	took    []took
	out     io.Writer
}

// report reads events to their end. It prints lines that are not events unchanged.
func report(in io.Reader, out io.Writer) error {
	a := &account{running: make(map[test][]string), order: make(map[string]string),
		skipped: make(map[string]string), out: out}
	for lines := bufio.NewReader(in); ; {
		line, err := lines.ReadBytes('\n')
		var e event
		switch {
		case len(line) == 0:
		case json.Unmarshal(line, &e) != nil || e.Action == "":
			out.Write(line)
		default:
			a.add(e)
		}
		if err == io.EOF {
			a.sum()
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the events: %w", err)
		}
	}
}

// add prints an event, or keeps its output until the result of the test is known.
func (a *account) add(e event) {
	t := test{e.Package, e.Test}
	switch {
	case e.Action == "build-output":
		io.WriteString(a.out, e.Output)
	case e.Action == "output" && e.Test == "" && strings.HasPrefix(e.Output, "-test.shuffle "):
		a.order[e.Package] = e.Output
	case e.Action == "output" && e.Test == "":
		if !noise(e.Output) {
			io.WriteString(a.out, e.Output)
		}
	case e.Action == "output":
		a.running[t] = append(a.running[t], e.Output)
	case e.Action == "fail" && e.Test == "":
		// of those that still ran it has ended the process
		io.WriteString(a.out, a.order[e.Package])
		for _, t := range slices.SortedFunc(maps.Keys(a.running), func(x, y test) int {
			return cmp.Compare(x.name, y.name)
		}) {
			if t.pkg == e.Package {
				a.end(t, true)
			}
		}
	case e.Test == "":
	case e.Action == "fail":
		a.end(t, true)
		a.took = append(a.took, took{t, e.Elapsed})
	case e.Action == "skip":
		a.skipped[t.String()] = reason(a.running[t])
		a.end(t, false)
	case e.Action == "pass":
		a.end(t, false)
		a.passed++
		a.took = append(a.took, took{t, e.Elapsed})
	}
}

// end drops the output of a test, after printing it if show is set.
func (a *account) end(t test, show bool) {
	if show {
		for _, line := range a.running[t] {
			io.WriteString(a.out, line)
		}
	}
	delete(a.running, t)
}

// noise reports whether a package's line has no information for a reader.
func noise(line string) bool {
	return strings.HasPrefix(line, "?   ") || line == "PASS\n" ||
		line == "testing: warning: no tests to run\n" || strings.Contains(line, "[no tests to run]")
}

// reason returns the output of a test before it was skipped, as one line.
func reason(said []string) string {
	var words []string
	for _, line := range said {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- SKIP") {
			continue
		}
		if place, text, ok := strings.Cut(line, ": "); ok && strings.Contains(place, ".go:") {
			line = text
		}
		words = append(words, line)
	}
	return strings.Join(words, " ")
}

// sum prints how many tests ran, which were skipped, and which were slowest.
func (a *account) sum() {
	slices.SortFunc(a.took, func(x, y took) int { return cmp.Compare(y.seconds, x.seconds) })
	fmt.Fprintf(a.out, "%d tests passed", a.passed)
	for i, t := range slices.DeleteFunc(a.took, func(t took) bool { return strings.Contains(t.name, "/") }) {
		if i == 5 || t.seconds < 1 {
			break
		}
		fmt.Fprintf(a.out, "%s %s %v", map[bool]string{true: "; longest:", false: ","}[i == 0], t,
			time.Duration(t.seconds*float64(time.Second)).Round(time.Second))
	}
	fmt.Fprintf(a.out, "\n%d tests skipped", len(a.skipped))
	for i, name := range slices.Sorted(maps.Keys(a.skipped)) {
		fmt.Fprintf(a.out, "%s  %s: %s", map[bool]string{true: ":\n", false: "\n"}[i == 0], name,
			cmp.Or(a.skipped[name], "no reason given"))
	}
	fmt.Fprintln(a.out)
}
