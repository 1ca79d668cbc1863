//go:build !e2e

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/test/provider"
)

// The cluster was deleted outside of Pulumi. `pulumi destroy` deletes the rest, and need not reach
// the objects that were deleted with the cluster.
func TestDestroyWithoutCluster(t *testing.T) {
	t.Run("eks", func(t *testing.T) {
		t.Parallel()
		e := start(t, "eks")
		e.set("elasticdl:protectStorage", false)
		e.up()
		e.lose("aws:eks/cluster:Cluster", "cluster")
		// EKS may create the log group again: the next up fails, and the page says how to continue
		e.cloud.LogsReturn = true
		e.destroy()
		page, err := os.ReadFile(filepath.Join("docs", "infrastructure", "eks.md"))
		if err != nil {
			t.Fatal(err)
		}
		const says = "ResourceAlreadyExistsException: The specified log group already exists"
		if _, err := e.tryUp(); err == nil || !strings.Contains(err.Error(), says) ||
			!strings.Contains(string(page), "| `"+says+"` |") {
			t.Errorf("logs that EKS wrote again: %v, expected %s, also in eks.md", err, says)
		}
		e.lose("aws:cloudwatch/logGroup:LogGroup", provider.LogsOfEKS)
		e.cloud.LogsReturn = false
		e.destroy()
		e.cleared()
	})
	t.Run("minikube", func(t *testing.T) {
		t.Parallel()
		e := start(t, "minikube")
		e.up()
		if err := e.cloud.DeleteMinikube("elasticdl-minikube"); err != nil {
			t.Fatal(err)
		}
		e.destroy()
		e.cleared()
	})
}

// To get the cluster back, its user refreshes, and states that unreachable objects are deleted: the
// stack must not assume that on its own, because a network failure looks the same.
func TestUpWithoutCluster(t *testing.T) {
	t.Parallel()
	e := start(t, "gke")
	e.set("elasticdl:protectStorage", false)
	e.up()
	there := e.cloud.Left()
	e.lose("gcp:container/cluster:Cluster", "cluster")
	if _, err := e.stack.Refresh(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "PULUMI_K8S_DELETE_UNREACHABLE") {
		t.Errorf("refresh did not say how to continue: %v", err)
	}
	e.cloud.Kubernetes.DeleteUnreachable.Store(true)
	e.refresh()
	e.cloud.Kubernetes.DeleteUnreachable.Store(false)
	e.up()
	if now := e.cloud.Left(); !slices.Equal(now, there) {
		t.Errorf("there were\n%s\nand there are\n%s", steps(there), steps(now))
	}
	e.unchanged("the cluster is back")
	e.destroy()
	e.cleared()
}

// An adopted profile is kept, without the objects that the stack created there; a profile that is
// not adopted is not touched.
func TestAdopt(t *testing.T) {
	t.Parallel()
	e := start(t, "minikube")
	if err := e.cloud.StartMinikube("mine"); err != nil {
		t.Fatal(err)
	}
	e.set("elasticdl:minikube.profile", "mine")
	if _, err := e.tryUp(); err == nil || !strings.Contains(err.Error(), "minikube.adopt") {
		t.Errorf("took what is another's: %v", err)
	}
	e.set("elasticdl:minikube.adopt", true)
	e.up()
	e.unchanged("nothing has changed")
	e.destroy()
	e.cleared()
	profiles, err := e.cloud.Minikubes()
	if err != nil {
		t.Fatal(err)
	}
	if how, ok := profiles["mine"]; !ok || !strings.HasPrefix(how, "by hand") {
		t.Errorf("the profiles are now %v", profiles)
	}
}

// The stack may give up a profile that it started: then it is kept, without the objects that the
// stack created there, also if flags of its start have changed since.
func TestGivesProfileAway(t *testing.T) {
	t.Parallel()
	e := start(t, "minikube")
	e.up()
	e.set("elasticdl:minikube.adopt", true)
	e.set("elasticdl:minikube.cpus", 4)
	e.expect("adopt", e.up(), "update command:local:Command kubeconfig create",
		"update command:local:Command start create update")
	e.unchanged("it is adopted")
	e.destroy()
	e.cleared()
	profiles, err := e.cloud.Minikubes()
	if how := profiles["elasticdl-minikube"]; err != nil || !strings.Contains(how, "start -p elasticdl-minikube") {
		t.Errorf("the profiles are now %v, %v", profiles, err)
	}
}

// A stack does not replace its cluster. The engine would delete the objects within by a provider
// that it has closed before (pulumi/pulumi#14650), and then fail with all of them left. Another
// cluster needs destroy and up.
func TestOtherCluster(t *testing.T) {
	for _, test := range []struct {
		stack, path string
		value       any
	}{
		{"gke", "elasticdl:gke.ranges.master", "172.16.0.48/28"},
		{"minikube", "elasticdl:minikube.cpus", 4},
	} {
		t.Run(test.stack, func(t *testing.T) {
			t.Parallel()
			e := start(t, test.stack)
			e.set("elasticdl:protectStorage", false)
			e.up()
			there := e.cloud.Left()
			e.set(test.path, test.value)
			if did, err := e.tryUp(); err == nil {
				t.Errorf("a cluster was replaced, which failed formerly; what became of what was within?\n%s", did)
			}
			if now := e.cloud.Left(); !slices.Equal(now, there) {
				t.Errorf("there were\n%s\nand there are\n%s", steps(there), steps(now))
			}
			e.destroy()
			e.cleared()
			e.up()
			if now := e.cloud.Left(); !slices.Equal(now, there) {
				t.Errorf("there were\n%s\nand there are\n%s", steps(there), steps(now))
			}
			if test.stack == "minikube" {
				profiles, err := e.cloud.Minikubes()
				if how := profiles["elasticdl-minikube"]; err != nil || !strings.Contains(how, "--cpus=4") {
					t.Errorf("started by %q, %v", how, err)
				}
			}
		})
	}
}

func (e *engine) lose(kind, name string) {
	e.Helper()
	if err := e.cloud.Lose(kind, name); err != nil {
		e.Fatal(err)
	}
}
