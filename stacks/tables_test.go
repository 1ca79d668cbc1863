//go:build !e2e

package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/elasticdl/elasticdl/test/provider"
)

// change has new values of settings, by their paths; nil removes one.
type change = map[string]any

// base is a stack with other settings, for changes that do not apply to the shipped one.
type base struct {
	name string
	set  change
}

var shipped = base{name: "as shipped"}

// trial is a change of a setting, and the stack on which it is tried.
type trial struct {
	on     base
	change change
}

// try returns trials on the shipped stack.
func try(changes ...change) []trial { return shipped.try(changes...) }

func (b base) try(changes ...change) (all []trial) {
	for _, c := range changes {
		all = append(all, trial{b, c})
	}
	return all
}

// TestTables compares what the pages say of changes with what the engine would do. The words in
// bold are checked: each outcome in a cell must be that of one of the changes below, and there must
// be no other. Each change that the preview accepts is made and undone: see [engine.makes]. With
// -short that is one change of each setting. At the end each stack is destroyed, and nothing is
// left.
func TestTables(t *testing.T) {
	t.Parallel()
	for stack, settings := range map[string]map[string][]trial{"gke": gkeChanges, "eks": eksChanges,
		"minikube": minikubeChanges, "existing": existingChanges} {
		t.Run(stack, func(t *testing.T) {
			t.Parallel()
			rows := settingsOf(t, filepath.Join("docs", "infrastructure", stack+".md"))
			bases := map[string]base{}
			for _, name := range slices.Sorted(maps.Keys(rows)) {
				if len(settings[name]) == 0 {
					t.Errorf("%s.md:%d: %s: the test has no change of it: add one to its table", stack,
						rows[name].line, name)
				}
			}
			for name, trials := range settings {
				if _, ok := rows[name]; !ok {
					t.Errorf("%s.md has no row of %s", stack, name)
				}
				for _, tried := range trials {
					bases[tried.on.name] = tried.on
				}
			}
			var (
				mu    sync.Mutex
				found = map[string][]finding{}
			)
			t.Run("on", func(t *testing.T) {
				for of, b := range bases {
					t.Run(of, func(t *testing.T) {
						t.Parallel()
						e := b.start(t, stack)
						for _, name := range slices.Sorted(maps.Keys(settings)) {
							made := false
							for _, tried := range settings[name] {
								if tried.on.name != of {
									continue
								}
								f := e.find(tried.change)
								makes := f.accepted != nil && !(testing.Short() && made)
								made = made || makes
								if makes && !e.makes(tried.change, f, rows[name].oneWay()) {
									e.setAll(tried.change)
									e.end()
									e = b.start(t, stack)
								}
								mu.Lock()
								found[name] = append(found[name], f)
								mu.Unlock()
							}
						}
						e.end()
					})
				}
			})
			for name, r := range rows {
				r.holds(t, stack+".md", name, found[name])
			}
		})
	}
}

// finding is the engine's plan for a change: the outcome in the pages' words, and details.
type finding struct {
	outcome, detail string
	// the steps of the preview; nil = the preview refuses the change
	accepted steps
}

// setAll changes settings, a section before its fields.
func (e *engine) setAll(c change) {
	for _, path := range slices.Sorted(maps.Keys(c)) {
		e.set(path, c[path])
	}
}

// pathsOf returns the paths of a change, for messages.
func pathsOf(c change) string { return strings.Join(slices.Sorted(maps.Keys(c)), ", ") }

// with does something with changed settings, and sets them back.
func (e *engine) with(c change, do func()) {
	e.Helper()
	was, err := os.ReadFile(e.file)
	if err != nil {
		e.Fatal(err)
	}
	e.setAll(c)
	do()
	if err := os.WriteFile(e.file, was, 0o600); err != nil {
		e.Fatal(err)
	}
}

