package infra

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// Register registers an object of Kubernetes under its own kind. Only so are the objects of a stack those that the
// command line makes, by the same code. A text in it that is not known before `pulumi up`, as an address, is a hole: a
// key of holes, which may be a part of a longer text and should be one that nobody writes.
func Register(ctx *pulumi.Context, name string, o runtime.Object, holes map[string]pulumi.StringInput, opts ...pulumi.ResourceOption) (*pulumi.CustomResourceState, error) {
	gvk := o.GetObjectKind().GroupVersionKind()
	version := gvk.GroupVersion().String()
	if version == "v1" {
		version = "core/v1"
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("write %s %s: %w", gvk.Kind, name, err)
	}
	var tree map[string]any
	if err := json.Unmarshal(text, &tree); err != nil {
		return nil, fmt.Errorf("write %s %s: %w", gvk.Kind, name, err)
	}
	delete(tree, "status")
	delete(tree["metadata"].(map[string]any), "creationTimestamp")
	var r pulumi.CustomResourceState
	return &r, ctx.RegisterResource("kubernetes:"+version+":"+gvk.Kind, name, filled(tree, holes).(pulumi.Map), &r, opts...)
}

// filled is a tree of JSON as an input, with the holes of its texts filled.
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
		values = append(values, holes[hole].ToStringOutput()) // an ID is a StringInput, too
	}
	return pulumi.All(values...).ApplyT(func(values []any) string {
		var pairs []string
		for i, v := range values {
			pairs = append(pairs, in[i], v.(string))
		}
		return strings.NewReplacer(pairs...).Replace(text) // what fills a hole has none
	}).(pulumi.StringOutput)
}
