package settings

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Changes that tests of GKE's settings share.
var withGPUs = map[string]string{"gke.gpuPool": "{machineType: n1-standard-4, accelerator: " +
	"nvidia-tesla-t4, gpus: 1, maxNodes: 2}"}

func merged(all ...map[string]string) map[string]string {
	m := map[string]string{}
	for _, o := range all {
		maps.Copy(m, o)
	}
	return m
}

// window returns a section gke.maintenance with a window on weekends, and other fields of the
// window.
func window(other ...string) string {
	return "{window: " + flow(map[string]string{"start": "'2026-12-05T02:00:00Z'",
		"end": "'2026-12-05T08:00:00Z'", "recurrence": "'FREQ=WEEKLY;BYDAY=SA,SU'"}, other...) + "}"
}

// exclusion returns gke.maintenance.exclusions, with one exclusion for each argument, which has its
// other fields.
func exclusion(others ...string) string {
	var all []string
	for _, other := range others {
		all = append(all, flow(map[string]string{"name": "a", "start": "'2026-12-20T00:00:00Z'",
			"end": "'2027-01-04T00:00:00Z'"}, other))
	}
	return "[" + strings.Join(all, ", ") + "]"
}

func names(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("name: e%d", i))
	}
	return all
}

// flow returns a YAML mapping of is, with other fields added or replaced.
func flow(is map[string]string, other ...string) string {
	for _, o := range other {
		for field := range strings.SplitSeq(o, ", ") {
			if name, value, ok := strings.Cut(field, ": "); ok {
				is[name] = value
			}
		}
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(is)) {
		all = append(all, name+": "+is[name])
	}
	return "{" + strings.Join(all, ", ") + "}"
}

// The quotas that a stack needs follow from the maximum sizes of its pools.
func TestGoogleQuotas(t *testing.T) {
	for _, test := range []struct {
		name string
		with map[string]string
		want string
	}{
		{"as shipped", nil, "CPUS 28, SSD_TOTAL_GB 250; CPUS_ALL_REGIONS 28"},
		{"GPUs", withGPUs, "CPUS 36, SSD_TOTAL_GB 450, NVIDIA_T4_GPUS 2; CPUS_ALL_REGIONS 36, GPUS_ALL_REGIONS 2"},
		{"spot GPUs", map[string]string{"gke.gpuPool": "{machineType: g2-standard-24, accelerator: " +
			"nvidia-l4, gpus: 2, maxNodes: 3, spot: true}"},
			"CPUS 28, SSD_TOTAL_GB 550, CPUS_PER_VM_FAMILY (G2) 72, PREEMPTIBLE_NVIDIA_L4_GPUS 6; " +
				"CPUS_ALL_REGIONS 100, GPUS_ALL_REGIONS 6"},
		{"H200", map[string]string{"gke.gpuPool": "{machineType: a3-ultragpu-8g, accelerator: " +
			"nvidia-h200-141gb, gpus: 8, maxNodes: 1}"},
			"CPUS 28, SSD_TOTAL_GB 250, CPUS_PER_VM_FAMILY (A3) 224, HDB_TOTAL_GB 100, NVIDIA_H200_GPUS 8; " +
				"CPUS_ALL_REGIONS 252, GPUS_ALL_REGIONS 8"},
		{"large GPUs", map[string]string{"gke.gpuPool": "{machineType: a2-ultragpu-2g, accelerator: " +
			"nvidia-a100-80gb, gpus: 2, maxNodes: 1}"},
			"CPUS 28, SSD_TOTAL_GB 350, A2_CPUS 24, NVIDIA_A100_80GB_GPUS 2; CPUS_ALL_REGIONS 52, GPUS_ALL_REGIONS 2"},
		{"a quota of the family", map[string]string{"gke.workerPool.machineType": "n2-standard-8"},
			"CPUS 4, SSD_TOTAL_GB 250, N2_CPUS 24; CPUS_ALL_REGIONS 28"},
		{"Hyperdisks", map[string]string{"gke.workerPool.machineType": "n4-standard-8"},
			"CPUS 4, SSD_TOTAL_GB 100, CPUS_PER_VM_FAMILY (N4) 24, HDB_TOTAL_GB 150; CPUS_ALL_REGIONS 28"},
		{"machines of one's own measure",
			map[string]string{"gke.workerPool.machineType": "n2-custom-6-20480"},
			"CPUS 4, SSD_TOTAL_GB 250, N2_CPUS 18; CPUS_ALL_REGIONS 22"},
		{"addresses", map[string]string{"gke.privateNodes": "false"},
			"CPUS 28, SSD_TOTAL_GB 250, IN_USE_ADDRESSES 5; CPUS_ALL_REGIONS 28"},
		{"one pool, and shared cores",
			map[string]string{"gke.workerPool": "", "job": "", "data": "",
				"gke.systemPool": "{machineType: e2-medium, maxNodes: 1, diskGb: 30}"},
			"CPUS 2, SSD_TOTAL_GB 30; CPUS_ALL_REGIONS 2"},
	} {
		config := stack(t, CloudGKE)
		setAll(t, config, test.with)
		s, err := parsed(t, config)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		var region, project []string
		for _, q := range s.GKE.Quotas() {
			if text := fmt.Sprint(q.ID, " ", q.Most); q.Project {
				project = append(project, text)
			} else {
				region = append(region, text)
			}
		}
		if got := strings.Join(region, ", ") + "; " + strings.Join(project, ", "); got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, got, test.want)
		}
		if note := s.GKE.QuotaNotes()[0]; len(s.Notes) != 0 || strings.Contains(note, "\n") ||
			!strings.Contains(note, "gcloud compute regions describe us-central1 --project=my-project") {
			t.Errorf("%s: one line has the quotas and the command that shows them, not %q and %q", test.name,
				note, s.Notes)
		}
	}
}

