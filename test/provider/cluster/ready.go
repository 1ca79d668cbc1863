package cluster

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ready returns the condition for which `up` waits after it has applied an object of that kind, or
// nil if it does not wait. pulumi.com/skipAwait is for objects that may take long: a Job is ready
// when it has succeeded.
func ready(kind string) func(object) bool {
	switch kind {
	case "PersistentVolume":
		return func(o object) bool { return slices.Contains([]string{"Available", "Bound"}, o.text("status", "phase")) }
	case "PersistentVolumeClaim": // for classes that do not wait for a pod
		return func(o object) bool { return o.text("status", "phase") == "Bound" }
	case "ResourceQuota":
		return func(o object) bool {
			wanted, _, _ := unstructured.NestedMap(o, "spec", "hard")
			counted, _, _ := unstructured.NestedMap(o, "status", "hard")
			return reflect.DeepEqual(wanted, counted)
		}
	case "Pod":
		return func(o object) bool { return o.condition("Ready") || o.text("status", "phase") == "Succeeded" }
	case "Job":
		return func(o object) bool { return o.condition("Complete") }
	case "Deployment", "StatefulSet":
		return func(o object) bool {
			wanted := o.number("spec", "replicas")
			return rolledOut(o) && o.number("status", "updatedReplicas") >= wanted &&
				o.number("status", "readyReplicas") >= wanted
		}
	case "DaemonSet":
		return func(o object) bool {
			wanted := o.number("status", "desiredNumberScheduled")
			return rolledOut(o) && o.number("status", "updatedNumberScheduled") >= wanted &&
				o.number("status", "numberAvailable") >= wanted
		}
	}
	return nil
}

// rolledOut reports whether its controller has observed its newest generation.
func rolledOut(o object) bool {
	return o.number("status", "observedGeneration") >= o.number("metadata", "generation")
}

// skipsDeletion reports whether `destroy` continues while an object is still being deleted: for
// these kinds pulumi.com/skipAwait also means that.
func skipsDeletion(o object) bool {
	return o.annotation("skipAwait") == "true" &&
		slices.Contains([]string{"Namespace", "Pod", "Deployment", "StatefulSet", "DaemonSet", "Job"}, o.kind())
}
