//go:build !e2e

package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// change is another value for settings, by their paths; nil takes one away.
type change = map[string]any

// base is what the changes of some settings are tried on, where the stack as shipped does not have them.
type base struct {
	name string
	set  change
}

var shipped = base{name: "as shipped"}

// trials are the changes of one setting.
type trials struct {
	on      base
	changes []change
}

func try(changes ...change) trials { return trials{shipped, changes} }

// TestTables holds what pages say of a change against what the engine would do. What a cell says in bold is held: each of its
// outcomes must come of one of the changes below, and no other.
func TestTables(t *testing.T) {
	t.Parallel()
	for stack, changes := range map[string]map[string]trials{"gke": gkeChanges, "eks": eksChanges, "minikube": minikubeChanges} {
		t.Run(stack, func(t *testing.T) {
			t.Parallel()
			rows := settingsOf(t, filepath.Join("docs", "infrastructure", stack+".md"))
			byBase := map[string][]string{}
			bases := map[string]base{}
			for name, row := range rows {
				tried, ok := changes[name]
				if !ok {
					t.Errorf("%s.md:%d: %s: the test has no change of it: add one to its table", stack, row.line, name)
					continue
				}
				byBase[tried.on.name] = append(byBase[tried.on.name], name)
				bases[tried.on.name] = tried.on
			}
			for name := range changes {
				if _, ok := rows[name]; !ok {
					t.Errorf("%s.md has no row of %s", stack, name)
				}
			}
			for of, names := range byBase {
				t.Run(of, func(t *testing.T) {
					t.Parallel()
					e := start(t, stack)
					for path, value := range bases[of].set {
						e.set(path, value)
					}
					e.up()
					for _, name := range slices.Sorted(slices.Values(names)) {
						e.holds(name, rows[name], changes[name].changes)
					}
				})
			}
		})
	}
}

// row is what a page says of a change of a setting.
type row struct {
	line int
	cell string
	says []string // in bold
}

// holds compares a row with the outcomes of changes.
func (e *engine) holds(name string, r row, changes []change) {
	e.Helper()
	was, err := os.ReadFile(e.file)
	if err != nil {
		e.Fatal(err)
	}
	var outcomes, detail []string
	for _, c := range changes {
		for path, value := range c {
			e.set(path, value)
		}
		did, err := e.tryPreview()
		outcome := outcomeOf(did, err)
		if !slices.Contains(outcomes, outcome) {
			outcomes = append(outcomes, outcome)
		}
		why := did.String()
		if err != nil {
			why = lastOf(err.Error(), 12)
		}
		detail = append(detail, outcome+": "+strings.Join(slices.Sorted(maps.Keys(c)), ", ")+"\n"+why)
		if err := os.WriteFile(e.file, was, 0o600); err != nil {
			e.Fatal(err)
		}
	}
	slices.Sort(outcomes)
	if !slices.Equal(outcomes, r.says) {
		e.Errorf("%s.md:%d: %s: the page says %q (%s), and the engine %q:\n%s", e.stack.Name(), r.line, name, r.says, r.cell, outcomes, strings.Join(detail, "\n"))
	}
}

// What pages call the replacement of a resource, the gravest first.
var replacements = []struct{ kind, outcome string }{
	{"gcp:container/cluster:Cluster", "replaces the cluster"},
	{"aws:eks/cluster:Cluster", "replaces the cluster"},
	{"command:local:Command start", "replaces the cluster"}, // of minikube
	{"gcp:container/nodePool:NodePool", "replaces the pool"},
	{"aws:eks/nodeGroup:NodeGroup", "replaces the group"},
	{"kubernetes:core/v1:PersistentVolume ", "replaces the volume"},
	{"", "replaces something else"},
}

