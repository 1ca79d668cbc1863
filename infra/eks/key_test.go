package eks

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra/settings"
)

const (
	ownKey     = "arn:aws:kms:us-west-2:123456789012:key/0-a"
	earlierKey = "arn:aws:kms:us-west-2:123456789012:key/0-b"
)

// keyed returns the settings of a stack with a key; how says how it gets its nodes.
func keyed(how string) *settings.Settings {
	s := own()
	if how != settings.NodesGroups {
		s = following(how)
	}
	s.EKS.KMSKey = ownKey
	return s
}

// encryptions lists where the key of each type of resource is that stores data.
var encryptions = []struct{ kind, path string }{
	{fileType, "kmsKeyId"},
	{repoType, "encryptionConfigurations[0].kmsKey"},
	{logType, "kmsKeyId"},
	{launchType, "blockDeviceMappings[0].ebs.kmsKeyId"},
	{"aws:sqs/queue:Queue", "kmsMasterKeyId"},
	{"aws:s3/bucketServerSideEncryptionConfigurationV2:BucketServerSideEncryptionConfigurationV2",
		"rules[0].applyServerSideEncryptionByDefault.kmsMasterKeyId"},
	{clusterType, "encryptionConfig.provider.keyArn"},
}

// keyLaws has the laws of key.go.
var keyLaws = []law{
	{"K01 all that stores data is encrypted by the key", func(v *view) (wrong []string) {
		want := v.s.EKS.KMSKey
		if want == "" {
			want = "<none>"
		}
		seen := 0
		for _, e := range encryptions {
			for _, r := range v.of(e.kind) {
				wrong = append(wrong, is(r, e.path, want)...)
				seen++
			}
		}
		for _, q := range v.of("aws:sqs/queue:Queue") {
			managed := "<none>"
			if want == "<none>" {
				managed = "true"
			}
			wrong = append(wrong, is(q, "sqsManagedSseEnabled", managed)...)
		}
		for _, o := range v.cluster.Nodes {
			text, err := json.Marshal(o.Object)
			if err != nil || strings.HasPrefix(o.Name, "class-") &&
				strings.Contains(string(text), `"kmsKeyID":"{key-of-disks}"`) != (want != "<none>") {
				wrong = append(wrong, fmt.Sprintf("%s: %s, %v", o.Name, text, err))
			}
			if key := o.Holes[holeKey]; key != nil && key != pulumi.String(want) {
				wrong = append(wrong, fmt.Sprintf("%s has disks of %v", o.Name, key))
			}
		}
		if least := len(v.of(bucketType)) + 4; seen < least {
			wrong = append(wrong, fmt.Sprintf("only %d resources were looked at", seen))
		}
		return wrong
	}, func(v *view) { set(v.named(logType, "cluster")[0], "kmsKeyId", earlierKey) }},

	{"K02 no change of the key replaces storage or the cluster", func(v *view) (wrong []string) {
		ignores := func(kind, name, path string, want bool) {
			if slices.Contains(v.named(kind, name)[0].Options.IgnoreChanges, path) != want {
				wrong = append(wrong, fmt.Sprintf("%s: ignores changes of %s: expected %v", kind, path, want))
			}
		}
		ignores(fileType, "data", "kmsKeyId", true)
		ignores(repoType, "images", "encryptionConfigurations", true)
		// the first key is an update
		ignores(clusterType, "cluster", "encryptionConfig", v.s.EKS.KMSKey == "")
		return wrong
	}, func(v *view) { v.named(fileType, "data")[0].Options.IgnoreChanges = nil }},

	{"K03 roles have rights on the key alone, and the cluster has them first", func(v *view) (wrong []string) {
		has := map[string]bool{}
		for _, r := range v.of(inlineType) {
			var policy struct{ Statement []statement }
			if v.preview && text(r, "policy") == "(unknown)" {
				continue
			}
			if err := json.Unmarshal([]byte(text(r, "policy")), &policy); err != nil {
				wrong = append(wrong, err.Error())
			}
			for _, s := range policy.Statement {
				if !slices.ContainsFunc(s.Action, func(a string) bool { return strings.HasPrefix(a, "kms:") }) {
					continue
				}
				has[r.Name] = true
				if v.s.EKS.KMSKey == "" || !slices.Equal(s.Resource, []string{v.s.EKS.KMSKey}) {
					wrong = append(wrong, fmt.Sprintf("%s may use %v", r.Name, s.Resource))
				}
				if slices.Contains(s.Action, "kms:CreateGrant") && s.Condition == nil {
					wrong = append(wrong, r.Name+" may let anybody use the key")
				}
			}
		}
		want := []string{}
		if v.s.EKS.KMSKey != "" {
			want = []string{"cluster-key", "job", "job-data"}
			if v.s.EKS.Nodes == settings.NodesKarpenter {
				want = append(want, "karpenter")
			}
			wrong = append(wrong, v.wait(v.of(clusterType), v.named(inlineType, "cluster-key")...)...)
		}
		if got := slices.Sorted(maps.Keys(has)); !v.preview && !slices.Equal(got, want) {
			wrong = append(wrong, fmt.Sprintf("%v have rights on a key, not %v", got, want))
		}
		return wrong
	}, func(v *view) {
		may := v.named(inlineType, "job")[0]
		set(may, "policy", strings.ReplaceAll(text(may, "policy"), ownKey, "*"))
	}},
}

