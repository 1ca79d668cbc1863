package settings

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

const quotas20 = "{quotas: {cpu: 20, memory: 80Gi}}"

// Values that follow from a queue, on clusters of the stack and on those that exist already.
func TestQueueSettled(t *testing.T) {
	for name, test := range map[string]struct {
		cloud string
		with  map[string]string
		want  func(s *Settings) bool
	}{
		"the least": {"gke", map[string]string{"platform.queue": quotas20}, func(s *Settings) bool {
			q := s.Platform.Queue
			return q.Name == "training" && q.Install && q.Version == KueueVersion && s.Platform.QueuePriorities &&
				s.Job.Queue == "training" && s.Job.QueuePriorities == job.PrioritiesWorkload
		}},
		"all of it": {"eks", map[string]string{"platform.queue": "{name: gpus, version: 0.18.1, cohort: all, " +
			"namespaces: [team-b], quotas: {cpu: '20.5', memory: 80Gi, pods: 50, nvidia.com/gpu: 8}, flavor: " +
			"{labels: {pool: gpu}, tolerations: [{key: gpu, operator: Exists}]}}"}, func(s *Settings) bool {
			return s.Platform.Queue.Version == "0.18.1" && s.Job.Queue == "gpus"
		}},
		"no queue": {"gke", nil, func(s *Settings) bool {
			return s.Platform.Queue == nil && s.Job.Queue == "" && !s.Platform.QueuePriorities
		}},
		"no section platform": {"minikube", map[string]string{"platform": ""}, func(s *Settings) bool {
			return s.Platform.Queue == nil && s.Platform.Namespace == "elasticdl"
		}},
		"another queue of the job": {"gke", map[string]string{"platform.queue": quotas20, "job.queue": "night"},
			func(s *Settings) bool { return s.Job.Queue == "night" }},
		"a job without a queue": {"gke", map[string]string{"platform.queue": quotas20, "job.queue": "''"},
			func(s *Settings) bool { return s.Job.Queue == "" && s.Job.QueuePriorities == "" }},
		"no job": {"gke", map[string]string{"platform.queue": quotas20, "job": ""},
			func(s *Settings) bool { return s.Job == nil && s.Platform.QueuePriorities }},
		"priorities that others have made": {"gke", map[string]string{"platform.queue": quotas20,
			"platform.queuePriorities": "false"}, func(s *Settings) bool {
			return !s.Platform.QueuePriorities && s.Job.QueuePriorities == job.PrioritiesPod
		}},
		"a queue of the administrator": {"existing", map[string]string{"platform.queue": "{clusterQueue: team-a}"},
			func(s *Settings) bool {
				q := s.Platform.Queue
				return !q.Install && q.Version == "" && !s.Platform.QueuePriorities && s.Job.Queue == "training" &&
					s.Job.QueuePriorities == job.PrioritiesPod
			}},
		"an own queue of their Kueue": {"existing", map[string]string{
			"platform.queue": "{quotas: {cpu: 4}, flavor: {name: default}}"},
			func(s *Settings) bool { return !s.Platform.Queue.Install }},
		"Kueue of the stack there": {"existing", map[string]string{
			"platform.queue": "{install: true, quotas: {cpu: 4}}"}, func(s *Settings) bool {
			return s.Platform.Queue.Install && s.Platform.Queue.Version == KueueVersion
		}},
		"an adopted profile": {"minikube", map[string]string{"minikube.profile": "mine", "minikube.adopt": "true",
			"platform.queue": quotas20}, func(s *Settings) bool { return !s.Platform.Queue.Install }},
	} {
		config := stack(t, test.cloud)
		setAll(t, config, test.with)
		s, err := parsed(t, config)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !test.want(s) {
			t.Errorf("%s: %+v, job.queue %+v", name, s.Platform.Queue, s.Job)
		}
	}
}

