package settings

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// EKSQuota is a stack's need of one of Amazon's quotas, which limits the vCPUs of running instances
// of some families, in one account and region.
type EKSQuota struct {
	Code string
	Name string
	// NewAccount is the default of the quota, which new accounts have.
	NewAccount int
	// Groups has the paths of the groups whose nodes count.
	Groups []string
	// First is the number of vCPUs of desiredNodes, which the first `pulumi up` starts.
	First int
	// Most is the number of vCPUs of maxNodes.
	Most int
	// Rolled is the number of vCPUs of maxNodes while EKS replaces nodes in place: it starts up to
	// two more per zone and group.
	Rolled int
	// Unknown has the instance types whose vCPUs are not known here; the sums do not include them.
	Unknown []string
}

// The quotas of EC2 by family, each with its code and its default. Source: the pages "On-Demand
// Instance quotas" and "Spot Instance quotas" of the EC2 user guide; the codes as `aws
// service-quotas list-service-quotas --service-code ec2` prints them, November 2026.
var (
	standardQuota = EKSQuota{Code: "L-1216C47A",
		Name: "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", NewAccount: 5}
	graphicsQuota = EKSQuota{Code: "L-DB2E81BA", Name: "Running On-Demand G and VT instances"}
	pQuota        = EKSQuota{Code: "L-417A185B", Name: "Running On-Demand P instances"}
	standardSpot  = EKSQuota{Code: "L-34B43A08",
		Name: "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", NewAccount: 5}
	graphicsSpot = EKSQuota{Code: "L-3819A6DF", Name: "All G and VT Spot Instance Requests"}
	pSpot        = EKSQuota{Code: "L-7212CCBC", Name: "All P4, P3 and P2 Spot Instance Requests"}
)

var (
	letters = regexp.MustCompile(`^[a-z]+`)
	isOldP  = regexp.MustCompile(`^p[2-4]`)
)

// quotaOf returns the quota that counts instances of a type; it has no code if the family is not
// known here.
func quotaOf(instanceType string, spot bool) EKSQuota {
	pair := [2]EKSQuota{}
	switch f := letters.FindString(instanceType); {
	case f == "g" || f == "gr" || f == "vt":
		pair = [2]EKSQuota{graphicsQuota, graphicsSpot}
	case f == "p" && spot && !isOldP.MatchString(instanceType):
		// newer families of P have spot quotas of their own
	case f == "p":
		pair = [2]EKSQuota{pQuota, pSpot}
	case len(f) == 1 && strings.Contains("acdhimrtz", f):
		pair = [2]EKSQuota{standardQuota, standardSpot}
	}
	if spot {
		return pair[1]
	}
	return pair[0]
}

// Quotas returns what the stack needs of each quota that counts its nodes, in the order of its
// groups.
func (e *EKS) Quotas() []EKSQuota {
	var all []EKSQuota
	surge := 2 * max(len(e.VPC.Zones), len(e.VPC.PrivateSubnets))
	managed := len(e.Groups())
	for i, g := range slices.Concat(e.Groups(), e.NodePools()) {
		more := surge
		if i >= managed {
			more = 0 // a pool of Karpenter keeps its limit
		}
		// the greatest number of vCPUs of a node, by the code of the quota
		largest := map[string]int{}
		for _, t := range g.InstanceTypes {
			q := quotaOf(t, g.Spot)
			i := slices.IndexFunc(all, func(o EKSQuota) bool { return o.Code == q.Code })
			if i < 0 {
				i = len(all)
				all = append(all, q)
			}
			if at := g.Path; !slices.Contains(all[i].Groups, at) {
				all[i].Groups = append(all[i].Groups, at)
			}
			n := AmazonCPUs(t)
			if n == 0 || q.Code == "" {
				all[i].Unknown = append(all[i].Unknown, t)
			}
			largest[q.Code] = max(largest[q.Code], n)
		}
		for code, n := range largest {
			i := slices.IndexFunc(all, func(o EKSQuota) bool { return o.Code == code })
			all[i].First += n * g.DesiredNodes
			all[i].Most += n * g.MaxNodes
			all[i].Rolled += n * (g.MaxNodes + more)
		}
	}
	return all
}

// Note returns a line for the user: how much is needed, and the command that shows the account's
// quota.
func (q EKSQuota) Note(region string) string {
	at := strings.Join(q.Groups, ", ")
	if q.Code == "" {
		return fmt.Sprintf("%s: instances of %s count against a quota of their family: aws "+
			"service-quotas list-service-quotas --region %s --service-code ec2 --query "+
			"'Quotas[].[QuotaName,Value]' --output text",
			at, strings.Join(q.Unknown, ", "), region)
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
		q.NewAccount, region, q.Code)
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

// AmazonCPUs returns the number of vCPUs of a type by its size: a large has two, an xlarge four. It
// returns 0 for an unknown size.
func AmazonCPUs(instanceType string) int {
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
