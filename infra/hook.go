package infra

import "github.com/pulumi/pulumi/sdk/v3/go/pulumi"

// NewHook registers a function that the engine calls before it touches a resource to which the hook is bound, in previews, too:
// so a guard rail stands before the question whether to go on. The function refuses by an error, which begins with the name of the
// hook, and warns by the context's log. NewHook returns nil with mocks, which have no engine that would call it.
//
// No hook is bound to deletions: `pulumi destroy` does not run the program.
func NewHook(ctx *pulumi.Context, name string, f pulumi.ResourceHookFunction) (*pulumi.ResourceHook, error) {
	if ctx.RunningWithMocks() {
		return nil, nil
	}
	return ctx.RegisterResourceHook(name, f, &pulumi.ResourceHookOptions{OnDryRun: true})
}

// BeforeCreate returns the option that binds a hook to what the engine is about to create, also in another's place.
func BeforeCreate(h *pulumi.ResourceHook) pulumi.ResourceOption {
	return pulumi.ResourceHooks(&pulumi.ResourceHookBinding{BeforeCreate: []*pulumi.ResourceHook{h}})
}

// BeforeUpdate returns the option that binds a hook to what the engine is about to update; it has the old inputs and the new.
func BeforeUpdate(h *pulumi.ResourceHook) pulumi.ResourceOption {
	return pulumi.ResourceHooks(&pulumi.ResourceHookBinding{BeforeUpdate: []*pulumi.ResourceHook{h}})
}
