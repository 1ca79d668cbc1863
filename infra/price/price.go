// Package price estimates what a stack costs, in US dollars per hour, by the tables of package
// trainer/elastic/price: of Amazon's instance types and Google's machine types.
//
// Laws:
//
//  1. It asks no one: a preview costs no time and needs no right for it.
//  2. A thing without a known price is named, and never counted as free.
//  3. The pages' tables are those of [Estimate.Markdown]: a test compares.
package price

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/trainer/elastic/price"
)

// hours is the number of hours of a month, by which clouds compute monthly prices.
const hours = 730

// Prices per hour besides machines. Sources: the pages of Google on GKE, NAT, disks, Filestore and
// GPUs, of Amazon on EKS, VPC and EBS, November 2026: of us-central1, Filestore of us-west1, and
// us-east-1.
const (
	// a credit pays for one zonal cluster of a billing account
	googleControl = 0.10
	googleNATNode = 0.0014
	googleNATMost = 0.044 // of all nodes
	googleNATIP   = 0.005
	googleDisk    = 0.10 / hours // of a GiB, pd-balanced
	basicHDD      = 0.20 / hours // of a GiB

	amazonControl = 0.10
	amazonNAT     = 0.045
	amazonIP      = 0.005
	amazonDisk    = 0.08 / hours // of a GiB, gp3
)

// Row is a thing that is billed.
type Row struct {
	Name string
	Each float64 // US dollars per hour
	// how many of it there are without a job, with the stack's job, and at most
	Idle, Now, Most float64
}

// Estimate has the costs of a stack, without traffic, requests, logs and metrics.
type Estimate struct {
	Rows []Row
	// whose prices they are, and of when: "us-east-1, 2026-07"
	Of string
	// Unpriced has nodes without a known price, which no sum has.
	Unpriced []Row
	// other things without a known price
	Unknown []string
}

// Of returns the estimate of a stack. That of a cluster which the stack does not create is empty.
func Of(s *settings.Settings) Estimate {
	e := Estimate{}
	switch {
	case s.GKE != nil:
		e.Of = price.Google.Of()
		e.google(s)
	case s.EKS != nil:
		e.Of = price.Amazon.Of()
		e.amazon(s)
	}
	return e
}

func (e *Estimate) add(what string, each, idle, now, most float64) {
	e.Rows = append(e.Rows, Row{what, each, idle, now, most})
}

// addNodes adds nodes, each with its disk.
func (e *Estimate) addNodes(r Row, of price.Machine, disk float64) {
	hour, ok := of.Hour()
	if !ok {
		e.Unpriced = append(e.Unpriced, r)
		return
	}
	r.Each = hour + disk
	e.Rows = append(e.Rows, r)
}

func (e *Estimate) google(s *settings.Settings) {
	e.add("control plane", googleControl, 1, 1, 1)
	var nodes Row
	on := google(s)
	pods := place(s, on)
	for _, pool := range s.GKE.AllPools() {
		_, need := on[pool.Name].needs(pods[pool.Name])
		now := min(max(pool.MinNodes, need), pool.MaxNodes)
		what := fmt.Sprintf("node of pool %s, %s", pool.Name, pool.MachineType)
		machine := price.Machine{Cloud: price.Google, Type: pool.MachineType, Spot: pool.Spot}
		if pool.Accelerator != "" && strings.HasPrefix(pool.MachineType, "n1-") {
			machine.Accelerator, machine.GPUs = pool.Accelerator, pool.GPUs
			what += fmt.Sprintf(" with %d %s", pool.GPUs, pool.Accelerator)
		}
		if pool.Spot {
			what += ", spot"
		}
		first := Row{Name: what, Idle: float64(pool.MinNodes), Now: float64(now), Most: float64(pool.MaxNodes)}
		e.addNodes(first, machine, googleDisk*float64(cmp.Or(pool.DiskGB, 100)))
		nodes.Idle, nodes.Now, nodes.Most = nodes.Idle+first.Idle, nodes.Now+first.Now, nodes.Most+float64(pool.Most())
		if pool.OnDemand {
			machine.Spot = false
			e.addNodes(Row{Name: fmt.Sprintf("node of pool %s, %s", pool.OnDemandName(), pool.MachineType),
				Most: first.Most}, machine, googleDisk*float64(cmp.Or(pool.DiskGB, 100)))
		}
	}
	if s.GKE.PrivateNodes && s.GKE.Subnet == nil {
		most := googleNATMost / googleNATNode
		e.add("Cloud NAT, a node", googleNATNode, min(nodes.Idle, most), min(nodes.Now, most), min(nodes.Most, most))
		e.add("Cloud NAT, an address", googleNATIP, 1, 1, 1)
	}
	if s.GKE.Bucket != nil {
		e.Unknown = append(e.Unknown, "bucket, by use")
	}
	if f := s.GKE.Filestore; f != nil && f.Name != "" {
		e.Unknown = append(e.Unknown, "Filestore "+f.Name)
	} else if f != nil && f.Tier == "BASIC_HDD" {
		e.add(fmt.Sprintf("Filestore, %s, %d GiB", f.Tier, f.CapacityGB), basicHDD*float64(f.CapacityGB), 1, 1, 1)
	} else if f != nil {
		e.Unknown = append(e.Unknown, "Filestore "+f.Tier)
	}
}

