package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"sigs.k8s.io/yaml"
)

func parse(t *testing.T, text string) object {
	t.Helper()
	var o map[string]any
	if err := yaml.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	return object(o).clone() // converts numbers to those of the wire
}

// Fields that were not requested belong to the server, and a change by others of a requested field
// is a difference.
func TestDiffIsOfWhatWasAskedFor(t *testing.T) {
	inputs := parse(t,
		`{kind: Service, metadata: {name: a, labels: {x: "1"}}, spec: {ports: [{port: 1}], selector: {b: c}}}`)
	live := parse(t,
		`{kind: Service, metadata: {name: a, uid: u, labels: {x: "1", y: "2"}}, spec: {clusterIP: 10.0.0.1, ports: [{port: 1, protocol: TCP}], selector: {b: d}}}`)
	have := object(pruned(map[string]any(live), map[string]any(inputs)).(map[string]any))
	answer := Settings{}.diff(have, inputs, nil)
	if !slices.Equal(answer.Diffs, []string{"spec.selector.b"}) || len(answer.Replaces) != 0 {
		t.Errorf("differs in %v, replaces for %v", answer.Diffs, answer.Replaces)
	}
	if answer := (Settings{}).diff(have, inputs,
		[]string{"spec.selector"}); answer.Changes != pulumirpc.DiffResponse_DIFF_NONE {
		t.Errorf("what is ignored differs in %v", answer.Diffs)
	}
}

func TestReplacements(t *testing.T) {
	for _, test := range []struct {
		what, old, now string
		settings       Settings
		want           []string
		// the old object is deleted before the new one is created
		first bool
	}{
		{what: "a job's template",
			old: `{kind: Job, metadata: {name: a}, ` +
				`spec: {suspend: true, template: {spec: {containers: [{image: b}]}}}}`,
			now: `{kind: Job, metadata: {name: a}, ` +
				`spec: {suspend: false, template: {spec: {containers: [{image: c}]}}}}`,
			want: []string{"spec.template.spec.containers[0].image"}, first: true},
		{what: "suspension", old: `{kind: Job, spec: {suspend: true}}`, now: `{kind: Job, spec: {suspend: false}}`},
		{what: "data", old: `{kind: ConfigMap, data: {a: b}}`, now: `{kind: ConfigMap, data: {a: c}}`,
			want: []string{"data.a"}, first: true},
		{what: "mutable data", old: `{kind: ConfigMap, data: {a: b}}`,
			now: `{kind: ConfigMap, data: {a: c}}`, settings: Settings{ConfigMapMutable: true}},
		{what: "immutable data", old: `{kind: ConfigMap, immutable: true, data: {a.b: b}}`,
			now:      `{kind: ConfigMap, immutable: true, data: {a.b: c}}`,
			settings: Settings{ConfigMapMutable: true}, want: []string{`data["a.b"]`}, first: true},
		{what: "a name", old: `{kind: Secret, metadata: {name: a}}`,
			now: `{kind: Secret, metadata: {name: b}}`, want: []string{"metadata.name"}},
		{what: "a namespace", old: `{kind: Secret, metadata: {name: a}}`,
			now: `{kind: Secret, metadata: {name: a, namespace: b}}`, want: []string{"metadata.namespace"}},
		{what: "an automatic name",
			old:  `{kind: Secret, type: a, metadata: {name: a, annotations: {pulumi.com/autonamed: "true"}}}`,
			now:  `{kind: Secret, type: b, metadata: {name: a, annotations: {pulumi.com/autonamed: "true"}}}`,
			want: []string{"type"}},
		{what: "a volume's source", old: `{kind: PersistentVolume, spec: {nfs: {path: /a}}}`,
			now:  `{kind: PersistentVolume, spec: {csi: {driver: b}}}`,
			want: []string{"spec.csi", "spec.nfs"}, first: true},
		{what: "a claim of which nothing is known",
			old:  `{kind: PersistentVolumeClaim, spec: {volumeName: a, volumeMode: b}}`,
			now:  `{kind: PersistentVolumeClaim, spec: ` + unknown + `}`,
			want: []string{"spec.volumeName"}, first: true},
		{what: "an environment", old: `{kind: Pod, spec: {containers: [{env: [{name: a}]}]}}`,
			now:  `{kind: Pod, spec: {containers: [{env: [{name: b}]}]}}`,
			want: []string{"spec.containers[0].env[0].name"}, first: true},
		{what: "a toleration", old: `{kind: Pod, spec: {}}`,
			now: `{kind: Pod, spec: {tolerations: [{operator: Exists}]}}`},
		{what: "a priority's value, which the server refuses", old: `{kind: PriorityClass, value: 1}`,
			now: `{kind: PriorityClass, value: 2}`},
		{what: "a role", old: `{kind: RoleBinding, roleRef: {name: a}}`,
			now: `{kind: RoleBinding, roleRef: {name: b}}`, want: []string{"roleRef.name"}, first: true},
	} {
		answer := test.settings.diff(parse(t, test.old), parse(t, test.now), nil)
		if answer.Changes != pulumirpc.DiffResponse_DIFF_SOME {
			t.Errorf("%s is no difference", test.what)
		}
		if !slices.Equal(answer.Replaces, test.want) || answer.DeleteBeforeReplace != test.first {
			t.Errorf("%s replaces for %v, the old one first: %v; want %v and %v", test.what,
				answer.Replaces, answer.DeleteBeforeReplace, test.want, test.first)
		}
		for path, d := range answer.DetailedDiff {
			if replaces := d.Kind%2 == 1; replaces != slices.Contains(test.want, path) {
				t.Errorf("%s: %s is %v", test.what, path, d.Kind)
			}
		}
	}
}

