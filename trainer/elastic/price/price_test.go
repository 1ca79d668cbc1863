package price

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const (
	t4     = "nvidia-tesla-t4"
	labelG = "cloud.google.com/gke-accelerator"
)

// The labels of a node tell its machine, and with it the price.
func TestMachineOf(t *testing.T) {
	for _, test := range []struct {
		labels string // key=value, separated by spaces
		gpus   int
		want   string
		hour   float64 // 0: none is known
	}{
		{labelType + "=m6i.large", 0, "m6i.large on demand", 0.096},
		{labelType + "=m6i.large eks.amazonaws.com/capacityType=ON_DEMAND", 0, "m6i.large on demand", 0.096},
		{labelType + "=m6i.large eks.amazonaws.com/capacityType=SPOT", 0,
			"m6i.large spot, at the price on demand", 0.096},
		{labelType + "=m6i.large karpenter.sh/capacity-type=spot", 0, "m6i.large spot, at the price on demand", 0.096},
		{labelType + "=g4dn.xlarge", 1, "g4dn.xlarge on demand", 0.526},
		{labelType + "=n1-standard-8", 0, "n1-standard-8 on demand", 0.38},
		{labelType + "=n1-standard-8 cloud.google.com/gke-spot=true", 0, "n1-standard-8 spot", 0.134},
		{labelType + "=n1-standard-4 " + labelG + "=" + t4, 2, "n1-standard-4 with 2 " + t4 + " on demand", 0.19 + 0.7},
		{labelType + "=n1-standard-4 " + labelG + "=nvidia-new", 1, "n1-standard-4 with 1 nvidia-new on demand", 0},
		{labelType + "=g2-standard-4 " + labelG + "=nvidia-l4", 1, "g2-standard-4 on demand", 0.707},
		{labelType + "=k3s", 0, "k3s on demand", 0},
		{"kubernetes.io/hostname=here", 0, "", 0},
	} {
		labels := map[string]string{}
		for label := range strings.FieldsSeq(test.labels) {
			key, value, _ := strings.Cut(label, "=")
			labels[key] = value
		}
		m, ok := MachineOf(labels, test.gpus)
		if ok != (test.want != "") || ok && m.String() != test.want {
			t.Errorf("%s: %s", test.labels, m)
		}
		if hour, ok := m.Hour(); ok != (test.hour > 0) || ok && math.Abs(hour-test.hour) > 0.0006 {
			t.Errorf("%s costs %.4f (%v), want %.4f", test.labels, hour, ok, test.hour)
		}
	}
}

// The region and month are those of the tables.
func TestOf(t *testing.T) {
	for _, c := range []Cloud{Amazon, Google} {
		region, month, _ := strings.Cut(c.Of(), ", ")
		head, _, _ := strings.Cut(c.Table(), "infra/price/generate")
		if !strings.Contains(head, region+",") || !strings.Contains(head, " "+month+"-") {
			t.Errorf("prices of %s, %s: %s", region, month, head)
		}
	}
}

var (
	began = time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	now   = began.Add(4 * time.Hour)
	large = Machine{Cloud: Amazon, Type: "m6i.large"}
)

