package gke

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/test/graph"
)

const (
	typeBucket       = "gcp:storage/bucket:Bucket"
	typeBucketMember = "gcp:storage/bucketIAMMember:BucketIAMMember"
)

// No bucket is public, and none is deleted with data in it unless the stack says that storage may
// be deleted. Nodes are deleted before the bucket to which their pods write.
func TestBucket(t *testing.T) {
	each(t, func(t *testing.T, s *settings.Settings, all []graph.Resource) {
		if s.GKE.Bucket == nil {
			if len(of(all, typeBucket)) > 0 {
				t.Error("there is a bucket that nobody asked for")
			}
			return
		}
		b := find(t, all, typeBucket, "data")
		want(t, b, "name=elasticdl-test-data-acme", "location=US-CENTRAL1", "uniformBucketLevelAccess=true",
			"publicAccessPrevention=enforced", "softDeletePolicy.retentionDurationSeconds=604800",
			fmt.Sprintf("forceDestroy=%t", !s.ProtectStorage), "encryption", "lifecycleRules",
			`labels["cost-center"]=ml`)
		if b.Options.Protect != s.ProtectStorage || !b.Options.DeleteBeforeReplace ||
			!slices.Contains(b.Options.DependsOn, "gcp:projects/service:Service storage") {
			t.Errorf("%+v", b.Options)
		}
		for _, p := range of(all, typePool) {
			if !slices.Contains(p.Options.DependsOn, typeBucket+" data") {
				t.Errorf("%s is deleted after the bucket", p.Name)
			}
		}
	})
	s := configured()
	s.ProtectStorage = false
	s.GKE.Bucket.KeepDeletedDays, s.GKE.Bucket.Location = 0, "eu"
	s.GKE.Bucket.KMSKey = "projects/p/locations/eu/keyRings/r/cryptoKeys/k"
	b := find(t, first(record(t, s, false)), typeBucket, "data")
	want(t, b, "forceDestroy=true", "softDeletePolicy.retentionDurationSeconds=0", "location=EU",
		"encryption.defaultKmsKeyName="+s.GKE.Bucket.KMSKey)
	want(t, b, "storageClass", "lifecycleRules")
	if b.Options.Protect {
		t.Error("storage that may be deleted is protected")
	}
	s.GKE.Bucket.StorageClass = "NEARLINE"
	s.GKE.Bucket.ExpireDays = map[string]int{"logs/": 90, "elasticdl-mnist/checkpoints/": 14}
	b = find(t, first(record(t, s, false)), typeBucket, "data")
	want(t, b, "storageClass=NEARLINE", "lifecycleRules[0].action.type=Delete", "lifecycleRules[0].condition.age=14",
		"lifecycleRules[0].condition.matchesPrefixes[0]=elasticdl-mnist/checkpoints/",
		"lifecycleRules[0].condition.matchesPrefixes[1]", "lifecycleRules[1].condition.age=90",
		"lifecycleRules[1].condition.matchesPrefixes[0]=logs/", "lifecycleRules[2]")
}

// The job's account has one role, on the bucket of the stack and on no other, and no pod starts
// before. Nodes have none.
func TestBucketRole(t *testing.T) {
	for access, role := range map[string]string{"write": "objectUser", "read": "objectViewer"} {
		s := configured()
		s.GKE.Bucket.Access, s.GKE.JobRoles = access, nil
		all, c := record(t, s, false)
		members := of(all, typeBucketMember)
		if len(members) != 1 {
			t.Fatalf("%d members", len(members))
		}
		want(t, &members[0], "bucket=data-id", "role=roles/storage."+role,
			"member=serviceAccount:elasticdl-test-job@acme.iam.gserviceaccount.com")
		object := find(t, all, "kubernetes:core/v1:ServiceAccount", "cluster")
		if !slices.Contains(object.Options.DependsOn, typeBucketMember+" job-data-"+role) {
			t.Error("a pod starts before it may use the bucket")
		}
		for _, m := range of(all, typeRole) {
			if strings.Contains(at(t, &m, "role").StringValue(), "storage") {
				t.Errorf("%s has a role on all buckets of the project", m.Name)
			}
		}
		if c.Bucket.URL("a/b") != "gs://elasticdl-test-data-acme/a/b" || c.Bucket.Name != c.Bucket.Assumed {
			t.Errorf("%+v", c.Bucket)
		}
	}
	s := configured()
	s.Job = nil
	if all := first(record(t, s, false)); len(of(all, typeBucketMember)) > 0 || len(of(all, typeBucket)) != 1 {
		t.Error("a stack without a job needs no role, and keeps its bucket")
	}
}
