package infra

import (
	"errors"
	"sync"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// NewHook registers a function that the engine calls before it changes a resource to which the hook
// is bound, in previews, too. So a check runs before the user is asked whether to continue. The
// function refuses by returning an error, which is shown after the name of the hook, and warns by
// the context's log. The name is unique in the program: see [Names.Hook]. NewHook returns nil with
// mocks, which have no engine that would call it.
//
// No hook is bound to deletions: `pulumi destroy` does not run the program.
func NewHook(ctx *pulumi.Context, name string, f pulumi.ResourceHookFunction) (*pulumi.ResourceHook, error) {
	if ctx.RunningWithMocks() {
		return nil, nil
	}
	return ctx.RegisterResourceHook(name, f, &pulumi.ResourceHookOptions{OnDryRun: true})
}

// BeforeCreate returns the option that binds a hook to creations, including those that replace a
// resource.
func BeforeCreate(h *pulumi.ResourceHook) pulumi.ResourceOption {
	return pulumi.ResourceHooks(&pulumi.ResourceHookBinding{BeforeCreate: []*pulumi.ResourceHook{h}})
}

// WarnBeforeCreate returns the option that logs warnings once, before the first of the resources
// that have it is created.
func WarnBeforeCreate(ctx *pulumi.Context, name string, warnings []string) (pulumi.ResourceOption, error) {
	var once sync.Once
	hook, err := NewHook(ctx, name, func(*pulumi.ResourceHookArgs) (err error) {
		once.Do(func() {
			for _, warning := range warnings {
				err = errors.Join(err, ctx.Log.Warn(warning, nil))
			}
		})
		return err
	})
	return BeforeCreate(hook), err
}

// BeforeUpdate returns the option that binds a hook to updates; the hook gets the old and the new
// inputs.
func BeforeUpdate(h *pulumi.ResourceHook) pulumi.ResourceOption {
	return pulumi.ResourceHooks(&pulumi.ResourceHookBinding{BeforeUpdate: []*pulumi.ResourceHook{h}})
}