func TestReady(t *testing.T) {
	for text, want := range map[string]bool{
		`{kind: PersistentVolumeClaim, status: {phase: Pending}}`:                                          false,
		`{kind: PersistentVolumeClaim, status: {phase: Bound}}`:                                            true,
		`{kind: PersistentVolume, status: {phase: Pending}}`:                                               false,
		`{kind: PersistentVolume, status: {phase: Available}}`:                                             true,
		`{kind: ResourceQuota, spec: {hard: {pods: "1"}}}`:                                                 false,
		`{kind: ResourceQuota, spec: {hard: {pods: "1"}}, status: {hard: {pods: "1"}, used: {pods: "0"}}}`: true,
		`{kind: Pod, status: {conditions: [{type: Ready, status: "False"}]}}`:                              false,
		`{kind: Pod, status: {conditions: [{type: Ready, status: "True"}]}}`:                               true,
		`{kind: Job, status: {active: 1}}`:                                                                 false,
		`{kind: Job, status: {conditions: [{type: Complete, status: "True"}]}}`:                            true,
		`{kind: DaemonSet, metadata: {generation: 1}, status: {}}`:                                         false,
		`{kind: DaemonSet, metadata: {generation: 1}, ` +
			`status: {observedGeneration: 1, desiredNumberScheduled: 0}}`: true,
		`{kind: DaemonSet, metadata: {generation: 1}, ` +
			`status: {observedGeneration: 1, desiredNumberScheduled: 1, updatedNumberScheduled: 1}}`: false,
		`{kind: Deployment, metadata: {generation: 1}, spec: {replicas: 1}, ` +
			`status: {observedGeneration: 1, readyReplicas: 1}}`: false,
		`{kind: Deployment, metadata: {generation: 2}, spec: {replicas: 1}, ` +
			`status: {observedGeneration: 2, readyReplicas: 1, updatedReplicas: 1}}`: true,
		`{kind: StatefulSet, metadata: {generation: 2}, spec: {replicas: 1}, ` +
			`status: {observedGeneration: 1, readyReplicas: 1, updatedReplicas: 1}}`: false,
	} {
		o := parse(t, text)
		if got := ready(o.kind())(o); got != want {
			t.Errorf("%s is ready: %v", text, got)
		}
	}
	if ready("Namespace") != nil || ready("ConfigMap") != nil {
		t.Error("nobody waits for a Namespace or ConfigMap")
	}
}

func TestDeletionIsNotAwaited(t *testing.T) {
	for text, want := range map[string]bool{
		`{kind: Job, metadata: {annotations: {pulumi.com/skipAwait: "true"}}}`:  true,
		`{kind: Job, metadata: {annotations: {pulumi.com/skipAwait: "false"}}}`: false,
		`{kind: Job}`: false,
		`{kind: Service, metadata: {annotations: {pulumi.com/skipAwait: "true"}}}`: false,
	} {
		if got := skipsDeletion(parse(t, text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func TestMounts(t *testing.T) {
	o := parse(t, `{spec: {hostPath: {path: /data}, volumes: [{hostPath: {path: /data}}, {hostPath: {path: /dev}}]}}`)
	if got := o.mounted(map[string]string{"/data": "/tmp/data"}); strings.Count(fmt.Sprint(got),
		"path:/tmp/data") != 2 || strings.Count(fmt.Sprint(o), "path:/data") != 2 {
		t.Errorf("%v of %v", got, o)
	}
}
