package eks

import (
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// Objects expire by the prefixes of the settings, each by a rule of its own, and no others.
func TestExpiry(t *testing.T) {
	s := own()
	s.EKS.Bucket.ExpireDays = map[string]int{"logs/": 90, "elasticdl-mnist/checkpoints/": 14}
	v, err := record(s, false)
	if err != nil {
		t.Fatal(err)
	}
	e := v.named(expiryType, "data")[0]
	for _, wrong := range [][]string{
		is(e, "rules[1].noncurrentVersionExpiration.noncurrentDays", "7"), is(e, "rules[1].expiration", "<none>"),
		is(e, "rules[2].id", "expire elasticdl-mnist/checkpoints/"), is(e, "rules[2].status", "Enabled"),
		is(e, "rules[2].filter.prefix", "elasticdl-mnist/checkpoints/"), is(e, "rules[2].expiration.days", "14"),
		is(e, "rules[3].filter.prefix", "logs/"), is(e, "rules[3].expiration.days", "90"),
		is(e, "rules[4]", "<none>"), v.missing,
	} {
		for _, problem := range wrong {
			t.Error(problem)
		}
	}
}

// The bucket follows its settings: a job that only reads, no old versions, a key of the account.
func TestBucketSettings(t *testing.T) {
	const key = "arn:aws:kms:us-west-2:123456789012:key/0-a"
	s := own()
	s.EKS.Bucket = &settings.Bucket{Access: "read", KMSKey: key}
	s.EKS.CodeBucket, s.EKS.JobPolicies = false, nil
	v, err := record(s, false)
	if err != nil {
		t.Fatal(err)
	}
	may := v.named(inlineType, "job-data")[0]
	encrypted := v.named("aws:s3/bucketServerSideEncryptionConfigurationV2:BucketServerSideEncryptionConfigurationV2",
		"data")[0]
	versions := v.named("aws:s3/bucketVersioningV2:BucketVersioningV2", "data")[0]
	for _, wrong := range [][]string{
		is(may, "policy", `{"Version":"2012-10-17","Statement":[`+
			`{"Effect":"Allow","Action":["s3:GetObject"],"Resource":["arn:aws:s3:::elasticdl-test-data-123456789012/*"]},`+
			`{"Effect":"Allow","Action":["s3:ListBucket"],"Resource":["arn:aws:s3:::elasticdl-test-data-123456789012"]},`+
			`{"Effect":"Allow","Action":["kms:Decrypt"],"Resource":["`+key+`"]}]}`),
		is(encrypted, "rules[0].applyServerSideEncryptionByDefault.sseAlgorithm", "aws:kms"),
		is(encrypted, "rules[0].applyServerSideEncryptionByDefault.kmsMasterKeyId", key),
		is(encrypted, "rules[0].bucketKeyEnabled", "true"),
		is(versions, "versioningConfiguration.status", "Suspended"),
		is(v.named(expiryType, "data")[0], "rules[1]", "<none>"),
		count(v.of(isType), 1), v.missing,
	} {
		for _, problem := range wrong {
			t.Error(problem)
		}
	}
	if c := v.cluster; c.Bucket.URL("m") != "s3://elasticdl-test-data-123456789012/m?region=us-west-2" ||
		c.Bucket.Assumed != "elasticdl-test-data-"+settings.NoAccount || len(c.Bucket.Ready) != 5 {
		t.Errorf("%+v", c.Bucket)
	}
	if write := bucketPolicy("arn:aws:s3:::b", key, &settings.Bucket{}); !strings.Contains(write,
		`"Action":["kms:Decrypt","kms:GenerateDataKey"],"Resource":["`+key+`"]`) {
		t.Error(write)
	}
}