func TestSum(t *testing.T) {
	half := Pod{Role: "worker", Machine: large, Share: 0.5, Start: began}
	with := func(change func(p *Pod)) Pod {
		p := half
		change(&p)
		return p
	}
	ended := with(func(p *Pod) { p.End = began.Add(time.Hour) })
	for name, test := range map[string]struct {
		pods []Pod
		want string
	}{
		"none": {nil, ""},
		"one": {[]Pod{half},
			"about 0.19 $ so far, 0.05 $/h now (m6i.large on demand; prices of us-east-1, 2026-07)"},
		"pending": {[]Pod{with(func(p *Pod) { p.Start = time.Time{} })}, ""},
		"one and one that has ended": {[]Pod{half, ended},
			"about 0.24 $ so far, 0.05 $/h now (m6i.large on demand; prices of us-east-1, 2026-07)"},
		"a node that is not there": {[]Pod{half, with(func(p *Pod) {
			p.Machine, p.Share, p.End = Machine{}, 0, began.Add(time.Hour)
		})}, "about 0.24 $ so far, 0.05 $/h now (m6i.large on demand; prices of us-east-1, 2026-07); " +
			"1 pod that has ended counted at the mean of the others"},
		"of another role": {[]Pod{half, with(func(p *Pod) {
			p.Role, p.Machine, p.Share, p.End = "ps", Machine{}, 0, began.Add(time.Hour)
		})}, "about 0.19 $ so far, 0.05 $/h now (m6i.large on demand; prices of us-east-1, 2026-07); " +
			"not counted: 1 pod without a known price"},
		"without a price": {[]Pod{half, with(func(p *Pod) { p.Machine.Type = "k3s" }),
			with(func(p *Pod) { p.Share = 0 })},
			"about 0.19 $ so far, 0.05 $/h now (m6i.large on demand; prices of us-east-1, 2026-07); " +
				"not counted: 2 pods without a known price"},
		"nothing known": {[]Pod{with(func(p *Pod) { p.Machine = Machine{} })}, ""},
		"two clouds": {[]Pod{half, with(func(p *Pod) {
			p.Machine = Machine{Cloud: Google, Type: "n1-standard-8", Spot: true}
		})},
			"about 0.46 $ so far, 0.12 $/h now (m6i.large on demand, n1-standard-8 spot; prices of us-central1, 2026-08; " +
				"us-east-1, 2026-07)"},
	} {
		if got := Sum(test.pods, now).String(); got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, test.want)
		}
	}
}

// A pod has the largest of its parts; pods that fill a node cost at least what the node costs.
func TestShare(t *testing.T) {
	node := map[string]float64{"cpu": 2, "memory": 8, "nvidia.com/gpu": 4}
	for _, test := range []struct {
		requests map[string]float64
		want     float64
	}{
		{nil, 0},
		{map[string]float64{"cpu": 1}, 0.5},
		{map[string]float64{"cpu": 0.5, "memory": 6}, 0.75},
		{map[string]float64{"cpu": 0.5, "memory": 1, "nvidia.com/gpu": 4}, 1},
		{map[string]float64{"cpu": 9}, 1},
		{map[string]float64{"example.com/fpga": 1}, 0},
	} {
		if got := Share(test.requests, node); got != test.want {
			t.Errorf("%v: %v, want %v", test.requests, got, test.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		left, sum := 2.0, 0.0
		for left > 0 {
			part := rapid.Float64Range(0.01, 1).Draw(t, "part")
			if part = min(part, left); left-part < 1e-9 {
				part = left
			}
			left -= part
			memory := rapid.Float64Range(0, 8).Draw(t, "memory")
			sum += Share(map[string]float64{"cpu": part, "memory": memory}, node)
		}
		if sum < 1-1e-6 {
			t.Fatalf("pods that fill a node take %v of it", sum)
		}
	})
}

// The cost of the same pods never falls, and every pod with a node is counted, or named.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pods := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Pod {
			p := Pod{Role: rapid.SampledFrom([]string{"ps", "worker"}).Draw(t, "role"),
				Machine: rapid.SampledFrom([]Machine{{}, large, {Cloud: Google, Type: "none"}}).Draw(t, "machine"),
				Share:   rapid.SampledFrom([]float64{0, 0.25, 1}).Draw(t, "share")}
			if rapid.Bool().Draw(t, "placed") {
				p.Start = began.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "start")) * time.Minute)
				if rapid.Bool().Draw(t, "ended") {
					p.End = p.Start.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "long")) * time.Minute)
				}
			}
			return p
		}), 0, 8).Draw(t, "pods")
		earlier, later := Sum(pods, now), Sum(pods, now.Add(time.Hour))
		if later.Spent < earlier.Spent || math.Abs(later.Spent-earlier.Spent-earlier.Hour) > 1e-9 {
			t.Fatalf("%+v, an hour later %+v", earlier, later)
		}
		placed, priced := 0, 0
		for _, p := range pods {
			if !p.Start.IsZero() {
				placed++
				if p.Machine == large && p.Share > 0 {
					priced++
				}
			}
		}
		if priced+earlier.Assumed+earlier.Unknown != placed {
			t.Fatalf("%d pods have nodes, %d a price: %+v", placed, priced, earlier)
		}
	})
}