func (e *Estimate) amazon(s *settings.Settings) {
	if s.EKS.SupportType == "EXTENDED" {
		e.Unknown = append(e.Unknown, "a version in extended support, 0.60 $/h instead of 0.10")
	}
	switch {
	case s.EKS.Bucket != nil && s.EKS.CodeBucket:
		e.Unknown = append(e.Unknown, "buckets, by use")
	case s.EKS.Bucket != nil || s.EKS.CodeBucket:
		e.Unknown = append(e.Unknown, "bucket, by use")
	}
	if s.EKS.EFS != nil {
		e.Unknown = append(e.Unknown, "EFS, by use")
		if s.EKS.Nodes == settings.NodesAuto {
			e.Unpriced = append(e.Unpriced, Row{Name: "node of Amazon's pool system, for the driver of EFS", Idle: 1,
				Now: 1, Most: 1})
		}
	}
	e.add("control plane", amazonControl, 1, 1, 1)
	for _, g := range s.EKS.Groups() {
		n := float64(g.DesiredNodes)
		e.nodes(s, "group", g, g.InstanceTypes[0], n, n)
	}
	on := amazon(s)
	pods := place(s, on)
	for _, g := range s.EKS.NodePools() {
		first, need := on[g.Name].needs(pods[g.Name])
		idle := 0
		if g.Name == settings.CorePool && s.EKS.Nodes == settings.NodesAuto && s.Platform.Queue != nil &&
			s.Platform.Queue.Install {
			idle = 1 // Kueue's
		}
		e.nodes(s, "pool", g, g.InstanceTypes[first], float64(idle), float64(min(max(need, idle), g.MaxNodes)))
	}
	if s.EKS.VPC.ID == "" {
		n := 1.0
		if s.EKS.VPC.NATPerZone {
			n = float64(len(s.EKS.VPC.Zones))
		}
		e.add("NAT gateway with its address", amazonNAT+amazonIP, n, n, n)
	}
}

// nodes adds the nodes of a group or pool of Amazon, of the type of its nodes on demand.
func (e *Estimate) nodes(s *settings.Settings, kind string, g settings.NamedGroup, of string, idle, now float64) {
	types, each, ok := []string{of}, 0.0, true // spot nodes are of any type
	if g.Spot {
		types = g.InstanceTypes
	}
	for _, t := range types {
		hour, known := price.Machine{Cloud: price.Amazon, Type: t, Auto: s.EKS.Nodes == settings.NodesAuto}.Hour()
		each, ok = max(each, hour), ok && known
	}
	what := fmt.Sprintf("node of %s %s, %s", kind, g.Name, strings.Join(g.InstanceTypes, " or "))
	if g.Spot {
		what += ", spot: at most"
	}
	if !ok {
		e.Unpriced = append(e.Unpriced, Row{Name: what, Idle: idle, Now: now, Most: float64(g.MaxNodes)})
		return
	}
	e.add(what, each+amazonDisk*float64(cmp.Or(g.DiskGB, 100)), idle, now, float64(g.MaxNodes))
}

// sum returns the price of all rows.
func (e Estimate) sum(count func(Row) float64) (total float64) {
	for _, r := range e.Rows {
		total += r.Each * count(r)
	}
	return math.Round(total*1000) / 1000
}

