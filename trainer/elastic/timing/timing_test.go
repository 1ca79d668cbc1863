package timing_test

import (
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	. "github.com/elasticdl/elasticdl/trainer/elastic/timing"
)

// The numbers are those of the package's laws.
func TestLaws(t *testing.T) {
	for _, law := range []struct {
		number int
		what   string
		holds  bool
	}{
		{1, "Beat·Beats <= Silence", Beat*Beats <= Silence},
		{2, "BeatLimit <= Silence", BeatLimit <= Silence},
		{3, "Order < Silence", Order < Silence},
		{3, "Account < Silence", Account < Silence},
		{4, "Connect + Poll < Call", Connect+Poll < Call},
		{4, "Poll + BeatLimit <= Call", Poll+BeatLimit <= Call},
		{4, "Connect + Greeting < Call", Connect+Greeting < Call},
		{5, "KernelAlive < Vanish", KernelAlive < Vanish},
		{5, "Vanish <= Call", Vanish <= Call},
		{5, "Alive >= 10s, the least that gRPC accepts", Alive >= 10*time.Second},
		{6, "4·Call <= Abandoned", 4*Call <= Abandoned},
		{7, "Drain + Call <= Leave(Grace)", Drain+Call <= Leave(Grace)},
		{7, "Leave(Grace) < Grace", Leave(Grace) < Grace},
		{7, "Script(Grace) <= Leave(Grace)", Script(Grace) <= Leave(Grace)},
		{7, "Script(1s) <= Leave(1s) < 1s", Script(time.Second) <= Leave(time.Second) &&
			Leave(time.Second) < time.Second},
		{7, "Grace is the default of --grace_period", Grace == job.Default().TimeToEnd()},
		{8, "Farewell < Grace", Farewell < Grace},
		{8, "GraceSlack < EndSlack", GraceSlack < EndSlack},
		{9, "Call < Patience", Call < Patience},
		{9, "Patience < --task_timeout", Patience < job.Default().TaskTimeout.Duration},
		{10, "Vanish < Patience", Vanish < Patience},
		{11, "Call < Storage", Call < Storage},
		{11, "4·StoragePause <= Storage", 4*StoragePause <= Storage},
		{11, "Storage < --task_timeout", Storage < job.Default().TaskTimeout.Duration},
		{12, "Hold <= HoldMost", Hold <= HoldMost},
		{12, "HoldMost < HoldLimit", HoldMost < HoldLimit},
		{12, "HoldLimit < Patience", HoldLimit < Patience},
		{13, "3/2·Reconnect + Connect < Return", Reconnect*3/2+Connect < Return},
		{14, "--heartbeat_timeout < Explain(--heartbeat_timeout)",
			job.Default().HeartbeatTimeout.Duration < Explain(job.Default().HeartbeatTimeout.Duration)},
	} {
		if !law.holds {
			t.Errorf("law %d: %s does not hold", law.number, law.what)
		}
	}
}

// Law 1, for every limit that a job may name.
func TestInterval(t *testing.T) {
	for _, limit := range []time.Duration{time.Second, 1500 * time.Millisecond, 5 * time.Second,
		time.Minute, time.Hour} {
		if every := Interval(limit); every <= 0 || every > Beat || every*Beats > limit {
			t.Errorf("a heartbeat every %v for a limit of %v", every, limit)
		}
	}
	if every := Interval(0); every != Beat {
		t.Errorf("a heartbeat every %v for nobody", every)
	}
	if limit := job.Default().HeartbeatTimeout.Duration; BeatLimit > limit {
		t.Errorf("a heartbeat waits %v, and its sender is silent after %v", BeatLimit, limit)
	}
}
