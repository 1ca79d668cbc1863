package trainingjob

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// gpu is the resource name of GPUs, and the key of the taint of GPU nodes. Pods that request it
// tolerate the taint: see trainer/runtime/manifest.
const gpu = "nvidia.com/gpu"

// Placed returns a job whose pods select and tolerate the nodes that a cluster has for them:
// workers if a pool is named for them, pods that request GPUs, workers without GPUs if there are
// nodes for workers, and all others if there are nodes for jobs only. Values that the job itself
// sets take precedence. The result is set in --cluster_spec_json, role by role, so that masters and
// parameter servers stay off those nodes.
func Placed(j *job.Job, on *infra.Cluster) *job.Job {
	placed := *j
	spec := make(map[string]map[string]any)
	if j.ClusterSpecJSON != "" && json.Unmarshal([]byte(j.ClusterSpecJSON), &spec) != nil {
		// the code that builds the objects reports what is wrong
		return &placed
	}
	changed := false
	place := func(part string, selector map[string]string, tolerations []job.Toleration) {
		if len(selector)+len(tolerations) == 0 {
			return
		}
		if changed = true; spec[part] == nil {
			spec[part] = make(map[string]any)
		}
		selects := make(map[string]any)
		for key, value := range selector {
			if _, own := j.NodeSelector[key]; !own {
				selects[key] = value
			}
		}
		if own, ok := spec[part]["nodeSelector"].(map[string]any); ok {
			maps.Copy(selects, own)
		}
		if len(selects) > 0 {
			spec[part]["nodeSelector"] = selects
		}
		if own, ok := spec[part]["tolerations"].([]any); ok || len(tolerations) > 0 {
			spec[part]["tolerations"] = slices.Concat(own, anys(tolerations))
		}
	}
	for part, of := range map[string]job.Pod{"master_pod_spec": j.Master, "ps_pod_spec": j.PS,
		"worker_pod_spec": j.Worker} {
		switch {
		case part == "worker_pod_spec" && on.Pool != nil:
			place(part, on.Pool.NodeSelector, on.Pool.Tolerations)
		case of.Request[gpu] != "" || of.Limit[gpu] != "":
			place(part, on.GPU.NodeSelector, on.GPU.Tolerations)
		case part == "worker_pod_spec" && on.Workers != nil:
			place(part, on.Workers.NodeSelector, on.Workers.Tolerations)
		default:
			place(part, nil, on.Tolerations)
		}
	}
	if !changed {
		return &placed
	}
	text, err := json.Marshal(spec)
	if err != nil {
		// it was decoded from JSON, so it can be encoded
		panic(err)
	}
	placed.ClusterSpecJSON = string(text)
	return &placed
}

func anys[T any](all []T) []any {
	var list []any
	for _, one := range all {
		list = append(list, one)
	}
	return list
}
