package gke

import (
	"strings"

	"github.com/pulumi/pulumi-gcp/sdk/v7/go/gcp/serviceaccount"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
)

// day has the seconds of a day.
const day = 24 * 60 * 60

// addBucket creates the bucket for the job's data, checkpoints and models, or uses one that exists
// already.
func (p *parts) addBucket() error {
	b := p.g.Bucket
	if b == nil {
		return nil
	}
	store := p.s.Store(settings.NoAccount)
	if b.Name != "" {
		p.bucket = &infra.Bucket{Store: *store, Assumed: store.Name, ID: pulumi.String(b.Name)}
		return nil
	}
	args := pulumi.Map{
		"name": pulumi.String(store.Name),
		// Google returns capital letters, and another location would replace the bucket
		"location":                 pulumi.String(strings.ToUpper(b.Location)),
		"uniformBucketLevelAccess": pulumi.Bool(true), // no object has an ACL of its own
		"publicAccessPrevention":   pulumi.String("enforced"),
		"softDeletePolicy":         pulumi.Map{"retentionDurationSeconds": pulumi.Int(b.KeepDeletedDays * day)},
		"forceDestroy":             pulumi.Bool(!p.s.ProtectStorage),
		"labels":                   p.labels(),
	}
	if key := p.bucketKey(); key != nil {
		args["encryption"] = pulumi.Map{"defaultKmsKeyName": key}
	}
	if b.StorageClass != "" {
		args["storageClass"] = pulumi.String(b.StorageClass)
	}
	var rules pulumi.Array
	for _, of := range b.Expiries() {
		rules = append(rules, pulumi.Map{"action": pulumi.Map{"type": pulumi.String("Delete")},
			"condition": pulumi.Map{"age": pulumi.Int(of.Days),
				"matchesPrefixes": pulumi.ToStringArray([]string{of.Prefix})}})
	}
	if len(rules) > 0 {
		args["lifecycleRules"] = rules
	}
	bucket := new(computed)
	err := p.register("gcp:storage/bucket:Bucket", "data", args, bucket,
		p.named(pulumi.DependsOn(p.services), pulumi.Protect(p.s.ProtectStorage)))
	p.bucket = &infra.Bucket{Store: *store, Assumed: store.Name, ID: bucket.ID(), Ready: []pulumi.Resource{bucket}}
	p.mounted = append(p.mounted, bucket)
	return err
}

// openBucket grants the account of a job a role on the bucket.
func (p *parts) openBucket(name string, account *serviceaccount.Account) (pulumi.Resource, error) {
	role := "objectUser"
	if p.g.Bucket.ReadOnly() {
		role = "objectViewer"
	}
	member := new(pulumi.CustomResourceState)
	// named by the role: another one is granted before this is taken away
	return member, p.register("gcp:storage/bucketIAMMember:BucketIAMMember", name+"-data-"+role, pulumi.Map{
		"bucket": p.bucket.ID, "role": pulumi.String("roles/storage." + role), "member": account.Member,
	}, member, p.options())
}