// rolls are updates for which a pool's nodes are replaced by others. A group of EKS follows its launch template.
var rolls = regexp.MustCompile(`^update (gcp:container/nodePool:NodePool .*nodeConfig\.(machineType|diskType|diskSizeGb|imageType)|` +
	`aws:ec2/launchTemplate:LaunchTemplate .*(blockDeviceMappings|metadataOptions|tagSpecifications)|aws:eks/nodeGroup:NodeGroup .*version)`)

// outcomeOf says in a page's words what a preview would do.
func outcomeOf(did steps, err error) string {
	if err != nil {
		return "refused"
	}
	for _, r := range replacements {
		if slices.ContainsFunc(did, func(step string) bool { return strings.HasPrefix(step, "replace "+r.kind) }) {
			return r.outcome
		}
	}
	switch {
	case slices.ContainsFunc(did, rolls.MatchString):
		return "rolls the nodes"
	case len(did) == 0:
		return "nothing"
	}
	return "in place"
}

var (
	bold   = regexp.MustCompile(`\*\*([^*]+)\*\*`)
	quoted = regexp.MustCompile("`([^`]+)`")
)

// settingsOf are the rows of a page's tables whose last column is "a change". A setting of a section has its name before it.
func settingsOf(t *testing.T, file string) map[string]row {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rows, n, in, of := map[string]row{}, 0, false, ""
	for line := range strings.Lines(string(text)) {
		n++
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		first, last := strings.TrimSpace(cells[0]), strings.TrimSpace(cells[len(cells)-1])
		switch {
		case !strings.HasPrefix(line, "|"):
			in = false
		case last == "a change":
			in, of = true, ""
			if section, ok := strings.CutPrefix(first, "of "); ok {
				of = strings.Trim(strings.TrimPrefix(section, "a "), "`") + "."
			}
		case in && !strings.HasPrefix(line, "|---"):
			var says []string
			for _, word := range bold.FindAllStringSubmatch(last, -1) {
				if !slices.Contains(says, word[1]) {
					says = append(says, word[1])
				}
			}
			slices.Sort(says)
			rows[of+quoted.FindStringSubmatch(first)[1]] = row{n, last, says} // others of the cell go with its first
		}
	}
	if len(rows) < 8 {
		t.Fatalf("%s: %d settings: where are its tables?", file, len(rows))
	}
	return rows
}

var (
	regional = base{"regional", change{"elasticdl:gke.location": "us-central1", "elasticdl:gke.nodeZones": []any{"us-central1-a", "us-central1-b", "us-central1-c"}, "elasticdl:gke.filestore.location": "us-central1-a",
		"elasticdl:gke.systemPool.minNodes": 3, "elasticdl:gke.systemPool.maxNodes": 3}}
	existing = base{"a VPC that is there", change{"elasticdl:eks.vpc.cidr": nil, "elasticdl:eks.vpc.zones": nil, "elasticdl:eks.vpc.natPerZone": nil,
		"elasticdl:eks.vpc.id": "vpc-0123456789abcdef0", "elasticdl:eks.vpc.privateSubnets": subnets("a", "b")}}
	groups = base{"groups of all kinds", change{"elasticdl:eks.workerGroup.desiredNodes": 3,
		"elasticdl:eks.gpuGroup": change{"instanceTypes": []any{"g6f.xlarge"}, "gpus": 1, "maxNodes": 2}}}
	publicNodes = base{"public nodes", change{"elasticdl:gke.privateNodes": false}}
	withGPUs    = base{"GPUs and a chosen range", change{"elasticdl:gke.gpuPool": change{"machineType": "n1-standard-4", "accelerator": "nvidia-tesla-t4", "gpus": 1, "maxNodes": 2}, "elasticdl:gke.filestore.range": "10.60.0.0/29"}}
)

// inGKE and inEKS are changes of one setting of a section.
func inGKE(path string, value any) change { return change{"elasticdl:gke." + path: value} }
func inEKS(path string, value any) change { return change{"elasticdl:eks." + path: value} }

