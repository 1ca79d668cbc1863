//go:build e2e

package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/test/torch"
)

// A PyTorch job like that of torchelastic's quick start, with gloo: two workers of at most three, in an image without
// elasticdl, with their state on the claim; then three workers.
func (s *site) testProgram(t *testing.T) {
	registry, err := os.ReadFile(filepath.Join(s.dir, "registry"))
	if err != nil {
		t.Fatal(err)
	}
	image, agent := strings.TrimSpace(string(registry))+"/torch:stack", strings.TrimSpace(string(registry))+"/elasticdl:agent"
	if _, err := torch.PushImage(t.Context(), image, filepath.Join(s.repository, "test", "local", "testdata", "plain.py")); err != nil {
		t.Fatal(err)
	}
	tr := s.newTrial(t, "minikube", func(config section) {
		maps.Copy(sub(config, "elasticdl:minikube"), section{"adopt": true})
		delete(config, "elasticdl:image")
		delete(config, "elasticdl:data")
		config["elasticdl:job"] = section{
			"name": jobName, "type": "run", "image": image, "agentImage": agent, "command": []any{"python3", "/scripts/plain.py", "/data", "0.1"},
			"numWorkers": 2, "minWorkers": 1, "maxWorkers": 3, "volumes": []any{section{"mountPath": "/data", "claimName": "data-claim"}},
			"master": section{"request": section{"cpu": "50m", "memory": "64Mi"}, "limit": section{"cpu": "500m", "memory": "512Mi"}},
			"worker": section{"request": section{"cpu": "20m", "memory": "128Mi"}, "limit": section{"cpu": "1", "memory": "1Gi"}},
		}
	})
	tr.cluster.Mounts = map[string]string{"/data": s.data}
	if err := tr.cloud.StartMinikube(tr.namespace); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"build", "--image=" + agent, s.elasticdl}, {"push", agent}} {
		if out, err := exec.CommandContext(t.Context(), s.elasticdl, append([]string{"zoo"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("elasticdl zoo %v: %v\n%s", args, err, out)
		}
	}
	began := time.Now()
	tr.up()
	tr.stepping("2")
	t.Logf("pulumi up to two processes stepping: %v", time.Since(began).Round(100*time.Millisecond))
	worker := tr.uid("worker-0")
	tr.unchanged()

	tr.configure(func(config section) { sub(config, "elasticdl:job")["numWorkers"] = 3 })
	began = time.Now()
	tr.does("update " + jobSpec)
	tr.stepping("3")
	t.Logf("pulumi up to three processes stepping: %v", time.Since(began).Round(100*time.Millisecond))
	if tr.uid("worker-0") != worker {
		t.Error("worker-0 was disturbed")
	}
	if err := os.WriteFile(filepath.Join(s.data, "enough"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	tr.run("elasticdl", "wait", jobName, "--timeout=2m")
	if status := tr.run("elasticdl", "status", jobName); !strings.Contains(status, "Succeeded") {
		t.Errorf("%s", status)
	}
	tr.unchanged()
	tr.destroy()
	if left := tr.left(); len(left) > 0 {
		t.Errorf("the cluster still has %v", left)
	}
}

// stepping waits until rank 0 has completed a step in a world of that size.
func (tr *trial) stepping(size string) {
	tr.t.Helper()
	tr.eventually("step in a world of "+size, func() bool {
		out, err := tr.try("elasticdl", "logs", jobName)
		return err == nil && strings.Contains(out, " rank 0 world "+size+" ")
	})
}
