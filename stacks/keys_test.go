//go:build !e2e

package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/test/provider"
)

// A stack that has data gets a key, another one, and none: nothing with data is replaced or
// deleted, nor is the cluster. The preview says what keeps which key, and a refresh finds no
// difference.
func TestKeyOfAStackWithData(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		stack, setting, key string
		set                 change
		keep                []string // at the first key
		first               []string // updates of the first key
		then                string   // what keeps the first key
	}{
		"eks auto": {"eks", "eks.kmsKey", provider.ExistingKey, filesEKS.set,
			[]string{"the files keep arn:aws:kms:us-west-2:123456789012:key/of-amazon", "the images keep"},
			[]string{"update aws:eks/cluster:Cluster cluster encryptionConfig", "update aws:cloudwatch/logGroup"},
			"the cluster's secrets keep"},
		"eks groups": {"eks", "eks.kmsKey", provider.ExistingKey, merge(managed, filesEKS.set),
			[]string{"the files keep arn:aws:kms:us-west-2:123456789012:key/of-amazon", "the images keep"},
			[]string{"update aws:eks/cluster:Cluster cluster encryptionConfig",
				"update aws:ec2/launchTemplate:LaunchTemplate system blockDeviceMappings"},
			"the cluster's secrets keep"},
		"gke": {"gke", "gke.kmsKey", provider.ExistingGoogleKey, merge(onVolume("fileserver-claim"),
			inGKE("filestore", change{"tier": "ZONAL", "capacityGb": 1024, "share": "data"})),
			[]string{"the registry and Filestore get it when they are made: those that exist keep what they have"},
			[]string{"update gcp:container/cluster:Cluster cluster databaseEncryption",
				"update gcp:storage/bucket:Bucket data encryption"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := start(t, test.stack)
			e.setAll(test.set)
			e.up()
			kept := func(when string, did steps) {
				for _, step := range did {
					gone := strings.HasPrefix(step, "replace ") || strings.HasPrefix(step, "delete ")
					if gone && !strings.HasPrefix(step, "replace gcp:container/nodePool:NodePool ") {
						t.Errorf("%s: %s", when, step)
					}
				}
			}
			e.set("elasticdl:"+test.setting, test.key)
			said := e.warned()
			for _, want := range test.keep {
				if !strings.Contains(said, want) || !strings.Contains(said, test.setting+": ") {
					t.Errorf("the preview does not say that %s:\n%s", want, said)
				}
			}
			did := e.up()
			kept("the first key", did)
			for _, want := range test.first {
				if !strings.Contains(fmt.Sprint(did), want) {
					t.Errorf("there is no %s:\n%s", want, did)
				}
			}
			e.unchangedAfterRefresh("it has a key")
			for _, key := range []any{test.key + "-2", nil} {
				e.set("elasticdl:"+test.setting, key)
				secrets := test.setting + ": none: the cluster's secrets keep "
				if said := e.warned(); key == nil && !strings.Contains(said, secrets) ||
					test.then != "" && !strings.Contains(said, test.then+" "+test.key+",") {
					t.Errorf("with the key %v the preview does not say what keeps the first:\n%s", key, said)
				}
				kept(fmt.Sprintf("the key %v", key), e.up())
				e.unchangedAfterRefresh(fmt.Sprintf("the key %v", key))
			}
		})
	}
}

// A new stack with a key has it everywhere, and a key that is not there is refused.
func TestKeyOfANewStack(t *testing.T) {
	t.Parallel()
	for stack, test := range map[string]struct {
		key  string
		set  change
		want map[string]string // paths in the state
		says string
	}{
		"eks": {provider.ExistingKey, filesEKS.set, map[string]string{"aws:efs/fileSystem:FileSystem": "kmsKeyId",
			"aws:ecr/repository:Repository":    "encryptionConfigurations",
			"aws:cloudwatch/logGroup:LogGroup": "kmsKeyId", "aws:eks/cluster:Cluster": "encryptionConfig"},
			"(kms:DescribeKey)"},
		"gke": {provider.ExistingGoogleKey, merge(onVolume("fileserver-claim"),
			inGKE("filestore", change{"tier": "ZONAL", "capacityGb": 1024, "share": "data"})),
			map[string]string{"gcp:filestore/instance:Instance": "kmsKeyName",
				"gcp:storage/bucket:Bucket":                  "encryption",
				"gcp:artifactregistry/repository:Repository": "kmsKeyName",
				"gcp:container/cluster:Cluster":              "databaseEncryption",
				"gcp:container/nodePool:NodePool":            "nodeConfig"}, "(cloudkms.cryptoKeys.get)"},
	} {
		t.Run(stack, func(t *testing.T) {
			t.Parallel()
			e := start(t, stack)
			e.setAll(test.set)
			e.set("elasticdl:protectStorage", false)
			e.set("elasticdl:"+stack+".kmsKey", test.key+"-3")
			e.refused("elasticdl:"+stack+".kmsKey: "+test.key+"-3: look it up: ", test.says)
			e.set("elasticdl:"+stack+".kmsKey", test.key)
			e.up()
			e.unchangedAfterRefresh("it has a key")
			seen := 0
			for _, r := range e.resources() {
				path, ok := test.want[string(r.Type)]
				if !ok {
					continue
				}
				seen++
				if is := fmt.Sprint(r.Outputs[path]); !strings.Contains(is, test.key) {
					t.Errorf("%s %s: %s is %s", r.Type, r.URN.Name(), path, is)
				}
			}
			if seen < len(test.want) {
				t.Errorf("only %d of %d types are there", seen, len(test.want))
			}
			e.destroy()
			e.cleared()
		})
	}
}
