package infra

import (
	"maps"
	"runtime"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// ClusterArgs has what the arguments of clusters of all clouds have in common.
type ClusterArgs struct {
	// Alone says that the program has no other cluster: then names of resources, in the program and
	// in the cloud, do not contain that of the cluster. A stack is such a program.
	Alone bool
	// Labels of everything that is billed: labels of Google, tags of Amazon.
	Labels map[string]string
	// DeleteStorage lets `pulumi destroy` delete file systems, buckets and registries, too.
	DeleteStorage bool
	// Budget is nil for none.
	Budget *settings.Budget
	// Platform is that of package platform, as far as the cluster has to be made for it.
	Platform settings.Platform
	// Images lists the names of the images that are pushed to the cluster's registry. EKS makes a
	// repository for each, and the other clouds need none.
	Images []string
	// Now is compared with the dates on which the support of versions ends; zero = it is not.
	Now time.Time

	stack *settings.Settings
}

// OfStack returns the arguments of the cluster of a stack's valid settings. These are complete: a
// later change of the section of the cloud has no effect.
func OfStack(s *settings.Settings) ClusterArgs {
	return ClusterArgs{Alone: true, Labels: s.Labels, DeleteStorage: !s.ProtectStorage, Budget: s.Budget,
		Platform: s.Platform, Images: []string{s.ImageName()}, Now: s.Now, stack: s}
}

// Settings returns the arguments of a cluster as settings with all defaults, or all their problems.
// Set sets the section of the cloud.
func (a *ClusterArgs) Settings(ctx *pulumi.Context, name, cloud string,
	set func(*settings.Settings)) (*settings.Settings, error) {
	if a.stack != nil {
		return a.stack, nil
	}
	s := &settings.Settings{Cloud: cloud, Labels: maps.Clone(a.Labels), ProtectStorage: !a.DeleteStorage,
		Budget: a.Budget, Platform: a.Platform}
	set(s)
	in := settings.Input{Project: name, Stack: ctx.Stack(), Base: "elasticdl-" + ctx.Stack(),
		Root: ctx.RootDirectory(), Now: a.Now, Arch: runtime.GOARCH}
	if !a.Alone {
		in.Base += "-" + name
	}
	s, err := settings.Cluster(in, s)
	if err != nil {
		return nil, err
	}
	for _, note := range s.Notes {
		if err := ctx.Log.Warn(note, nil); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// IsStack reports whether the cluster is that of a stack, whose provider has the same
// configuration.
func (a *ClusterArgs) IsStack() bool { return a.stack != nil }

// Names names the parts of a component.
type Names struct {
	prefix string
}

// NewNames returns the names of the parts of a component; alone, they do not contain its own.
func NewNames(component string, alone bool) Names {
	if alone {
		return Names{}
	}
	return Names{component + "-"}
}

// Child returns the name of a resource in the program.
func (n Names) Child(name string) string { return n.prefix + name }

// Hook returns the name of a hook, which is shown before what the hook says.
func (n Names) Hook(name string) string {
	if n.prefix == "" {
		return name
	}
	return n.prefix[:len(n.prefix)-1] + ": " + name
}
