package settings

import "slices"

// CloudQuota is a stack's need of one quota of its cloud, which limits what the nodes of an account
// or project have together.
type CloudQuota struct {
	// code of Amazon, metric of Google: "L-1216C47A", "CPUS"; "" = of instances whose quota is not
	// known here
	ID string
	// Amazon's name of the quota
	Name string
	// of Amazon: what a new account has
	NewAccount int
	// the quota is of the whole project of Google, not of one region
	Project bool
	// Pools has the paths of the pools and groups whose nodes count.
	Pools []string
	// First is the need of the nodes that the first `pulumi up` starts.
	First int
	// Most is the need of maxNodes.
	Most int
	// Rolled is the need of maxNodes while the cloud replaces nodes in place.
	Rolled int
	// Unknown has the instance types whose vCPUs are not known here; the sums do not include them.
	Unknown []string
}

// nodeCount has the numbers of nodes of a pool for which a quota must suffice.
type nodeCount struct{ first, most, rolled int }

// cloudQuotas sums needs by quota, in the order of the pools.
type cloudQuotas []CloudQuota

// of returns the need of a quota, to which a pool's nodes count.
func (all *cloudQuotas) of(q CloudQuota, pool string) *CloudQuota {
	i := slices.IndexFunc(*all, func(o CloudQuota) bool { return o.ID == q.ID })
	if i < 0 {
		i = len(*all)
		*all = append(*all, q)
	}
	is := &(*all)[i]
	if !slices.Contains(is.Pools, pool) {
		is.Pools = append(is.Pools, pool)
	}
	return is
}

// add adds nodes that count each so much.
func (q *CloudQuota) add(each int, n nodeCount) {
	q.First += each * n.first
	q.Most += each * n.most
	q.Rolled += each * n.rolled
}
