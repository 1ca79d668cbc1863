//go:build !e2e

package main

import (
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
)

// oneWay reports whether the page says that the change cannot be undone.
func (r row) oneWay() bool { return strings.Contains(r.cell, "Not the other way round") }

// start brings up the stack on which changes are tried.
func (b base) start(t *testing.T, stack string) *engine {
	t.Helper()
	e := start(t, stack)
	e.setAll(b.set)
	e.up()
	return e
}

// makes makes a change that a preview has accepted, and undoes it:
//
//   - the update does what the preview has shown,
//   - afterwards the clouds have what the program asks for: with a refresh there is no difference,
//   - the settings can be set back, unless the page says that they cannot.
//
// It reports whether the stack is again as before.
func (e *engine) makes(c change, f finding, oneWay bool) (undone bool) {
	e.Helper()
	e.with(c, func() {
		if did, err := e.update(f.accepted); err != nil {
			e.Errorf("%s: the preview accepts it, and the update fails: %v\n%s", f.detail, err, did)
			return
		}
		if _, err := e.stack.Preview(e.Context(), optpreview.Refresh(), optpreview.ExpectNoChanges(),
			optpreview.SuppressProgress()); err != nil {
			e.Errorf("%s: a preview with a refresh after the update: %v", pathsOf(c), err)
		}
	})
	did, err := e.updateUnseen()
	switch {
	case err != nil && !oneWay:
		e.Errorf("%s: is set back, and the update fails: %v\n%s", pathsOf(c), err, did)
	case err == nil && oneWay:
		e.Errorf("%s: the page says that it cannot be set back, and the update does\n%s", pathsOf(c), did)
	}
	return err == nil
}

// end destroys the stack with its data, and checks that nothing is left.
func (e *engine) end() {
	e.Helper()
	e.set("elasticdl:protectStorage", false)
	e.up()
	e.destroy()
	e.cleared()
}
