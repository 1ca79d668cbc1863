package eks

import (
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// withParts returns the settings of a stack with a job, all of whose storage exists already.
func withParts() *settings.Settings {
	s := existing()
	s.Job, s.ProtectStorage = own().Job, true
	s.EKS.EFS = &settings.EFS{ID: "fs-1", UID: new(65532)}
	return s
}

// The stack uses a file system that exists already, and makes none. Its nodes reach each mount
// target by a rule of the stack's own, which is open to them only, and is deleted after them.
func TestExistingFiles(t *testing.T) {
	for _, preview := range []bool{true, false} {
		v, err := record(withParts(), preview)
		if err != nil {
			t.Fatal(err)
		}
		wrong := slices.Concat(count(v.of(fileType), 0), count(v.of(mountType), 0), count(v.of(ruleType), 2),
			count(v.of(sgType), 0), is(v.named(pointType, "data")[0], "fileSystemId", "fs-1"))
		source := "sg-cluster"
		if preview {
			source = "(unknown)"
		}
		for _, group := range []string{"sg-1", "sg-2"} {
			r := v.named(ruleType, group)[0]
			for path, want := range map[string]string{"securityGroupId": group, "ipProtocol": "tcp",
				"fromPort": "2049", "toPort": "2049", "cidrIpv4": "<none>", "referencedSecurityGroupId": source} {
				wrong = append(wrong, is(r, path, want)...)
			}
			wrong = append(wrong, v.wait(v.of(groupType), r)...)
			if !slices.Contains(v.ready, ruleType+" "+group) {
				wrong = append(wrong, "no pod waits for "+group)
			}
		}
		for _, r := range v.all {
			if r.Options.Protect && r.Type != repoType {
				wrong = append(wrong, r.Type+" "+r.Name+" is protected")
			}
		}
		if got := v.texts["{file-system}"]; got != "fs-1" {
			wrong = append(wrong, "the volume is of "+got)
		}
		for _, problem := range append(wrong, v.missing...) {
			t.Error(problem)
		}
	}
}

// Parts that do not fit are refused before any resource is requested, with all reasons.
func TestPartsThatDoNotFit(t *testing.T) {
	for name, test := range map[string]struct {
		token string
		with  resource.PropertyMap
		want  string
	}{
		"files in clear": {"aws:efs/getFileSystem:getFileSystem", props("encrypted", false),
			"eks.efs.id: fs-1: it is not encrypted, which cannot change: copy the files to one that is"},
		"no mount targets": {"aws:ec2/getNetworkInterfaces:getNetworkInterfaces", props("ids", []any{"eni-c"}),
			"eks.efs.id: fs-1: it has no mount target of vpc-1 in us-west-2b, us-west-2a, where nodes are: make one, " +
				"aws efs create-mount-target --file-system-id fs-1 --subnet-id SUBNET"},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := record(withParts(), true, func(token string, _, result resource.PropertyMap) {
				if token == test.token {
					for key, value := range test.with {
						result[key] = value
					}
				}
			})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
			if len(v.all) > 0 {
				t.Errorf("%d resources were requested before", len(v.all))
			}
		})
	}
}
