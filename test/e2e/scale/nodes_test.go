//go:build e2e

package scale

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/elasticdl/elasticdl/infra/eks"
	"github.com/elasticdl/elasticdl/infra/karpenter"
	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

const (
	// the workers of the job before and after, and in between; spot instances of the cloud
	fewWorkers, manyWorkers, spotInstances = 2, 20, 10
	// the longest time in which the job may push nothing
	standstill = 10 * time.Second

	labelPool     = "karpenter.sh/nodepool"
	labelCapacity = "karpenter.sh/capacity-type"
)

// idleAfter is the time for which an empty node stays.
const idleAfter = 30 * time.Second

// onPools places the pods of a job on the pools of the test.
const onPools = `--cluster_spec_json={
	"master_pod_spec": {"nodeSelector": {"elasticdl.org/pool": "core"}},
	"ps_pod_spec": {"nodeSelector": {"elasticdl.org/pool": "core"}},
	"worker_pod_spec": {"nodeSelector": {"elasticdl.org/pool": "workers"},
		"tolerations": [{"key": "elasticdl.org/pool", "value": "workers", "effect": "NoSchedule"}]}}`

// The real Karpenter makes and deletes the nodes of a job that is scaled by the product's command
// from 2 workers to 20 and back to 2. Nothing else is done for nodes.
//
//   - Each worker gets a node of the workers' pool. There are 10 spot instances: Karpenter is
//     refused the next ones, and makes on-demand nodes.
//   - After the scale-down no node without a worker stays, and after the job no node.
//   - The nodes and pods of the master and the servers stay untouched.
//   - The job trains all the time, and each record is credited once and is in the model once.
func TestNodesFollow(t *testing.T) {
	k := provision(t, spotInstances)
	// After the pools, so that the pods are deleted before these.
	s := open(t)
	job := &play{name: "nodes", minibatches: 20_000, batch: 2, perTask: 8, each: time.Second,
		hurry: make(chan struct{})}
	began := time.Now()
	s.submit(job, fmt.Sprintf("--num_workers=%d", fewWorkers), "--min_workers=1",
		fmt.Sprintf("--max_workers=%d", manyWorkers), onPools)
	s.whole(job, fewWorkers)
	k.figure("the job runs with %d workers, from no node", began, fewWorkers)
	first := k.nodes("core")
	pods := s.identities(job, pod.Master, pod.PS)
	if len(first) == 0 || len(pods) != 3 {
		t.Fatalf("nodes of the core pool: %v; master and servers: %v", first, pods)
	}

	watch := s.watchWork(job)
	began = time.Now()
	s.scale(job, manyWorkers)
	// a wait that is promised: claims are there within seconds
	s.until("claims", 30*time.Second, func() bool { return k.claims("workers") >= manyWorkers })
	k.figure("%d claims exist after the scale-up", began, manyWorkers)
	s.whole(job, manyWorkers)
	k.figure("%d workers run after the scale-up", began, manyWorkers)
	k.checkMarket()
	s.checkPlaces(job, k)

	began = time.Now()
	s.scale(job, fewWorkers)
	s.whole(job, fewWorkers)
	k.figure("%d workers are left after the scale-down", began, fewWorkers)
	var stayed time.Duration
	s.until("deletion of the empty nodes", 5*time.Minute, func() bool {
		n := k.claims("workers")
		if n < manyWorkers && stayed == 0 {
			stayed = time.Since(began)
		}
		return n <= fewWorkers && len(k.nodes("workers")) <= fewWorkers
	})
	// a wait that is promised: a job that grows again meanwhile has its nodes
	if stayed < idleAfter {
		t.Errorf("a node went %v after the scale-down, and stays for %v", stayed, idleAfter)
	}
	k.figure("%d nodes of workers are left after the scale-down (consolidateAfter: 30s)", began, fewWorkers)
	s.checkPlaces(job, k)
	still := watch()
	t.Logf("longest standstill of the job: %v", still.Round(10*time.Millisecond))
	if still > standstill {
		t.Errorf("the job pushed nothing for %v, want %v at most", still, standstill)
	}

	if now := k.nodes("core"); !maps.Equal(now, first) {
		t.Errorf("nodes of the core pool are %v, were %v", now, first)
	}
	if now := s.identities(job, pod.Master, pod.PS); !maps.Equal(now, pods) {
		t.Errorf("master and servers are %v, were %v", now, pods)
	}
	close(job.hurry)
	status := s.await(job, 5*time.Minute)
	if status.ModelGeneration != 1 {
		t.Errorf("the job is in model generation %d: a server was lost", status.ModelGeneration)
	}
	began = time.Now()
	s.until("deletion of all nodes", 5*time.Minute, func() bool {
		return len(k.nodes("core"))+len(k.nodes("workers")) == 0
	})
	k.figure("%d nodes are left after the job", began, 0)
}

