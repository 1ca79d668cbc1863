package trainingjob

import (
	"testing"

	"sigs.k8s.io/yaml"
)

// An update says that training has started, that the job has failed, or why neither is so.
func TestStand(t *testing.T) {
	const running = "{type: elasticdl.dev/Running, status: 'True'}"
	const not = "type: elasticdl.dev/Running, status: 'False'"
	for name, test := range map[string]struct {
		job, master string // YAML
		want        Standing
	}{
		"trains":    {"status: {conditions: [" + running + "]}", "", Standing{Started: true}},
		"has ended": {"status: {conditions: [{type: Complete, status: 'True'}]}", "", Standing{Started: true}},
		"failed": {"status: {conditions: [" + running + ", {type: Failed, status: 'True', " +
			"reason: BackoffLimitExceeded, message: no data}]}", "", Standing{Failed: "BackoffLimitExceeded: no data"}},
		"has not failed": {"status: {conditions: [{type: Failed, status: 'False'}, " + running + "]}", "",
			Standing{Started: true}},
		"no Job":          {"", "", Standing{Why: "its Job is not there"}},
		"no master":       {"spec: {suspend: false}", "", Standing{Why: "its master is not created yet"}},
		"a master starts": {"spec: {}", "status: {phase: Running}", Standing{Why: "its master starts"}},
		"suspended": {"spec: {suspend: true}", "",
			Standing{Why: "it is suspended: by job.suspend, or by a queue that has not admitted it"}},
		"no node": {"spec: {}", "status: {conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable, " +
			"message: '0/2 nodes are available'}]}",
			Standing{Why: "its master waits: Unschedulable: 0/2 nodes are available"}},
		"no image": {"spec: {}", "status: {containerStatuses: [{state: {waiting: " +
			"{reason: ImagePullBackOff, message: \"Back-off\\nfrom x\"}}}]}",
			Standing{Why: "its master waits: ImagePullBackOff: Back-off from x"}},
		"a container": {"spec: {}", "status: {containerStatuses: [{state: {waiting: {reason: ContainerCreating}}}]}",
			Standing{Why: "its master starts"}},
		"no quota": {"status: {conditions: [{type: elasticdl.dev/Admitted, status: 'False', " +
			"reason: WaitingForQuota, message: '2 of 3 pods'}, {" + not + ", reason: Waiting}]}", "",
			Standing{Why: "WaitingForQuota: 2 of 3 pods"}},
		"workers without a node": {"status: {conditions: [{type: elasticdl.dev/Admitted, status: 'True'}, {" + not +
			", reason: Waiting, message: 'no worker runs: 4 to start (Unschedulable)'}]}", "status: {phase: Running}",
			Standing{Why: "Waiting: no worker runs: 4 to start (Unschedulable)"}},
	} {
		object := func(text string) (o map[string]any) {
			if err := yaml.Unmarshal([]byte(text), &o); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return o
		}
		if got := Stand(object(test.job), object(test.master)); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}
