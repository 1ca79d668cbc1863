package infra

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// Object is an object of Kubernetes that a stack creates.
type Object struct {
	// name of the resource in the Pulumi program
	Name   string
	Object runtime.Object

	// Holes maps placeholders to values that are not known before `pulumi up`, such as an address.
	// A placeholder may be a part of a longer text, and should be a text that does not occur
	// otherwise.
	Holes map[string]pulumi.StringInput
	// Fixed lists the paths of fields that the API server refuses to change: another value there
	// replaces the object.
	Fixed []string
	// Kept lists the paths of fields that keep the values with which the object was created.
	Kept []string
	// Options of its resource alone, as hooks.
	Options []pulumi.ResourceOption
}

// Register registers an object under its own kind, with the guard's mark, and checked by the guard;
// a nil guard neither marks nor checks. So the objects of a stack are the same as those that the
// command line creates, by the same code.
func Register(ctx *pulumi.Context, g *Guard, is Object,
	opts ...pulumi.ResourceOption) (*pulumi.CustomResourceState, error) {
	name, o, holes := is.Name, is.Object, is.Holes
	opts = append(opts, is.Options...)
	gvk := o.GetObjectKind().GroupVersionKind()
	version := gvk.GroupVersion().String()
	if version == "v1" {
		version = "core/v1"
	}
	u, err := tree(o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	inputs := filled(u.Object, holes).(pulumi.Map)
	if g != nil {
		metadata := inputs["metadata"].(pulumi.Map)
		annotations, ok := metadata["annotations"].(pulumi.Map)
		if !ok {
			annotations = pulumi.Map{}
		}
		looked := maps.Clone(inputs) // the inputs without the mark
		metadata, annotations = maps.Clone(metadata), maps.Clone(annotations)
		annotations[AnnotationStack] = g.marked(u, looked, is.Fixed)
		metadata["annotations"], inputs["metadata"] = annotations, metadata
		opts = append(opts, pulumi.ResourceHooks(g.hooks))
	}
	var r pulumi.CustomResourceState
	return &r, ctx.RegisterResource("kubernetes:"+version+":"+gvk.Kind, name, inputs, &r, opts...)
}

// tree returns an object as JSON has it, without the fields that the cluster writes.
func tree(o runtime.Object) (*unstructured.Unstructured, error) {
	var is map[string]any
	text, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(text, &is)
	}
	if err != nil {
		return nil, fmt.Errorf("write a %s: %w", o.GetObjectKind().GroupVersionKind().Kind, err)
	}
	delete(is, "status")
	delete(is["metadata"].(map[string]any), "creationTimestamp")
	return &unstructured.Unstructured{Object: is}, nil
}

// filled returns a tree of JSON as an input, with the placeholders in its texts replaced by their
// values.
func filled(tree any, holes map[string]pulumi.StringInput) pulumi.Input {
	switch v := tree.(type) {
	case map[string]any:
		m := pulumi.Map{}
		for k, e := range v {
			m[k] = filled(e, holes)
		}
		return m
	case []any:
		a := pulumi.Array{}
		for _, e := range v {
			a = append(a, filled(e, holes))
		}
		return a
	case string:
		return fill(v, holes)
	}
	return pulumi.Any(tree)
}

func fill(text string, holes map[string]pulumi.StringInput) pulumi.StringInput {
	var in []string
	for hole := range holes {
		if strings.Contains(text, hole) {
			in = append(in, hole)
		}
	}
	if len(in) == 0 {
		return pulumi.String(text)
	}
	slices.Sort(in)
	var values []any
	for _, hole := range in {
		// converts IDs, which are StringInputs, too
		values = append(values, holes[hole].ToStringOutput())
	}
	return pulumi.All(values...).ApplyT(func(values []any) string {
		var pairs []string
		for i, v := range values {
			pairs = append(pairs, in[i], v.(string))
		}
		return strings.NewReplacer(pairs...).Replace(text) // values contain no placeholders
	}).(pulumi.StringOutput)
}
