//go:build !e2e

package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/test/provider"
)

// A stack uses parts that exist already, and leaves them as they were: it protects none of it, so
// that `pulumi destroy` needs no other setting and deletes only what the stack has made.
func TestExistingParts(t *testing.T) {
	for name, test := range map[string]struct {
		set change
		// what the preview says of parts that are not there
		set404  change
		refused []string
		bucket  string
		none    []string
		// what the preview says of parts that are there
		warns []string
		// of what the costs are not known
		lacks string
	}{
		"gke": {set: merge(inSubnet, inGKE("bucket", change{"name": provider.ExistingBucket}),
			inGKE("filestore", change{"name": provider.ExistingInstance}), inGKE("registry", provider.ExistingImages),
			inGKE("nodeAccount", provider.ExistingNodeAccount)),
			set404: merge(inSubnet,
				inGKE("nodeAccount", strings.Replace(provider.ExistingNodeAccount, "nodes", "nobody", 1)),
				inGKE("subnet.name", "no-such-subnet"), inGKE("registry", "no-such-images"),
				inGKE("bucket", change{"name": "no-such-bucket"}),
				inGKE("filestore", change{"name": "no-such-files"})),
			refused: []string{"elasticdl:gke.bucket.name: no-such-bucket: look it up: ", "(storage.buckets.get)",
				"elasticdl:gke.registry: no-such-images: look it up: ", "(iam.serviceAccounts.get)",
				"elasticdl:gke.subnet.name: no-such-subnet: look it up: ",
				"elasticdl:gke.filestore.name: no-such-files: look it up: "},
			bucket: "gs://" + provider.ExistingBucket,
			warns: []string{"gke.nodeAccount: " + provider.ExistingNodeAccount + ": project " + provider.GoogleProject +
				" does not give it roles/autoscaling.metricsWriter, ", "gke.nodeAccount: it has to be able to read " +
				"gke.registry"},
			lacks: "[bucket, by use Filestore " + provider.ExistingInstance + "]",
			none: []string{"gcp:storage/bucket:Bucket ", "gcp:compute/", "gcp:filestore/",
				"gcp:artifactregistry/repository:Repository "}},
		"eks": {set: merge(elsewhere.set, inEKS("bucket", change{"name": provider.ExistingBucket}),
			inEKS("efs", change{"id": provider.ExistingFiles}), inEKS("codeBucket", false),
			inEKS("registry", provider.ExistingRegistry), inEKS("nodeRole", provider.ExistingNodeRole)),
			set404: merge(elsewhere.set, inEKS("registry", "no-such-team"),
				inEKS("nodeRole", "arn:aws:iam::123456789012:role/no-such-role"),
				inEKS("bucket", change{"name": "no-such-bucket"}),
				inEKS("efs", change{"id": "fs-0a1b2c3d"})),
			refused: []string{"elasticdl:eks.bucket.name: no-such-bucket: look it up: ", "(s3:ListBucket)",
				"elasticdl:eks.registry: no-such-team/test-mnist: look it up: ",
				"aws ecr create-repository --region us-west-2 --repository-name no-such-team/test-mnist",
				"elasticdl:eks.nodeRole: arn:aws:iam::123456789012:role/no-such-role: look it up: ",
				"elasticdl:eks.efs.id: fs-0a1b2c3d: look it up: "},
			bucket: "s3://" + provider.ExistingBucket, lacks: "bucket, by use EFS, by use",
			none: []string{"aws:s3/", "aws:efs/fileSystem:FileSystem ", "aws:efs/mountTarget:MountTarget ",
				"aws:ecr/"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := start(t, name)
			e.setAll(test.set404)
			did, err := e.tryPreview()
			for _, want := range test.refused {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("parts that are not there: %v\n%s\nexpected %s", err, did, want)
				}
			}
			e.setAll(test.set)
			if is, err := e.stack.Preview(t.Context()); err != nil {
				t.Error(err)
			} else {
				_, text, _ := strings.Cut(is.StdOut, "Diagnostics:")
				for _, want := range test.warns {
					if strings.Count(text, want) != 1 {
						t.Errorf("the preview says not once %s:\n%s", want, text)
					}
				}
			}
			e.up()
			for _, r := range e.resources() {
				of := string(r.Type) + " " + r.URN.Name()
				for _, kind := range test.none {
					if strings.HasPrefix(of, kind) {
						t.Errorf("the stack has made %s", of)
					}
				}
			}
			if is := e.outputs()["bucket"]; is != test.bucket {
				t.Errorf("the bucket is %v", is)
			}
			if lack := fmt.Sprint(e.outputs()["costLacks"]); !strings.Contains(lack, test.lacks) {
				t.Errorf("the costs lack %s", lack)
			}
			if at := e.job().TrainingData; !strings.HasPrefix(at, test.bucket+"/mnist/train") {
				t.Errorf("the job reads %s", at)
			}
			e.unchangedAfterRefresh("parts that exist already")
			if did := e.destroy(); len(did.only("delete ")) == 0 {
				t.Errorf("nothing is deleted:\n%s", did)
			}
			if left := e.cloud.Left(); len(left) > 0 {
				t.Errorf("it has left %v", left)
			}
		})
	}
}
