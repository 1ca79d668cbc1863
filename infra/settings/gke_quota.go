package settings

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ownCPUs lists the machine families whose vCPUs have a quota of their own in a region. Those of
// N1, E2 and the smallest types count as CPUS; those of families that are newer than this table as
// CPUS_PER_VM_FAMILY.
var ownCPUs = []string{"a2", "c2", "c2d", "c3", "m1", "m2", "m3", "n2", "n2d", "t2d"}

func cpuMetric(machineType string) string {
	switch f := family(machineType); {
	case slices.Contains([]string{"n1", "e2", "f1", "g1"}, f):
		return "CPUS"
	case slices.Contains(ownCPUs, f):
		return strings.ToUpper(f) + "_CPUS"
	default:
		return "CPUS_PER_VM_FAMILY (" + strings.ToUpper(f) + ")"
	}
}

// DiskType returns a type of disk from which the machine can boot: machines of the fourth
// generation and those with H200s need Hyperdisks.
func (o *GKEPool) DiskType() string {
	if len(o.MachineType) > 1 && o.MachineType[1] == '4' || strings.HasPrefix(o.MachineType, "a3-ultragpu") {
		return "hyperdisk-balanced"
	}
	return "pd-balanced"
}

// Quotas returns what the stack needs, the quotas of the region first. CPUs of unknown machine
// types are not included.
func (g *GKE) Quotas() []CloudQuota {
	var all cloudQuotas
	for _, pool := range g.AllPools() {
		all.addGoogle(g, pool.Path, pool.GKEPool)
		if onDemand := pool.Fallback(); onDemand != nil {
			all.addGoogle(g, pool.Path, onDemand)
		}
	}
	slices.SortStableFunc(all, func(a, b CloudQuota) int {
		rank := map[bool]int{true: 1}
		return rank[a.Project] - rank[b.Project]
	})
	return all
}

// addGoogle adds the needs of nodes of one kind.
func (all *cloudQuotas) addGoogle(g *GKE, path string, pool *GKEPool) {
	cpus, disks := GoogleCPUs(pool.MachineType), "SSD_TOTAL_GB"
	if pool.DiskType() != "pd-balanced" {
		disks = "HDB_TOTAL_GB"
	}
	gpus, addresses := 0, 0
	if pool.Accelerator != "" {
		gpus = pool.GPUs
	}
	if !g.PrivateNodes {
		addresses = 1
	}
	for _, row := range []struct {
		metric  string
		project bool
		each    int
	}{
		{cpuMetric(pool.MachineType), false, cpus},
		{"CPUS_ALL_REGIONS", true, cpus},
		{disks, false, cmp.Or(pool.DiskGB, 100)},
		{gpuMetric(pool), false, gpus},
		{"GPUS_ALL_REGIONS", true, gpus},
		{"IN_USE_ADDRESSES", false, addresses},
	} {
		if nodes := pool.MaxNodes; row.each*nodes > 0 {
			all.of(CloudQuota{ID: row.metric, Project: row.project}, path).
				add(row.each, nodeCount{pool.MinNodes, nodes, nodes})
		}
	}
}

func gpuMetric(pool *GKEPool) string {
	card := strings.Replace(pool.Accelerator, "nvidia-tesla-", "nvidia-", 1)
	if strings.HasPrefix(card, "nvidia-h100-") || strings.HasPrefix(card, "nvidia-h200-") {
		card = strings.TrimSuffix(strings.TrimSuffix(card, "-80gb"), "-141gb")
	}
	metric := strings.ToUpper(strings.ReplaceAll(card, "-", "_")) + "_GPUS"
	if pool.Spot {
		return "PREEMPTIBLE_" + metric
	}
	return metric
}

// QuotaNotes returns a line that says which quotas the stack needs, and which command shows the
// project's quotas.
func (g *GKE) QuotaNotes() []string {
	var inRegion, inProject []string
	for _, q := range g.Quotas() {
		text := fmt.Sprintf("%s %d", q.ID, q.Most)
		if q.Project {
			inProject = append(inProject, text)
		} else {
			inRegion = append(inRegion, text)
		}
	}
	r, _ := Region(g.Location)
	return []string{fmt.Sprintf("gke: with all pools at maxNodes the stack needs these quotas: in %s %s; of the "+
		"project %s. New projects have little of some of them, and no GPUs. "+
		"Compare: gcloud compute regions describe %s --project=%s --flatten='quotas[]' "+
		"--format='table(quotas.metric,quotas.usage,quotas.limit)', and for the project: gcloud "+
		"compute project-info describe",
		r, strings.Join(inRegion, ", "), strings.Join(inProject, ", "), r, g.Project)}
}

// fewCPUs has the number of vCPUs of machine types whose names do not end in it. Shared cores count
// as full ones.
var fewCPUs = map[string]int{
	"e2-micro": 2, "e2-small": 2, "e2-medium": 2, "f1-micro": 1, "g1-small": 1,
	"a2-highgpu-1g": 12, "a2-highgpu-2g": 24, "a2-highgpu-4g": 48, "a2-highgpu-8g": 96, "a2-megagpu-16g": 96,
	"a2-ultragpu-1g": 12, "a2-ultragpu-2g": 24, "a2-ultragpu-4g": 48, "a2-ultragpu-8g": 96,
	"a3-ultragpu-8g": 224, "a4-highgpu-8g": 224,
	"a3-highgpu-1g": 26, "a3-highgpu-2g": 52, "a3-highgpu-4g": 104, "a3-highgpu-8g": 208, "a3-megagpu-8g": 208,
}

var (
	endsInCPUs = regexp.MustCompile(`-([0-9]{1,4})$`)
	customCPUs = regexp.MustCompile(`(?:^|-)custom-([0-9]{1,4})-[0-9]+(?:-ext)?$`)
)

// GoogleCPUs returns the number of vCPUs of a machine type; 0 = not known here.
func GoogleCPUs(machineType string) int {
	for _, form := range []*regexp.Regexp{customCPUs, endsInCPUs} {
		if found := form.FindStringSubmatch(machineType); found != nil {
			n, err := strconv.Atoi(found[1])
			if err == nil {
				return n
			}
		}
	}
	return fewCPUs[machineType]
}
