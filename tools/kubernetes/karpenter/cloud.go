package main

import (
	"context"
	"fmt"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	karpenter "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

// cloud is Karpenter's provider "kwok" with a limited number of spot instances. As with EC2, a
// request of spot capacity that the cloud does not have is refused with InsufficientCapacityError.
// From then on, no spot offering is available until a spot instance has ended, and requests that
// allow both capacity types get on-demand instances.
type cloud struct {
	cloudprovider.CloudProvider
	// the same without spot offerings
	onDemand cloudprovider.CloudProvider
	// number of spot instances that the cloud has; negative: any number
	limit int

	mu sync.Mutex
	// provider IDs of the spot instances; nil before the first request
	spot map[string]bool
	// a request was refused since the last end of a spot instance
	out bool
}

func newCloud(ctx context.Context, c client.Client, limit int) (*cloud, error) {
	all, err := kwok.ConstructInstanceTypes(ctx)
	if err != nil {
		return nil, err
	}
	rest, err := kwok.ConstructInstanceTypes(ctx)
	if err != nil {
		return nil, err
	}
	for _, kind := range rest {
		for _, offering := range kind.Offerings {
			offering.Available = offering.CapacityType() != karpenter.CapacityTypeSpot
		}
	}
	return &cloud{CloudProvider: kwok.NewCloudProvider(ctx, c, all),
		onDemand: kwok.NewCloudProvider(ctx, c, rest), limit: limit}, nil
}

// Create makes an instance for a claim: spot if the claim allows it and the cloud has spot
// capacity, which is always the cheaper one.
func (c *cloud) Create(ctx context.Context, claim *karpenter.NodeClaim) (*karpenter.NodeClaim, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.count(ctx); err != nil {
		return nil, err
	}
	allowed := scheduling.NewNodeSelectorRequirementsWithMinValues(claim.Spec.Requirements...).
		Get(karpenter.CapacityTypeLabelKey)
	full := c.limit >= 0 && len(c.spot) >= c.limit
	switch spot, onDemand := allowed.Has(karpenter.CapacityTypeSpot), allowed.Has(karpenter.CapacityTypeOnDemand); {
	case !spot, c.out && onDemand:
		return c.onDemand.Create(ctx, claim)
	case full:
		c.out = true
		return nil, cloudprovider.NewInsufficientCapacityError(
			fmt.Errorf("the cloud has %d spot instances, and all of them are in use", c.limit))
	}
	made, err := c.CloudProvider.Create(ctx, claim)
	if err == nil && made.Labels[karpenter.CapacityTypeLabelKey] == karpenter.CapacityTypeSpot {
		c.spot[made.Status.ProviderID] = true
	}
	return made, err
}

// count reads the spot instances that another process of this program has made.
func (c *cloud) count(ctx context.Context) error {
	if c.spot != nil {
		return nil
	}
	there, err := c.List(ctx)
	if err != nil {
		return err
	}
	c.spot = make(map[string]bool)
	for _, claim := range there {
		if claim.Labels[karpenter.CapacityTypeLabelKey] == karpenter.CapacityTypeSpot {
			c.spot[claim.Status.ProviderID] = true
		}
	}
	return nil
}

// Delete ends the instance of a claim.
func (c *cloud) Delete(ctx context.Context, claim *karpenter.NodeClaim) error {
	err := c.CloudProvider.Delete(ctx, claim)
	c.mu.Lock()
	defer c.mu.Unlock()
	if id := claim.Status.ProviderID; cloudprovider.IsNodeClaimNotFoundError(err) && c.spot[id] {
		delete(c.spot, id)
		c.out = false
	}
	return err
}

// GetInstanceTypes returns all instance types, with the offerings that are available now.
func (c *cloud) GetInstanceTypes(ctx context.Context, pool *karpenter.NodePool) ([]*cloudprovider.InstanceType, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out {
		return c.onDemand.GetInstanceTypes(ctx, pool)
	}
	return c.CloudProvider.GetInstanceTypes(ctx, pool)
}