// Metrics of CPUs have the names that `gcloud compute regions describe` prints.
func TestMetricsOfCPUs(t *testing.T) {
	for metric, types := range map[string]string{
		"CPUS":    "n1-standard-4 e2-standard-4 f1-micro g1-small",
		"A2_CPUS": "a2-highgpu-1g", "C2_CPUS": "c2-standard-4", "C2D_CPUS": "c2d-standard-4",
		"C3_CPUS": "c3-standard-4", "M1_CPUS": "m1-ultramem-40",
		"M2_CPUS": "m2-ultramem-208", "M3_CPUS": "m3-ultramem-32", "N2_CPUS": "n2-standard-4",
		"N2D_CPUS": "n2d-standard-4", "T2D_CPUS": "t2d-standard-4",
		"CPUS_PER_VM_FAMILY (C4)": "c4-standard-4", "CPUS_PER_VM_FAMILY (A3)": "a3-highgpu-8g",
	} {
		for kind := range strings.FieldsSeq(types) {
			if got := cpuMetric(kind); got != metric {
				t.Errorf("%s is counted by %s, want %s", kind, got, metric)
			}
		}
	}
}

// A machine of G2 has one GPU, or one for each 12 vCPUs if it has several.
func TestCardsOfG2(t *testing.T) {
	for cpus, cards := range map[int]int{4: 1, 8: 1, 12: 1, 16: 1, 32: 1, 24: 2, 48: 4, 96: 8} {
		if got := gpusOf(fmt.Sprint("g2-standard-", cpus)); got != cards {
			t.Errorf("g2-standard-%d has %d GPUs, want %d", cpus, got, cards)
		}
	}
	if n := gpusOf("a2-ultragpu-4g") + gpusOf("n1-standard-8"); n != 4 {
		t.Errorf("a2-ultragpu-4g and n1-standard-8 have %d GPUs, want 4 and none", n)
	}
}

// The GPU pool that the shipped file has as a comment is valid when uncommented.
func TestCommentedGPUs(t *testing.T) {
	text, err := os.ReadFile("../../stacks/Pulumi.gke.yaml")
	if err != nil {
		t.Fatal(err)
	}
	before, pool, found := strings.Cut(string(text), "\n    # gpuPool:")
	if !found {
		t.Fatal("the file has no gpuPool as a comment")
	}
	pool = "    # gpuPool:" + pool
	lines := strings.Split(pool, "\n")
	for i := 0; i < len(lines) && strings.HasPrefix(lines[i], "    # "); i++ {
		lines[i] = "    " + strings.TrimPrefix(lines[i], "    # ")
	}
	var stack struct{ Config map[string]any }
	if err := yaml.UnmarshalStrict([]byte(before+"\n"+strings.Join(lines, "\n")), &stack); err != nil {
		t.Fatal(err)
	}
	s, err := parsed(t, completed(stack.Config))
	if err != nil {
		t.Fatal(err)
	}
	if g := s.GKE.GPUPool; g == nil || g.GPUs != 1 || g.MinNodes != 0 || g.DiskGB < minGPUDisk {
		t.Errorf("%+v", g)
	}
}
