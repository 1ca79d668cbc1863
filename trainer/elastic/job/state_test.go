package job

import "testing"

// Statuses carry these texts, and users read them in scripts.
func TestStates(t *testing.T) {
	for state, want := range map[State]struct {
		text  string
		ended bool
	}{
		Pending: {"Pending", false}, Running: {"Running", false}, Suspended: {"Suspended", false},
		Stopping:  {"Stopping", false},
		Succeeded: {"Succeeded", true}, Failed: {"Failed", true}, Stopped: {"Stopped", true},
	} {
		if string(state) != want.text || state.Ended() != want.ended {
			t.Errorf("%q ended: %t, want %+v", state, state.Ended(), want)
		}
	}
}
