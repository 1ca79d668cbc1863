package gke

import (
	"slices"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/test/graph"
)

const ownKey = "projects/keys/locations/us-central1/keyRings/team/cryptoKeys/training"

// keyed returns the settings of a stack with a key.
func keyed() *settings.Settings {
	s := configured()
	s.GKE.KMSKey, s.GKE.Filestore.Tier = ownKey, "ZONAL"
	s.GKE.Pools = []settings.GKENamedPool{{Name: "cheap", OnDemand: true, GKEPool: settings.GKEPool{
		MachineType: "n2-standard-8", MaxNodes: 3, Spot: true}}}
	return s
}

// encryptions lists where the key of each type of resource is that stores data.
var encryptions = map[string]string{
	typeCluster: "databaseEncryption.keyName", typePool: "nodeConfig.bootDiskKmsKey", typeFilestore: "kmsKeyName",
	typeRegistry: "kmsKeyName", typeBucket: "encryption.defaultKmsKeyName",
}

// All that stores data is encrypted by the key of the stack, and by Google's own without one; no
// change of the key replaces storage.
func TestKey(t *testing.T) {
	for _, key := range []string{"", ownKey} {
		for _, preview := range []bool{true, false} {
			s := keyed()
			s.GKE.KMSKey = key
			all, is := first(record(t, s, preview)), ""
			if key != "" {
				is = "=" + key
				want(t, find(t, all, typeCluster, "cluster"), "databaseEncryption.state=ENCRYPTED")
			}
			for kind, path := range encryptions {
				some := of(all, kind)
				if len(some) == 0 {
					t.Errorf("there is no %s", kind)
				}
				for _, r := range some {
					want(t, &r, path+is)
				}
			}
			want(t, find(t, all, typeCluster, "cluster"), "nodeConfig.bootDiskKmsKey"+is)
			ignores(t, find(t, all, typeFilestore, "filestore"), "kmsKeyName")
			ignores(t, find(t, all, typeRegistry, "registry"), "kmsKeyName")
		}
	}
}

// The stack changes nothing of the key, nor who may use it.
func TestKeyIsItsOwners(t *testing.T) {
	none := func(all []graph.Resource) bool {
		return !slices.ContainsFunc(all, func(r graph.Resource) bool { return strings.HasPrefix(r.Type, "gcp:kms/") })
	}
	all := first(record(t, keyed(), false))
	if !none(all) {
		t.Error("the stack changes the key")
	}
	if none(append(all, graph.Resource{Type: "gcp:kms/cryptoKeyIAMMember:CryptoKeyIAMMember"})) {
		t.Error("a change of the key is not noticed")
	}
}

// A bucket has a key of its own, if its settings name one.
func TestKeyOfTheBucket(t *testing.T) {
	s := keyed()
	s.GKE.Bucket.KMSKey = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
	want(t, find(t, first(record(t, s, false)), typeBucket, "data"),
		"encryption.defaultKmsKeyName="+s.GKE.Bucket.KMSKey)
}
