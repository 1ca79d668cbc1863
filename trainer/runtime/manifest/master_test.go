package manifest

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
)

// A master comes back whatever ended it, by its launcher, and the launcher by its Job: both also
// from a node that does not answer.
func TestMasterComesBack(t *testing.T) {
	s, err := Submit(parse(t, little))
	if err != nil {
		t.Fatal(err)
	}
	root := s.Job.Spec
	if *root.BackoffLimit != math.MaxInt32 {
		t.Errorf("the launcher is restarted %d times", *root.BackoffLimit)
	}
	if root.PodFailurePolicy != nil || root.PodReplacementPolicy != nil &&
		*root.PodReplacementPolicy != batch.TerminatingOrFailed {
		t.Errorf("a pod that never ends is not replaced: %v, %v", root.PodFailurePolicy, root.PodReplacementPolicy)
	}
	for role, spec := range map[string]core.PodSpec{RoleLauncher: root.Template.Spec, "master": s.Master.Spec} {
		if spec.RestartPolicy != core.RestartPolicyNever { // a kubelet's back-off grows to minutes
			t.Errorf("the %s restarts %v", role, spec.RestartPolicy)
		}
		for _, taint := range []string{core.TaintNodeNotReady, core.TaintNodeUnreachable} {
			if !slices.ContainsFunc(spec.Tolerations, func(o core.Toleration) bool {
				return o.Key == taint && o.TolerationSeconds != nil && *o.TolerationSeconds <= 15
			}) {
				t.Errorf("the %s outlives %s: %v", role, taint, spec.Tolerations)
			}
		}
	}
	for _, service := range s.Services {
		if ready := !service.Spec.PublishNotReadyAddresses; ready != (service.Name == MasterName(
			"test-mnist-allreduce")) {
			t.Errorf("%s leads to those that are ready only: %t", service.Name, ready)
		}
	}
}

// Nothing kills a process that is busy.
func TestNoLiveness(t *testing.T) {
	j := parse(t, everything)
	s, err := Submit(j)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []core.Container{s.Master.Spec.Containers[0],
		mustPod(t, j, PodSpec{ID: ps(0)}).Spec.Containers[0]} {
		if c.LivenessProbe != nil || c.StartupProbe == nil || c.ReadinessProbe == nil {
			t.Errorf("%s: liveness %v, startup %v, readiness %v", c.Name, c.LivenessProbe,
				c.StartupProbe, c.ReadinessProbe)
		}
	}
}

// A container may use its limit less the kernel's share; where the job reports it itself, that
// stands.
func TestMemoryLimits(t *testing.T) {
	for _, test := range []struct {
		more []string
		id   pod.ID
		ooms int
		want string
	}{
		{nil, pod.ID{Role: pod.Master}, 0, "966367620"},               // of 1 GiB
		{nil, worker(0), 0, "3865470480"},                             // of 4 GiB
		{[]string{"--max_memory=8Gi"}, worker(0), 1, "7730941050"},    // of 8 GiB
		{[]string{"--worker_resource_limit=cpu=1"}, worker(0), 0, ""}, // without a limit
		// the job's own
		{[]string{"--envs=GOMEMLIMIT=1GiB", "--max_memory=8Gi"}, worker(0), 1, "1GiB"},
		{[]string{"--populate_env_names=GOMEM.*"}, worker(0), 0, "3865470480"}, // not the master's
		{[]string{
			`--cluster_spec_json={"worker_pod_spec":{"containers":[{"name":"worker","resources":{"limits":{"memory":"100"}}}]}}`},
			worker(0), 0, "90"},
	} {
		j := parse(t, little, test.more...)
		var c core.Container
		if test.id.Role == pod.Master {
			s, err := Submit(j)
			if err != nil {
				t.Fatal(err)
			}
			c = s.Master.Spec.Containers[0]
		} else {
			c = mustPod(t, j, PodSpec{ID: test.id, Incarnation: 1, OOMs: test.ooms,
				Environ: []string{"GOMEMLIMIT=7"}}).Spec.Containers[0]
		}
		var got []string
		for _, v := range c.Env {
			if v.Name == EnvMemory {
				got = append(got, v.Value)
			}
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%v %v: %q, want %q", test.id, test.more, got, test.want)
		}
	}
}

// A master has room for a thousand workers, unless the job says what it has.
func TestMasterHasRoom(t *testing.T) {
	for _, test := range []struct {
		more []string
		want string // request and limit
	}{
		{nil, "100m 1"},
		{[]string{"--master_resource_request=cpu=2,memory=1Gi"}, "2 2"},
		{[]string{"--master_resource_request=memory=1Gi"}, "0 0"},
		{[]string{"--master_resource_limit=cpu=200m,memory=1Gi"}, "100m 200m"},
	} {
		s, err := Submit(parse(t, little, test.more...))
		if err != nil {
			t.Fatal(err)
		}
		r := s.Master.Spec.Containers[0].Resources
		if got := r.Requests.Cpu().String() + " " + r.Limits.Cpu().String(); got != test.want ||
			r.Limits.Memory().String() != "1Gi" {
			t.Errorf("%v: %s, want %s; memory %v", test.more, got, test.want, r.Limits.Memory())
		}
	}
}

// A checkpoint may take half of the master's grace period, as its pod reports in the end.
func TestGrace(t *testing.T) {
	for hook, want := range map[string]time.Duration{
		"": 45 * time.Second,
		`{"master_pod_spec":{"terminationGracePeriodSeconds":600}}`:  5 * time.Minute,
		`{"master_pod_spec":{"terminationGracePeriodSeconds":null}}`: 15 * time.Second,
	} {
		if got, err := Grace(parse(t, little, "--cluster_spec_json="+hook)); err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", hook, got, err, want)
		}
	}
}