// find previews a change.
func (e *engine) find(c change) (f finding) {
	e.Helper()
	e.with(c, func() {
		did, failed := e.tryPreview()
		why := did.String()
		if failed != nil {
			why = lastOf(failed.Error(), 12)
		} else {
			f.accepted = append(steps{}, did...)
		}
		f.outcome = outcomeOf(did, failed)
		f.detail = f.outcome + ": " + pathsOf(c) + "\n" + why
	})
	return f
}

// row is a row of a page's table, about a change of a setting.
type row struct {
	line int
	cell string
	says []string // the words in bold
}

// holds compares a row with the findings.
func (r row) holds(t *testing.T, page, name string, found []finding) {
	t.Helper()
	var outcomes, details []string
	for _, f := range found {
		if !slices.Contains(outcomes, f.outcome) {
			outcomes = append(outcomes, f.outcome)
		}
		details = append(details, f.detail)
	}
	slices.Sort(outcomes)
	if !slices.Equal(outcomes, r.says) {
		t.Errorf("%s:%d: %s: the page says %q (%s), and the engine %q:\n%s", page, r.line, name, r.says,
			r.cell, outcomes, strings.Join(details, "\n"))
	}
}

// replacements has the pages' words for the replacement of a resource, the gravest first.
var replacements = []struct{ kind, outcome string }{
	{"gcp:container/cluster:Cluster", "replaces the cluster"},
	{"aws:eks/cluster:Cluster", "replaces the cluster"},
	{"command:local:Command start", "replaces the cluster"}, // the profile of minikube
	{"gcp:container/nodePool:NodePool", "replaces the pool"},
	{"aws:eks/nodeGroup:NodeGroup", "replaces the group"},
	{"kubernetes:core/v1:PersistentVolume ", "replaces the volume"},
	{"kubernetes:batch/v1:Job ", "submits the job again"},
	{"gcp:billing/budget:Budget", "replaces the budget"},
	{"", "replaces something else"},
}

// rolls matches updates that replace the nodes of a pool. A group of EKS follows its launch
// template.
var rolls = regexp.MustCompile(
	`^update (gcp:container/nodePool:NodePool .*nodeConfig\.(machineType|diskType|diskSizeGb|imageType)|` +
		`aws:ec2/launchTemplate:LaunchTemplate .*(blockDeviceMappings|metadataOptions|tagSpecifications)|aws:eks/nodeGroup:NodeGroup .*version)`)

// outcomeOf returns what a preview would do, in the words of the pages.
func outcomeOf(did steps, err error) string {
	switch {
	case err != nil && strings.Contains(err.Error(), "unable to replace resource"):
		// the resource is protected
		return "refused"
	case err != nil && strings.Contains(err.Error(), "policy replaced-cluster"):
		// the policy refuses it
		return "replaces the cluster"
	case err != nil && strings.Contains(err.Error(), "the volume and its claim have to be made again"):
		// refused because a job is running
		return "replaces the volume"
	case err != nil:
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

// settingsOf returns the rows of a page's tables whose last column is "a change". The name of a
// setting in a section has the section's name as prefix.
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
			// the other names in the cell have the same row
			rows[of+quoted.FindStringSubmatch(first)[1]] = row{n, last, says}
		}
	}
	if len(rows) < 8 {
		t.Fatalf("%s: %d settings: where are its tables?", file, len(rows))
	}
	return rows
}

