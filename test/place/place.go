// Package place judges, for tests, whether pods fit on nodes by labels and taints, as the scheduler
// of Kubernetes does.
package place

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// Node is a node that a pool of a stack may have.
type Node struct {
	Labels map[string]string
	Taints []settings.Taint
	GPUs   int
}

// gpu is the resource of GPUs, and the key of the taint of their nodes.
const gpu = "nvidia.com/gpu"

// Unplaced returns why no node takes a pod of a job, or "". The part of --cluster_spec_json is
// "master_pod_spec" or "worker_pod_spec". A pod that asks for GPUs tolerates their taint, as its
// manifest has it.
func Unplaced(j *job.Job, part string, asks bool, nodes []Node) string {
	var spec map[string]struct {
		NodeSelector map[string]string
		Tolerations  []job.Toleration
	}
	if j.ClusterSpecJSON != "" {
		if err := json.Unmarshal([]byte(j.ClusterSpecJSON), &spec); err != nil {
			return err.Error()
		}
	}
	pod := spec[part]
	if asks {
		pod.Tolerations = append(pod.Tolerations, job.Toleration{Key: gpu, Operator: "Exists"})
	}
	for _, n := range nodes {
		fits := !asks || n.GPUs > 0
		for key, value := range pod.NodeSelector {
			fits = fits && n.Labels[key] == value
		}
		for _, taint := range n.Taints {
			fits = fits && slices.ContainsFunc(pod.Tolerations, func(o job.Toleration) bool {
				return o.Key == taint.Key && (o.Operator == "Exists" || o.Value == taint.Value)
			})
		}
		if fits {
			return ""
		}
	}
	return fmt.Sprintf("selects %v, tolerates %v", pod.NodeSelector, pod.Tolerations)
}
