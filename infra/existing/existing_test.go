package existing

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/test/graph"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// clusters implements infra.Live: the UID of kube-system by context.
type clusters map[string]string

var errSilent = errors.New("no route to host")

func (c clusters) Get(_ context.Context, kubeconfig, of string, kind schema.GroupVersionKind,
	namespace, name string) (map[string]any, error) {
	uid, ok := c[of]
	switch {
	case kubeconfig != "" || kind != infra.KindNamespace || namespace != "" || name != "kube-system":
		return nil, errors.New("not asked for")
	case !ok:
		return nil, errSilent
	case uid == "":
		return nil, infra.ErrForbidden
	}
	return map[string]any{"metadata": map[string]any{"uid": uid}}, nil
}

const kubeconfig = `{apiVersion: v1, kind: Config, current-context: prod,
clusters: [{name: a, cluster: {server: "https://a.example"}}, {name: b, cluster: {server: "https://b.example"}}],
contexts: [{name: prod, context: {cluster: a}}, {name: lab, context: {cluster: b}},
  {name: again, context: {cluster: a}}]}`

// found returns what NewCluster finds by a kubeconfig, and the identity of the cluster. It fails
// the test if NewCluster requests a resource.
func found(t *testing.T, config string, there clusters, x settings.Existing) (c *infra.Cluster, id string, err error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", file)
	s := &settings.Settings{Project: "elasticdl", Cloud: settings.CloudExisting, Existing: &x, ProtectStorage: true,
		Platform: settings.Platform{Namespace: "research"}}
	all, err := graph.Record(graph.Cloud{}, func(ctx *pulumi.Context) (err error) {
		args := OfStack(s)
		args.Live = there
		if c, err = NewCluster(ctx, "existing", args); err == nil {
			id = string(c.ID.(pulumi.String))
		}
		return err
	})
	if len(all) > 0 {
		t.Errorf("it requests %v", all)
	}
	return c, id, err
}

// The identity of a cluster is its own, and does not depend on names and addresses; only a user who
// may not read it has another.
func TestIdentity(t *testing.T) {
	there := clusters{"prod": "uid-1", "lab": "uid-2", "again": "", "moved": "uid-1"}
	for _, test := range []struct{ config, context, want, id string }{
		{kubeconfig, "", "prod", "uid-1"},
		{kubeconfig, "lab", "lab", "uid-2"},
		{strings.NewReplacer("prod", "moved", "a.example", "10.0.0.1").Replace(kubeconfig), "", "moved", "uid-1"},
	} {
		c, id, err := found(t, test.config, there, settings.Existing{Context: test.context})
		if err != nil || id != test.id || c.Context != test.want {
			t.Errorf("%q: %s, %v", test.context, id, err)
		}
		if !c.Local() || !c.Adopted || c.Resource != nil {
			t.Errorf("%+v", c)
		}
	}
	hashes := map[string]bool{}
	for _, server := range []string{"a.example", "c.example"} {
		_, id, err := found(t, strings.ReplaceAll(kubeconfig, "a.example", server), there,
			settings.Existing{Context: "again"})
		if err != nil || !strings.HasPrefix(id, infra.ByAddress) {
			t.Errorf("forbidden: %q, %v", id, err)
		}
		hashes[id] = true
	}
	if len(hashes) != 2 {
		t.Errorf("two clusters have one identity: %v", hashes)
	}
}

// An error names the context, the address and the choices.
func TestNoCluster(t *testing.T) {
	for _, test := range []struct{ context, want string }{
		{"", "elasticdl:existing: the cluster of context prod, https://a.example, does not answer: no route to host"},
		{"nobody", "elasticdl:existing.context: nobody: "},
		{"nobody", "and there are again, lab, prod: choose one: kubectl config use-context NAME"},
	} {
		if _, _, err := found(t, kubeconfig, nil, settings.Existing{Context: test.context}); err == nil ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %v, want %s", test.context, err, test.want)
		}
	}
}

// Each setting gets to the rest of the stack.
func TestSettings(t *testing.T) {
	there := clusters{"prod": "uid-1"}
	taint := []job.Toleration{{Key: "spot", Operator: "Exists"}}
	labels := map[string]string{"pool": "spot"}
	c, _, err := found(t, kubeconfig, there, settings.Existing{
		Registry: "ghcr.io/me", Login: &settings.Login{User: "u", Command: "pass"},
		GPUNodes: &settings.Nodes{Selector: labels}, SpotNodes: &settings.Nodes{Selector: labels, Tolerations: taint},
		Volume: &settings.Claim{Name: "data", CapacityGB: 10, StorageClass: "nfs", AccessMode: "ReadWriteOnce"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.Registry.OutputState == nil || *c.Login != (settings.Login{User: "u", Command: "pass"}) {
		t.Errorf("%+v", c)
	}
	if w := c.WorkersOn("", false); !maps.Equal(c.GPU.NodeSelector, labels) ||
		!maps.Equal(w.NodeSelector, labels) || len(w.Tolerations) != 1 || c.GPU.DevicePlugin ||
		c.WorkersOn("", true) != nil {
		t.Errorf("%+v, %+v", c.GPU, w)
	}
	if v := c.Volume; v.Claim != "data" || v.CapacityGB != 10 || v.Shared ||
		*v.OnDemand != (infra.OnDemand{StorageClass: "nfs", AccessMode: "ReadWriteOnce", Protect: true}) {
		t.Errorf("%+v", v)
	}
	c, _, err = found(t, kubeconfig, there, settings.Existing{Volume: &settings.Claim{Name: "data", CapacityGB: 10}})
	if err != nil || !c.Volume.OnDemand.Protect {
		t.Errorf("a claim of the default class is not protected: %+v, %v", c, err)
	}
	c, _, err = found(t, kubeconfig, there, settings.Existing{Volume: &settings.Claim{Name: "theirs"}})
	if err != nil || !c.Volume.Shared || c.Volume.OnDemand != nil || c.Registry.OutputState != nil ||
		c.Login != nil || c.WorkersOn != nil {
		t.Errorf("%+v, %v", c, err)
	}
}
