package provider

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kinds by which nodes are made, with their definitions only: any field is accepted. The tests on a
// real API server check the fields of those of Karpenter.
var (
	karpenterKinds = []schema.GroupVersionKind{
		{Group: "karpenter.sh", Version: "v1", Kind: "NodePool"},
		{Group: "karpenter.k8s.aws", Version: "v1", Kind: "EC2NodeClass"},
	}
	autoKinds = []schema.GroupVersionKind{karpenterKinds[0],
		{Group: "eks.amazonaws.com", Version: "v1", Kind: "NodeClass"}}
	googleKinds = []schema.GroupVersionKind{{Group: "cloud.google.com", Version: "v1", Kind: "ComputeClass"}}
)

// makesNodes reports whether objects of a kind make nodes.
func makesNodes(kind schema.GroupVersionKind) bool {
	return slices.Contains(slices.Concat(karpenterKinds, autoKinds, googleKinds), kind)
}

// definitions returns the definitions of kinds.
func definitions(kinds ...schema.GroupVersionKind) (all []Props) {
	for _, kind := range kinds {
		plural, _ := meta.UnsafeGuessKindToResource(kind)
		all = append(all, Props{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": Props{"name": plural.GroupResource().String()}})
	}
	return all
}

// define lets a cluster serve kinds, as a cloud does.
func (k *Kubernetes) define(server string, kinds ...schema.GroupVersionKind) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs []error
	for _, o := range definitions(kinds...) {
		if k.clusters[server].objects[keyOf(o)] == nil {
			errs = append(errs, k.clusters[server].make(o, "cloud"))
		}
	}
	return errors.Join(errs...)
}

// undefine deletes the objects of a definition that is deleted: "nodepools.karpenter.sh".
func (s *apiServer) undefine(name string) {
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		kind, _, _ := strings.Cut(key, " ")
		i := strings.LastIndex(kind, "/")
		plural, _ := meta.UnsafeGuessKindToResource(schema.FromAPIVersionAndKind(kind[:i], kind[i+1:]))
		if plural.GroupResource().String() == name {
			delete(s.objects, key)
		}
	}
}

// karpenterStarts returns why Karpenter does not start.
func karpenterStarts(release Props) error {
	for _, setting := range []string{"clusterName", "interruptionQueue"} {
		if text(release, "values", "settings", setting) == "" {
			return fmt.Errorf("context deadline exceeded: karpenter: settings.%s is missing", setting)
		}
	}
	return nil
}

// karpenterHolds returns an error if instances would be left that nothing ends: those of pools.
func karpenterHolds(s *apiServer) error {
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if strings.HasPrefix(key, "karpenter") {
			return fmt.Errorf("the chart of Karpenter is deleted before %s: instances would run on", key)
		}
	}
	return nil
}

// outlived returns an error if Karpenter's instances would outlive a cluster.
func (k *Kubernetes) outlived(server string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if of := k.clusters[server]; of != nil {
		for key := range of.objects {
			if strings.HasPrefix(key, "karpenter.k8s.aws/") {
				return fmt.Errorf("the cluster is deleted before %s: instances would run on", key)
			}
		}
	}
	return nil
}
