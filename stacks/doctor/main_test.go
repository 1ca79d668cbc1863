package main

import (
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/infra/doctor"
)

// One thing that is missing is enough to fail; what could not be asked, and notes, are not.
func TestShow(t *testing.T) {
	for _, test := range []struct {
		states []doctor.State
		last   string
		ok     bool
	}{
		{[]doctor.State{doctor.OK, doctor.Unknown, doctor.Note}, "note     a check: as found", true},
		{[]doctor.State{doctor.OK, doctor.Missing}, "1 missing: `pulumi up` would fail", false},
		{[]doctor.State{doctor.Missing, doctor.Note, doctor.Missing}, "2 missing: `pulumi up` would fail", false},
	} {
		var found []doctor.Finding
		for _, state := range test.states {
			found = append(found, doctor.Finding{State: state, Name: "a check", Text: "as found"})
		}
		var out strings.Builder
		if ok := show(&out, found); ok != test.ok || !strings.HasSuffix(out.String(), "\n"+test.last+"\n") {
			t.Errorf("%v: %t\n%s", test.states, ok, &out)
		}
	}
}