// provisioner is Karpenter in the test's cluster.
type provisioner struct {
	*testing.T
	set    kubernetes.Interface
	client dynamic.Interface
}

// follows returns the settings of a stack on EKS whose nodes follow its pods.
func follows() (*settings.Settings, error) {
	short := idleAfter.String()
	return settings.Cluster(settings.Input{Project: "nodes", Stack: "e2e", Base: "e2e", Arch: "amd64"},
		&settings.Settings{Cloud: settings.CloudEKS, Platform: settings.Platform{Namespace: "nodes"},
			EKS: &settings.EKS{Region: "us-west-2", Nodes: settings.NodesAuto,
				VPC:         settings.VPC{Zones: []string{"us-west-2a", "us-west-2b"}},
				SystemGroup: settings.EKSGroup{InstanceTypes: []string{"m7i.2xlarge"}, MaxNodes: 2, IdleAfter: short},
				Pools: []settings.EKSPool{{Name: "workers", EKSGroup: settings.EKSGroup{
					InstanceTypes: []string{"m7i.large"}, MaxNodes: 30, Spot: true, OnDemand: true,
					IdleAfter: short}}}}})
}

// pools returns the NodePools of that stack, by its own code, with the class of nodes of the
// simulated cloud. A node takes 5 s to boot.
func pools() ([]byte, error) {
	s, err := follows()
	if err != nil {
		return nil, err
	}
	kwok := karpenter.Kind{Group: "karpenter.kwok.sh", Version: "v1alpha1", Kind: "KWOKNodeClass"}
	var all []byte
	for _, p := range eks.NodePools(s.EKS, kwok) {
		class := map[string]any{"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass",
			"metadata": map[string]any{"name": p.Name}, "spec": map[string]any{"nodeRegistrationDelay": "5s"}}
		for _, o := range []any{class, karpenter.NodePool(p)} {
			text, err := yaml.Marshal(o)
			if err != nil {
				return nil, err
			}
			all = append(append(all, "---\n"...), text...)
		}
	}
	return all, nil
}

// provision starts Karpenter for the test, with the pools of a stack, and a cloud that has
// that number of spot instances.
func provision(t *testing.T, spot int) *provisioner {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = 1000, 1000
	k := &provisioner{T: t}
	if k.set, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if k.client, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if err := operate("add", "karpenter", "--dir="+*cluster, fmt.Sprintf("--spot=%d", spot)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(*cluster, "logs", "karpenter.log"))
			os.WriteFile(filepath.Join(t.ArtifactDir(), "karpenter.log"), log, 0o644)
		}
		if err := operate("remove", "karpenter", "--dir="+*cluster); err != nil {
			t.Error(err)
		}
	})
	text, err := pools()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "pools.yaml")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := kubectl(t.Context(), "apply", "-f", file); err != nil {
		t.Fatal(err)
	}
	// Karpenter deletes the claims of a deleted pool, and their nodes.
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if err := kubectl(ctx, "delete", "-f", file, "--cascade=foreground"); err != nil {
			t.Error(err)
		}
	})
	return k
}

// kubectl runs kubectl as the cluster's admin.
func kubectl(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(*cluster, "bin", "kubectl"),
		append(args, "--kubeconfig="+kubeconfig())...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	return nil
}

// figure logs the time since began.
func (k *provisioner) figure(what string, began time.Time, n int) {
	k.Helper()
	k.Logf(what+": %.1f s", n, time.Since(began).Seconds())
}

// claims returns the number of claims of a pool.
func (k *provisioner) claims(pool string) int {
	k.Helper()
	all, err := k.client.Resource(schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1",
		Resource: "nodeclaims"}).List(k.Context(), meta.ListOptions{LabelSelector: labelPool + "=" + pool})
	if err != nil {
		k.Fatal(err)
	}
	return len(all.Items)
}

