//go:build e2e

package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A job whose pods the cluster would never create, or no node could run, is refused at submission
// with the reason, and nothing of it is created.
func TestImpossibleJobsAreRefused(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	ns.apply(filepath.Join("testdata", "limit.yaml"))
	little := []string{
		"train", "--job_name=impossible", "--image_name=" + image, mlp,
		"--training_data=/data/mnist/train", "--volume=host_path=" + digits + ",mount_path=/data",
		"--master_resource_request=cpu=20m,memory=64Mi", "--ps_resource_request=cpu=20m,memory=64Mi",
		"--worker_resource_request=cpu=20m,memory=64Mi",
	}
	for name, c := range map[string]struct {
		flags []string
		want  string
	}{
		"LimitRange": {[]string{"--worker_resource_limit=cpu=1,memory=1Gi"},
			"refuses pods of role worker: .*maximum memory usage per Container is 256Mi"},
		"node selector": {[]string{"--node_selector=disktype=none"},
			"no node of the cluster can run a pod of role worker: none has the labels disktype=none"},
		"too large": {[]string{"--worker_resource_request=cpu=900,memory=64Mi",
			"--worker_resource_limit=cpu=900,memory=64Mi"},
			"it asks for cpu=900, and the nodes that it may use have at most"},
	} {
		out, err := ns.try(*elasticdl, slices.Concat(little, c.flags)...)
		if exitCode(err) != 2 || len(grep(out, c.want)) == 0 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	if out := ns.kubectl("get", "jobs,configmaps,pods", "-l", "app=elasticdl", "-o",
		"name"); strings.TrimSpace(out) != "" {
		t.Errorf("something was created: %s", out)
	}
	if out, err := ns.try(*elasticdl, append(little, "--dry_run")...); err != nil {
		t.Errorf("a job that fits: %v\n%s", err, out)
	}
}