func inMinikube(path string, value any) change { return change{"elasticdl:minikube." + path: value} }

// subnets are private ones of the simulated VPC, in zones.
func subnets(zones ...string) (ids []any) {
	for _, zone := range zones {
		ids = append(ids, "subnet-0123456789abcde"+zone+zone)
	}
	return ids
}

var gkeChanges = map[string]trials{
	"location":               try(inGKE("location", "us-central1-b"), change{"elasticdl:gke.location": "us-central1-b", "elasticdl:gke.filestore.location": "us-central1-c"}),
	"nodeZones":              {regional, []change{inGKE("nodeZones", []any{"us-central1-a", "us-central1-b"}), inGKE("nodeZones", []any{"us-central1-a", "us-central1-b", "us-central1-f"}), inGKE("nodeZones", nil)}},
	"releaseChannel":         try(inGKE("releaseChannel", "STABLE")),
	"privateNodes: true":     {publicNodes, []change{inGKE("privateNodes", true)}},
	"privateNodes: false":    try(inGKE("privateNodes", false)),
	"authorizedNetworks":     try(inGKE("authorizedNetworks", []any{change{"cidr": "192.0.2.0/24"}})),
	"deletionProtection":     try(inGKE("deletionProtection", true)),
	"ranges.nodes":           try(inGKE("ranges.nodes", "10.0.0.0/19"), inGKE("ranges.nodes", "10.0.64.0/20")),
	"ranges.pods":            try(inGKE("ranges.pods", "10.8.0.0/14")),
	"ranges.services":        try(inGKE("ranges.services", "10.0.48.0/20")),
	"ranges.master":          try(inGKE("ranges.master", "172.16.0.48/28")),
	"maintenance.dailyStart": try(inGKE("maintenance.dailyStart", "04:00")),
	"maintenance.window":     try(inGKE("maintenance", change{"window": change{"start": "2026-12-05T02:00:00Z", "end": "2026-12-05T08:00:00Z", "recurrence": "FREQ=WEEKLY;BYDAY=SA,SU"}})),
	"maintenance.exclusions": try(inGKE("maintenance.exclusions", []any{change{"name": "year-end", "start": "2026-12-20T00:00:00Z", "end": "2027-01-04T00:00:00Z"}})),
	"labels":                 try(change{"elasticdl:labels": change{"team": "vision"}}),
	"jobRoles":               try(inGKE("jobRoles", []any{"roles/storage.objectViewer"})),
	"filestore":              try(inGKE("filestore", nil), change{"elasticdl:gke.filestore": nil, "elasticdl:data": nil, "elasticdl:job": nil, "elasticdl:image": nil}),

	"pool.machineType": try(inGKE("workerPool.machineType", "n1-standard-4")),
	"pool.minNodes":    try(inGKE("systemPool.minNodes", 2), inGKE("workerPool.maxNodes", 4)),
	"pool.spot":        try(inGKE("workerPool.spot", true)),
	"pool.diskGb":      try(inGKE("workerPool.diskGb", 200)),
	"pool.accelerator": {withGPUs, []change{{"elasticdl:gke.gpuPool.accelerator": "nvidia-l4", "elasticdl:gke.gpuPool.machineType": "g2-standard-4"}, inGKE("gpuPool.gpus", 2)}},
	"pool.gpuDriver":   {withGPUs, []change{inGKE("gpuPool.gpuDriver", "LATEST")}},
	"pool.labels":      try(inGKE("workerPool.labels", change{"disk": "fast"})),

	"filestore.tier":       try(change{"elasticdl:gke.filestore.tier": "BASIC_SSD", "elasticdl:gke.filestore.capacityGb": 2560}),
	"filestore.capacityGb": try(inGKE("filestore.capacityGb", 2048)),
	"filestore.share":      try(inGKE("filestore.share", "other")),
	"filestore.location":   try(inGKE("filestore.location", "us-central1-b")),
	"filestore.range":      {withGPUs, []change{inGKE("filestore.range", "10.61.0.0/29"), inGKE("filestore.range", nil)}},
}

