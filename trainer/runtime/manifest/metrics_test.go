package manifest

import (
	"slices"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// A port is opened only if it was asked for, in all pods under one name. Pods of the given
// namespaces reach it, and no other port.
func TestMetricsPort(t *testing.T) {
	for _, c := range []struct {
		port int
		from []string
		want int32
	}{{0, nil, 0}, {0, []string{"monitoring", "team-a"}, 9108}, {9999, []string{"monitoring"}, 9999},
		{9999, nil, 9999}} {
		j := parse(t, everything)
		j.MetricsPort, j.MetricsFrom = c.port, c.from
		s, err := Submit(j)
		if err != nil {
			t.Fatal(err)
		}
		pods := map[string]core.PodSpec{"master": s.Master.Spec,
			"ps":     mustPod(t, j, PodSpec{ID: ps(0), Incarnation: 1}).Spec,
			"worker": mustPod(t, j, PodSpec{ID: worker(0), Incarnation: 1}).Spec}
		for name, spec := range pods {
			main := mainOf(&spec, name)
			var port int32
			for _, p := range main.Ports {
				if p.Name == "metrics" {
					port = p.ContainerPort
				}
			}
			asked := slices.ContainsFunc(main.Args, func(a string) bool {
				return a == "--metrics_address=:9108" || a == "--metrics_address=:9999"
			})
			// the master reads the job
			if port != c.want || name != "master" && asked != (c.want != 0) {
				t.Errorf("%+v: %s has port %d, and %q", c, name, port, main.Args)
			}
		}
		rules := s.Isolation.Spec.Ingress
		if len(c.from) == 0 {
			if len(rules) != 1 {
				t.Errorf("%+v: others are admitted: %+v", c, rules)
			}
			continue
		}
		if len(rules) != 2 || len(rules[1].From) != 1 || rules[1].From[0].PodSelector != nil ||
			rules[1].From[0].IPBlock != nil || len(rules[1].Ports) != 1 || rules[1].Ports[0].Port.IntVal != c.want ||
			*rules[1].Ports[0].Protocol != core.ProtocolTCP {
			t.Fatalf("%+v: %+v", c, rules)
		}
		selects, err := meta.LabelSelectorAsSelector(rules[1].From[0].NamespaceSelector)
		if err != nil {
			t.Fatal(err)
		}
		for _, namespace := range []string{"monitoring", "team-a", "kube-system", ""} {
			if selects.Matches(labels.Set{core.LabelMetadataName: namespace}) != slices.Contains(c.from, namespace) {
				t.Errorf("%+v: namespace %q", c, namespace)
			}
		}
	}
}
