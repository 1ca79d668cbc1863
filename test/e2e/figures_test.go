//go:build e2e

package e2e

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"
)

// figures has the measurements of the tests, in their order.
var figures struct {
	sync.Mutex
	rows [][3]string
}

// figure records a measurement of a test for the table at the end; limit is the required limit, if
// any.
func figure(t *testing.T, what, value, limit string) {
	t.Helper()
	t.Logf("%s: %s %s", what, value, limit)
	note(t.Name()+": "+what, value, limit)
}

func note(what, value, limit string) {
	figures.Lock()
	defer figures.Unlock()
	figures.rows = append(figures.rows, [3]string{what, value, limit})
}

// missed ends the test, and records in the table that something did not happen within a limit: of a
// long output its end is read first.
func missed(t *testing.T, what string, limit time.Duration, now string) {
	t.Helper()
	note(t.Name()+": "+strings.Join(strings.Fields(what), " "), "missed", "within "+limit.String())
	if now != "" {
		now = ", but\n" + now
	}
	t.Fatalf("no %s in %v%s", what, limit, now)
}

// rounded returns a time in the format of the table.
func rounded(d time.Duration) string { return d.Round(10 * time.Millisecond).String() }

// within records a time, and fails the test if it exceeds the limit.
func within(t *testing.T, what string, took, limit time.Duration) {
	t.Helper()
	figure(t, what, rounded(took), "< "+limit.String())
	if took >= limit {
		t.Errorf("%s: %v, want less than %v", what, took.Round(time.Millisecond), limit)
	}
}

// took records the time since began, without a limit.
func took(t *testing.T, what string, began time.Time) {
	t.Helper()
	figure(t, what, rounded(time.Since(began)), "")
}

func printFigures(w io.Writer) {
	figures.Lock()
	defer figures.Unlock()
	if len(figures.rows) == 0 {
		return
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nmeasured\t\theld to")
	for _, r := range figures.rows {
		fmt.Fprintf(table, "%s\t%s\t%s\n", r[0], r[1], r[2])
	}
	table.Flush()
}
