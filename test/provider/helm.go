package provider

import (
	"errors"
	"fmt"
	"maps"

	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"sigs.k8s.io/yaml"
)

// releaseType is the type of a Helm release, which Pulumi's provider installs by Helm's library.
const releaseType = "kubernetes:helm.sh/v3:Release"

func isRelease(urn string) bool { return typeOf(urn) == releaseType }

// chart is a chart that can be fetched.
type chart struct {
	versions []string
	// objects that matter here; the first is its namespace
	objects func() []Props
	// returns why its program does not start
	starts func(release Props) error
	// returns why the release must not be deleted yet
	held func(*apiServer) error
}

var charts = map[string]chart{
	"oci://registry.k8s.io/kueue/charts/kueue": {versions: []string{"0.17.0", "0.18.1"}, objects: kueueObjects,
		starts: configured},
	"oci://public.ecr.aws/karpenter/karpenter-crd": {versions: []string{"1.14.1"},
		objects: func() []Props { return append([]Props{kubeSystem}, definitions(karpenterKinds...)...) }},
	"oci://public.ecr.aws/karpenter/karpenter": {versions: []string{"1.14.1"},
		objects: func() []Props {
			return []Props{kubeSystem, {"apiVersion": "apps/v1", "kind": "Deployment",
				"metadata": Props{"name": "karpenter", "namespace": "kube-system"}}}
		},
		starts: karpenterStarts, held: karpenterHolds},
}

// chartOf returns the chart of a release.
func chartOf(release Props) chart { return charts[text(release, "chart")] }

// checkRelease fills in defaults. The provider fetches the chart already here, also in a preview,
// and without a cluster.
func checkRelease(q *pulumirpc.CheckRequest) (*pulumirpc.CheckResponse, error) {
	in := maps.Clone(wire(q.News))
	r := &pulumirpc.CheckResponse{}
	if err := fetchable(open(in)); err != nil {
		r.Failures = []*pulumirpc.CheckFailure{{Property: "chart",
			Reason: err.Error() + "; check the chart name and repository configuration."}}
	}
	if in["timeout"] == nil && in["skipAwait"] != true {
		in["timeout"] = 300
	}
	var err error
	r.Inputs, err = as(in)
	return r, err
}

func fetchable(release Props) error {
	c, ok := charts[text(release, "chart")]
	if !ok {
		return fmt.Errorf("chart %q not found", text(release, "chart"))
	}
	for _, v := range c.versions {
		if v == text(release, "version") {
			return nil
		}
	}
	return fmt.Errorf("%s: %s: not found", text(release, "chart"), text(release, "version"))
}

func diffRelease(q *pulumirpc.DiffRequest) (*pulumirpc.DiffResponse, error) {
	return diff(open(wire(q.OldInputs)), nil, open(wire(q.News)), q.IgnoreChanges, []string{"name", "namespace"})
}

// createRelease installs a chart. Like Helm, it refuses to take over objects.
func (k *Kubernetes) createRelease(q *pulumirpc.CreateRequest) (*pulumirpc.CreateResponse, error) {
	if q.Preview {
		return &pulumirpc.CreateResponse{Properties: q.Properties}, nil
	}
	in := open(wire(q.Properties))
	server, err := k.reach(k.server)
	if err != nil {
		return nil, fmt.Errorf("can't create Helm Release with unreachable cluster: %w", err)
	}
	c := chartOf(in)
	if c.starts != nil {
		if err := c.starts(in); err != nil {
			return nil, err
		}
	}
	for _, o := range c.objects() {
		switch kind, there := o["kind"], server.objects[keyOf(o)]; {
		case kind == "Namespace" && there == nil && in["createNamespace"] != true && keyOf(o) != keyOf(kubeSystem):
			return nil, fmt.Errorf("namespaces %q not found", text(in, "namespace"))
		case kind == "Namespace":
		case there != nil:
			return nil, fmt.Errorf("unable to continue with install: %s exists and cannot be imported into the "+
				"current release: invalid ownership metadata", keyOf(o))
		default:
			if err := server.make(o, "helm"); err != nil {
				return nil, err
			}
		}
	}
	id := text(in, "namespace") + "/" + text(in, "name")
	k.calls = append(k.calls, Call{"create", releaseType, nameOf(q.Urn), id})
	return &pulumirpc.CreateResponse{Id: id, Properties: q.Properties}, nil
}

// configured returns why Kueue's manager does not start.
func configured(release Props) error {
	config := Props{}
	said := text(release, "values", "managerConfig", "controllerManagerConfigYaml")
	if err := yaml.Unmarshal([]byte(said), &config); err != nil {
		return err
	}
	if text(config, "kind") != "Configuration" || at(config, "webhook", "port") == nil ||
		at(config, "managedJobsNamespaceSelector") == nil {
		return errors.New("context deadline exceeded: kueue-controller-manager: its settings are not whole: " + said)
	}
	return nil
}

func (k *Kubernetes) updateRelease(q *pulumirpc.UpdateRequest) (*pulumirpc.UpdateResponse, error) {
	if !q.Preview {
		in := open(wire(q.News))
		if c := chartOf(in); c.starts != nil {
			if err := c.starts(in); err != nil {
				return nil, err
			}
		}
		k.calls = append(k.calls, Call{"update", releaseType, nameOf(q.Urn), q.Id})
	}
	return &pulumirpc.UpdateResponse{Properties: q.News}, nil
}

func (k *Kubernetes) readRelease(q *pulumirpc.ReadRequest) (*pulumirpc.ReadResponse, error) {
	server, err := k.reach(k.server)
	if err != nil {
		return nil, err
	}
	if objects := chartOf(open(wire(q.Inputs))).objects; objects == nil ||
		server.objects[keyOf(objects()[1])] == nil {
		return &pulumirpc.ReadResponse{}, nil
	}
	return &pulumirpc.ReadResponse{Id: q.Id, Properties: q.Properties, Inputs: q.Inputs}, nil
}

// deleteRelease deletes the objects of the release. The objects of its kinds are deleted with their
// definitions.
func (k *Kubernetes) deleteRelease(q *pulumirpc.DeleteRequest) error {
	server, err := k.reach(k.server)
	if err != nil {
		return err
	}
	c := chartOf(open(wire(q.Properties)))
	if c.held != nil {
		if err := c.held(server); err != nil {
			return err
		}
	}
	for _, o := range c.objects()[1:] {
		delete(server.objects, keyOf(o))
		if o["kind"] == "CustomResourceDefinition" {
			server.undefine(text(o, "metadata", "name"))
		}
	}
	k.calls = append(k.calls, Call{"delete", releaseType, nameOf(q.Urn), q.Id})
	return nil
}
