package manifest

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
)

var (
	pageBlock   = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")
	pageSection = regexp.MustCompile(`(?m)^##+ (.+)$`)
)

// example is a block of YAML of a page, with the heading above it.
type example struct{ section, text string }

// examples returns the YAML of a page of docs.
func examples(t *testing.T, page string) (all []example) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range pageBlock.FindAllSubmatchIndex(text, -1) {
		sections := pageSection.FindAllSubmatch(text[:at[0]], -1)
		all = append(all, example{string(sections[len(sections)-1][1]), string(text[at[2]:at[3]])})
	}
	return all
}

// TestPlacementPage: each cluster spec of the page is accepted, and changes the pods of the roles
// that it is for.
func TestPlacementPage(t *testing.T) {
	type roles struct{ master, ps, worker core.PodTemplateSpec }
	podsWith := func(t *testing.T, spec string) roles {
		j := parse(t, little, "--job_name=test-mnist", "--distribution_strategy=ParameterServerStrategy",
			"--num_ps_pods=2", "--num_workers=4")
		j.ClusterSpecJSON = spec
		of := func(id pod.ID) core.PodTemplateSpec {
			p := podOf(t, j, id, false)
			return core.PodTemplateSpec{ObjectMeta: p.ObjectMeta, Spec: p.Spec}
		}
		return roles{of(pod.ID{Role: pod.Master}), of(pod.ID{Role: pod.PS}), of(pod.ID{Role: pod.Worker})}
	}
	// the preference that is about workers, not that of master and launcher for different nodes
	near := func(terms []core.WeightedPodAffinityTerm) core.PodAffinityTerm {
		for _, term := range terms {
			if term.Weight == 100 && term.PodAffinityTerm.LabelSelector.MatchLabels[LabelRole] == "worker" {
				return term.PodAffinityTerm
			}
		}
		return core.PodAffinityTerm{}
	}
	want := map[string]func(r roles) bool{
		"Servers on reserved nodes, workers on spot nodes": func(r roles) bool {
			tolerates := func(key string) bool {
				return slices.ContainsFunc(r.worker.Spec.Tolerations, func(t core.Toleration) bool {
					return t.Key == key
				})
			}
			return r.master.Spec.NodeSelector["pool"] == "reserved" && r.ps.Spec.NodeSelector["pool"] == "reserved" &&
				r.worker.Spec.NodeSelector["pool"] == "spot" &&
				tolerates("spot") && tolerates(core.TaintNodeUnreachable) // those of the job stay
		},
		"Workers on nodes of one of two kinds of GPU": func(r roles) bool {
			a := r.worker.Spec.Affinity
			return r.ps.Spec.Affinity == nil && a != nil &&
				len(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.
					NodeSelectorTerms[0].MatchExpressions[0].Values) == 2
		},
		"Workers in one zone, close to each other": func(r roles) bool {
			a := r.worker.Spec.Affinity.PodAffinity
			return r.ps.Spec.Affinity == nil &&
				near(a.PreferredDuringSchedulingIgnoredDuringExecution).TopologyKey == core.LabelTopologyZone
		},
		"Parameter servers on different nodes": func(r roles) bool {
			c := r.ps.Spec.TopologySpreadConstraints
			return len(c) == 1 && c[0].TopologyKey == core.LabelHostname &&
				len(r.worker.Spec.TopologySpreadConstraints) == 0 && selects(c[0].LabelSelector, r.ps.Labels)
		},
		"Master away from the workers": func(r roles) bool {
			a := r.master.Spec.Affinity.PodAntiAffinity
			term := near(a.PreferredDuringSchedulingIgnoredDuringExecution)
			return term.TopologyKey == core.LabelHostname && selects(term.LabelSelector, r.worker.Labels) &&
				r.worker.Spec.Affinity == nil
		},
		"More shared memory, labels and variables": func(r roles) bool {
			env := func(t core.PodTemplateSpec) bool {
				return slices.ContainsFunc(t.Spec.Containers[0].Env, func(v core.EnvVar) bool {
					return v.Name == "LANG" && v.Value == "C.UTF-8"
				})
			}
			return r.master.Labels["team"] == "vision" && r.worker.Labels["team"] == "vision-training" &&
				env(r.ps) && env(r.worker) && len(r.worker.Spec.Containers) == 1 &&
				slices.ContainsFunc(r.worker.Spec.Containers[0].VolumeMounts, func(m core.VolumeMount) bool {
					return m.MountPath == "/dev/shm"
				}) &&
				slices.ContainsFunc(r.worker.Spec.Volumes, func(v core.Volume) bool {
					return v.EmptyDir != nil && v.EmptyDir.Medium == core.StorageMediumMemory
				})
		},
	}
	found := 0
	for _, e := range examples(t, "placement.md") {
		if strings.HasPrefix(e.text, "elasticdl:job:") {
			checkStackJob(t, e.text)
			continue
		}
		found++
		object, err := ClusterSpec([]byte(e.text))
		if err != nil {
			t.Errorf("%s: %v", e.section, err)
			continue
		}
		check, ok := want[e.section]
		if !ok {
			t.Errorf("%s: say here what the example does", e.section)
		} else if r := podsWith(t, object); !check(r) {
			text, _ := json.Marshal([]core.PodTemplateSpec{r.master, r.ps, r.worker})
			t.Errorf("%s: %s", e.section, text)
		}
	}
	if found != len(want) {
		t.Errorf("the page has %d examples, want %q", found, slices.Sorted(maps.Keys(want)))
	}
}