var (
	regional = base{"regional", change{"elasticdl:gke.location": "us-central1",
		"elasticdl:gke.nodeZones":           []any{"us-central1-a", "us-central1-b", "us-central1-c"},
		"elasticdl:gke.systemPool.minNodes": 3, "elasticdl:gke.systemPool.maxNodes": 4}}
	// the job's results are in another bucket
	elsewhereKept = base{"results elsewhere", change{"elasticdl:job.checkpointDir": "gs://mine/c",
		"elasticdl:job.output": "gs://mine/m"}}
	filesGKE = base{"Filestore", merge(onVolume("fileserver-claim"), change{"elasticdl:gke.filestore": change{
		"tier": "BASIC_HDD", "capacityGb": 1024, "share": "data"}})}
	filesEKS = base{"EFS", merge(onVolume("efs-claim"),
		change{"elasticdl:eks.efs": change{"throughputMode": "elastic"}})}
	elsewhere = base{"a VPC that is there",
		change{"elasticdl:eks.vpc.cidr": nil, "elasticdl:eks.vpc.zones": nil, "elasticdl:eks.vpc.natPerZone": nil,
			"elasticdl:eks.vpc.id": "vpc-0123456789abcdef0", "elasticdl:eks.vpc.privateSubnets": subnets("a", "b")}}
	filesElsewhere = base{"EFS in a VPC that is there", merge(filesEKS.set, elsewhere.set)}
	groups         = base{"groups of all kinds", merge(managed, change{"elasticdl:eks.workerGroup.desiredNodes": 3,
		"elasticdl:eks.gpuGroup": change{"instanceTypes": []any{"g6f.xlarge"}, "gpus": 1, "maxNodes": 2}})}
	listed = base{"a pool of a list", change{"elasticdl:gke.workerPool": nil,
		"elasticdl:gke.pools": []any{cheap(nil)}}}
	managedAlone     = base{"groups", managed}
	elsewhereManaged = base{"groups in a VPC that is there", merge(managed, elsewhere.set)}
	budgeted         = base{"a budget", change{"elasticdl:budget": change{"monthly": 500,
		"mail": []any{"ops@example.com"}}}}
	paid = base{"a budget of an account", change{"elasticdl:budget": change{"monthly": 500,
		"mail": []any{"ops@example.com"}, "billingAccount": "012345-567890-ABCDEF"}}}
	// a Shared VPC
	inSubnet = change{"elasticdl:gke.subnet": change{"name": provider.ExistingSubnet},
		"elasticdl:gke.ranges.nodes": nil,
		"elasticdl:gke.ranges.pods":  nil, "elasticdl:gke.ranges.services": nil}
	shared      = base{"a Shared VPC", inSubnet}
	filesShared = base{"files in a Shared VPC", merge(inSubnet, onVolume("fileserver-claim"),
		inGKE("filestore", change{"name": provider.ExistingInstance}))}
	publicNodes = base{"public nodes", change{"elasticdl:gke.privateNodes": false}}
	withGPUs    = base{"GPUs and a chosen range",
		change{"elasticdl:gke.gpuPool": change{"machineType": "n1-standard-4",
			"accelerator": "nvidia-tesla-t4", "gpus": 1, "maxNodes": 2},
			"elasticdl:gke.filestore": change{"tier": "BASIC_HDD", "capacityGb": 1024, "share": "data",
				"range": "10.60.0.0/29"}}}
)

// managed has the settings of a stack on EKS with managed node groups.
var managed = change{"elasticdl:eks.nodes": "groups", "elasticdl:eks.pools": nil,
	"elasticdl:eks.systemGroup.minNodes": 1, "elasticdl:eks.systemGroup.desiredNodes": 1,
	"elasticdl:eks.workerGroup": change{"instanceTypes": []any{"m6i.large"}, "minNodes": 0, "desiredNodes": 1,
		"maxNodes": 3}, "elasticdl:job.maxWorkers": 3}

// onVolume returns the settings of a stack whose job has its data on a volume.
func onVolume(claim string) change {
	return change{"elasticdl:data.path": "mnist", "elasticdl:job.trainingData": "/data/mnist/train",
		"elasticdl:job.validationData": "/data/mnist/test",
		"elasticdl:job.volumes":        []any{change{"claimName": claim, "mountPath": "/data"}}}
}

func merge(all ...change) change {
	one := change{}
	for _, c := range all {
		maps.Copy(one, c)
	}
	return one
}

// noJob takes a section of a cloud away together with the job.
func noJob(section string) change {
	return change{"elasticdl:" + section: nil, "elasticdl:data": nil, "elasticdl:job": nil, "elasticdl:image": nil}
}

// inGKE and inEKS return a change of one setting of a section.
func inGKE(path string, value any) change { return change{"elasticdl:gke." + path: value} }
func inEKS(path string, value any) change { return change{"elasticdl:eks." + path: value} }