// Every mistake is reported by its path, and only once.
func TestQueueMistakes(t *testing.T) {
	const theirs, missing = "{clusterQueue: team-a, ", "missing: what the queue grants, as {cpu: 20, memory: 80Gi}"
	for _, test := range []struct{ cloud, queue, at, want string }{
		{"gke", "{}", "quotas", missing},
		{"existing", "{}", "quotas", missing},
		{"gke", "{clusterQueue: team-a}", "clusterQueue", "team-a: a Kueue that the stack installs has no queues yet"},
		{"existing", theirs + "quotas: {cpu: 1}}", "quotas", "goes with a ClusterQueue that the stack makes"},
		{"existing", theirs + "cohort: all}", "cohort", "goes with a ClusterQueue that the stack makes"},
		{"existing", theirs + "flavor: {name: x}}", "flavor", "goes with a ClusterQueue that the stack makes"},
		{"existing", "{clusterQueue: Team}", "clusterQueue", "Team: expected a name of `kubectl get clusterqueues`"},
		{"existing", theirs + "version: 0.17.0}", "version", "0.17.0: is of a Kueue that the stack installs"},
		{"existing", theirs + "namespaces: [a]}", "namespaces", "is of a Kueue that the stack installs"},
		{"gke", "{name: Q, quotas: {cpu: 1}}", "name", "Q: expected at most 63 lower-case letters"},
		{"gke", "{name: '', quotas: {cpu: 1}}", "name", "missing: expected at most 63"},
		{"gke", "{quotas: {cpus: 1}}", "quotas.cpus", "unknown resource; did you mean cpu?"},
		{"gke", "{quotas: {requests.cpu: 1}}", `quotas["requests.cpu"]`, "unknown resource; did you mean cpu?"},
		{"gke", "{quotas: {requests.nvidia.com/gpu: 1}}", `quotas["requests.nvidia.com/gpu"]`, "unknown resource"},
		{"gke", "{quotas: {cpu: many}}", "quotas.cpu", "many: expected a quantity, as 16, 500m or 64Gi"},
		{"gke", "{quotas: {cpu: -1}}", "quotas.cpu", "-1: expected a quantity"},
		{"gke", "{cohort: A B, quotas: {cpu: 1}}", "cohort", "A B: expected a name of lower-case letters"},
		{"gke", "{version: v0.17.0, quotas: {cpu: 1}}", "version", "v0.17.0: expected a version of Kueue from 0.15.0"},
		{"gke", "{version: 0.14.4, quotas: {cpu: 1}}", "version", "0.14.4: expected a version of Kueue from 0.15.0"},
		{"gke", "{namespaces: [kube-system], quotas: {cpu: 1}}", "namespaces[0]", "kube-system: expected a namespace"},
		{"gke", "{quotas: {cpu: 1}, flavor: {}}", "flavor", "expected labels of nodes, tolerations, or the name"},
		{"gke", "{quotas: {cpu: 1}, flavor: {name: F}}", "flavor.name", "F: expected a name of `kubectl get resource"},
		{"gke", "{quotas: {cpu: 1}, flavor: {name: f, labels: {a: b}}}", "flavor.labels",
			"goes with a ResourceFlavor that the stack makes"},
		{"gke", "{quotas: {cpu: 1}, flavor: {name: f, tolerations: [{operator: Exists}]}}", "flavor.tolerations",
			"goes with a ResourceFlavor that the stack makes"},
		{"gke", "{quotas: {cpu: 1}, flavor: {labels: {-a: b}}}", "flavor.labels.-a", "expected the key of a label"},
		{"gke", "{quotas: {cpu: 1}, flavor: {tolerations: [{}]}}", "flavor.tolerations[0]", "expected a key"},
		{"gke", "{quotas: {cpu: 1}, flavor: {labels: {a: b, c: b, d: b, e: b, f: b, g: b, h: b, i: b, j: b}}}",
			"flavor.labels", "9: expected at most 8"},
		{"gke", "{quotas: {cpu: 1}, flavor: {tolerations: [" + strings.Repeat("{operator: Exists}, ", 9) + "]}}",
			"flavor.tolerations", "9: expected at most 8"},
		{"gke", "{quota: {cpu: 1}, quotas: {cpu: 1}}", "quota", "unknown field; did you mean quotas?"},
	} {
		config := stack(t, test.cloud)
		setAll(t, config, map[string]string{"platform.queue": test.queue})
		_, err := parsed(t, config)
		if err == nil {
			t.Errorf("%s: no error, want %s", test.queue, test.want)
			continue
		}
		if got := err.Error(); !strings.HasPrefix(got, "elasticdl:platform.queue."+test.at+": ") ||
			!strings.Contains(got, test.want) || strings.Contains(got, "\n") {
			t.Errorf("%s:\n got %s\nwant platform.queue.%s … %s", test.queue, got, test.at, test.want)
		}
	}
}

// Mistakes are reported at once, in the order of the file.
func TestQueueMistakesAtOnce(t *testing.T) {
	config := stack(t, CloudGKE)
	setAll(t, config, map[string]string{"platform.queue": "{name: Q, version: x, cohort: Y, quotas: {cpu: z}}"})
	_, err := parsed(t, config)
	if err == nil {
		t.Fatal("no error")
	}
	var paths []string
	for line := range strings.Lines(err.Error()) {
		path, _, _ := strings.Cut(strings.TrimPrefix(line, "elasticdl:platform.queue."), ":")
		paths = append(paths, path)
	}
	if want := []string{"name", "version", "quotas.cpu", "cohort"}; !slices.Equal(paths, want) {
		t.Errorf("%v, want %v", paths, want)
	}
	if names := slices.Sorted(maps.Keys(order)); !slices.Contains(names, "platform.queue.flavor.tolerations") {
		t.Error("the fields have no order")
	}
}
