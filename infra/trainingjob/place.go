package trainingjob

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// gpu is the resource name of GPUs, and the key of the taint of GPU nodes. Pods that request it
// tolerate the taint: see trainer/runtime/manifest.
const gpu = "nvidia.com/gpu"

// Placed returns a job whose pods select and tolerate the nodes that a cluster has for them:
// workers those of their pool (see [infra.Cluster]), others that request GPUs those with GPUs, and
// all others those that are for jobs only. Values that the job itself sets take precedence. The
// result is set in --cluster_spec_json, role by role, so that masters and parameter servers stay
// off those nodes.
func Placed(j *job.Job, on *infra.Cluster, pool string) (*job.Job, error) {
	placed := *j
	var workers *infra.Nodes
	if on.WorkersOn != nil {
		workers = on.WorkersOn(pool, asks(j.Worker))
	}
	if pool != "" && workers == nil {
		return nil, fmt.Errorf("pool %s: the cluster has no pool of this name for workers", pool)
	}
	spec := make(map[string]map[string]any)
	if j.ClusterSpecJSON != "" && json.Unmarshal([]byte(j.ClusterSpecJSON), &spec) != nil {
		// the code that builds the objects reports what is wrong
		return &placed, nil
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
		case part == "worker_pod_spec" && workers != nil:
			place(part, workers.NodeSelector, workers.Tolerations)
		case asks(of):
			place(part, on.GPU.NodeSelector, on.GPU.Tolerations)
		default:
			place(part, nil, on.Tolerations)
		}
	}
	if !changed {
		return &placed, nil
	}
	text, err := json.Marshal(spec)
	if err != nil {
		// it was decoded from JSON, so it can be encoded
		panic(err)
	}
	placed.ClusterSpecJSON = string(text)
	return &placed, nil
}

// asks reports whether pods request GPUs.
func asks(of job.Pod) bool { return of.Request[gpu] != "" || of.Limit[gpu] != "" }

func anys[T any](all []T) []any {
	var list []any
	for _, one := range all {
		list = append(list, one)
	}
	return list
}
