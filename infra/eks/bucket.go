package eks

import (
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/eks"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/iam"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
)

// addData creates the bucket for the job's data, checkpoints and models, or uses one that exists
// already.
func (p *parts) addData() error {
	b := p.e.Bucket
	if b == nil {
		return nil
	}
	store := p.s.Store(p.account)
	if b.Name != "" {
		p.data = pulumi.String(p.found)
		p.bucket = &infra.Bucket{Store: *store, Assumed: b.Name, ID: pulumi.String(b.Name)}
		return nil
	}
	bucket, of, err := p.addBucket("data", store.Name, p.bucketKey(), b.KeepDeletedDays > 0)
	if err != nil {
		return err
	}
	// uploads that were never completed are in no listing, and are billed
	rules := pulumi.Array{pulumi.Map{
		"id": pulumi.String("incomplete-uploads"), "status": pulumi.String("Enabled"), "filter": pulumi.Map{},
		"abortIncompleteMultipartUpload": pulumi.Map{"daysAfterInitiation": pulumi.Int(1)},
	}}
	if b.KeepDeletedDays > 0 {
		rules = append(rules, pulumi.Map{
			"id": pulumi.String("deleted-objects"), "status": pulumi.String("Enabled"), "filter": pulumi.Map{},
			"noncurrentVersionExpiration": pulumi.Map{"noncurrentDays": pulumi.Int(b.KeepDeletedDays)},
		})
	}
	for _, of := range b.Expiries() {
		rules = append(rules, pulumi.Map{
			"id": pulumi.String("expire " + of.Prefix), "status": pulumi.String("Enabled"),
			"filter":     pulumi.Map{"prefix": pulumi.String(of.Prefix)},
			"expiration": pulumi.Map{"days": pulumi.Int(of.Days)},
		})
	}
	expiry, err := p.register("aws:s3/bucketLifecycleConfigurationV2:BucketLifecycleConfigurationV2", "data",
		pulumi.Map{"bucket": bucket.ID(), "rules": rules}, pulumi.Protect(p.s.ProtectStorage), after(of))
	p.data = bucket.Arn
	p.bucket = &infra.Bucket{Store: *store, Assumed: p.s.Store(settings.NoAccount).Name, ID: bucket.ID(),
		Ready: append(of, bucket, expiry)}
	p.mounted = append(p.mounted, bucket)
	return err
}

// addCode creates the bucket for training code.
func (p *parts) addCode() error {
	if !p.e.CodeBucket {
		return nil
	}
	bucket, _, err := p.addBucket("code", p.s.Name(50, "code")+"-"+p.account, p.key(), true)
	if err != nil {
		return err
	}
	p.code, p.outputs["codeBucket"] = bucket.Arn, bucket.ID()
	return nil
}

// identify creates the role of a job's pods, which may read the bucket for code and use the one for
// data. Nodes may do neither.
func (p *parts) identify(name string, job infra.Account) (*infra.Identity, error) {
	role, err := p.newRole(name, trusts(pods))
	if err != nil {
		return nil, err
	}
	rights, err := p.attach(role, name, p.e.JobPolicies)
	if err != nil {
		return nil, err
	}
	for _, of := range []struct {
		name string
		arn  pulumi.StringInput
		of   *settings.Bucket
		key  func() pulumi.StringInput
	}{{name, p.code, &settings.Bucket{Access: "read"}, p.key}, {part(name, "data"), p.data, p.e.Bucket, p.bucketKey}} {
		if of.arn == nil {
			continue
		}
		may, err := p.open(of.name, role, of.arn, of.key(), of.of)
		if err != nil {
			return nil, err
		}
		rights = append(rights, may)
	}
	is, err := eks.NewPodIdentityAssociation(p.ctx, p.Child(name), &eks.PodIdentityAssociationArgs{
		ClusterName: p.cluster.Name, Namespace: pulumi.String(job.Namespace),
		ServiceAccount: pulumi.String(job.Name), RoleArn: role.Arn, Tags: p.tags(p.name),
	}, p.options(after(rights)))
	// pods that start before the association have no role
	return &infra.Identity{Ready: []pulumi.Resource{is}}, err
}

