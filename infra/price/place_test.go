package price

import (
	"testing"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// Pods take nodes that are there in any case, as far as they fit there, and others for the rest; a
// pod without GPUs takes none that have some.
func TestPlace(t *testing.T) {
	karpenter := func(cpus any) func(config map[string]any) {
		return func(config map[string]any) {
			eks := config["elasticdl:eks"].(map[string]any)
			eks["nodes"] = "karpenter"
			eks["systemGroup"] = map[string]any{"instanceTypes": []any{"m6i.xlarge"}, "minNodes": 1, "desiredNodes": 1,
				"maxNodes": 1}
			job := config["elasticdl:job"].(map[string]any)
			job["strategy"], job["numPS"] = "ParameterServerStrategy", 1
			job["ps"] = map[string]any{"request": map[string]any{"cpu": cpus}}
		}
	}
	for what, test := range map[string]struct {
		cloud  string
		change func(config map[string]any)
		want   map[string]int
	}{
		"the nodes that are there": {"eks", karpenter(1), map[string]int{settings.SystemPool: 2, "workers": 2}},
		"a server too large for these": {"eks", karpenter("3600m"), map[string]int{settings.SystemPool: 1,
			settings.CorePool: 1, "workers": 2}},
		"no GPUs": {"gke", func(config map[string]any) {
			delete(config["elasticdl:gke"].(map[string]any), "workerPool")
			config["elasticdl:gke"].(map[string]any)["gpuPool"] = map[string]any{"machineType": "n1-standard-8",
				"accelerator": "nvidia-tesla-t4", "gpus": 1, "maxNodes": 1}
			config["elasticdl:job"].(map[string]any)["clusterSpecJSON"] = `{"worker_pod_spec": {"tolerations": ` +
				`[{"operator": "Exists"}]}}`
		}, map[string]int{settings.SystemPool: 3}},
	} {
		s := stack(t, test.cloud, test.change)
		on := google
		if s.EKS != nil {
			on = amazon
		}
		pods := place(s, on(s))
		if len(pods) != len(test.want) {
			t.Errorf("%s: %v", what, pods)
		}
		for name, want := range test.want {
			n := 0
			for _, of := range pods[name] {
				n += of.pods
			}
			if n != want {
				t.Errorf("%s: %d pods on %s: %v", what, n, name, pods)
			}
		}
	}
}
