package master

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Conditions agree with a status that a client or a runtime has changed. A condition that is
// unknown is left out, and a time changes only with its condition.
func TestRejudge(t *testing.T) {
	running := func(reason string) *wire.JobStatus {
		return &wire.JobStatus{
			State: "Running", Workers: 1,
			Pods:       []*wire.PodStatus{{Role: wire.Role_WORKER, State: pod.Running.String()}},
			Conditions: []*wire.Condition{{Type: "Admitted", Status: "True", Reason: reason, LastTransitionUnixMs: 5}},
		}
	}
	for _, c := range []struct {
		name string
		was  string // reason of Admitted
		set  func(s *wire.JobStatus)
		want string
	}{
		{"nothing has changed", "NoQueue", func(*wire.JobStatus) {},
			"Admitted=True NoQueue@5 Running=True Training@1 Degraded=False AsRequested@1 Failed=False NotFailed@1"},
		{"the master was lost", "QuotaReserved", func(s *wire.JobStatus) { s.Waiting = "the master" },
			"Admitted=True QuotaReserved@5 Running=False Waiting@9 Degraded=False AsRequested@1 " +
				"Failed=False NotFailed@1"},
		{"it has failed", "QuotaReserved", func(s *wire.JobStatus) { s.State, s.Reason = "Failed", "launcher died" },
			"Admitted=False Finished@9 Running=False Finished@9 Degraded=False Finished@1 Failed=True Failed@9"},
		{"it has returned its quota", "Suspended", func(s *wire.JobStatus) { s.State, s.Pods = "Pending", nil },
			"Running=False Pending@9 Degraded=False Pending@1 Failed=False NotFailed@1"},
		{"it waits for quota", "WaitingForQuota", func(s *wire.JobStatus) { s.State = "Pending" },
			"Admitted=False WaitingForQuota@1 Running=False Pending@9 Degraded=False Pending@1 " +
				"Failed=False NotFailed@1"},
	} {
		s := running(c.was)
		Rejudge(s, time.UnixMilli(1))
		c.set(s)
		Rejudge(s, time.UnixMilli(9))
		var got []string
		for _, is := range s.Conditions {
			if is.Type != "Checkpointed" && is.Type != "Complete" {
				got = append(got, fmt.Sprintf("%s=%s %s@%d", is.Type, is.Status, is.Reason, is.LastTransitionUnixMs))
			}
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.name, text, c.want)
		}
	}
}