// selects reports whether a selector of labels matches those of a pod.
func selects(s *meta.LabelSelector, labels map[string]string) bool {
	for key, value := range s.MatchLabels {
		if labels[key] != value {
			return false
		}
	}
	return len(s.MatchLabels) > 0
}

// checkStackJob checks the section job of a stack's file.
func checkStackJob(t *testing.T, text string) {
	t.Helper()
	var stack struct {
		Job json.RawMessage `json:"elasticdl:job"`
	}
	if err := yaml.UnmarshalStrict([]byte(text), &stack); err != nil {
		t.Fatal(err)
	}
	j := parse(t, little)
	if err := yaml.UnmarshalStrict(stack.Job, j); err != nil {
		t.Fatal(err)
	}
	if p := podOf(t, j, pod.ID{Role: pod.Worker}, false); p.Spec.NodeSelector["pool"] != "spot" ||
		p.Spec.NodeSelector["disktype"] != "ssd" {
		t.Errorf("%v", p.Spec.NodeSelector)
	}
}

// TestQueuesPage: the objects of the page belong together, the core of its job fits the quota of
// its team, and the whole job fits that of both teams.
func TestQueuesPage(t *testing.T) {
	type object struct {
		meta.TypeMeta
		Metadata meta.ObjectMeta `json:"metadata"`
		Spec     struct {
			CohortName, ClusterQueue string
			NamespaceSelector        *meta.LabelSelector
			Preemption               map[string]string
			ResourceGroups           []struct {
				CoveredResources []core.ResourceName
				Flavors          []struct {
					Name      string
					Resources []struct {
						Name         core.ResourceName
						NominalQuota resource.Quantity
					}
				}
			}
		} `json:"spec"`
	}
	objects := map[string]object{}
	for _, e := range examples(t, "queues.md") {
		for part := range strings.SplitSeq(e.text, "---\n") {
			var o object
			if err := yaml.Unmarshal([]byte(part), &o); err != nil {
				t.Fatalf("%s: %v", e.section, err)
			}
			if o.Kind == "Configuration" {
				continue // of Kueue's manager
			}
			if strings.HasPrefix(o.APIVersion, "rbac.authorization.k8s.io/") {
				continue
			}
			if o.APIVersion != KindWorkloadPriority.GroupVersion().String() {
				t.Errorf("%s %s is of version %s", o.Kind, o.Metadata.Name, o.APIVersion)
			}
			objects[o.Kind+" "+o.Metadata.Name] = o
		}
	}
	j := parse(t, little, "--distribution_strategy=ParameterServerStrategy", "--num_ps_pods=1", "--min_workers=2",
		"--num_workers=8", "--queue=team-a")
	quota, all := core.ResourceList{}, core.ResourceList{}
	for _, team := range []string{"team-a", "team-b"} {
		local, queue := objects["LocalQueue "+team], objects["ClusterQueue "+team]
		if local.Spec.ClusterQueue != team || local.Metadata.Namespace != team || queue.Spec.CohortName == "" ||
			queue.Spec.CohortName != objects["ClusterQueue team-a"].Spec.CohortName ||
			!selects(queue.Spec.NamespaceSelector, map[string]string{core.LabelMetadataName: team}) ||
			queue.Spec.Preemption["reclaimWithinCohort"] != "Any" ||
			queue.Spec.Preemption["withinClusterQueue"] != "LowerPriority" {
			t.Errorf("%s: %+v, %+v", team, local, queue)
		}
		for _, flavor := range queue.Spec.ResourceGroups[0].Flavors {
			if _, ok := objects["ResourceFlavor "+flavor.Name]; !ok {
				t.Errorf("%s: there is no flavor %s", team, flavor.Name)
			}
			for _, r := range flavor.Resources {
				if team == j.Queue {
					add(quota, r.Name, r.NominalQuota)
				}
				add(all, r.Name, r.NominalQuota)
			}
		}
	}
	least, whole := requested(t, j, j.Core()), requested(t, j, j.NumWorkers)
	for name := range whole {
		if less(quota, least, name) || !less(quota, whole, name) || less(all, whole, name) {
			t.Errorf("%s: core %v, all %v, quota %v, of the cohort %v", name, least, whole, quota, all)
		}
	}
}

// requested returns what the master, the server and a number of workers of a job request.
func requested(t *testing.T, j *job.Job, workers int) core.ResourceList {
	t.Helper()
	sum := core.ResourceList{}
	ids := []pod.ID{{Role: pod.Master}, {Role: pod.PS}}
	for i := range workers {
		ids = append(ids, pod.ID{Role: pod.Worker, Index: i})
	}
	for _, id := range ids {
		for _, c := range podOf(t, j, id, true).Spec.Containers {
			for name, n := range c.Resources.Requests {
				add(sum, name, n)
			}
		}
	}
	return sum
}

func add(to core.ResourceList, name core.ResourceName, n resource.Quantity) {
	sum := to[name]
	sum.Add(n)
	to[name] = sum
}

// less reports whether there is less of a resource in a than in b.
func less(a, b core.ResourceList, name core.ResourceName) bool {
	n := a[name]
	return n.Cmp(b[name]) < 0
}