// list returns the nodes of a pool.
func (k *provisioner) list(pool string) []core.Node {
	k.Helper()
	all, err := k.set.CoreV1().Nodes().List(k.Context(), meta.ListOptions{LabelSelector: labelPool + "=" + pool})
	if err != nil {
		k.Fatal(err)
	}
	return all.Items
}

// nodes returns the UIDs of the nodes of a pool, by name.
func (k *provisioner) nodes(pool string) map[string]types.UID {
	k.Helper()
	found := make(map[string]types.UID)
	for _, n := range k.list(pool) {
		found[n.Name] = n.UID
	}
	return found
}

// checkMarket checks that all spot instances are in use, that a request of another one was refused,
// and that the other nodes are on demand.
func (k *provisioner) checkMarket() {
	k.Helper()
	kinds := make(map[string]int)
	for _, n := range k.list("workers") {
		kinds[n.Labels[labelCapacity]]++
	}
	k.Logf("nodes of workers: %v", kinds)
	if kinds["spot"] != spotInstances || kinds["on-demand"] < manyWorkers-spotInstances {
		k.Errorf("nodes of workers are %v, want %d spot and the others on demand", kinds, spotInstances)
	}
	refused, err := k.set.CoreV1().Events("").List(k.Context(),
		meta.ListOptions{FieldSelector: "reason=InsufficientCapacityError"})
	if err != nil || len(refused.Items) == 0 {
		k.Errorf("no claim was refused for lack of spot capacity: %v", err)
	}
}

// scale changes the number of workers as a user does.
func (s *theatre) scale(job *play, workers int) {
	s.Helper()
	cmd := exec.CommandContext(s.Context(), *elasticdl, "scale", job.name, fmt.Sprintf("--num_workers=%d", workers),
		"--kubeconfig="+kubeconfig(), "--namespace="+s.namespace)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.Fatalf("%v: %v\n%s", cmd, err, out)
	}
}

// whole waits until a job has that number of workers, and all of them run.
func (s *theatre) whole(job *play, workers int) {
	s.Helper()
	s.until(fmt.Sprintf("%d workers", workers), 5*time.Minute, func() bool {
		return s.count(job.name, pod.Worker, running) == workers &&
			s.count(job.name, pod.Worker, func(*core.Pod) bool { return true }) == workers
	})
}

// of returns the pods of a job that have one of the roles.
func (s *theatre) of(job *play, roles ...pod.Role) (found []*core.Pod) {
	s.Helper()
	for _, role := range roles {
		some, err := s.pods.List(labels.SelectorFromSet(labels.Set{manifest.LabelJob: job.name,
			manifest.LabelRole: role.String()}))
		if err != nil {
			s.Fatal(err)
		}
		found = append(found, some...)
	}
	return found
}

// identities returns the UID, the node and the restarts of pods, by name.
func (s *theatre) identities(job *play, roles ...pod.Role) map[string]string {
	s.Helper()
	found := make(map[string]string)
	for _, p := range s.of(job, roles...) {
		var restarts int32
		for _, c := range p.Status.ContainerStatuses {
			restarts += c.RestartCount
		}
		found[p.Name] = fmt.Sprintf("%s on %s, %d restarts", p.UID, p.Spec.NodeName, restarts)
	}
	return found
}

// checkPlaces checks that the workers are on the nodes of their pool, and that none of these nodes
// has no worker.
func (s *theatre) checkPlaces(job *play, k *provisioner) {
	s.Helper()
	used := make(map[string]bool)
	for _, p := range s.of(job, pod.Worker) {
		used[p.Spec.NodeName] = true
	}
	want, got := slices.Sorted(maps.Keys(used)), slices.Sorted(maps.Keys(k.nodes("workers")))
	if !slices.Equal(got, want) {
		s.Errorf("nodes of the workers' pool:\n%s\nnodes of workers:\n%s", strings.Join(got, "\n"),
			strings.Join(want, "\n"))
	}
}

// watchWork watches what is pushed. The function that it returns ends that, and returns the longest
// time without a push.
func (s *theatre) watchWork(job *play) (longest func() time.Duration) {
	ctx, cancel := context.WithCancel(s.Context())
	result := make(chan time.Duration, 1)
	go func() {
		var still time.Duration
		moved, work := time.Now(), job.ledger.work()
		for sleep(ctx, 50*time.Millisecond) == nil {
			if now := job.ledger.work(); now != work {
				moved, work = time.Now(), now
			}
			still = max(still, time.Since(moved))
		}
		result <- still
	}()
	return func() time.Duration { cancel(); return <-result }
}
