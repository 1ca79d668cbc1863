package gke

import (
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
)

// given returns the parts that exist already.
func (p *parts) given() (all []infra.Part) {
	if b := p.g.Bucket; b != nil {
		all = append(all, infra.Part{Path: "gke.bucket.name", Name: b.Name, Find: p.lookUpBucket})
	}
	return all
}

// invoke calls a function of Google's provider.
func (p *parts) invoke(token string, args map[string]any, into any) error {
	return p.ctx.Invoke(token, args, into, pulumi.Version(sdkVersion))
}

// lookUpBucket expects a bucket that is private, as the stack's own would be, and in which the
// job's role is not overruled by ACLs of objects.
func (p *parts) lookUpBucket(expect infra.Expect) error {
	name := p.g.Bucket.Name
	var is struct {
		Prevention    string `pulumi:"publicAccessPrevention"`
		Uniform       bool   `pulumi:"uniformBucketLevelAccess"`
		RequesterPays bool   `pulumi:"requesterPays"`
	}
	if err := p.invoke("gcp:storage/getBucket:getBucket", map[string]any{"name": name}, &is); err != nil {
		return fmt.Errorf("%w (storage.buckets.get)", err)
	}
	expect(is.Prevention == "enforced", "objects of it may be made public: gcloud storage buckets update gs://%s "+
		"--public-access-prevention", name)
	expect(is.Uniform, "objects of it may have ACLs: gcloud storage buckets update gs://%s "+
		"--uniform-bucket-level-access", name)
	expect(!is.RequesterPays, "who reads it pays, and the job names no project that does: gcloud storage buckets "+
		"update gs://%s --no-requester-pays", name)
	return nil
}
