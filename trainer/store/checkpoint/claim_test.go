package checkpoint

import (
	"strings"
	"testing"
)

// Permissions for a directory.
func TestMayUse(t *testing.T) {
	at := func(pid int) Owner { return Owner{Job: "a", Name: "a", Host: "h", Boot: "b", PID: pid, Started: "7"} }
	a, there := Owner{Job: "a", Name: "a"}, Owner{Job: "a", Name: "a", Namespace: "n", Cluster: "c"}
	b := Owner{Job: "b", Name: "b"}
	for _, c := range []struct {
		name     string
		me       Owner
		permit   Permit
		last     *Owner // nil: there is no claim
		released bool
		standing Standing
		want     Use
		why      string
	}{
		{"a new directory, or one from before", a, Permit{}, nil, false, Unknown, Take, "has no owner"},
		{"its own", a, Permit{}, &a, false, Alive, Keep, "own"},
		{"its own on a cluster, with any master", there, Permit{}, &there, false, Alive, Keep, "own"},
		{"its own, released by a user or at its end", a, Permit{}, &a, true, Unknown, Take, "released"},
		{"its own from an earlier launcher", at(2), Permit{}, new(at(1)), false, Dead, Take, "earlier start"},
		{"another's that has ended", b, Permit{}, &a, true, Alive, Take, "released by job a"},
		{"the job that it resumes", b, Permit{Ancestors: []string{"x", "a"}}, &a, false, Unknown, Take, "inherited"},
		{"the job that it resumes, which is suspended", b, Permit{Ancestors: []string{"a"}}, &a, false,
			Suspended, Take, "inherited"},
		{"of another lineage", b, Permit{Ancestors: []string{"x", "y"}}, &a, false, Unknown, Refuse,
			"belongs to job a"},
		{"another's that runs", b, Permit{}, &a, false, Alive, Refuse, "which runs"},
		{"another's that is suspended", b, Permit{}, &a, false, Suspended, Refuse, "which is suspended"},
		{"another's, of which nothing is known", b, Permit{}, &there, false, Unknown, Refuse, "job a in namespace n"},
		{"another's that is dead", b, Permit{}, &a, false, Dead, Take, "which no longer exists"},
		{"another's, and the user confirms that it no longer exists", b, Permit{TakeOver: true}, &a, false,
			Unknown, Take, "taken over"},
		{"another's of the same name", Owner{Job: "c", Name: "a"}, Permit{}, &a, false, Unknown, Refuse, "UID a"},
	} {
		var last *Claim
		if c.last != nil {
			last = &Claim{Number: 1, Owner: *c.last}
		}
		if use, why := MayUse(c.me, c.permit, last, c.released, c.standing); use != c.want ||
			!strings.Contains(why, c.why) {
			t.Errorf("%s: %d, it %s; want %d, %q", c.name, use, why, c.want, c.why)
		}
	}
}

// A process of this machine is known to live, or to have ended, while the machine runs; elsewhere
// neither is known.
func TestGone(t *testing.T) {
	here := LocalOwner("a", "a", "", 1)
	if here.Started == "" {
		t.Skip("this system does not tell when processes start")
	}
	before := here
	before.Started = "1234567890"
	elsewhere, reboot := here, here
	elsewhere.PIDs, reboot.Boot = "pid:[1]", "another"
	never := here
	never.PID = 1 << 30
	for name, c := range map[string]struct {
		owner       Owner
		gone, known bool
	}{
		"it runs":                                   {here, false, true},
		"another process has its ID":                {before, true, true},
		"no process has its ID":                     {never, true, true},
		"in another container":                      {elsewhere, false, false},
		"since the machine was started, or another": {reboot, false, false},
		"a job of a cluster":                        {Owner{Job: "a", Cluster: "c"}, false, false},
	} {
		if gone, known := c.owner.Ended(); gone != c.gone || known != c.known {
			t.Errorf("%s: ended %t, known %t", name, gone, known)
		}
	}
}
