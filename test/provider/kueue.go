package provider

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	kjson "sigs.k8s.io/json"
)

// kueueVersion is the version of Kueue's API that stacks use.
const kueueVersion = "kueue.x-k8s.io/v1beta2"

// kueueKinds has the kinds of Kueue that stacks use, with those of their fields that stacks set, as
// Kueue 0.17 defines them (apis/kueue/v1beta2).
var kueueKinds = map[string]func() any{
	"ResourceFlavor": func() any {
		return &struct {
			kueueObject
			Spec struct {
				NodeLabels  map[string]string `json:"nodeLabels"`
				Tolerations []struct {
					Key               string `json:"key"`
					Operator          string `json:"operator"`
					Value             string `json:"value"`
					Effect            string `json:"effect"`
					TolerationSeconds int    `json:"tolerationSeconds"`
				} `json:"tolerations"`
			} `json:"spec"`
		}{}
	},
	"ClusterQueue": func() any {
		type quota struct {
			Name         string `json:"name"`
			NominalQuota string `json:"nominalQuota"`
		}
		type flavor struct {
			Name      string  `json:"name"`
			Resources []quota `json:"resources"`
		}
		return &struct {
			kueueObject
			Spec struct {
				CohortName        string `json:"cohortName"`
				NamespaceSelector struct {
					MatchLabels map[string]string `json:"matchLabels"`
				} `json:"namespaceSelector"`
				Preemption struct {
					ReclaimWithinCohort string `json:"reclaimWithinCohort"`
					WithinClusterQueue  string `json:"withinClusterQueue"`
				} `json:"preemption"`
				ResourceGroups []struct {
					CoveredResources []string `json:"coveredResources"`
					Flavors          []flavor `json:"flavors"`
				} `json:"resourceGroups"`
			} `json:"spec"`
		}{}
	},
	"LocalQueue": func() any {
		return &struct {
			kueueObject
			Spec struct {
				ClusterQueue string `json:"clusterQueue"`
			} `json:"spec"`
		}{}
	},
	"WorkloadPriorityClass": func() any {
		return &struct {
			kueueObject
			Value       int    `json:"value"`
			Description string `json:"description"`
		}{}
	},
}

type kueueObject struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
}

// typeOfKind returns a value that an object of a kind is decoded to.
func typeOfKind(kind schema.GroupVersionKind) (any, error) {
	if make := kueueKinds[kind.Kind]; make != nil && kind.GroupVersion().String() == kueueVersion {
		return make(), nil
	}
	if makesNodes(kind) {
		return &Props{}, nil
	}
	return scheme.Scheme.New(kind)
}

// unmarshal reports fields that a type does not have.
func unmarshal(text []byte, typed any) ([]error, error) { return kjson.UnmarshalStrict(text, typed) }

const kindDefinition = "apiextensions.k8s.io/v1/CustomResourceDefinition"

// defined returns why the server does not serve a kind: it has no definition of it.
func (s *apiServer) defined(object Props) error {
	kind := schema.FromAPIVersionAndKind(text(object, "apiVersion"), text(object, "kind"))
	if kind.Group != "kueue.x-k8s.io" && !makesNodes(kind) {
		return nil
	}
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	if s.objects[kindDefinition+" "+plural.GroupResource().String()] == nil {
		return &meta.NoKindMatchError{GroupKind: kind.GroupKind(), SearchedVersions: []string{kind.Version}}
	}
	return nil
}

// admitted changes an object as Kueue's webhooks do: they write defaults, and quantities in their
// shortest form.
func admitted(object Props) Props {
	if kindOf(object) != kueueVersion+"/ClusterQueue" {
		return object
	}
	spec, _ := object["spec"].(Props)
	if spec == nil {
		return object
	}
	spec["queueingStrategy"], spec["stopPolicy"] = "BestEffortFIFO", "None"
	groups, _ := spec["resourceGroups"].([]any)
	for _, g := range groups {
		flavors, _ := at(g, "flavors").([]any)
		for _, f := range flavors {
			resources, _ := at(f, "resources").([]any)
			for _, r := range resources {
				if q, err := resource.ParseQuantity(fmt.Sprint(at(r, "nominalQuota"))); err == nil {
					r.(Props)["nominalQuota"] = q.String()
				}
			}
		}
	}
	return object
}

// inUse returns why an object of Kueue's is not deleted yet: its finalizer.
func (s *apiServer) inUse(o *Object) error {
	if o.Kind != kueueVersion+"/ResourceFlavor" {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		user := s.objects[key]
		if user.Kind == kueueVersion+"/ClusterQueue" &&
			strings.Contains(fmt.Sprint(at(user.Is, "spec", "resourceGroups")), "name:"+o.ID+" ") {
			return fmt.Errorf("kueue.x-k8s.io/resource-in-use: %s uses it", user.ID)
		}
	}
	return nil
}

// AddKueue installs Kueue in a cluster, as its administrator does.
func (k *Kubernetes) AddKueue(context string) error { return k.Put(context, kueueObjects()...) }

// kueueObjects returns the objects of Kueue that matter here.
func kueueObjects() []Props {
	all := []Props{
		{"apiVersion": "v1", "kind": "Namespace", "metadata": Props{"name": "kueue-system"}},
		{"apiVersion": "apps/v1", "kind": "Deployment",
			"metadata": Props{"name": "kueue-controller-manager", "namespace": "kueue-system"}},
	}
	for _, kind := range slices.Sorted(maps.Keys(kueueKinds)) {
		all = append(all, definitions(schema.FromAPIVersionAndKind(kueueVersion, kind))...)
	}
	return all
}