func inExisting(path string, value any) change { return change{"elasticdl:existing." + path: value} }
func inMinikube(path string, value any) change { return change{"elasticdl:minikube." + path: value} }

// subnets returns private subnets of the simulated VPC, in the given zones.
func subnets(zones ...string) (ids []any) {
	for _, zone := range zones {
		ids = append(ids, "subnet-0123456789abcde"+zone+zone)
	}
	return ids
}

var gkeChanges = map[string][]trial{
	"location": append(filesGKE.try(inGKE("location", "us-central1-b"),
		change{"elasticdl:gke.location": "us-central1-b", "elasticdl:gke.filestore.location": "us-central1-c"}),
		try(inGKE("location", "us-central1-b"), inGKE("location", "us-east1-b"))...),
	"nodeZones": regional.try(inGKE("nodeZones", []any{"us-central1-a", "us-central1-b"}),
		inGKE("nodeZones", []any{"us-central1-a", "us-central1-b", "us-central1-c", "us-central1-f"}),
		inGKE("nodeZones", nil)),
	"releaseChannel":         try(inGKE("releaseChannel", "STABLE")),
	"privateNodes: true":     publicNodes.try(inGKE("privateNodes", true)),
	"privateNodes: false":    try(inGKE("privateNodes", false)),
	"authorizedNetworks":     try(inGKE("authorizedNetworks", []any{change{"cidr": "192.0.2.0/24"}})),
	"subnet.name":            shared.try(inGKE("subnet.name", provider.ExistingSubnet+"-2")),
	"subnet.pods":            shared.try(inGKE("subnet.pods", "more-pods")),
	"deletionProtection":     try(inGKE("deletionProtection", true)),
	"ranges.nodes":           try(inGKE("ranges.nodes", "10.0.0.0/19"), inGKE("ranges.nodes", "10.0.64.0/20")),
	"ranges.pods":            try(inGKE("ranges.pods", "10.8.0.0/14")),
	"ranges.services":        try(inGKE("ranges.services", "10.0.48.0/20")),
	"ranges.master":          try(inGKE("ranges.master", "172.16.0.48/28")),
	"maintenance.dailyStart": try(inGKE("maintenance.dailyStart", "04:00")),
	"maintenance.window": try(
		inGKE("maintenance", change{"window": change{"start": "2026-12-05T02:00:00Z",
			"end": "2026-12-05T08:00:00Z", "recurrence": "FREQ=WEEKLY;BYDAY=SA,SU"}})),
	"maintenance.exclusions": try(inGKE("maintenance.exclusions",
		[]any{change{"name": "year-end", "start": "2026-12-20T00:00:00Z", "end": "2027-01-04T00:00:00Z"}})),
	"labels":      try(change{"elasticdl:labels": change{"team": "vision"}}),
	"registry":    try(inGKE("registry", provider.ExistingImages)),
	"kmsKey":      try(inGKE("kmsKey", provider.ExistingGoogleKey)),
	"nodeAccount": try(inGKE("nodeAccount", provider.ExistingNodeAccount)),
	"jobRoles":    try(inGKE("jobRoles", []any{"roles/storage.objectViewer"})),
	"bucket":      try(inGKE("bucket", nil), noJob("gke.bucket")),
	"filestore":   filesGKE.try(inGKE("filestore", nil), noJob("gke.filestore")),

	"pool.machineType": try(inGKE("workerPool.machineType", "n1-standard-4")),
	"pool.minNodes":    try(inGKE("systemPool.minNodes", 2), inGKE("workerPool.maxNodes", 4)),
	"pool.spot":        try(inGKE("workerPool.spot", true)),
	"pool.diskGb":      try(inGKE("workerPool.diskGb", 200)),
	"pool.accelerator": withGPUs.try(change{"elasticdl:gke.gpuPool.accelerator": "nvidia-l4",
		"elasticdl:gke.gpuPool.machineType": "g2-standard-4"}, inGKE("gpuPool.gpus", 2)),
	"pool.gpuDriver": withGPUs.try(inGKE("gpuPool.gpuDriver", "LATEST")),
	"pool.labels":    try(inGKE("workerPool.labels", change{"disk": "fast"})),

	"pools":                   try(inGKE("pools", []any{cheap(nil)})),
	"listed pool.name":        listed.try(inGKE("pools", []any{cheap(change{"name": "dear"})})),
	"listed pool.onDemand":    listed.try(inGKE("pools", []any{cheap(change{"onDemand": true})})),
	"listed pool.zones":       listed.try(inGKE("pools", []any{cheap(change{"zones": []any{"us-central1-b"}})})),
	"listed pool.reservation": listed.try(inGKE("pools", []any{cheap(change{"spot": false, "reservation": "ours"})})),
	"listed pool.taints": listed.try(inGKE("pools", []any{cheap(change{"taints": []any{change{"key": "team",
		"value": "a"}}})})),

	"bucket.name":            try(inGKE("bucket.name", provider.ExistingBucket)),
	"bucket.access":          elsewhereKept.try(inGKE("bucket.access", "read")),
	"bucket.keepDeletedDays": try(inGKE("bucket.keepDeletedDays", 30)),
	"bucket.expireDays":      try(inGKE("bucket.expireDays", change{"elasticdl-other/": 30})),
	"bucket.storageClass":    try(inGKE("bucket.storageClass", "NEARLINE")),
	"bucket.location":        try(inGKE("bucket.location", "us")),
	"bucket.kmsKey": try(inGKE("bucket.kmsKey",
		"projects/p/locations/us-central1/keyRings/r/cryptoKeys/k")),

	"budget.monthly":        paid.try(change{"elasticdl:budget.monthly": 600}),
	"budget.mail":           paid.try(change{"elasticdl:budget.mail": []any{"ann@example.com"}}),
	"budget.thresholds":     paid.try(change{"elasticdl:budget.thresholds": []any{80}}),
	"budget.billingAccount": paid.try(change{"elasticdl:budget.billingAccount": "FEDCBA-567890-ABCDEF"}),

	"filestore.name": filesShared.try(inGKE("filestore.name", provider.ExistingInstance+"-2")),
	"filestore.tier": filesGKE.try(change{"elasticdl:gke.filestore.tier": "BASIC_SSD",
		"elasticdl:gke.filestore.capacityGb": 2560}),
	"filestore.capacityGb": filesGKE.try(inGKE("filestore.capacityGb", 2048)),
	"filestore.share":      filesGKE.try(inGKE("filestore.share", "other")),
	"filestore.location":   filesGKE.try(inGKE("filestore.location", "us-central1-b")),
	"filestore.range":      withGPUs.try(inGKE("filestore.range", "10.61.0.0/29"), inGKE("filestore.range", nil)),
}

