package settings

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// amazonQuotas lists the quotas of EC2, which limit the vCPUs of running instances of some
// families, in one account and region. Source: the pages "On-Demand Instance quotas" and "Spot
// Instance quotas" of the EC2 user guide; the codes as `aws service-quotas list-service-quotas
// --service-code ec2` prints them, November 2026. Newer families of P have spot quotas of their
// own.
var amazonQuotas = []struct {
	types *regexp.Regexp
	spot  bool
	CloudQuota
}{
	{standard, false, CloudQuota{ID: "L-1216C47A",
		Name: "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", NewAccount: 5}},
	{standard, true, CloudQuota{ID: "L-34B43A08",
		Name: "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", NewAccount: 5}},
	{graphics, false, CloudQuota{ID: "L-DB2E81BA", Name: "Running On-Demand G and VT instances"}},
	{graphics, true, CloudQuota{ID: "L-3819A6DF", Name: "All G and VT Spot Instance Requests"}},
	{regexp.MustCompile(`^p[0-9]`), false, CloudQuota{ID: "L-417A185B", Name: "Running On-Demand P instances"}},
	{regexp.MustCompile(`^p[2-4]`), true, CloudQuota{ID: "L-7212CCBC",
		Name: "All P4, P3 and P2 Spot Instance Requests"}},
}

var (
	standard = regexp.MustCompile(`^[acdhimrtz][0-9]`)
	graphics = regexp.MustCompile(`^(g|gr|vt)[0-9]`)
)

// quotaOf returns the quota that counts instances of a type; it has no ID if the family is not
// known here.
func quotaOf(instanceType string, spot bool) CloudQuota {
	for _, q := range amazonQuotas {
		if q.spot == spot && q.types.MatchString(instanceType) {
			return q.CloudQuota
		}
	}
	return CloudQuota{}
}

// Quotas returns what the stack needs of each quota that counts the vCPUs of its nodes, in the
// order of its groups.
func (e *EKS) Quotas() []CloudQuota {
	var all cloudQuotas
	managed := len(e.Groups())
	for i, g := range slices.Concat(e.Groups(), e.NodePools()) {
		nodes := nodeCount{g.DesiredNodes, g.MaxNodes, g.MaxNodes}
		if i < managed { // a pool of Karpenter keeps its limit
			// EKS starts up to two more per zone and group while it replaces nodes in place
			nodes.rolled += 2 * max(len(e.VPC.Zones), len(e.VPC.PrivateSubnets))
		}
		all.addAmazon(g, g.Spot, nodes)
		if g.Spot && g.OnDemand {
			// where there are no spot nodes
			all.addAmazon(g, false, nodes)
		}
	}
	return all
}

// addAmazon adds the needs of spot nodes of a group, or of those on demand.
func (all *cloudQuotas) addAmazon(g NamedGroup, spot bool, nodes nodeCount) {
	// the greatest number of vCPUs of a node, by the ID of the quota
	largest := map[string]int{}
	for _, t := range g.InstanceTypes {
		q, n := all.of(quotaOf(t, spot), g.Path), AmazonCPUs(t)
		if (n == 0 || q.ID == "") && !slices.Contains(q.Unknown, t) {
			q.Unknown = append(q.Unknown, t)
		}
		largest[q.ID] = max(largest[q.ID], n)
	}
	for id, n := range largest {
		all.of(CloudQuota{ID: id}, g.Path).add(n, nodes)
	}
}

// QuotaNotes returns lines for the user: how much of each quota is needed.
func (e *EKS) QuotaNotes() (all []string) {
	for _, q := range e.Quotas() {
		all = append(all, e.QuotaNote(q))
	}
	return all
}

// QuotaNote returns a line for the user: how much of a quota is needed, and the command that shows
// the account's.
func (e *EKS) QuotaNote(q CloudQuota) string {
	at := strings.Join(q.Pools, ", ")
	if q.ID == "" {
		return fmt.Sprintf("%s: instances of %s count against a quota of their family: aws "+
			"service-quotas list-service-quotas --region %s --service-code ec2 --query "+
			"'Quotas[].[QuotaName,Value]' --output text",
			at, strings.Join(q.Unknown, ", "), e.Region)
	}
	text := fmt.Sprintf("%s: needs %d vCPUs of the quota %q at first, %d with maxNodes, up to %d "+
		"while nodes are rolled", at, q.First, q.Name, q.Most, q.Rolled)
	if q.First == 0 && q.Rolled == q.Most {
		text = fmt.Sprintf("%s: needs up to %d vCPUs of the quota %q, as jobs do", at, q.Most, q.Name)
	}
	if len(q.Unknown) > 0 {
		text += ", and those of " + strings.Join(q.Unknown, ", ")
	}
	return text + fmt.Sprintf("; a new account has %d. Yours: aws service-quotas "+
		"get-service-quota --region %s --service-code ec2 --quota-code %s --query Quota.Value",
		q.NewAccount, e.Region, q.ID)
}

// MaxCPUs returns the number of vCPUs of maxNodes nodes of the largest type; 0 = not known.
func (o *EKSGroup) MaxCPUs() int {
	most := 0
	for _, t := range o.InstanceTypes {
		n := AmazonCPUs(t)
		if n == 0 {
			return 0
		}
		most = max(most, n)
	}
	return most * o.MaxNodes
}

var sized = regexp.MustCompile(`\.([0-9]*)(xlarge|large)$`)

// moreCPUs has the number of vCPUs of types that have more than their size says.
var moreCPUs = map[string]int{"c1.xlarge": 8, "c4.8xlarge": 36, "d2.8xlarge": 36}

// AmazonCPUs returns the number of vCPUs of a type by its size: a large has two, an xlarge four. It
// returns 0 for an unknown size.
func AmazonCPUs(instanceType string) int {
	if n := moreCPUs[instanceType]; n > 0 {
		return n
	}
	at := sized.FindStringSubmatch(instanceType)
	switch {
	case at == nil || at[2] == "large" && at[1] != "":
		return 0
	case at[2] == "large":
		return 2
	case at[1] == "":
		return 4
	}
	n, err := strconv.Atoi(at[1])
	if err != nil {
		return 0
	}
	return 4 * n
}
