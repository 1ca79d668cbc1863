package price

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/trainer/elastic/price"
)

// stack returns the settings of a shipped stack, with what its user adds.
func stack(t *testing.T, name string, change func(config map[string]any)) *settings.Settings {
	t.Helper()
	return settingsOf(t, "../../stacks/Pulumi."+name+".yaml", change)
}

// settingsOf returns the settings of a stack's file, with what its user adds.
func settingsOf(t *testing.T, path string, change func(config map[string]any)) *settings.Settings {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Config map[string]any `json:"config"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	networks := []any{map[string]any{"cidr": "203.0.113.7/32"}}
	cloud := file.Config["elasticdl:cloud"].(string)
	switch section, _ := file.Config["elasticdl:"+cloud].(map[string]any); cloud {
	case "gke":
		file.Config["gcp:project"], section["authorizedNetworks"] = "my-project", networks
	case "eks":
		section["authorizedNetworks"] = networks
	case "existing":
		section["registry"] = "registry.example/me"
	}
	if change != nil {
		change(file.Config)
	}
	if text, err = yaml.Marshal(file); err != nil {
		t.Fatal(err)
	}
	config, _, err := settings.FromFile(text)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "Pulumi."), ".yaml")
	in := settings.Input{Project: "elasticdl", Stack: name, Root: "../..", Arch: "amd64",
		Now: time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC), Config: config,
		Stat: func(path string) (bool, error) {
			info, err := os.Stat(path)
			return err == nil && info.IsDir(), err
		}}
	s, err := settings.Parse(in)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The tables of the pages are those of the program, and every price of a machine on the pages is
// that of the tables.
func TestPages(t *testing.T) {
	machine := regexp.MustCompile(`^\| ([a-z][0-9a-z]*(?:-[a-z]+-[0-9]+g?|\.[0-9]*x?large))` +
		`[,a-zA-Z0-9 ]* \| ([0-9.]+) \|(?: ([0-9.]+) \|)?\n`)
	for name, cloud := range map[string]price.Cloud{"gke": price.Google, "eks": price.Amazon} {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", "infrastructure", name+".md"))
		if err != nil {
			t.Fatal(err)
		}
		if want := Of(stack(t, name, nil)).Markdown(); !strings.Contains(string(text), want) {
			t.Errorf("%s.md has not this table:\n%s", name, want)
		}
		_, section, _ := strings.Cut(string(text), "## What it costs")
		section, _, _ = strings.Cut(section, "\n## ")
		n := 0
		for line := range strings.Lines(section) {
			found := machine.FindStringSubmatch(line)
			if found == nil {
				continue
			}
			n++
			for i, spot := range []bool{false, true} {
				hour, ok := price.Machine{Cloud: cloud, Type: found[1], Spot: spot}.Hour()
				if said, err := strconv.ParseFloat(found[2+i], 64); found[2+i] != "" &&
					(!ok || err != nil || math.Abs(said-hour) > 0.0005) {
					t.Errorf("%s.md: %s costs %.3f: %s", name, found[1], hour, line)
				}
			}
		}
		if n < 4 {
			t.Errorf("%s.md has no prices of other machines", name)
		}
	}
}

// The files of the stacks, and the overview of their pages, name the price of an hour.
func TestFileSaysPrice(t *testing.T) {
	gke, eks := Of(stack(t, "gke", nil)), Of(stack(t, "eks", nil))
	for name, want := range map[string]string{"eks": fmt.Sprintf("$%.2f an hour, and $%.2f when no job runs",
		eks.Now(), eks.Idle()),
		"gke": fmt.Sprintf("$%.2f an hour, and $%.2f when no job runs", gke.Now(), gke.Idle())} {
		text, err := os.ReadFile("../../stacks/Pulumi." + name + ".yaml")
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("stacks/Pulumi.%s.yaml does not say %s: %v", name, want, err)
		}
	}
	row := fmt.Sprintf("| ≈ %.2f with a job, %.2f without | ≈ %.2f with a job, %.2f without |", gke.Now(), gke.Idle(),
		eks.Now(), eks.Idle())
	text, err := os.ReadFile("../../docs/infrastructure/README.md")
	if err != nil || !strings.Contains(string(text), row) {
		t.Errorf("docs/infrastructure/README.md does not say %s: %v", row, err)
	}
}

// A stack as shipped costs less than a quarter of a dollar an hour when no job runs, besides
// storage by use, and a volume on Google costs more than the rest.
func TestIdle(t *testing.T) {
	e := Of(stack(t, "gke", nil))
	if e.Idle() >= 0.25 || fmt.Sprint(e.Unknown) != "[bucket, by use]" {
		t.Errorf("idle: %s", e)
	}
	if e := Of(stack(t, "eks", nil)); e.Idle() >= 0.25 || fmt.Sprint(e.Unknown) != "[buckets, by use]" {
		t.Errorf("idle: %s", e)
	}
	files := Of(stack(t, "gke", withFiles))
	if d := files.Idle() - e.Idle(); math.Abs(d-0.281) > 0.001 {
		t.Errorf("Filestore costs %f", d)
	}
}

// withFiles gives a stack on Google a volume.
func withFiles(config map[string]any) {
	config["elasticdl:gke"].(map[string]any)["filestore"] = map[string]any{"tier": "BASIC_HDD", "capacityGb": 1024,
		"share": "data"}
}

// An estimate follows the settings: nodes of pools, with their disks and GPUs, and the job.
func TestOf(t *testing.T) {
	const byUse = "bucket, by use"
	shipped := Of(stack(t, "gke", nil))
	section := func(config map[string]any, name string) map[string]any {
		return config["elasticdl:"+name].(map[string]any)
	}
	for what, test := range map[string]struct {
		change func(config map[string]any)
		// differences of the three prices
		idle, now, most float64
		unknown         string
	}{
		"no job": {func(c map[string]any) {
			delete(c, "elasticdl:job")
			delete(c, "elasticdl:data")
			delete(c, "elasticdl:image")
		}, 0, shipped.Idle() - shipped.Now(), 0, byUse},
		"a suspended job": {func(c map[string]any) { section(c, "job")["suspend"] = true },
			0, shipped.Idle() - shipped.Now(), 0, byUse},
		"a file system": {withFiles, 0.281, 0.281, 0.281, byUse},
		"no bucket": {func(c map[string]any) {
			delete(section(c, "gke"), "bucket")
			delete(c, "elasticdl:job")
			delete(c, "elasticdl:data")
			delete(c, "elasticdl:image")
		}, 0, shipped.Idle() - shipped.Now(), 0, ""},
		"more disk": {func(c map[string]any) {
			section(c, "gke")["systemPool"].(map[string]any)["diskGb"] = 780
		}, 0.1, 0.1, 0.2, byUse},
		"a larger job": {func(c map[string]any) { section(c, "job")["numWorkers"] = 400 }, 0, 0.3882, 0, byUse},
		"GPUs": {func(c map[string]any) {
			section(c, "gke")["gpuPool"] = map[string]any{"machineType": "n1-standard-4",
				"accelerator": "nvidia-tesla-t4", "gpus": 1, "maxNodes": 1}
		}, 0, 0, 0.35 + 0.19 + 0.0137 + 0.0014, byUse},
		"GPUs without a price": {func(c map[string]any) {
			section(c, "gke")["gpuPool"] = map[string]any{"machineType": "n1-standard-4",
				"accelerator": "nvidia-new-1", "gpus": 1, "maxNodes": 1}
		}, 0, 0, googleNATNode, "nvidia-new-1"},
		"no pool of workers": {func(c map[string]any) {
			delete(section(c, "gke"), "workerPool")
			section(c, "gke")["systemPool"].(map[string]any)["maxNodes"] = 9
			section(c, "job")["worker"].(map[string]any)["request"].(map[string]any)["cpu"] = "1500m"
		}, 0, -2*0.3868 + 4*0.07385 + 2*0.0014, math.NaN(), byUse},
		"many nodes": {func(c map[string]any) {
			section(c, "gke")["workerPool"].(map[string]any)["maxNodes"] = 1000
		}, 0, 0, 997*0.386849 + 0.044 - 5*0.0014, byUse},
		"spot": {func(c map[string]any) { section(c, "gke")["workerPool"].(map[string]any)["spot"] = true },
			0, math.NaN(), -3 * (0.38 - 0.134), byUse},
		"an unknown machine": {func(c map[string]any) {
			section(c, "gke")["workerPool"].(map[string]any)["machineType"] = "z9-standard-8"
		}, 0, math.NaN(), math.NaN(), "z9-standard-8"},
		"an unknown file system": {func(c map[string]any) {
			section(c, "gke")["filestore"] = map[string]any{"tier": "REGIONAL", "capacityGb": 1024}
		}, 0, 0, 0, byUse + ", Filestore REGIONAL"},
	} {
		e := Of(stack(t, "gke", test.change))
		for name, pair := range map[string][3]float64{"idle": {e.Idle(), shipped.Idle(), test.idle},
			"now": {e.Now(), shipped.Now(), test.now}, "most": {e.Most(), shipped.Most(), test.most}} {
			if d := pair[0] - pair[1]; !math.IsNaN(pair[2]) && math.Abs(d-pair[2]) > 0.002 {
				t.Errorf("%s: %s costs %+.4f more, expected %+.4f\n%s", what, name, d, pair[2], e.Markdown())
			}
		}
		if (len(e.Unknown)+len(e.Unpriced) > 0) != (test.unknown != "") || !strings.Contains(e.String(), test.unknown) {
			t.Errorf("%s: unknown are %q: %s", what, e.Unknown, e)
		}
	}
	eks := Of(stack(t, "eks", nil))
	zones := Of(stack(t, "eks", func(c map[string]any) {
		section(c, "eks")["vpc"].(map[string]any)["natPerZone"] = true
	}))
	if d := zones.Idle() - eks.Idle(); math.Abs(d-0.05) > 0.0001 {
		t.Errorf("another NAT gateway costs %f", d)
	}
	for _, name := range []string{"existing", "minikube"} {
		if e := Of(stack(t, name, nil)); e.Most() != 0 || !strings.HasPrefix(e.String(), "0 $/h") {
			t.Errorf("%s costs %s", name, e)
		}
	}
}

// Pods take the nodes that they need, by the scarcer of CPUs and GPUs.
func TestNodesFor(t *testing.T) {
	pods := func(n int, cpus, gpus float64) []group { return []group{{n, cpus, gpus}} }
	for _, test := range []struct {
		all        []group
		cpus, gpus int
		want       int
	}{
		{nil, 8, 0, 0},
		{pods(7, 2, 0), 8, 0, 3},
		{pods(1, 0.5, 0), 8, 0, 1},
		{pods(14, 0.5, 0), 8, 0, 1},
		{pods(15, 0.5, 0), 8, 0, 2},
		{pods(2, 9, 0), 8, 0, 0},
		{pods(2, 7.9, 0), 8, 0, 2},
		{pods(2, 0, 4), 8, 2, 0},
		{pods(4, 0, 1), 8, 2, 2},
		{pods(4, 7, 1), 8, 2, 4},
		{pods(3, 0, 0), 8, 0, 3},
		{pods(3, 2, 0), 0, 0, 3},
		{append(pods(3, 2, 0), pods(3, 2, 0)...), 8, 0, 2},
	} {
		if got := nodesFor(test.all, test.cpus, test.gpus); got != test.want {
			t.Errorf("%+v on nodes of %d CPUs and %d GPUs: %d nodes, want %d", test.all, test.cpus, test.gpus, got,
				test.want)
		}
	}
}

// A budget that the stack may exceed is named with what it may cost; one that it cannot exceed is
// not.
func TestOver(t *testing.T) {
	e := Of(stack(t, "eks", nil))
	most := int(math.Ceil(e.Most() * hours))
	if got := e.Over(most); got != "" {
		t.Errorf("budget %d: %s", most, got)
	}
	got := e.Over(most - 1)
	if e.Most() != 1.335 || !strings.HasPrefix(got, "the stack may cost up to 975 $ a month (costMost, 1.33 $/h, for "+
		"730 hours), and budget.monthly is 974") {
		t.Errorf("%v: %s", e.Most(), got)
	}
}

// Nodes without a known price are next to each sum that lacks them, and a warning of the
// budget names them.
func TestUnpriced(t *testing.T) {
	b200 := map[string]any{"name": "b", "machineType": "a4-highgpu-8g", "accelerator": "nvidia-b200", "gpus": 8,
		"maxNodes": 2, "diskGb": 200}
	onGKE := func(fields map[string]any) Estimate {
		return Of(stack(t, "gke", func(c map[string]any) {
			pool := maps.Clone(b200)
			maps.Copy(pool, fields)
			c["elasticdl:gke"].(map[string]any)["pools"] = []any{pool}
		}))
	}
	shipped := Of(stack(t, "gke", nil))
	for name, test := range map[string]struct {
		e    Estimate
		want string
		most string
	}{
		"at most": {onGKE(nil), "$/h with this job, at most ", " and 2 nodes of pool b"},
		"always": {onGKE(map[string]any{"minNodes": 1}), " and 1 node of pool b idle, ",
			" and 2 nodes of pool b"},
		"with a fallback": {onGKE(map[string]any{"spot": true, "onDemand": true}), "$/h with this job, at most ",
			" and 2 nodes of pool b and 2 nodes of pool b-on-demand"},
		"on EKS": {Of(stack(t, "eks", func(c map[string]any) {
			eks := c["elasticdl:eks"].(map[string]any)
			eks["pools"] = append(eks["pools"].([]any), map[string]any{"name": "new",
				"instanceTypes": []any{"p9.48xlarge"}, "gpus": 8, "maxNodes": 1, "diskGb": 200})
		})), "no price is known of: node of pool new, p9.48xlarge)", " and 1 node of pool new"},
		"nodes of Amazon's": {Of(stack(t, "eks", func(c map[string]any) {
			c["elasticdl:eks"].(map[string]any)["efs"] = map[string]any{"throughputMode": "elastic"}
		})), " and 1 node of Amazon's pool system idle, ", " and 1 node of Amazon's pool system"},
	} {
		text := test.e.String()
		if !strings.Contains(text, test.want) || !strings.Contains(text, test.most+", without traffic") {
			t.Errorf("%s: %s", name, text)
		}
		all := test.e.Lacks()
		if len(all) != len(test.e.Unpriced)+len(test.e.Unknown) || all[0] != test.e.Unpriced[0].Name {
			t.Errorf("%s: the sums lack %v, and say %q", name, test.e.Unpriced, all)
		}
		for _, budget := range []int{1, 1e9} {
			over := test.e.Over(budget)
			named := strings.Contains(over, test.most) && strings.Contains(over, "budget.monthly")
			if !named || strings.Contains(over, "up to") {
				t.Errorf("%s: with %d: %s", name, budget, over)
			}
		}
	}
	if shipped.Over(1e9) != "" || strings.Contains(shipped.String(), "no price is known") {
		t.Errorf("the shipped stack: %s, %s", shipped.Over(1e9), shipped)
	}
	const row = "| node of pool b, a4-highgpu-8g | not in the sums | 0 | 0 | 2 |"
	if table := onGKE(nil).Markdown(); !strings.Contains(table, row) {
		t.Error(table)
	}
}

// Spot nodes of several types cost at most what the dearest costs, whatever its place in the list.
func TestSpotOfTypes(t *testing.T) {
	most := func(types ...any) float64 {
		return Of(stack(t, "eks", func(c map[string]any) {
			pool := c["elasticdl:eks"].(map[string]any)["pools"].([]any)[0].(map[string]any)
			pool["instanceTypes"], pool["spot"] = types, true
		})).Most()
	}
	small, large := most("m6i.xlarge"), most("m6i.2xlarge")
	first, last := most("m6i.2xlarge", "m6i.xlarge"), most("m6i.xlarge", "m6i.2xlarge")
	if small >= large || first != large || last != large {
		t.Errorf("%.2f and %.2f: together %.2f or %.2f", small, large, first, last)
	}
}

// Pools of Karpenter cost what their nodes cost: nothing without a job, but where Kueue keeps a
// node; with Karpenter itself those of the system group. A fallback on Google costs nodes on
// demand.
func TestOfPools(t *testing.T) {
	const node, fee = 0.096, 1.12 // of m6i.large on demand
	disk := amazonDisk * 100
	of := func(change func(eks, config map[string]any)) Estimate {
		return Of(stack(t, "eks", func(config map[string]any) {
			change(config["elasticdl:eks"].(map[string]any), config)
		}))
	}
	auto := node*fee + disk
	for what, test := range map[string]struct {
		change          func(eks, config map[string]any)
		idle, now, most float64
	}{
		"auto": {func(_, _ map[string]any) {}, 0.15, 0.15 + 2*auto, 0.15 + 10*auto},
		"Kueue keeps a node": {func(_, config map[string]any) {
			config["elasticdl:platform"].(map[string]any)["queue"] = map[string]any{"quotas": map[string]any{
				"cpu": 20, "memory": "80Gi"}}
		}, 0.15 + auto, 0.15 + 2*auto, 0.15 + 10*auto},
		"twenty workers": {func(_, config map[string]any) {
			config["elasticdl:job"].(map[string]any)["numWorkers"] = 20
		}, 0.15, 0.15 + 8*auto, 0.15 + 10*auto},
		"pods that fit the second type": {func(eks, config map[string]any) {
			eks["pools"].([]any)[0].(map[string]any)["instanceTypes"] = []any{"m6i.large", "m6i.xlarge"}
			config["elasticdl:job"].(map[string]any)["worker"] = map[string]any{"request": map[string]any{"cpu": 3}}
		}, 0.15, 0.15 + auto + 2*(auto+node*fee), 0.15 + 3*auto + 7*(auto+node*fee)},
		"karpenter": {func(eks, _ map[string]any) {
			eks["nodes"] = "karpenter"
			eks["systemGroup"] = map[string]any{"instanceTypes": []any{"m6i.large"}, "minNodes": 1, "desiredNodes": 1,
				"maxNodes": 1}
		}, 0.15 + node + disk, 0.15 + 2*(node+disk), 0.15 + 18*(node+disk)},
		"Kueue and Karpenter": {func(eks, config map[string]any) {
			eks["nodes"] = "karpenter"
			eks["systemGroup"] = map[string]any{"instanceTypes": []any{"m6i.large"}, "minNodes": 1, "desiredNodes": 1,
				"maxNodes": 1}
			config["elasticdl:platform"].(map[string]any)["queue"] = map[string]any{"quotas": map[string]any{
				"cpu": 20, "memory": "80Gi"}}
		}, 0.15 + node + disk, 0.15 + 2*(node+disk), 0.15 + 18*(node+disk)},
	} {
		e := of(test.change)
		for name, pair := range map[string][2]float64{"idle": {e.Idle(), test.idle}, "now": {e.Now(), test.now},
			"most": {e.Most(), test.most}} {
			if math.Abs(pair[0]-pair[1]) > 0.002 {
				t.Errorf("%s: %s is %.4f, expected %.4f\n%s", what, name, pair[0], pair[1], e.Markdown())
			}
		}
	}
	spot := func(onDemand bool) Estimate {
		return Of(stack(t, "gke", func(config map[string]any) {
			gke := config["elasticdl:gke"].(map[string]any)
			gke["pools"] = []any{map[string]any{"name": "cheap", "machineType": "n1-standard-8", "maxNodes": 3,
				"spot":     true,
				"onDemand": onDemand, "diskGb": 50}}
		}))
	}
	a, b := spot(false), spot(true)
	if d := b.Most() - a.Most(); a.Idle() != b.Idle() || a.Now() != b.Now() ||
		math.Abs(d-3*(0.38+50*googleDisk+googleNATNode)) > 0.002 {
		t.Errorf("a fallback costs %.4f more\n%s", d, b.Markdown())
	}
}

// Things that are billed by use, or have no known price, are named; nodes that may be taken back
// are marked, as their price is another.
func TestNamed(t *testing.T) {
	for what, test := range map[string]struct {
		cloud  string
		change func(section, config map[string]any)
		// of all lines, and of the things without a price
		row, lacks string
	}{
		"spot nodes of Google": {"gke", func(gke, _ map[string]any) {
			gke["workerPool"].(map[string]any)["spot"] = true
		}, "node of pool workers, n1-standard-8, spot", "bucket, by use"},
		"spot nodes of Amazon": {"eks", func(eks, _ map[string]any) {
			eks["pools"].([]any)[0].(map[string]any)["spot"] = true
		}, "m6i.large or m5.large, spot: at most", "buckets, by use"},
		"extended support": {"eks", func(eks, _ map[string]any) { eks["supportType"] = "EXTENDED" }, "control plane",
			"a version in extended support, 0.60 $/h instead of 0.10, buckets, by use"},
		"one bucket": {"eks", func(eks, _ map[string]any) { eks["codeBucket"] = false }, "control plane",
			"bucket, by use"},
		"no bucket": {"eks", func(eks, config map[string]any) {
			eks["codeBucket"] = false
			delete(eks, "bucket")
			for _, section := range []string{"job", "data", "image"} {
				delete(config, "elasticdl:"+section)
			}
		}, "control plane", ""},
		"files": {"eks", func(eks, _ map[string]any) { eks["efs"] = map[string]any{"throughputMode": "elastic"} },
			"control plane", "buckets, by use, EFS, by use"},
	} {
		e := Of(stack(t, test.cloud, func(config map[string]any) {
			test.change(config["elasticdl:"+test.cloud].(map[string]any), config)
		}))
		if is := strings.Join(e.Unknown, ", "); is != test.lacks {
			t.Errorf("%s: without a price are %s, want %s", what, is, test.lacks)
		}
		if !strings.Contains(e.Markdown(), test.row) {
			t.Errorf("%s: there is no %s:\n%s", what, test.row, e.Markdown())
		}
	}
}

// Workers with GPUs need as many nodes as their GPUs do, on both clouds.
func TestNodesWithGPUs(t *testing.T) {
	for cloud, pool := range map[string]map[string]any{
		"gke": {"name": "cards", "machineType": "g2-standard-24", "accelerator": "nvidia-l4", "gpus": 2, "maxNodes": 4},
		"eks": {"name": "cards", "instanceTypes": []any{"g5.24xlarge"}, "gpus": 4, "maxNodes": 4}} {
		e := Of(stack(t, cloud, func(config map[string]any) {
			config["elasticdl:"+cloud].(map[string]any)["pools"] = []any{pool}
			job := config["elasticdl:job"].(map[string]any)
			job["numWorkers"] = 7
			job["worker"] = map[string]any{"limit": map[string]any{"nvidia.com/gpu": 1}}
		}))
		want := float64((7 + pool["gpus"].(int) - 1) / pool["gpus"].(int))
		for _, r := range slices.Concat(e.Rows, e.Unpriced) {
			if strings.Contains(r.Name, "pool cards") && r.Now != want {
				t.Errorf("%s: %v nodes, want %v", r.Name, r.Now, want)
			}
		}
		if !strings.Contains(e.Markdown(), "pool cards") {
			t.Errorf("%s: no nodes with GPUs:\n%s", cloud, e.Markdown())
		}
	}
}
