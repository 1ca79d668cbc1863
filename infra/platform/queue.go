package platform

import (
	"encoding/json"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// kindOfKueue returns a kind of Kueue's, in the version that the stack uses.
func kindOfKueue(name string) schema.GroupVersionKind {
	return manifest.KindWorkloadPriority.GroupVersion().WithKind(name)
}

// Kinds of the objects of a queue.
var (
	kindFlavor       = kindOfKueue("ResourceFlavor")
	kindClusterQueue = kindOfKueue("ClusterQueue")
	kindLocalQueue   = kindOfKueue("LocalQueue")
)

// queueName returns the name of the ClusterQueue, and of its ResourceFlavor, of a queue in a
// namespace. They belong to no namespace, so that their name contains it.
func queueName(in string, q *settings.Queue) string { return in + "-" + q.Name }

// queueObjects returns the objects of a queue, each after those that it names: a ResourceFlavor and
// a ClusterQueue, unless they belong to others, and the LocalQueue.
func queueObjects(in string, q *settings.Queue) (all []infra.Object) {
	of := func(kind schema.GroupVersionKind, in, name string, spec map[string]any) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		o.SetGroupVersionKind(kind)
		o.SetNamespace(in)
		o.SetName(name)
		o.SetLabels(map[string]string{manifest.LabelApp: manifest.App})
		return o
	}
	name := q.ClusterQueue
	if name == "" {
		name = queueName(in, q)
		flavor := name
		if q.Flavor != nil && q.Flavor.Name != "" {
			flavor = q.Flavor.Name
		} else {
			all = append(all, infra.Object{Name: nameFlavor, Object: of(kindFlavor, "", flavor, flavorSpec(q.Flavor))})
		}
		all = append(all, infra.Object{Name: nameClusterQueue,
			Object: of(kindClusterQueue, "", name, clusterQueueSpec(in, flavor, q))})
	}
	return append(all, infra.Object{Name: "queue", Fixed: []string{"spec.clusterQueue"},
		Object: of(kindLocalQueue, in, q.Name, map[string]any{"clusterQueue": name})})
}

func flavorSpec(f *settings.Flavor) map[string]any {
	spec := map[string]any{}
	if f == nil {
		return spec
	}
	if len(f.Labels) > 0 {
		labels := map[string]any{}
		for key, value := range f.Labels {
			labels[key] = value
		}
		spec["nodeLabels"] = labels
	}
	if len(f.Tolerations) > 0 {
		spec["tolerations"] = tolerations(f.Tolerations)
	}
	return spec
}

func tolerations(of []job.Toleration) (all []any) {
	for _, t := range of {
		is := map[string]any{}
		for key, value := range map[string]string{"key": t.Key, "operator": t.Operator, "value": t.Value,
			"effect": t.Effect} {
			if value != "" {
				is[key] = value
			}
		}
		if t.Seconds != nil {
			is["tolerationSeconds"] = *t.Seconds
		}
		all = append(all, is)
	}
	return all
}

// clusterQueueSpec returns a queue for one namespace. A job whose core waits preempts workers of
// the namespace beyond a core, and the namespace takes back quota that others of its cohort have
// borrowed.
func clusterQueueSpec(in, flavor string, q *settings.Queue) map[string]any {
	var covered, resources []any
	for _, name := range slices.Sorted(maps.Keys(q.Quotas)) {
		covered = append(covered, name)
		// Kueue's webhook writes quantities in this form: any other would be a difference
		amount := resource.MustParse(q.Quotas[name])
		resources = append(resources, map[string]any{"name": name, "nominalQuota": amount.String()})
	}
	spec := map[string]any{
		"namespaceSelector": map[string]any{"matchLabels": map[string]any{labelNamespace: in}},
		"preemption":        map[string]any{"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
		"resourceGroups": []any{map[string]any{"coveredResources": covered,
			"flavors": []any{map[string]any{"name": flavor, "resources": resources}}}},
	}
	if q.Cohort != "" {
		spec["cohortName"] = q.Cohort
	}
	return spec
}

// labelNamespace is the label of every namespace with its name.
const labelNamespace = "kubernetes.io/metadata.name"

const (
	// kueue is the name of the release, and begins the names of its objects.
	kueue = "kueue"
	// kueueNamespace is the namespace of Kueue's manager.
	kueueNamespace = "kueue-system"
	kueueChart     = "oci://registry.k8s.io/kueue/charts/kueue"
)

// kueueRelease returns the Helm release that installs Kueue. Its chart has no directory crds: its
// definitions are upgraded and deleted with the release.
func kueueRelease(in string, q *settings.Queue) infra.Chart {
	config, err := json.Marshal(kueueConfig(append([]string{in}, q.Namespaces...)))
	if err != nil {
		panic(err) // it has texts and numbers only
	}
	return infra.Chart{Name: kueue, Namespace: kueueNamespace, Chart: kueueChart, Version: q.Version,
		Values: map[string]any{
			"controllerManager": map[string]any{"manager": map[string]any{"resources": map[string]any{
				// the chart asks for half a CPU, of which small system nodes have two
				"requests": map[string]any{"cpu": "100m", "memory": "512Mi"},
				"limits":   map[string]any{"cpu": "2", "memory": "512Mi"},
			}}},
			"managerConfig": map[string]any{"controllerManagerConfigYaml": string(config)},
		}}
}

// kueueConfig returns the settings of Kueue's manager: it manages pods and Jobs of these namespaces
// only. The chart limits the webhooks of pods and Jobs to the same namespaces. All other values are
// those of the chart, which takes the settings as a whole.
func kueueConfig(namespaces []string) map[string]any {
	slices.Sort(namespaces)
	return map[string]any{
		"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration",
		"health":         map[string]any{"healthProbeBindAddress": ":8081"},
		"metrics":        map[string]any{"bindAddress": ":8443"},
		"webhook":        map[string]any{"port": 9443},
		"leaderElection": map[string]any{"leaderElect": true, "resourceName": "c1f6bfd2.kueue.x-k8s.io"},
		"internalCertManagement": map[string]any{"enable": true, "webhookServiceName": kueue + "-webhook-service",
			"webhookSecretName": kueue + "-webhook-server-cert"},
		// of the chart: without these, Kueue admits one pod at a time
		"controller": map[string]any{"groupKindConcurrency": map[string]any{"Job.batch": 5, "Pod": 5,
			"Workload.kueue.x-k8s.io": 5, "LocalQueue.kueue.x-k8s.io": 1, "ClusterQueue.kueue.x-k8s.io": 1,
			"ResourceFlavor.kueue.x-k8s.io": 1}},
		"clientConnection": map[string]any{"qps": 50, "burst": 100},
		"integrations":     map[string]any{"frameworks": []string{"batch/job", "pod"}},
		"managedJobsNamespaceSelector": map[string]any{"matchExpressions": []any{map[string]any{
			"key": labelNamespace, "operator": "In", "values": slices.Compact(namespaces)}}},
	}
}
