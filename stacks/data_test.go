//go:build !e2e

package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"

	"github.com/elasticdl/elasticdl/test/provider"
)

const bringsData = "command:local:Command dataset"

// The data is copied once, before the job is created; again only if the data set or the volume
// changes.
func TestData(t *testing.T) {
	for _, test := range []struct{ name, claim, volume, image string }{
		{"gke", "fileserver-claim", "instances/elasticdl-gke of ", "us-central1-docker.pkg.dev/"},
		{"eks", "efs-claim", "fs-", "123456789012.dkr.ecr."},
		{"minikube", "data-claim", "elasticdl-minikube/start-", "elasticdl/test-mnist:"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			e := start(t, test.name)
			if test.name != "minikube" {
				e.withFiles()
			}
			e.up()
			first := e.brought()
			if want := "dataset mnist --to=claim:" + test.claim +
				"/mnist --namespace=elasticdl --image_name=" + test.image; !strings.HasPrefix(first.said, want) {
				t.Errorf("brought by %s, want %s", first.said, want)
			}
			r := e.named("dataset")
			if environment := fmt.Sprint(r.Inputs["environment"],
				r.Outputs["environment"]); strings.Contains(environment, "apiVersion") ||
				strings.Count(environment, "ciphertext:") != 2 {
				t.Errorf("the state has the kubeconfig in clear: %s", environment)
			}
			if triggers, _ := r.Inputs["triggers"].([]any); len(triggers) != 4 ||
				!strings.Contains(fmt.Sprint(triggers[3]), test.volume) {
				t.Errorf("another volume has no data: %v", triggers)
			}
			e.comesBefore("dataset", "test-mnist-master")

			e.set("elasticdl:image.base", "debian:stable")
			did := fmt.Sprint(e.up())
			if !strings.Contains(did, "command:local:Command image") ||
				strings.Contains(did, bringsData) || e.brought() != first {
				t.Errorf("a new image brings the data again, or there is none:\n%s", did)
			}
			e.set("elasticdl:data.path", "other/mnist")
			e.expect("another directory", e.up(), "replace "+bringsData)
			then := e.brought()
			if !strings.Contains(then.said, "/other/mnist ") ||
				!strings.Contains(then.said, "--image_name="+test.image) || imageOf(then.said) == imageOf(first.said) {
				t.Errorf("brought by %s, after %s", then.said, first.said)
			}
			e.unchanged("the data is there")
			// Data that is removed from the stack's file is kept on the volume.
			e.set("elasticdl:data", nil)
			e.expect("no data", e.up(), "delete "+bringsData)
		})
	}
}

// Data of a bucket is written by this machine as soon as the bucket is there; the job and its
// checkpoints are in the same bucket, whose name has the account.
func TestDataInBucket(t *testing.T) {
	for _, test := range []struct{ name, bucket, query string }{
		{"gke", "gs://elasticdl-gke-data-" + provider.GoogleProject, ""},
		{"eks", "s3://elasticdl-eks-data-" + provider.AmazonAccount, "?region=" + provider.AmazonRegion},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			e := start(t, test.name)
			e.up()
			first := e.brought()
			want := "dataset mnist --to=" + test.bucket + "/mnist" + test.query
			if strings.TrimSpace(first.said) != want {
				t.Errorf("brought by %q, want %q", first.said, want)
			}
			e.comesBefore("dataset", "test-mnist-master")
			shown := e.outputs()
			j := e.job()
			for _, pair := range [][2]string{{fmt.Sprint(shown["bucket"]), test.bucket},
				{j.TrainingData, test.bucket + "/mnist/train" + test.query},
				{j.CheckpointDir, test.bucket + "/elasticdl-test-mnist/checkpoints" + test.query},
				{j.Output, test.bucket + "/elasticdl-test-mnist/model" + test.query}} {
				if pair[0] != pair[1] {
					t.Errorf("%s, want %s", pair[0], pair[1])
				}
			}
			if claim, ok := shown["claim"]; ok {
				t.Errorf("there is no volume, and the claim is %v", claim)
			}
			e.set("elasticdl:image.base", "debian:stable")
			if did := fmt.Sprint(e.up()); strings.Contains(did, bringsData) {
				t.Errorf("a new image brings the data again:\n%s", did)
			}
			e.set("elasticdl:data.path", "bucket://other/mnist")
			e.expect("another directory", e.up(), "replace "+bringsData)
			e.unchangedAfterRefresh("the data is there")

			// another setting of the bucket changes it in place
			e.set("elasticdl:"+test.name+".bucket.keepDeletedDays", 7)
			if did := e.up(); len(did) == 0 || len(did.only("replace ")) > 0 || len(did.only("delete ")) > 0 {
				t.Errorf("deleted objects are kept:\n%s", did)
			}
			e.unchangedAfterRefresh("deleted objects are kept")
			e.set("elasticdl:"+test.name+".bucket.expireDays", map[string]any{"elasticdl-other/": 30, "logs/": 7})
			if did := e.up(); len(did) != 1 || len(did.only("update ")) != 1 {
				t.Errorf("objects expire:\n%s", did)
			}
			e.unchangedAfterRefresh("objects expire")
			e.set("elasticdl:"+test.name+".bucket", nil)
			if did, err := e.tryPreview(); err == nil || !strings.Contains(err.Error(), "the stack has no bucket") {
				t.Errorf("the job has nowhere to read from: %v\n%s", err, did)
			}
		})
	}
}

func imageOf(said string) string {
	_, after, _ := strings.Cut(said, "--image_name=")
	name, _, _ := strings.Cut(after, " ")
	return name
}

// bringing records how data was copied, and the ID of the command.
type bringing struct{ said, id string }

func (e *engine) brought() bringing {
	e.Helper()
	r := e.named("dataset")
	said, _ := r.Outputs["stderr"].(string)
	return bringing{said, string(r.ID)}
}

// named returns a resource of the state by its name.
func (e *engine) named(name string) apitype.ResourceV3 {
	e.Helper()
	for _, r := range e.resources() {
		if r.URN.Name() == name {
			return r
		}
	}
	e.Fatalf("the state has no %s", name)
	return apitype.ResourceV3{}
}

// comesBefore checks that a resource exists before another is created.
func (e *engine) comesBefore(first, then string) {
	e.Helper()
	urn := e.named(first).URN
	if slices.Contains(e.named(then).Dependencies, urn) {
		return
	}
	e.Errorf("%s does not wait for %s", then, first)
}
