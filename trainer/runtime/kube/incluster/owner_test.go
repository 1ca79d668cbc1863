package incluster

import (
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"testing"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/elasticdl/elasticdl/test/kubetest"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
)

// An owner is dead only if that is proved: its Job was in this cluster and namespace, and is there
// no more, has another UID, or has ended. Whatever cannot be known is no proof.
func TestStandingOfAnOwner(t *testing.T) {
	ended := func(kind batch.JobConditionType) func(*batch.Job) {
		return func(j *batch.Job) {
			j.Status.Conditions = []batch.JobCondition{{Type: kind, Status: core.ConditionTrue}}
		}
	}
	for name, c := range map[string]struct {
		// nil: unchanged
		owner func(*checkpoint.Owner)
		// nil: unchanged
		change func(*batch.Job)
		// its Job is
		absent bool
		// the API server does
		fails bool
		// this master knows no identity of its cluster
		alone bool
		want  checkpoint.Standing
	}{
		"it runs": {want: checkpoint.Alive},
		"suspended": {change: func(j *batch.Job) {
			j.Spec.Suspend = new(true)
		}, want: checkpoint.Suspended},
		"complete":                 {change: ended(batch.JobComplete), want: checkpoint.Dead},
		"failed":                   {change: ended(batch.JobFailed), want: checkpoint.Dead},
		"about to fail, with pods": {change: ended(batch.JobFailureTarget), want: checkpoint.Alive},
		"failed and suspended": {change: func(j *batch.Job) {
			ended(batch.JobFailed)(j)
			j.Spec.Suspend = new(true)
		}, want: checkpoint.Dead},
		"another Job of the name": {change: func(j *batch.Job) { j.UID = "later" }, want: checkpoint.Dead},
		"another one, suspended": {change: func(j *batch.Job) {
			j.UID, j.Spec.Suspend = "later", new(true)
		}, want: checkpoint.Dead},
		"being deleted": {change: func(j *batch.Job) {
			j.DeletionTimestamp = new(meta.Now())
		}, want: checkpoint.Alive},
		"no longer failed": {change: func(j *batch.Job) {
			ended(batch.JobFailed)(j)
			j.Status.Conditions[0].Status = core.ConditionFalse
		}, want: checkpoint.Alive},
		"its cluster is not known": {owner: func(o *checkpoint.Owner) {
			o.Cluster = ""
		}, absent: true, want: checkpoint.Unknown},
		"this cluster is not known": {alone: true, absent: true, want: checkpoint.Unknown},
		"deleted":                   {absent: true, want: checkpoint.Dead},
		"not readable":              {fails: true, want: checkpoint.Unknown},
		"another cluster": {owner: func(o *checkpoint.Owner) {
			o.Cluster = "other"
		}, absent: true, want: checkpoint.Unknown},
		"another namespace": {owner: func(o *checkpoint.Owner) {
			o.Namespace = "other"
		}, absent: true, want: checkpoint.Unknown},
		"of a machine": {owner: func(o *checkpoint.Owner) {
			*o = checkpoint.Owner{Job: "first", Name: "j", Host: "h"}
		}, absent: true, want: checkpoint.Unknown},
		"without a name": {owner: func(o *checkpoint.Owner) {
			o.Name = ""
		}, absent: true, want: checkpoint.Unknown},
		"neither cluster is known": {owner: func(o *checkpoint.Owner) {
			o.Cluster = ""
		}, alone: true, absent: true, want: checkpoint.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			root := &batch.Job{ObjectMeta: meta.ObjectMeta{Name: manifest.MasterName("j"),
				Namespace: "default", UID: "first"}}
			if c.change != nil {
				c.change(root)
			}
			set := fake.NewClientset()
			if !c.absent {
				set = fake.NewClientset(root)
			}
			if c.fails {
				set.PrependReactor("get", "jobs", func(kubetesting.Action) (bool, runtime.Object, error) {
					return true, nil, errors.New("no answer")
				})
			}
			m := authorityMaster(kubetest.Set(set), nil)
			m.cluster = "c"
			if c.alone {
				m.cluster = ""
			}
			owner := checkpoint.Owner{Job: "first", Name: "j", Namespace: "default", Cluster: "c"}
			if c.owner != nil {
				c.owner(&owner)
			}
			if got := m.standing(t.Context(), owner); got != c.want {
				t.Errorf("%+v: %d, want %d", owner, got, c.want)
			}
		})
	}
}

// A cluster is known by the key that signs the tokens of its ServiceAccounts.
func TestClusterOfAToken(t *testing.T) {
	text := base64.RawURLEncoding.EncodeToString
	token := func(header string) string {
		return text([]byte(header)) + "." + text([]byte("{}")) + "." + text([]byte("signature"))
	}
	for content, want := range map[string]string{
		token(`{"alg":"RS256","kid":"k1"}`): "k1",
		token(`{"alg":"RS256"}`):            "",
		token(`{"alg":"none","kid":"k1"}`):  "",
		"no token":                          "",
		"":                                  "",
	} {
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := clusterOf(file); got != want {
			t.Errorf("%q: %q, want %q", content, got, want)
		}
	}
	if got := clusterOf(filepath.Join(t.TempDir(), "absent")); got != "" {
		t.Errorf("without a token: %q", got)
	}
}
