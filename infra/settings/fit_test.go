package settings

import (
	"math"
	"strings"
	"testing"
)

// A job whose least pods need more nodes than there may be is noted. There is no note
// about machines that are not known, and pods that choose their nodes.
func TestFit(t *testing.T) {
	metal := "[{name: metal, instanceTypes: [m6i.metal], maxNodes: 1}]"
	small := "[{name: cheap, instanceTypes: [m6i.large], maxNodes: 1}]"
	for _, test := range []struct {
		name, cloud string
		with        map[string]string
		note        string
	}{
		{"all on one node", "eks", autoWith("eks.pools", small, "job.numWorkers", "20", "job.minWorkers", "20"),
			"elasticdl:eks.pools[0].maxNodes: 1 nodes in all, and the job needs about 7 before it trains, for 20 workers: " +
				"expected more, or fewer job.minWorkers"},
		{"three fit", "eks", autoWith("eks.pools", small, "job.numWorkers", "20", "job.minWorkers", "3"), ""},
		{"one more does not", "eks", autoWith("eks.pools", small, "job.numWorkers", "20", "job.minWorkers", "4"),
			"the job needs about 2 before"},
		{"groups", "eks", map[string]string{"job.numWorkers": "20", "job.minWorkers": "19"},
			"elasticdl:eks.systemGroup.maxNodes and eks.workerGroup.maxNodes: 6 nodes in all, and the job needs " +
				"about 7 before it trains, for 1 master, 19 workers"},
		{"servers", "gke", map[string]string{"job.numPS": "200"},
			"elasticdl:gke.systemPool.maxNodes and gke.workerPool.maxNodes: 5 nodes in all, and the job needs " +
				"about 22 before"},
		{"GPUs", "gke", merged(withGPUs, map[string]string{"job.worker.limit": "{nvidia.com/gpu: 1}",
			"job.worker.request": "{cpu: 2}", "job.numWorkers": "9", "job.minWorkers": "9"}),
			"elasticdl:gke.gpuPool.maxNodes: 2 nodes in all, and the job needs about 9 before it trains, for 9 worker"},
		{"a fallback has as many again", "gke", map[string]string{"job.numWorkers": "8", "job.minWorkers": "8",
			"job.worker.request.cpu": "2", "job.worker.pool": "cheap",
			"gke.pools": "[{name: cheap, machineType: n2-standard-4, maxNodes: 4, spot: true, onDemand: true}]"}, ""},
		{"unknown machines", "eks", autoWith("eks.pools", metal, "job.worker.request", "{cpu: 500}",
			"job.numWorkers", "20", "job.minWorkers", "20"), ""},
		{"one unknown type of two", "eks", autoWith("eks.pools",
			strings.Replace(metal, "[m6i", "[m6i.large, m6i", 1),
			"job.worker.request", "{cpu: 8}"), ""},
		{"the largest of two types", "eks", autoWith("eks.pools",
			"[{name: two, instanceTypes: [m6i.large, m6i.4xlarge], maxNodes: 3}]",
			"job.worker.request", "{cpu: 8}"), ""},
		{"nodes of the job's own choice", "eks", map[string]string{"job.nodeSelector": "{team: ml}",
			"job.worker.request": "{cpu: 8}"}, ""},
		{"a taint that the job tolerates", "gke", map[string]string{"job.tolerations": "[{key: big, operator: Exists}]",
			"gke.pools":          "[{name: big, machineType: n2-standard-32, maxNodes: 9, taints: [{key: big}]}]",
			"job.worker.request": "{cpu: 12}", "job.worker.limit": ""}, ""},
		{"the taint of GPUs, which the job tolerates", "gke", merged(withGPUs, map[string]string{
			"job.tolerations": "[{key: nvidia.com/gpu, operator: Exists}]", "job.worker.limit": "",
			"gke.gpuPool.machineType": "n1-standard-16", "job.worker.request": "{cpu: 12}"}), ""},
		{"any taint", "gke", merged(withGPUs, map[string]string{"job.tolerations": "[{operator: Exists}]",
			"gke.gpuPool.machineType": "n1-standard-16", "job.worker.request": "{cpu: 12}",
			"job.worker.limit": ""}), ""},
		{"as much as the error of more says", "gke", map[string]string{"job.worker.request": "{cpu: 7910m}",
			"job.worker.limit": ""}, ""},
		{"a taint of Google's that users set", "gke", map[string]string{"gke.pools": "[{name: cheap, machineType: " +
			"n2-standard-4, maxNodes: 4, spot: true, taints: [{key: cloud.google.com/gke-spot, value: 'true'}]}]"}, ""},
		{"another cluster", "existing", map[string]string{"job.worker.request.cpu": "500", "job.worker.limit": ""}, ""},
	} {
		config := stack(t, test.cloud)
		setAll(t, config, test.with)
		s, err := parsed(t, config)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		all := strings.Join(s.Notes, "\n")
		if !strings.Contains(all, test.note) || strings.Contains(all, "before it trains") != (test.note != "") {
			t.Errorf("%s: notes are %s, want %q", test.name, all, test.note)
		}
	}
}

// Pods of the whole size of a node do not fit: the kubelet keeps a part.
func TestRoom(t *testing.T) {
	for _, test := range []struct {
		cpus, gpus         float64
		nodeCPUs, nodeGPUs int
		want               float64
	}{
		{1, 0, 8, 0, 7}, {8, 0, 8, 0, 0}, {7.91, 0, 8, 0, 1}, {7.92, 0, 8, 0, 0}, {0.94, 0, 1, 0, 1}, {1, 0, 1, 0, 0},
		{1, 0, 0, 0, math.Inf(1)}, {0, 0, 8, 0, math.Inf(1)}, {0, 1, 8, 4, 4}, {0, 3, 8, 4, 1}, {0, 8, 8, 4, 0},
		{4, 1, 8, 4, 1}, {9, 1, 8, 4, 0},
	} {
		if got := Room(test.cpus, test.gpus, test.nodeCPUs, test.nodeGPUs); got != test.want {
			t.Errorf("%+v: room for %v", test, got)
		}
	}
}
