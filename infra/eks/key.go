package eks

import (
	"cmp"
	"fmt"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/ecr"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/eks"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/iam"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
)

// Laws of the stack's key:
//
//  1. All that the stack makes and that stores data is encrypted by it.
//  2. Files, images and secrets keep the key with which they were made: no change of the setting
//     replaces storage or the cluster.
//  3. Each role has rights on this key alone.
//  4. The key exists already, and is never changed, protected or deleted.

// key returns the ARN of the key that encrypts what the stack makes; nil = Amazon's own keys.
func (p *parts) key() pulumi.StringInput {
	if p.args.Key != nil {
		return p.args.Key
	}
	if p.e.KMSKey == "" {
		return nil
	}
	return pulumi.String(p.e.KMSKey)
}

// orNone returns a key for a function of its text, which is "" if there is none.
func orNone(key pulumi.StringInput) pulumi.StringInput {
	if key == nil {
		return pulumi.String("")
	}
	return key
}

// keyPtr returns the stack's key for an optional argument.
func (p *parts) keyPtr() pulumi.StringPtrInput {
	key := p.key()
	if key == nil {
		return nil
	}
	return key.ToStringOutput().ToStringPtrOutput()
}

// encrypted adds the stack's key to inputs, if it has one.
func encrypted(inputs pulumi.Map, field string, key pulumi.StringInput) pulumi.Map {
	if key != nil {
		inputs[field] = key
	}
	return inputs
}

// bucketKey returns the key of the objects in the job's bucket, if the stack makes it, and
// otherwise the one by which its owner says that they are encrypted; nil = Amazon's own.
func (p *parts) bucketKey() pulumi.StringInput {
	switch b := p.e.Bucket; {
	case b.KMSKey != "":
		return pulumi.String(b.KMSKey)
	case b.Name != "":
		return nil
	}
	return p.key()
}

// lookUpKey expects a key that is ready to encrypt. The settings have checked its region.
func (p *parts) lookUpKey(expect infra.Expect) error {
	var is struct {
		Usage string `pulumi:"keyUsage"`
		Spec  string `pulumi:"customerMasterKeySpec"`
		State string `pulumi:"keyState"`
	}
	err := p.ask("aws:kms/getKey:getKey", map[string]any{"keyId": p.e.KMSKey}, &is)
	if err != nil {
		return fmt.Errorf("%w (kms:DescribeKey)", err)
	}
	const another = "expected a symmetric key to encrypt and decrypt: aws kms create-key --region %s makes one"
	expect(is.Usage == "ENCRYPT_DECRYPT", "its usage is %s: "+another, is.Usage, p.e.Region)
	expect(is.Spec == "SYMMETRIC_DEFAULT", "its kind is %s: "+another, is.Spec, p.e.Region)
	enable := "aws kms enable-key --region " + p.e.Region + " --key-id " + p.e.KMSKey
	switch is.State {
	case "Enabled":
	case "PendingDeletion":
		expect(false, "it is about to be deleted: aws kms cancel-key-deletion --region %s --key-id %s, and then %s",
			p.e.Region, p.e.KMSKey, enable)
	case "Disabled":
		expect(false, "it is disabled: %s", enable)
	default:
		expect(false, "its state is %s: expected Enabled", is.State)
	}
	return nil
}

// secretsTag is the tag of a cluster that has the key of its secrets, which Amazon's provider does
// not look up.
const secretsTag = "elasticdl.org/secrets-key"

// secretsKey returns the key of the cluster's secrets; nil = Amazon's own. A cluster that has one
// keeps it: Amazon never takes the encryption away again, nor changes its key.
func (p *parts) secretsKey() pulumi.StringInput {
	if is := p.live.secretsKey; is != "" {
		return pulumi.String(is)
	}
	return p.key()
}

