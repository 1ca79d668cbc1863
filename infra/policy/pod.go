package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// template has the path of the pod's spec in each kind.
var template = map[string][]string{
	"Pod":                   {"spec"},
	"Job":                   {"spec", "template", "spec"},
	"Deployment":            {"spec", "template", "spec"},
	"StatefulSet":           {"spec", "template", "spec"},
	"ReplicaSet":            {"spec", "template", "spec"},
	"ReplicationController": {"spec", "template", "spec"},
	"DaemonSet":             {"spec", "template", "spec"},
	"CronJob":               {"spec", "jobTemplate", "spec", "template", "spec"},
}

func podSpec(r Resource) resource.PropertyValue {
	if path := template[kindOf(r, "kubernetes")]; path != nil {
		return at(r.Inputs, path...)
	}
	return resource.NewNullProperty()
}

// trainingJob returns the job in the ConfigMap that a master reads, or nil for other ConfigMaps.
func trainingJob(r Resource) *job.Job {
	if kindOf(r, "kubernetes") != "ConfigMap" {
		return nil
	}
	j := new(job.Job)
	if doc := text(at(r.Inputs, "data", manifest.KeyJob)); doc == "" || json.Unmarshal([]byte(doc), j) != nil {
		return nil
	}
	return j
}

// jobPods returns the pods that masters will create. The program does not request these.
func jobPods(all []Resource) (pods []Resource) {
	for _, r := range all {
		j := trainingJob(r)
		if j == nil {
			continue
		}
		roles := []pod.Role{pod.Worker}
		if j.NumPS > 0 {
			roles = append(roles, pod.PS)
		}
		for _, role := range roles {
			made, err := manifest.Pod(j, manifest.PodSpec{ID: pod.ID{Role: role}, Incarnation: 1},
				meta.OwnerReference{})
			if err != nil {
				continue // package trainingjob reports the error
			}
			doc, err := json.Marshal(made)
			var inputs map[string]any
			if err == nil && json.Unmarshal(doc, &inputs) == nil {
				pods = append(pods, Resource{Type: "kubernetes:core/v1:Pod", Name: made.Name,
					Inputs: resource.NewPropertyMapFromMap(inputs), Options: r.Options})
			}
		}
	}
	return pods
}

// containers returns the containers of a pod, by their paths.
func containers(spec resource.PropertyValue) map[string]resource.PropertyValue {
	all := map[string]resource.PropertyValue{}
	for _, kind := range []string{"initContainers", "containers", "ephemeralContainers"} {
		for i, c := range list(within(spec, kind)) {
			all[fmt.Sprintf("%s[%d]", kind, i)] = c
		}
	}
	return all
}

func privilegedPod(r Resource, _ []Resource) (problems []string) {
	spec := podSpec(r)
	// device plugins connect to the kubelet by files of the host
	daemon := kindOf(r, "kubernetes") == "DaemonSet"
	for _, key := range []string{"hostNetwork", "hostPID", "hostIPC"} {
		if within(spec, key).V == true {
			problems = append(problems, key+" is true")
		}
	}
	for i, v := range list(within(spec, "volumes")) {
		if !daemon && !within(v, "hostPath").IsNull() && !unknown(within(v, "hostPath")) {
			problems = append(problems, fmt.Sprintf("volumes[%d] is a hostPath", i))
		}
	}
	for where, c := range containers(spec) {
		security := within(c, "securityContext")
		if within(security, "privileged").V == true {
			problems = append(problems, where+" is privileged")
		}
		for _, capability := range texts(within(security, "capabilities", "add")) {
			if oneOf(capability, "ALL", "SYS_ADMIN", "SYS_PTRACE", "SYS_MODULE", "NET_ADMIN") {
				problems = append(problems, where+" has the capability "+capability)
			}
		}
	}
	slices.Sort(problems)
	return problems
}

func unpinnedImage(r Resource, _ []Resource) (problems []string) {
	daemon := kindOf(r, "kubernetes") == "DaemonSet"
	for where, c := range containers(podSpec(r)) {
		image := text(within(c, "image"))
		name, _, digest := strings.Cut(image, "@sha256:")
		_, tag, _ := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
		switch {
		case image == "" || digest:
		case daemon:
			problems = append(problems, fmt.Sprintf("%s.image %s has no digest", where, image))
		case tag == "" || tag == "latest":
			problems = append(problems,
				fmt.Sprintf("%s.image %s is not pinned: use a version tag or a digest", where, image))
		}
	}
	slices.Sort(problems)
	return problems
}

// orphan reports objects whose cloud resources are deleted by controllers in the cluster: these
// resources remain when the cluster is deleted.
func orphan(r Resource, all []Resource) (problems []string) {
	if !slices.ContainsFunc(all, isCluster) {
		return nil // every object is deleted on its own
	}
	switch kindOf(r, "kubernetes") {
	case "Service":
		if at(r.Inputs, "spec", "type").V == "LoadBalancer" {
			problems = append(problems, "it owns a load balancer of the cloud")
		}
	case "Ingress", "Gateway":
		problems = append(problems, "it owns a load balancer of the cloud")
	case "PersistentVolumeClaim":
		if at(r.Inputs, "spec", "volumeName").IsNull() {
			problems = append(problems, "it names no volume, so a disk of the cloud is made for it")
		}
	case "StatefulSet":
		if len(list(at(r.Inputs, "spec", "volumeClaimTemplates"))) > 0 {
			problems = append(problems, "volumeClaimTemplates make disks of the cloud")
		}
	}
	for i, v := range list(within(podSpec(r), "volumes")) {
		if !within(v, "ephemeral").IsNull() {
			problems = append(problems, fmt.Sprintf("volumes[%d] makes a disk of the cloud", i))
		}
	}
	return problems
}

// rigidSpot reports pools of spot nodes with a job that cannot lose workers. Either may be
// requested first.
func rigidSpot(r Resource, all []Resource) (problems []string) {
	if spot, taints := spotPool(r); spot {
		if !unknown(taints) && !slices.ContainsFunc(list(taints), func(t resource.PropertyValue) bool {
			return is(within(t, "effect"), "NO_SCHEDULE") || is(within(t, "effect"), "NO_EXECUTE")
		}) {
			problems = append(problems, "spot nodes without a taint take masters and parameter servers")
		}
		return problems
	}
	j := trainingJob(r)
	if j == nil || j.Strategy == job.ParameterServer || max(j.MinWorkers, 1) < j.NumWorkers {
		return nil
	}
	for _, pool := range all {
		if spot, _ := spotPool(pool); spot {
			problems = append(problems,
				fmt.Sprintf("job %s needs all its %d workers, and %s %q is spot", j.Name, j.NumWorkers,
					pool.Type, pool.Name))
		}
	}
	return problems
}

func spotPool(r Resource) (spot bool, taints resource.PropertyValue) {
	switch r.Type {
	case "gcp:container/nodePool:NodePool":
		node := at(r.Inputs, "nodeConfig")
		return within(node, "spot").V == true || within(node, "preemptible").V == true, within(node, "taints")
	case "aws:eks/nodeGroup:NodeGroup":
		return at(r.Inputs, "capacityType").V == "SPOT", at(r.Inputs, "taints")
	}
	return false, resource.NewNullProperty()
}

// isCluster reports whether a resource is a cluster, which is deleted with all that is in it.
func isCluster(r Resource) bool {
	return oneOf(r.Type, "gcp:container/cluster:Cluster", "aws:eks/cluster:Cluster") ||
		r.Type == "command:local:Command" && strings.Contains(text(at(r.Inputs, "delete")), "minikube delete")
}