// Idle returns the price without a job.
func (e Estimate) Idle() float64 { return e.sum(func(r Row) float64 { return r.Idle }) }

// Now returns the price while the stack's job runs.
func (e Estimate) Now() float64 { return e.sum(func(r Row) float64 { return r.Now }) }

// Most returns the price with all nodes that the stack may have.
func (e Estimate) Most() float64 { return e.sum(func(r Row) float64 { return r.Most }) }

// figure returns a sum and the nodes that it lacks: "1.42 $/h and 2 nodes of pool b".
func (e Estimate) figure(sum float64, count func(Row) float64) string {
	parts := []string{fmt.Sprintf("%.2f $/h", sum)}
	for _, r := range e.Unpriced {
		what, _, _ := strings.Cut(r.Name, ",")
		switch n := count(r); {
		case n == 1:
			parts = append(parts, "1 "+what)
		case n > 1:
			parts = append(parts, fmt.Sprintf("%g %s", n, strings.Replace(what, "node", "nodes", 1)))
		}
	}
	return strings.Join(parts, " and ")
}

// Lacks returns the things without a known price, which no sum has.
func (e Estimate) Lacks() (all []string) {
	for _, r := range e.Unpriced {
		all = append(all, r.Name)
	}
	return append(all, e.Unknown...)
}

// most returns [Estimate.Most] with the nodes that it lacks.
func (e Estimate) most() string { return e.figure(e.Most(), func(r Row) float64 { return r.Most }) }

// Over returns a warning if a month with all nodes that the stack may have costs more than a
// budget, in US dollars, or may do so because the price of some is not known, else "".
func (e Estimate) Over(budget int) string {
	const stops = ": the budget sends mail and stops nothing; fewer nodes at most keep the costs below it"
	month := e.Most() * hours
	switch {
	case month > float64(budget):
		upTo := "up to"
		if len(e.Unpriced) > 0 {
			upTo = "more than"
		}
		return fmt.Sprintf("the stack may cost %s %.0f $ a month (costMost, %s, for %d hours), and "+
			"budget.monthly is %d", upTo, month, e.most(), hours, budget) + stops
	case len(e.Unpriced) > 0:
		return fmt.Sprintf("the stack may cost more than budget.monthly, %d: it costs at most %s, whose price is "+
			"not known and which costMost lacks", budget, e.most()) + stops
	}
	return ""
}

// String returns a line for the user.
func (e Estimate) String() string {
	if len(e.Rows) == 0 {
		return "0 $/h besides the pods and volumes of your cluster"
	}
	var names []string
	for _, r := range e.Unpriced {
		names = append(names, r.Name)
	}
	of := "prices of " + e.Of
	if len(names) > 0 {
		of += "; no price is known of: " + strings.Join(names, "; ")
	}
	text := fmt.Sprintf("about %s idle, %s with this job, at most %s, without traffic and logs (%s)",
		e.figure(e.Idle(), func(r Row) float64 { return r.Idle }),
		e.figure(e.Now(), func(r Row) float64 { return r.Now }), e.most(), of)
	if len(e.Unknown) > 0 {
		text += ", and besides: " + strings.Join(e.Unknown, ", ")
	}
	return text
}

// Markdown returns the estimate as a table.
func (e Estimate) Markdown() string {
	var b strings.Builder
	b.WriteString("| what | each | idle | with the job | at most |\n|---|---|---|---|---|\n")
	for _, r := range e.Rows {
		fmt.Fprintf(&b, "| %s | %.4g | %g | %g | %g |\n", r.Name, r.Each, r.Idle, r.Now, r.Most)
	}
	for _, r := range e.Unpriced {
		fmt.Fprintf(&b, "| %s | not in the sums | %g | %g | %g |\n", r.Name, r.Idle, r.Now, r.Most)
	}
	for _, u := range slices.Sorted(slices.Values(e.Unknown)) {
		fmt.Fprintf(&b, "| %s | not in the sums | | | |\n", u)
	}
	fmt.Fprintf(&b, "| **together** | | **%.2f** | **%.2f** | **%.2f** |\n", e.Idle(), e.Now(), e.Most())
	return b.String()
}
