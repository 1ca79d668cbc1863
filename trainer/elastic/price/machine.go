package price

import (
	_ "embed"
	"strconv"
	"strings"
)

//go:embed aws.txt
var amazonTable string

//go:embed gcp.txt
var googleTable string

// Cloud is a cloud with a table of prices.
type Cloud string

// Clouds with a table.
const (
	Amazon Cloud = "amazon"
	Google Cloud = "google"
)

// Of returns the region and month of a cloud's prices: "us-east-1, 2026-07".
func (c Cloud) Of() string {
	switch c {
	case Amazon:
		return "us-east-1, 2026-07"
	case Google:
		return "us-central1, 2026-08"
	}
	return ""
}

// Table returns the cloud's table: lines of a type, its price on demand and, if known, as spot.
// Lines that begin with # say where it is from.
func (c Cloud) Table() string {
	switch c {
	case Amazon:
		return amazonTable
	case Google:
		return googleTable
	}
	return ""
}

// Machine is a kind of machine that a cloud bills.
type Machine struct {
	Cloud Cloud
	// "m6i.large", "n1-standard-8"
	Type string
	Spot bool
	// GPUs that are attached to a machine of Google's family n1: "nvidia-tesla-t4", and how many;
	// other types include theirs
	Accelerator string
	GPUs        int
	// made by EKS Auto Mode, for a fee
	Auto bool
}

// autoFee is the share of the price on demand that EKS Auto Mode costs besides: the same share of
// every type on Amazon's page on EKS, 2026.
const autoFee = 0.12

// Hour returns the price of an hour, without disks. Of a spot machine of Amazon it is the price on
// demand, which is more than it costs. It is false if no price is known.
func (m Machine) Hour() (dollars float64, ok bool) {
	dollars, ok = look(m.Cloud.Table(), m.Type, m.Spot)
	if ok && m.Accelerator != "" && m.GPUs > 0 && strings.HasPrefix(m.Type, "n1-") {
		var each float64
		each, ok = cards[m.Accelerator]
		dollars += each * float64(m.GPUs)
	}
	if m.Auto {
		dollars *= 1 + autoFee
	}
	return dollars, ok
}

// String returns the machine as its users know it: "m6i.large on demand".
func (m Machine) String() string {
	text := m.Type
	if m.Accelerator != "" && m.GPUs > 0 {
		text += " with " + strconv.Itoa(m.GPUs) + " " + m.Accelerator
	}
	if m.Auto {
		text += " of Auto Mode"
	}
	switch {
	case m.Spot && m.Cloud == Amazon:
		return text + " spot, at the price on demand"
	case m.Spot:
		return text + " spot"
	}
	return text + " on demand"
}

// cards has the prices of GPUs that are attached to machines of N1, on demand: Google's page on
// GPUs, November 2026.
var cards = map[string]float64{"nvidia-tesla-t4": 0.35, "nvidia-tesla-p4": 0.60, "nvidia-tesla-p100": 1.46,
	"nvidia-tesla-v100": 2.48}

// look returns the price of a type in a table.
func look(table, name string, spot bool) (perHour float64, ok bool) {
	for line := range strings.Lines(table) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != name {
			continue
		}
		price := words[1]
		if spot && len(words) > 2 {
			price = words[2]
		}
		perHour, err := strconv.ParseFloat(price, 64)
		return perHour, err == nil && perHour > 0
	}
	return 0, false
}

// labelType is the label of a node with the type of its machine.
const labelType = "node.kubernetes.io/instance-type"

// spotLabels has the labels by which clouds and autoscalers mark spot nodes.
var spotLabels = map[string]string{
	"cloud.google.com/gke-spot":        "true",
	"cloud.google.com/gke-preemptible": "true",
	"eks.amazonaws.com/capacityType":   "SPOT",
	"karpenter.sh/capacity-type":       "spot",
}

// MachineOf returns the machine of a node by its labels, and the number of its GPUs. It is false if
// the labels name no type. A type with a dot is Amazon's.
func MachineOf(labels map[string]string, gpus int) (Machine, bool) {
	m := Machine{Type: labels[labelType], Cloud: Google}
	if strings.Contains(m.Type, ".") {
		m.Cloud = Amazon
	}
	for label, value := range spotLabels {
		m.Spot = m.Spot || labels[label] == value
	}
	if kind := labels["cloud.google.com/gke-accelerator"]; kind != "" && strings.HasPrefix(m.Type, "n1-") {
		m.Accelerator, m.GPUs = kind, gpus
	}
	m.Auto = labels["eks.amazonaws.com/compute-type"] == "auto"
	return m, m.Type != ""
}