// encryptSecrets sets the key of the cluster's secrets, and returns the paths of the cluster whose
// changes the engine must ignore: to take the encryption away would replace the cluster.
func (p *parts) encryptSecrets(args *eks.ClusterArgs) (ignored []string) {
	key := p.secretsKey()
	if key == nil {
		return []string{"encryptionConfig"}
	}
	p.keeps("the cluster's secrets", key.ToStringOutput(), "another key needs another stack")
	args.EncryptionConfig = &eks.ClusterEncryptionConfigArgs{
		Provider:  &eks.ClusterEncryptionConfigProviderArgs{KeyArn: key},
		Resources: pulumi.ToStringArray([]string{"secrets"}),
	}
	args.Tags = p.tags(p.name)
	args.Tags.(pulumi.StringMap)[secretsTag] = key
	return nil
}

// keeps warns, also in a preview, if something was made with another key, which it keeps. Cure says
// how to get another.
func (p *parts) keeps(what string, is pulumi.StringOutput, cure string) {
	pulumi.All(orNone(p.key()), is).ApplyT(func(keys []any) error {
		want, is := keys[0].(string), keys[1].(string)
		if is == want {
			return nil
		}
		return p.ctx.Log.Warn(fmt.Sprintf("eks.kmsKey: %s: %s keep %s, with which they were made: %s",
			cmp.Or(want, "none"), what, cmp.Or(is, "a key of Amazon's own"), cure), nil)
	})
}

// encryptedImages returns how the images of a registry are encrypted.
func (p *parts) encryptedImages() ecr.RepositoryEncryptionConfigurationArray {
	key := p.keyPtr()
	if key == nil {
		return nil
	}
	return ecr.RepositoryEncryptionConfigurationArray{&ecr.RepositoryEncryptionConfigurationArgs{
		EncryptionType: pulumi.String("KMS"), KmsKey: key}}
}

// keyOf returns the key of a registry; "" = one of Amazon's own.
func keyOf(images *ecr.Repository) pulumi.StringOutput {
	return images.EncryptionConfigurations.ApplyT(func(all []ecr.RepositoryEncryptionConfiguration) string {
		if len(all) == 0 || all[0].KmsKey == nil {
			return ""
		}
		return *all[0].KmsKey
	}).(pulumi.StringOutput)
}

// mayUseKey gives the role of the control plane the rights on the key of secrets, and in Auto Mode
// on that of the nodes' disks.
func (p *parts) mayUseKey(role *iam.Role) (rights []pulumi.Resource, err error) {
	secrets := p.secretsKey()
	if secrets == nil {
		return nil, nil
	}
	var disks pulumi.StringInput
	if p.e.Nodes == settings.NodesAuto {
		disks = p.key()
	}
	may, err := p.register("aws:iam/rolePolicy:RolePolicy", "cluster-key", pulumi.Map{"role": role.Name,
		"policy": pulumi.All(secrets, orNone(disks)).ApplyT(func(keys []any) string {
			all := []statement{{Effect: "Allow", Action: []string{"kms:Encrypt", "kms:Decrypt", "kms:DescribeKey",
				"kms:ListGrants"}, Resource: []string{keys[0].(string)}}}
			return document(append(all, diskRights(keys[1].(string))...)...)
		}).(pulumi.StringOutput)})
	return []pulumi.Resource{may}, err
}

// diskRights returns the rights on a key of a role that makes nodes whose disks the key encrypts;
// none without a key.
//
// Source: https://docs.aws.amazon.com/eks/latest/userguide/auto-kms.html.
func diskRights(key string) []statement {
	if key == "" {
		return nil
	}
	return []statement{
		{Effect: "Allow", Action: []string{"kms:Encrypt", "kms:Decrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*",
			"kms:DescribeKey"}, Resource: []string{key}},
		// only a service of Amazon gets a grant
		{Effect: "Allow", Action: []string{"kms:CreateGrant", "kms:ListGrants", "kms:RevokeGrant"},
			Resource: []string{key}, Condition: map[string]any{"Bool": map[string]string{
				"kms:GrantIsForAWSResource": "true"}}},
	}
}
