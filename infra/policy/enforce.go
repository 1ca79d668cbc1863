package policy

import (
	"context"
	"fmt"
	"sync"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/internals"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// Enforce judges every resource that the program requests from now on, except for what s allows. A
// preview continues to the end, so that it reports every violation, and then fails; an update
// creates no resource that violates a rule, and fails. With mocks Enforce does nothing: tests pass
// recorded resources to [Check].
func Enforce(ctx *pulumi.Context, s *settings.Settings) error {
	if err := s.Verify(Known); err != nil || ctx.RunningWithMocks() {
		return err
	}
	allow := s.Policy.Allow
	if !s.ProtectStorage {
		allow = append([]string{"unprotected-storage"}, allow...)
	}
	return ctx.RegisterResourceTransform((&guard{ctx: ctx, allow: allow, said: map[string]bool{}}).look)
}

type guard struct {
	ctx   *pulumi.Context
	allow []string

	mu   sync.Mutex
	all  []Resource      // requested so far
	said map[string]bool // violations that were reported already
}

// look judges a resource. The engine calls it, possibly for several resources at a time. It changes
// no valid resource: it returns nil, which also keeps options that the SDK does not expose here,
// such as deletedWith.
func (g *guard) look(ctx context.Context, a *pulumi.ResourceTransformArgs) *pulumi.ResourceTransformResult {
	r, err := seen(ctx, a)
	if err == nil {
		err = g.judge(r)
	}
	if err == nil {
		return nil
	}
	// A transform cannot return an error, but an input that fails to resolve can.
	refused := pulumi.Map{"policy": pulumi.String("").ToStringOutput().ApplyT(func(string) (string, error) {
		return "", err
	})}
	if !g.ctx.DryRun() {
		return &pulumi.ResourceTransformResult{Props: refused, Opts: a.Opts}
	}
	// In a preview, resources that depend on a refused resource would never be judged. So the
	// preview accepts it, and refuses another one instead, which fails the program with this error
	// at its end.
	var end pulumi.ResourceState
	if err := g.ctx.RegisterComponentResourceV2("elasticdl:policy:Violation", a.Type+" "+a.Name,
		refused, &end); err != nil {
		return &pulumi.ResourceTransformResult{Props: refused, Opts: a.Opts}
	}
	return nil
}

// judge adds a resource to those requested so far, and returns the new violations.
func (g *guard) judge(r Resource) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = append(g.all, r)
	said := len(g.said)
	for _, v := range check(g.all, false, g.allow) {
		if text := v.Error(); !g.said[text] {
			g.said[text] = true
			if err := g.ctx.Log.Error(text, nil); err != nil {
				return fmt.Errorf("report a violation: %w", err)
			}
		}
	}
	if len(g.said) > said {
		return fmt.Errorf("%s %q is against the policy, as said above", r.Type, r.Name)
	}
	return nil
}

// seen returns a resource as the engine passes it.
func seen(ctx context.Context, a *pulumi.ResourceTransformArgs) (Resource, error) {
	inputs, err := value(ctx, a.Props)
	if err != nil {
		return Resource{}, fmt.Errorf("read the inputs of %s %s: %w", a.Type, a.Name, err)
	}
	r := Resource{Type: a.Type, Name: a.Name, Options: Options{Protect: a.Opts.Protect}}
	if inputs.IsObject() {
		r.Inputs = inputs.ObjectValue()
	}
	if a.Opts.Provider != nil {
		if r.Options.Provider, err = short(ctx, a.Opts.Provider); err != nil {
			return Resource{}, err
		}
	}
	for _, d := range a.Opts.DependsOn {
		name, err := short(ctx, d)
		if err != nil {
			return Resource{}, err
		}
		r.Options.DependsOn = append(r.Options.DependsOn, name)
	}
	return r, nil
}

// short returns "type name" of a resource.
func short(ctx context.Context, r pulumi.Resource) (string, error) {
	u, err := internals.UnsafeAwaitOutput(ctx, r.URN())
	if err != nil {
		return "", fmt.Errorf("read the name of a resource: %w", err)
	}
	urn := resource.URN(fmt.Sprint(u.Value))
	return string(urn.Type()) + " " + urn.Name(), nil
}

// value returns an input as a value for the rules. The SDK has decoded it from the engine's
// message, so there are only these kinds.
func value(ctx context.Context, in any) (resource.PropertyValue, error) {
	switch v := in.(type) {
	case nil:
		return resource.NewNullProperty(), nil
	case pulumi.Map:
		m := resource.PropertyMap{}
		for k, e := range v {
			p, err := value(ctx, e)
			if err != nil {
				return p, err
			}
			m[resource.PropertyKey(k)] = p
		}
		return resource.NewProperty(m), nil
	case pulumi.Array:
		var a []resource.PropertyValue
		for _, e := range v {
			p, err := value(ctx, e)
			if err != nil {
				return p, err
			}
			a = append(a, p)
		}
		return resource.NewProperty(a), nil
	case pulumi.Output:
		o, err := internals.UnsafeAwaitOutput(ctx, v)
		if err != nil {
			return resource.PropertyValue{}, err
		}
		p := resource.MakeComputed(resource.NewProperty(""))
		if o.Known {
			if p, err = value(ctx, o.Value); err != nil {
				return p, err
			}
		}
		if o.Secret {
			p = resource.MakeSecret(p)
		}
		return p, nil
	case pulumi.Bool:
		return resource.NewProperty(bool(v)), nil
	case pulumi.Float64:
		return resource.NewProperty(float64(v)), nil
	case pulumi.String:
		return resource.NewProperty(string(v)), nil
	}
	return resource.NewPropertyValue(in), nil
}
