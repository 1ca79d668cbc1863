package settings

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The column "default" of the pages' tables agrees with the code.
func TestDefaultsOnPages(t *testing.T) {
	g, e, m := defaults(CloudGKE, "amd64").GKE, defaults(CloudEKS, "amd64").EKS,
		defaults(CloudMinikube, "amd64").Minikube
	system := func(v any) string { return fmt.Sprint(v, " (system)") }
	for page, rows := range map[string]map[string][]string{
		"gke": {
			"`releaseChannel`": {g.ReleaseChannel}, "`deletionProtection`": {fmt.Sprint(g.DeletionProtection)},
			"`ranges.nodes`": {g.Ranges.Nodes}, "`ranges.pods`": {g.Ranges.Pods},
			"`ranges.services`": {g.Ranges.Services}, "`ranges.master`": {g.Ranges.Master},
			"`filestore`":            {fmt.Sprint(g.Filestore.Tier, ", ", g.Filestore.CapacityGB)},
			"`machineType`":          {system(g.SystemPool.MachineType)},
			"`minNodes`, `maxNodes`": {system(fmt.Sprint(g.SystemPool.MinNodes, ", ", g.SystemPool.MaxNodes))},
			"`spot`":                 {fmt.Sprint(g.WorkerPool.Spot), fmt.Sprint(g.GPUPool.Spot)},
			"`gpuDriver`":            {g.GPUPool.GPUDriver},
			"`diskGb`": {fmt.Sprint(g.SystemPool.DiskGB), fmt.Sprint(g.WorkerPool.DiskGB),
				fmt.Sprint(g.GPUPool.DiskGB)},
			"`tier`": {g.Filestore.Tier}, "`capacityGb`": {fmt.Sprint(g.Filestore.CapacityGB)},
			"`share`": {g.Filestore.Share},
		},
		"eks": {
			"`supportType`": {e.SupportType}, "`vpc.cidr`": {e.VPC.CIDR},
			"`vpc.natPerZone`": {fmt.Sprint(e.VPC.NATPerZone)},
			"`publicAccess`":   {fmt.Sprint(e.PublicAccess)}, "`codeBucket`": {fmt.Sprint(e.CodeBucket)},
			"`logRetentionDays`": {fmt.Sprint(e.LogRetentionDays)},
			"`instanceTypes`":    {system(e.SystemGroup.InstanceTypes[0])},
			"`minNodes`":         {system(e.SystemGroup.MinNodes)}, "`maxNodes`": {system(e.SystemGroup.MaxNodes)},
			"`desiredNodes`": {system(e.SystemGroup.DesiredNodes)}, "`throughputMode`": {e.EFS.ThroughputMode},
			"`diskGb`": {fmt.Sprint(e.SystemGroup.DiskGB), fmt.Sprint(e.WorkerGroup.DiskGB),
				fmt.Sprint(e.GPUGroup.DiskGB)},
		},
		"minikube": {
			"`cpus`, `memoryMb`, `diskGb`": {fmt.Sprint(m.CPUs, ", ", m.MemoryMB, ", ", m.DiskGB)},
			"`kubernetesVersion`":          {"`" + m.KubernetesVersion + "`"},
			"`adopt`":                      {"`" + fmt.Sprint(m.Adopt) + "`"},
		},
	} {
		text, err := os.ReadFile("../../docs/infrastructure/" + page + ".md")
		if err != nil {
			t.Fatal(err)
		}
		cells := map[string]string{}
		for line := range strings.Lines(string(text)) {
			if c := strings.Split(line, " | "); len(c) > 2 {
				cells[strings.TrimPrefix(c[0], "| ")] = c[1]
			}
		}
		for row, values := range rows {
			for _, want := range values {
				if got := cells[row]; got != want {
					t.Errorf("%s.md, row %s: default %q, and it is %s", page, row, got, want)
				}
			}
		}
	}
}