var eksChanges = map[string][]trial{
	"version":     append(try(inEKS("version", "1.36")), groups.try(inEKS("version", "1.36"))...),
	"supportType": try(inEKS("supportType", "EXTENDED")),
	"vpc.cidr":    try(inEKS("vpc.cidr", "10.1.0.0/16")),
	"vpc.zones": append(try(inEKS("vpc.zones", []any{"us-west-2a", "us-west-2b", "us-west-2c"}),
		inEKS("vpc.zones", []any{"us-west-2a", "us-west-2c"}), inEKS("vpc.zones", []any{"us-west-2b", "us-west-2a"})),
		groups.try(inEKS("vpc.zones", []any{"us-west-2a", "us-west-2b", "us-west-2c"}))...),
	"vpc.natPerZone": try(inEKS("vpc.natPerZone", true)),
	"vpc.id":         elsewhere.try(inEKS("vpc.id", "vpc-0fedcba9876543210")),
	"vpc.privateSubnets": append(elsewhere.try(inEKS("vpc.privateSubnets", subnets("a", "b", "c"))),
		elsewhereManaged.try(inEKS("vpc.privateSubnets", subnets("a", "b", "c")))...),
	"vpc.publicSubnets":  elsewhere.try(inEKS("vpc.publicSubnets", subnets("d"))),
	"publicAccess":       try(change{"elasticdl:eks.publicAccess": false, "elasticdl:eks.authorizedNetworks": nil}),
	"authorizedNetworks": try(inEKS("authorizedNetworks", []any{change{"cidr": "192.0.2.0/24"}})),
	"admins":             try(inEKS("admins", []any{"arn:aws:iam::123456789012:role/admin"})),
	"bucket":             try(inEKS("bucket", nil), noJob("eks.bucket")),
	"efs":                filesEKS.try(inEKS("efs", nil), noJob("eks.efs")),
	"codeBucket":         try(inEKS("codeBucket", false)),
	"nodeRole": append(try(inEKS("nodeRole", provider.ExistingNodeRole)),
		managedAlone.try(inEKS("nodeRole", provider.ExistingNodeRole))...),
	"registry": try(inEKS("registry", provider.ExistingRegistry)),
	"kmsKey": append(try(inEKS("kmsKey", provider.ExistingKey)),
		managedAlone.try(inEKS("kmsKey", provider.ExistingKey))...),
	"jobPolicies":      try(inEKS("jobPolicies", []any{"arn:aws:iam::123456789012:policy/data"})),
	"logRetentionDays": try(inEKS("logRetentionDays", 7)),
	"labelNodes": append(try(inEKS("labelNodes", true)), groups.try(inEKS("labelNodes", true),
		change{"elasticdl:eks.labelNodes": true, "elasticdl:labels.team": "vision"})...),
	"nodes": append(managedAlone.try(change{"elasticdl:eks.nodes": "karpenter", "elasticdl:eks.workerGroup": nil,
		"elasticdl:eks.pools": []any{workers(nil)}}), try(change{"elasticdl:eks.nodes": "karpenter",
		"elasticdl:eks.systemGroup.minNodes": 1, "elasticdl:eks.systemGroup.desiredNodes": 1})...),
	"pools": try(inEKS("pools", []any{workers(nil), workers(change{"name": "more"})})),

	"pool.name":          try(inEKS("pools", []any{workers(change{"name": "others"})})),
	"pool.instanceTypes": try(inEKS("pools", []any{workers(change{"instanceTypes": []any{"m5.large"}})})),
	"pool.maxNodes":      try(inEKS("pools", []any{workers(change{"maxNodes": 9})})),
	"pool.spot":          try(inEKS("pools", []any{workers(change{"spot": true})})),
	"pool.onDemand":      try(inEKS("pools", []any{workers(change{"spot": true, "onDemand": true})})),
	"pool.zones":         try(inEKS("pools", []any{workers(change{"zones": []any{"us-west-2b"}})})),
	"pool.gpus": try(inEKS("pools", []any{workers(nil), change{"name": "cards", "instanceTypes": []any{"g6.xlarge"},
		"gpus": 1, "maxNodes": 1}})),
	"pool.reservation": try(inEKS("pools", []any{workers(change{"instanceTypes": []any{"m6i.large"},
		"reservation": "cr-0123456789abcdef0"})})),
	"pool.diskGb":    try(inEKS("pools", []any{workers(change{"diskGb": 200})})),
	"pool.labels":    try(inEKS("pools", []any{workers(change{"labels": change{"disk": "fast"}})})),
	"pool.taints":    try(inEKS("pools", []any{workers(change{"taints": []any{change{"key": "team", "value": "a"}}})})),
	"pool.idleAfter": try(inEKS("pools", []any{workers(change{"idleAfter": "10m"})})),

	"group.instanceTypes": groups.try(inEKS("workerGroup.instanceTypes", []any{"m6i.xlarge"}),
		inEKS("workerGroup.instanceTypes", []any{"m6i.large", "m6i.xlarge"})),
	"group.minNodes": groups.try(inEKS("workerGroup.minNodes", 1)),
	"group.maxNodes": groups.try(inEKS("systemGroup.maxNodes", 4),
		change{"elasticdl:eks.workerGroup.maxNodes": 2, "elasticdl:eks.workerGroup.desiredNodes": 1}),
	"group.desiredNodes": groups.try(inEKS("workerGroup.desiredNodes", 1)),
	"group.spot":         groups.try(inEKS("workerGroup.spot", true)),
	"group.diskGb":       groups.try(inEKS("workerGroup.diskGb", 200)),
	"group.gpus":         groups.try(inEKS("gpuGroup.gpus", 2)),
	"group.labels":       groups.try(inEKS("workerGroup.labels", change{"disk": "fast"})),

	"bucket.name":            try(inEKS("bucket.name", provider.ExistingBucket)),
	"bucket.access":          elsewhereKept.try(inEKS("bucket.access", "read")),
	"bucket.keepDeletedDays": try(inEKS("bucket.keepDeletedDays", 30)),
	"bucket.expireDays":      try(inEKS("bucket.expireDays", change{"elasticdl-other/": 30})),
	"bucket.kmsKey":          try(inEKS("bucket.kmsKey", "arn:aws:kms:us-west-2:123456789012:key/0-a")),

	"budget.monthly":    budgeted.try(change{"elasticdl:budget.monthly": 600}),
	"budget.mail":       budgeted.try(change{"elasticdl:budget.mail": []any{"ann@example.com"}}),
	"budget.thresholds": budgeted.try(change{"elasticdl:budget.thresholds": []any{80}}),

	"efs.id":             filesElsewhere.try(inEKS("efs", change{"id": provider.ExistingFiles})),
	"efs.throughputMode": filesEKS.try(inEKS("efs.throughputMode", "bursting")),
	"efs.uid":            filesEKS.try(inEKS("efs.uid", 1000)),
}