// The laws of the key, and those of all resources of a kind, hold for every kind of nodes, with and
// without a key.
func TestKeyLaws(t *testing.T) {
	for _, how := range []string{settings.NodesGroups, settings.NodesAuto, settings.NodesKarpenter} {
		for _, key := range []string{"", ownKey} {
			for _, preview := range []bool{true, false} {
				s := keyed(how)
				s.EKS.KMSKey = key
				v, err := record(s, preview)
				if err != nil {
					t.Fatal(err)
				}
				for _, l := range slices.Concat(keyLaws, wholeLaws) {
					for _, wrong := range append(l.check(v), v.missing...) {
						t.Errorf("%s, key %q, preview %v: %s: %s", how, key, preview, l.name, wrong)
					}
				}
			}
		}
	}
	for _, l := range keyLaws {
		v, err := record(keyed(settings.NodesGroups), false)
		if err != nil {
			t.Fatal(err)
		}
		if l.spoil(v); len(l.check(v)) == 0 || len(v.missing) > 0 {
			t.Errorf("spoilt, %s: it is not noticed: %v", l.name, v.missing)
		}
	}
}

// In Auto Mode the role of the cluster may use the key for disks, too, and otherwise for secrets
// only.
func TestKeyOfAutoMode(t *testing.T) {
	for how, want := range map[string]int{settings.NodesGroups: 1, settings.NodesAuto: 3, settings.NodesKarpenter: 1} {
		v, err := record(keyed(how), false)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(text(v.named(inlineType, "cluster-key")[0], "policy"), `"Effect"`); n != want {
			t.Errorf("%s: %d statements, expected %d", how, n, want)
		}
	}
}

// The secrets of a cluster keep their key when the setting names another, or none.
func TestSecretsKeepTheirKey(t *testing.T) {
	for _, setting := range []string{ownKey, ""} {
		s := keyed(settings.NodesGroups)
		s.EKS.KMSKey, s.EKS.VPC.Zones = setting, []string{"us-west-2a", "us-west-2c"}
		v, err := record(s, false, func(token string, args, result resource.PropertyMap) {
			maps.Copy(result, answers(token, args))
			switch token {
			case "aws:eks/getCluster:getCluster":
				result["tags"] = resource.NewProperty(props(secretsTag, earlierKey))
			case "aws:eks/getNodeGroups:getNodeGroups":
				result["names"] = resource.NewProperty([]resource.PropertyValue{})
			case "aws:ec2/getSubnet:getSubnet":
				zone := strings.TrimPrefix(args["id"].StringValue(), "subnet-")
				i := slices.Index(s.EKS.VPC.Zones, "us-west-2"+zone)
				result["cidrBlock"] = resource.NewProperty([]string{"10.0.0.0/19", "10.0.32.0/19"}[i])
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		c := v.named(clusterType, "cluster")[0]
		rights := text(v.named(inlineType, "cluster-key")[0], "policy")
		wrong := slices.Concat(is(c, "encryptionConfig.provider.keyArn", earlierKey),
			is(c, `tags["`+secretsTag+`"]`, earlierKey), v.missing)
		if setting != "" {
			wrong = append(wrong, is(v.named(logType, "cluster")[0], "kmsKeyId", ownKey)...)
		}
		if !strings.Contains(rights, earlierKey) {
			wrong = append(wrong, "the cluster may not read its secrets: "+rights)
		}
		for _, w := range wrong {
			t.Errorf("key %q: %s", setting, w)
		}
	}
}

// A bucket has a key of its own, if its settings name one, and one that exists already has none of
// the stack's.
func TestKeyOfTheBucket(t *testing.T) {
	const token = "aws:s3/bucketServerSideEncryptionConfigurationV2:BucketServerSideEncryptionConfigurationV2"
	s := keyed(settings.NodesGroups)
	s.EKS.Bucket.KMSKey = earlierKey
	v, err := record(s, false)
	if err != nil {
		t.Fatal(err)
	}
	const path = "rules[0].applyServerSideEncryptionByDefault.kmsMasterKeyId"
	wrong := slices.Concat(is(v.named(token, "data")[0], path, earlierKey), is(v.named(token, "code")[0], path, ownKey))
	if may := text(v.named(inlineType, "job-data")[0], "policy"); strings.Count(may, "kms:") != 3 ||
		!strings.Contains(may, earlierKey) {
		wrong = append(wrong, may)
	}
	s.EKS.Bucket = &settings.Bucket{Access: "write", Name: "team-data"}
	if v, err = record(s, false); err != nil {
		t.Fatal(err)
	}
	if may := text(v.named(inlineType, "job-data")[0], "policy"); strings.Contains(may, "kms:") {
		wrong = append(wrong, may)
	}
	for _, w := range append(wrong, v.missing...) {
		t.Error(w)
	}
}
