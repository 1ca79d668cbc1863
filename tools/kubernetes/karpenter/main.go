// Command karpenter is the controller of Karpenter for a simulated cloud. Its instances are nodes
// that do not exist: Karpenter's provider "kwok" creates the Node objects, and kwok simulates them.
// The cloud may have fewer spot instances than are asked for.
package main

import (
	"context"
	"os"

	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator"
	"sigs.k8s.io/karpenter/pkg/operator/options"
)

// flags has the flags of this program that Karpenter does not have.
type flags struct{ spot int }

func (f *flags) AddFlags(set *options.FlagSet) {
	set.IntVar(&f.spot, "spot-instances", -1, "number of spot instances that the cloud has; -1: any number")
}

// Parse does nothing: the flags of all parts are in one set, which Karpenter's own part parses.
func (f *flags) Parse(*options.FlagSet, ...string) error { return nil }

func (f *flags) ToContext(ctx context.Context) context.Context { return ctx }

func main() {
	var own flags
	options.Injectables = append(options.Injectables, &own)
	ctx, op := operator.NewOperator()
	cloud, err := newCloud(ctx, op.GetClient(), own.spot)
	if err != nil {
		log.FromContext(ctx).Error(err, "read the instance types")
		os.Exit(1)
	}
	decorated := overlay.Decorate(cloud, op.GetClient(), op.InstanceTypeStore)
	op.WithControllers(ctx, controllers.NewControllers(ctx, op.Manager, op.Clock, op.GetClient(),
		op.EventRecorder, decorated, cloud, state.NewCluster(op.Clock, op.GetClient(), decorated),
		op.InstanceTypeStore)...).Start(ctx)
}
