package manifest

import (
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
)

// The pods have --grace_period, or what --cluster_spec_json says instead, and their processes know
// it. A master's is long enough for a checkpoint and then for the ends of all pods.
func TestGracePeriod(t *testing.T) {
	const template = `--cluster_spec_json={"worker_pod_spec":{"terminationGracePeriodSeconds":120}}`
	for name, c := range map[string]struct {
		flags          []string
		worker, master int64
		told           string
	}{
		"default":          {nil, 30, 90, ""},
		"longer":           {[]string{"--grace_period=5m"}, 300, 900, "--grace=300s"},
		"a second":         {[]string{"--grace_period=1s"}, 1, 3, "--grace=1s"},
		"a part of one":    {[]string{"--grace_period=1500ms"}, 2, 6, "--grace=2s"},
		"the cluster spec": {[]string{template}, 120, 90, "--grace=120s"},
		"both":             {[]string{"--grace_period=1m", template}, 120, 180, "--grace=120s"},
	} {
		t.Run(name, func(t *testing.T) {
			j := running(t, c.flags...)
			p := mustPod(t, j, PodSpec{ID: worker(0), Incarnation: 1})
			i := slices.IndexFunc(p.Spec.Containers, func(c core.Container) bool { return c.Name == "worker" })
			told := slices.DeleteFunc(slices.Clone(p.Spec.Containers[i].Args), func(arg string) bool {
				return !strings.HasPrefix(arg, "--grace=")
			})
			if got := *p.Spec.TerminationGracePeriodSeconds; got != c.worker || strings.Join(told, " ") != c.told {
				t.Errorf("a worker has %d s and is reported %q, want %d and %q", got, told, c.worker, c.told)
			}
			m, err := masterTemplate(j)
			if err != nil || *m.Spec.TerminationGracePeriodSeconds != c.master {
				t.Errorf("the master has %d s (%v), want %d", *m.Spec.TerminationGracePeriodSeconds, err, c.master)
			}
			if half, err := Grace(j); err != nil || half != time.Duration(c.master)*time.Second/2 {
				t.Errorf("a checkpoint has %v (%v)", half, err)
			}
		})
	}
}
