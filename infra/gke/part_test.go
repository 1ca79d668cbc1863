package gke

import (
	"fmt"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/test/graph"
)

// Parts of a name are looked up in the project of their setting, or else in that of the cluster:
// another project may have some of the same name.
func TestProjectsOfParts(t *testing.T) {
	asked := map[string]string{}
	cloud := graph.Cloud{Call: func(token string, args resource.PropertyMap) resource.PropertyMap {
		asked[token] = fmt.Sprint(args["project"].V)
		return call(token, args)
	}}
	if _, err := graph.Record(cloud, func(ctx *pulumi.Context) error {
		_, err := NewCluster(ctx, "gke", OfStack(withParts()))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]string{getFiles: "acme", getSubnet: "host-project",
		"gcp:artifactregistry/getRepository:getRepository": "images-of-all"} {
		if asked[token] != want {
			t.Errorf("%s asks project %s, want %s", token, asked[token], want)
		}
	}
}

// The node that Google makes with a cluster is as safe as all others: policies of an organization
// would refuse it.
func TestFirstNode(t *testing.T) {
	all := first(record(t, keyed(), true))
	ours := find(t, all, typeCluster, "cluster")
	for _, p := range of(all, typePool) {
		for _, path := range []string{"oauthScopes", "shieldedInstanceConfig.enableIntegrityMonitoring",
			"workloadMetadataConfig", "bootDiskKmsKey", "metadata", "serviceAccount"} {
			is, want := at(t, ours, "nodeConfig."+path), at(t, &p, "nodeConfig."+path)
			if want.IsNull() || !is.DeepEquals(want) {
				t.Errorf("%s of the first node is %v, and of %s %v", path, is, p.Name, want)
			}
		}
	}
	// a driver of Nvidia's is not signed, so that nodes with GPUs may be without
	want(t, ours, "nodeConfig.shieldedInstanceConfig.enableSecureBoot=true")
}

// A class takes nodes of the pool of spot nodes first, and else of that which is paid in full.
func TestSpotFirst(t *testing.T) {
	_, c := record(t, listed(), false)
	class := c.Nodes[0]
	spec := class.Object.(interface{ UnstructuredContent() map[string]any }).UnstructuredContent()["spec"]
	if got, want := fmt.Sprint(spec.(map[string]any)["priorities"]), fmt.Sprintf("[map[nodepools:[%s]] "+
		"map[nodepools:[%s]]]", holeSpot, holeOnDemand); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, hole := range []string{holeSpot, holeOnDemand} {
		if class.Holes[hole] == nil {
			t.Errorf("nothing takes the place of %s", hole)
		}
	}
}

// Nodes have the labels that the settings give to their pool.
func TestOwnLabels(t *testing.T) {
	s := listed()
	if len(s.GKE.Pools[2].Labels) == 0 {
		t.Fatal("no pool has a label")
	}
	for _, pool := range s.GKE.AllPools() {
		got := labelsOf(pool)
		for key := range pool.Labels {
			if got[key] != pool.Labels[key] {
				t.Errorf("%s has labels %v, want %v", pool.Name, got, pool.Labels)
			}
		}
	}
}