// part returns the name of a part of a job's identity. That of a stack is called job; the parts of
// two others have different names, whatever the jobs are called.
func part(identity, name string) string {
	if identity == "job" {
		return identity + "-" + name
	}
	return name + "-" + identity
}

// open lets a role use a bucket, and the key that encrypts its objects; nil = Amazon's own.
func (p *parts) open(name string, role *iam.Role, bucket, key pulumi.StringInput, of *settings.Bucket) (
	pulumi.Resource, error) {
	policy := pulumi.All(bucket, orNone(key)).ApplyT(func(arns []any) string {
		return bucketPolicy(arns[0].(string), arns[1].(string), of)
	}).(pulumi.StringOutput)
	return iam.NewRolePolicy(p.ctx, p.Child(name), &iam.RolePolicyArgs{Role: role.Name, Policy: policy}, p.options())
}

// bucketPolicy returns the rights of the job in a bucket whose objects a key encrypts; "" = one of
// Amazon's own.
func bucketPolicy(arn, key string, b *settings.Bucket) string {
	objects, uses := []string{"s3:GetObject"}, []string{"kms:Decrypt"}
	if !b.ReadOnly() {
		objects = append(objects, "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload")
		uses = append(uses, "kms:GenerateDataKey")
	}
	all := []statement{
		{Effect: "Allow", Action: objects, Resource: []string{arn + "/*"}},
		{Effect: "Allow", Action: []string{"s3:ListBucket"}, Resource: []string{arn}},
	}
	if key != "" {
		all = append(all, statement{Effect: "Allow", Action: uses, Resource: []string{key}})
	}
	return document(all...)
}

// addBucket creates a bucket that is private and encrypted, and returns its own settings, too. The
// name of the bucket is global. With versions, deleted and overwritten objects can be restored.
func (p *parts) addBucket(name, global string, key pulumi.StringInput, versions bool) (*untyped, []pulumi.Resource,
	error) {
	// protects also the bucket's settings, so that a bucket that is kept stays private
	kept := pulumi.Protect(p.s.ProtectStorage)
	bucket, err := p.register("aws:s3/bucketV2:BucketV2", name, pulumi.Map{
		"bucket":       pulumi.String(global),
		"forceDestroy": pulumi.Bool(!p.s.ProtectStorage),
		"tags":         p.tags(p.name + "-" + name),
	}, kept, pulumi.DeleteBeforeReplace(true))
	if err != nil {
		return nil, nil, err
	}
	status := "Suspended"
	if versions {
		status = "Enabled"
	}
	var all []pulumi.Resource
	for _, of := range []struct {
		token  string
		inputs pulumi.Map
	}{
		{"aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock", pulumi.Map{
			"blockPublicAcls": pulumi.Bool(true), "blockPublicPolicy": pulumi.Bool(true),
			"ignorePublicAcls": pulumi.Bool(true), "restrictPublicBuckets": pulumi.Bool(true),
		}},
		{"aws:s3/bucketServerSideEncryptionConfigurationV2:BucketServerSideEncryptionConfigurationV2",
			pulumi.Map{"rules": pulumi.Array{encryption(key)}}},
		{"aws:s3/bucketVersioningV2:BucketVersioningV2",
			pulumi.Map{"versioningConfiguration": pulumi.Map{"status": pulumi.String(status)}}},
	} {
		of.inputs["bucket"] = bucket.ID()
		r, err := p.register(of.token, name, of.inputs, kept)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, r)
	}
	return bucket, all, nil
}

// encryption returns the encryption of a bucket's objects: by a key of KMS, or by Amazon's own.
func encryption(key pulumi.StringInput) pulumi.Map {
	if key == nil {
		return pulumi.Map{"applyServerSideEncryptionByDefault": pulumi.Map{"sseAlgorithm": pulumi.String("AES256")}}
	}
	return pulumi.Map{
		"applyServerSideEncryptionByDefault": pulumi.Map{"sseAlgorithm": pulumi.String("aws:kms"),
			"kmsMasterKeyId": key},
		// one request of KMS serves many objects
		"bucketKeyEnabled": pulumi.Bool(true),
	}
}