// cheap returns a pool of GKE, with other fields.
func cheap(more change) change {
	return merge(change{"name": "cheap", "machineType": "n2-standard-8", "maxNodes": 3, "spot": true}, more)
}

// workers returns the shipped pool of EKS, with other fields.
func workers(more change) change {
	return merge(change{"name": "workers", "instanceTypes": []any{"m6i.large", "m5.large"}, "maxNodes": 7,
		"idleAfter": "5m"}, more)
}

var minikubeChanges = map[string][]trial{
	"profile":           try(inMinikube("profile", "another")),
	"driver":            try(inMinikube("driver", "docker")),
	"cpus":              try(inMinikube("cpus", 4), inMinikube("memoryMb", 8192), inMinikube("diskGb", 60)),
	"kubernetesVersion": try(inMinikube("kubernetesVersion", "v1.34.0")),
	"cni":               try(inMinikube("cni", "calico")),
	"gpus":              try(change{"elasticdl:minikube.gpus": "all", "elasticdl:minikube.driver": "docker"}),
	"data":              try(inMinikube("data", "stacks/testdata")),
	"adopt":             try(inMinikube("adopt", true)),
}

var existingChanges = map[string][]trial{
	"context":   try(inExisting("context", "kind-mine"), inExisting("context", "kind-other")),
	"registry":  try(inExisting("registry", "registry.example/other")),
	"login":     try(inExisting("login", change{"user": "AWS", "command": "aws ecr get-login-password"})),
	"volume":    try(inExisting("volume", nil)),
	"gpuNodes":  try(inExisting("gpuNodes", change{"selector": change{"gpu": "l4"}})),
	"spotNodes": try(inExisting("spotNodes", change{"selector": change{"spot": "true"}})),

	"volume.name": try(change{"elasticdl:existing.volume.name": "other",
		"elasticdl:job.volumes": []any{change{"claimName": "other", "mountPath": "/data"}}}),
	"volume.capacityGb":   try(inExisting("volume.capacityGb", 20), inExisting("volume.capacityGb", nil)),
	"volume.storageClass": try(inExisting("volume.storageClass", "nfs")),
	"volume.accessMode":   try(inExisting("volume.accessMode", "ReadWriteOnce")),
}