var eksChanges = map[string]trials{
	"version":            try(inEKS("version", "1.36")),
	"supportType":        try(inEKS("supportType", "EXTENDED")),
	"vpc.cidr":           try(inEKS("vpc.cidr", "10.1.0.0/16")),
	"vpc.zones":          try(inEKS("vpc.zones", []any{"us-west-2a", "us-west-2b", "us-west-2c"}), inEKS("vpc.zones", []any{"us-west-2a", "us-west-2c"}), inEKS("vpc.zones", []any{"us-west-2b", "us-west-2a"})),
	"vpc.natPerZone":     try(inEKS("vpc.natPerZone", true)),
	"vpc.id":             {existing, []change{inEKS("vpc.id", "vpc-0fedcba9876543210")}},
	"vpc.privateSubnets": {existing, []change{inEKS("vpc.privateSubnets", subnets("a", "b", "c"))}},
	"vpc.publicSubnets":  {existing, []change{inEKS("vpc.publicSubnets", subnets("d"))}},
	"publicAccess":       try(change{"elasticdl:eks.publicAccess": false, "elasticdl:eks.authorizedNetworks": nil}),
	"authorizedNetworks": try(inEKS("authorizedNetworks", []any{change{"cidr": "192.0.2.0/24"}})),
	"admins":             try(inEKS("admins", []any{"arn:aws:iam::123456789012:role/admin"})),
	"efs":                try(inEKS("efs", nil), change{"elasticdl:eks.efs": nil, "elasticdl:data": nil, "elasticdl:job": nil, "elasticdl:image": nil}),
	"codeBucket":         try(inEKS("codeBucket", false)),
	"logRetentionDays":   try(inEKS("logRetentionDays", 7)),
	"labelNodes":         try(inEKS("labelNodes", true), change{"elasticdl:eks.labelNodes": true, "elasticdl:labels.team": "vision"}),

	"group.instanceTypes": {groups, []change{inEKS("workerGroup.instanceTypes", []any{"m6i.xlarge"})}},
	"group.minNodes":      {groups, []change{inEKS("workerGroup.minNodes", 1)}},
	"group.maxNodes":      {groups, []change{inEKS("systemGroup.maxNodes", 4), {"elasticdl:eks.workerGroup.maxNodes": 2, "elasticdl:eks.workerGroup.desiredNodes": 1}}},
	"group.desiredNodes":  {groups, []change{inEKS("workerGroup.desiredNodes", 1)}},
	"group.spot":          {groups, []change{inEKS("workerGroup.spot", true)}},
	"group.diskGb":        {groups, []change{inEKS("workerGroup.diskGb", 200)}},
	"group.gpus":          {groups, []change{inEKS("gpuGroup.gpus", 2)}},
	"group.labels":        {groups, []change{inEKS("workerGroup.labels", change{"disk": "fast"})}},

	"efs.throughputMode": try(inEKS("efs.throughputMode", "bursting")),
	"efs.uid":            try(inEKS("efs.uid", 1000)),
}

var minikubeChanges = map[string]trials{
	"profile":           try(inMinikube("profile", "another")),
	"driver":            try(inMinikube("driver", "docker")),
	"cpus":              try(inMinikube("cpus", 4), inMinikube("memoryMb", 8192), inMinikube("diskGb", 60)),
	"kubernetesVersion": try(inMinikube("kubernetesVersion", "v1.34.0")),
	"cni":               try(inMinikube("cni", "calico")),
	"gpus":              try(change{"elasticdl:minikube.gpus": "all", "elasticdl:minikube.driver": "docker"}),
	"data":              try(inMinikube("data", "stacks/testdata")),
	"adopt":             try(inMinikube("adopt", true)),
}
