package gke

import (
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/test/graph"
)

// withParts returns the settings of a stack whose parts exist already.
func withParts() *settings.Settings {
	s := configured()
	s.GKE.Bucket = &settings.GKEBucket{Bucket: settings.Bucket{Access: "write", Name: "team-data"}}
	return s
}

// callOfParts returns the answers to look-ups of parts that exist already.
func callOfParts(token string, args resource.PropertyMap) resource.PropertyMap {
	m := map[string]any{}
	switch token {
	case "gcp:storage/getBucket:getBucket":
		m = map[string]any{"name": args["name"].StringValue(), "publicAccessPrevention": "enforced",
			"uniformBucketLevelAccess": true, "requesterPays": false}
	}
	return resource.NewPropertyMapFromMap(m)
}

// The job's account has a role on a bucket that exists already; the stack makes no bucket.
func TestExistingBucket(t *testing.T) {
	all, c := record(t, withParts(), false)
	if len(of(all, typeBucket)) > 0 {
		t.Error("there is another bucket")
	}
	want(t, find(t, all, typeBucketMember, "job-data-objectUser"), "bucket=team-data", "role=roles/storage.objectUser",
		"member=serviceAccount:elasticdl-test-job@acme.iam.gserviceaccount.com")
	if c.Bucket.URL("a") != "gs://team-data/a" || c.Bucket.Assumed != "team-data" || len(c.Bucket.Ready) > 0 {
		t.Errorf("%+v", c.Bucket)
	}
}

// Parts that do not fit are refused before any resource is requested.
func TestPartsThatDoNotFit(t *testing.T) {
	for name, test := range map[string]struct {
		token string
		with  map[string]any
		want  string
	}{
		"a public bucket": {"gcp:storage/getBucket:getBucket", map[string]any{"publicAccessPrevention": "inherited"},
			"gke.bucket.name: team-data: objects of it may be made public: gcloud storage buckets update " +
				"gs://team-data --public-access-prevention"},
		"a bucket with ACLs": {"gcp:storage/getBucket:getBucket", map[string]any{"uniformBucketLevelAccess": false},
			"objects of it may have ACLs: gcloud storage buckets update gs://team-data --uniform-bucket-level-access"},
		"a bucket whose readers pay": {"gcp:storage/getBucket:getBucket", map[string]any{"requesterPays": true},
			"gcloud storage buckets update gs://team-data --no-requester-pays"},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := graph.Cloud{Preview: true}
			cloud.Call = func(token string, args resource.PropertyMap) resource.PropertyMap {
				result := call(token, args)
				if token == test.token {
					for key, value := range test.with {
						result[resource.PropertyKey(key)] = resource.NewPropertyValue(value)
					}
				}
				return result
			}
			all, err := graph.Record(cloud, func(ctx *pulumi.Context) error {
				_, err := New(ctx, withParts())
				return err
			})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
			if len(all) > 0 {
				t.Errorf("%d resources were requested before", len(all))
			}
		})
	}
}
