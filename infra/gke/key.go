package gke

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
)

// Laws of the stack's key:
//
//  1. All that the stack makes and that stores data is encrypted by it.
//  2. Storage that was made with another key keeps that key: no change of the setting replaces it.
//  3. The key exists already, and is never changed, protected or deleted: its owner lets Google's
//     agents use it.

// key returns the name of the key that encrypts what the stack makes; nil = Google's own keys.
func (p *parts) key() pulumi.StringInput {
	if p.args.Key != nil {
		return p.args.Key
	}
	if p.g.KMSKey == "" {
		return nil
	}
	return pulumi.String(p.g.KMSKey)
}

// keyPtr returns the stack's key for an optional argument.
func (p *parts) keyPtr() pulumi.StringPtrInput {
	key := p.key()
	if key == nil {
		return nil
	}
	return key.ToStringOutput().ToStringPtrOutput()
}

// bucketKey returns the key of new objects in the bucket that the stack makes; nil = Google's own.
func (p *parts) bucketKey() pulumi.StringInput {
	if key := p.g.Bucket.KMSKey; key != "" {
		return pulumi.String(key)
	}
	return p.key()
}

// encrypted adds the stack's key to the configuration of nodes, if it has one.
func (p *parts) encrypted(nodes pulumi.Map) pulumi.Map {
	if key := p.key(); key != nil {
		nodes["bootDiskKmsKey"] = key
	}
	return nodes
}

// lookUpKey expects a key that is ready to encrypt. The settings have checked its location.
func (p *parts) lookUpKey(expect infra.Expect) error {
	ring, name, _ := strings.Cut(p.g.KMSKey, "/cryptoKeys/")
	var is struct {
		Purpose   string `pulumi:"purpose"`
		Primaries []struct {
			State string `pulumi:"state"`
		} `pulumi:"primaries"`
	}
	err := p.invoke("gcp:kms/getKMSCryptoKey:getKMSCryptoKey", map[string]any{"keyRing": ring, "name": name}, &is)
	if err != nil {
		return fmt.Errorf("%w (cloudkms.cryptoKeys.get)", err)
	}
	if expect(is.Purpose == "ENCRYPT_DECRYPT", "its purpose is %s: expected a symmetric key: gcloud kms keys create "+
		"NAME --keyring=%s --purpose=encryption", is.Purpose, ring); is.Purpose != "ENCRYPT_DECRYPT" {
		return nil // others have no primary version
	}
	state := "missing"
	if len(is.Primaries) > 0 {
		state = is.Primaries[0].State
	}
	expect(state == "ENABLED", "its primary version is %s: expected ENABLED: gcloud kms keys versions enable VERSION "+
		"--key=%s", state, p.g.KMSKey)
	return nil
}

// keeps warns, also in a preview, if something was made with another key, which it keeps; "" =
// Google's own. Cure says how to get another.
func (p *parts) keeps(what string, is pulumi.StringOutput, cure string) {
	want := p.key()
	if want == nil {
		want = pulumi.String("")
	}
	pulumi.All(want, is).ApplyT(func(keys []any) error {
		want, is := keys[0].(string), keys[1].(string)
		if is == want {
			return nil
		}
		return p.ctx.Log.Warn(fmt.Sprintf("gke.kmsKey: %s: %s keep %s, with which they were made: %s",
			cmp.Or(want, "none"), what, cmp.Or(is, "a key of Google's own"), cure), nil)
	})
}

// text returns an optional text, and "" for none.
func text(of *string) string {
	if of == nil {
		return ""
	}
	return *of
}

// encryptSecrets has the control plane encrypt the cluster's secrets. Google changes the key in
// place. Without one the cluster keeps what it has: see [parts.secretsKeep].
func (p *parts) encryptSecrets(args pulumi.Map) {
	if key := p.key(); key != nil {
		args["databaseEncryption"] = pulumi.Map{"state": pulumi.String("ENCRYPTED"), "keyName": key}
	}
}

// secretsKeep warns if the setting is removed, and the cluster's secrets have a key.
func (p *parts) secretsKeep() {
	if p.key() != nil {
		return
	}
	is := p.cluster.DatabaseEncryption.ApplyT(func(is map[string]any) string {
		name, _ := is["keyName"].(string)
		return name
	}).(pulumi.StringOutput)
	p.keeps("the cluster's secrets", is, "gcloud container clusters update "+p.s.Name(maxCluster)+" --location="+
		p.g.Location+" --disable-database-encryption")
}
