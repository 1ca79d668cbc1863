// Package karpenter builds the objects by which Karpenter, or EKS Auto Mode, makes nodes for pods
// that wait, and ends nodes on which no pod is left: a NodePool and a class of nodes for each pool.
//
// API: https://karpenter.sh/docs/concepts/nodepools/ of version 1, and
// https://docs.aws.amazon.com/eks/latest/userguide/create-node-class.html.
//
// Laws:
//
//  1. Karpenter never takes a node from under a master or a parameter server: nodes of a core pool
//     end only when they are empty, or, in Auto Mode, at the age at which Amazon ends each node.
//  2. A node on which no pod is left ends after the time of its pool, also if many are empty at
//     once.
//  3. A pool never has more nodes than its limit.
package karpenter

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is a kind of class of nodes.
type Kind struct{ Group, Version, Kind string }

// Classes of nodes.
var (
	// of EKS Auto Mode
	Auto = Kind{"eks.amazonaws.com", "v1", "NodeClass"}
	// of Karpenter's provider for Amazon
	EC2 = Kind{"karpenter.k8s.aws", "v1", "EC2NodeClass"}
)

// Pool describes the nodes of a pool.
type Pool struct {
	// of the NodePool and of its class
	Name string
	// kind of its class
	Class Kind
	// label of the instance type, and types that the pool may have
	Types []string
	// amd64 or arm64
	Arch string
	// nil = all of the class
	Zones []string
	// spot, on-demand or reserved; Karpenter prefers reserved to spot to on-demand
	Capacity []string
	// greatest number of nodes
	Limit int
	// greatest number of vCPUs of all nodes; 0 = unknown
	CPUs   int
	Labels map[string]string
	Taints []Taint
	// time for which a node stays without pods
	IdleAfter time.Duration
	// Core nodes run masters and parameter servers, which are not moved.
	Core bool
	// age at which a node is replaced, whatever runs on it; 0 = never
	Expire time.Duration
}

// Taint keeps pods off the nodes that do not tolerate it.
type Taint struct{ Key, Value, Effect string }

// drainLimit is the time that pods of a node get to end before it ends without them. Amazon ends
// nodes of Auto Mode at most 21 days after their start, this time included.
const drainLimit = 24 * time.Hour

// AutoExpire is the greatest age of a node of Auto Mode at which it is drained.
const AutoExpire = 21*24*time.Hour - drainLimit

// capacityLabel is the label of a node that has its kind of capacity.
const capacityLabel = "karpenter.sh/capacity-type"

// NodePool returns the NodePool of a pool.
func NodePool(of Pool) *unstructured.Unstructured {
	requires := func(key string, values ...string) any {
		return map[string]any{"key": key, "operator": "In", "values": anys(values)}
	}
	requirements := []any{
		requires("node.kubernetes.io/instance-type", of.Types...),
		requires("kubernetes.io/arch", of.Arch),
		requires(capacityLabel, of.Capacity...),
	}
	if len(of.Zones) > 0 {
		requirements = append(requirements, requires("topology.kubernetes.io/zone", of.Zones...))
	}
	spec := map[string]any{
		"nodeClassRef": map[string]any{"group": of.Class.Group, "kind": of.Class.Kind, "name": of.Name},
		"requirements": requirements,
		"expireAfter":  duration(of.Expire),
	}
	if of.Expire > 0 {
		spec["terminationGracePeriod"] = duration(drainLimit)
	}
	var taints []any
	for _, t := range of.Taints {
		taints = append(taints, map[string]any{"key": t.Key, "value": t.Value, "effect": t.Effect})
	}
	if len(taints) > 0 {
		spec["taints"] = taints
	}
	template := map[string]any{"spec": spec}
	if len(of.Labels) > 0 {
		template["metadata"] = map[string]any{"labels": texts(of.Labels)}
	}
	limits := map[string]any{"nodes": fmt.Sprint(of.Limit)}
	if of.CPUs > 0 {
		limits["cpu"] = fmt.Sprint(of.CPUs)
	}
	return object(Kind{"karpenter.sh", "v1", "NodePool"}, of.Name, map[string]any{
		"template": template, "limits": limits,
		"disruption": map[string]any{
			"consolidationPolicy": "WhenEmpty", "consolidateAfter": duration(of.IdleAfter), "budgets": budgets(of.Core),
		},
	})
}

// budgets returns how many nodes Karpenter may end at a time, by reason. All empty nodes end at
// once. A node differs from its pool after a change of a setting, or when there is a newer image.
func budgets(core bool) []any {
	differs := "10%"
	if core {
		differs = "0"
	}
	return []any{
		map[string]any{"nodes": "100%", "reasons": []any{"Empty"}},
		map[string]any{"nodes": differs, "reasons": []any{"Drifted", "Underutilized"}},
	}
}

// Class describes how the nodes of a pool are made.
type Class struct {
	Name string
	Kind Kind
	// name of the role of the nodes, for Auto, or of their instance profile, for EC2
	Identity string
	Subnets  []string
	// ID of the security group
	Group  string
	DiskGB int // GiB
	// ARN of the key that encrypts its disks; "" = Amazon's own
	KMSKey string
	Tags   map[string]string
	// ID of a capacity reservation; "" = none
	Reservation string
	// alias of Amazon's images, for EC2: "al2023@latest"
	Image string
}

// NodeClass returns the class of the nodes of a pool.
func NodeClass(of Class) *unstructured.Unstructured {
	ids := func(all ...string) (terms []any) {
		for _, id := range all {
			terms = append(terms, map[string]any{"id": id})
		}
		return terms
	}
	spec := map[string]any{
		"subnetSelectorTerms":        ids(of.Subnets...),
		"securityGroupSelectorTerms": ids(of.Group),
		"tags":                       texts(of.Tags),
	}
	if of.Reservation != "" {
		spec["capacityReservationSelectorTerms"] = ids(of.Reservation)
	}
	size := fmt.Sprintf("%dGi", of.DiskGB)
	if of.Kind == Auto {
		spec["role"] = of.Identity
		disk := map[string]any{"size": size}
		if of.KMSKey != "" {
			disk["kmsKeyID"] = of.KMSKey
		}
		spec["ephemeralStorage"] = disk
		return object(of.Kind, of.Name, spec)
	}
	spec["instanceProfile"] = of.Identity
	spec["amiSelectorTerms"] = []any{map[string]any{"alias": of.Image}}
	disk := map[string]any{"volumeType": "gp3", "volumeSize": size, "encrypted": true, "deleteOnTermination": true}
	if of.KMSKey != "" {
		disk["kmsKeyID"] = of.KMSKey
	}
	spec["blockDeviceMappings"] = []any{map[string]any{"deviceName": "/dev/xvda", "rootVolume": true, "ebs": disk}}
	// with one hop the metadata service answers nodes, but not pods
	spec["metadataOptions"] = map[string]any{"httpEndpoint": "enabled", "httpTokens": "required",
		"httpPutResponseHopLimit": int64(1)}
	return object(of.Kind, of.Name, spec)
}

func object(of Kind, name string, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: of.Group, Version: of.Version, Kind: of.Kind})
	u.SetName(name)
	return u
}

// duration returns a time as Karpenter reads it; 0 is "Never".
func duration(d time.Duration) string {
	switch {
	case d <= 0:
		return "Never"
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return fmt.Sprintf("%ds", d/time.Second)
}

func anys(all []string) (list []any) {
	for _, one := range all {
		list = append(list, one)
	}
	return list
}

func texts(all map[string]string) map[string]any {
	m := map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		m[key] = all[key]
	}
	return m
}
