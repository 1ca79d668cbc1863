package incluster

import (
	"context"
	"os"

	"github.com/go-jose/go-jose/v4/jwt"
	batch "k8s.io/api/batch/v1"
	api "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/observe"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
)

// owner returns the job as owner of checkpoint directories.
func (m *kubeMaster) owner() checkpoint.Owner {
	return checkpoint.Owner{Job: m.env[job.EnvUID], Name: m.Job, Namespace: m.Namespace, Cluster: m.cluster}
}

// clusterOf returns an identity of the cluster: that of the key which it signs ServiceAccount
// tokens with. No two clusters have the same. It is "" if there is no token: then nobody can prove
// that the job has ended.
func clusterOf(file string) string {
	token, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	t, err := jwt.ParseSigned(string(token), algorithms)
	if err != nil || len(t.Headers) != 1 {
		return ""
	}
	return t.Headers[0].KeyID
}

// standing finds out whether an owner of a checkpoint directory lives, if it is a job of this
// namespace and cluster whose Job this master may read. An owner is dead if its UID no longer
// exists, or if it has ended.
func (m *kubeMaster) standing(ctx context.Context, o checkpoint.Owner) checkpoint.Standing {
	here := m.owner()
	if o.Cluster == "" || o.Cluster != here.Cluster || o.Namespace != here.Namespace || o.Name == "" {
		return checkpoint.Unknown
	}
	ctx, cancel := context.WithTimeout(ctx, leaveLimit)
	defer cancel()
	root, err := m.Client.BatchV1().Jobs(m.Namespace).Get(ctx, manifest.MasterName(o.Name), meta.GetOptions{})
	switch {
	case api.IsNotFound(err):
		return checkpoint.Dead
	case err != nil:
		return checkpoint.Unknown
	}
	return standingOf(root, o)
}

// standingOf returns what a Job of the owner's name tells of the owner.
func standingOf(root *batch.Job, o checkpoint.Owner) checkpoint.Standing {
	switch {
	case string(root.UID) != o.Job, observe.JobCondition(root, batch.JobComplete) != nil,
		observe.JobCondition(root, batch.JobFailed) != nil:
		return checkpoint.Dead
	case observe.Suspended(root):
		return checkpoint.Suspended
	}
	return checkpoint.Alive
}
