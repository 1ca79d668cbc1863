package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// managerKey is the key of the field manager in the state of an object.
const managerKey = "__fieldManager"

// at returns the client for objects of the same kind and namespace.
func (p *Provider) at(o object) (dynamic.ResourceInterface, error) {
	group, err := schema.ParseGroupVersion(o.version())
	if err != nil {
		return nil, err
	}
	kind := group.WithKind(o.kind())
	mapping, err := p.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		p.mapper.Reset() // the definition of its kind may be new
		mapping, err = p.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return p.client.Resource(mapping.Resource), nil
	}
	namespace := o.namespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return p.client.Resource(mapping.Resource).Namespace(namespace), nil
}

// Create applies a new object, and waits until it is ready.
func (p *Provider) Create(ctx context.Context, r *pulumirpc.CreateRequest) (*pulumirpc.CreateResponse, error) {
	o := object(plain(r.Properties))
	suffix := make([]byte, 4)
	rand.Read(suffix)
	manager := "pulumi-kubernetes-" + hex.EncodeToString(suffix)
	if r.Preview {
		seen, err := p.preview(ctx, o, manager)
		return &pulumirpc.CreateResponse{Properties: seen}, err
	}
	live, err := p.apply(ctx, "create", o, manager, r.Timeout)
	if err != nil {
		return nil, err
	}
	state, err := wire(live)
	return &pulumirpc.CreateResponse{Id: live.id(), Properties: state}, err
}

// Update applies an existing object again, and waits until it is ready. It does not create a
// missing one.
func (p *Provider) Update(ctx context.Context, r *pulumirpc.UpdateRequest) (*pulumirpc.UpdateResponse, error) {
	o := object(plain(r.News))
	manager := object(plain(r.Olds)).text(managerKey)
	if r.Preview && (p.set().unreachable || hasUnknown(map[string]any(o))) {
		return &pulumirpc.UpdateResponse{Properties: r.News}, nil
	}
	where, err := p.at(o)
	if err != nil {
		return nil, fmt.Errorf("update of resource %q failed: %w", r.Urn, err)
	}
	there, err := where.Get(ctx, o.name(), metav1.GetOptions{})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("update of resource %q failed: %w", r.Urn, err),
			fmt.Errorf("unable to get cluster state: %w", err))
	}
	o.ignore(there.Object, r.IgnoreChanges)
	if r.Preview {
		live, err := p.patch(ctx, o, manager, o.annotation("patchForce") == "true", metav1.DryRunAll)
		// the client lacks the right; a refusal of the object itself is another error
		if apierrors.IsForbidden(err) {
			return &pulumirpc.UpdateResponse{Properties: r.News}, nil
		}
		if err != nil {
			return nil, fmt.Errorf("the Kubernetes API server reported that %q failed to fully "+
				"initialize or become live: %w", r.Id, err)
		}
		state, err := wire(live)
		return &pulumirpc.UpdateResponse{Properties: state}, err
	}
	live, err := p.apply(ctx, "update", o, manager, r.Timeout)
	if err != nil {
		return nil, err
	}
	state, err := wire(live)
	return &pulumirpc.UpdateResponse{Properties: state}, err
}

// preview returns the object as it would be created, or the inputs if that cannot be known. It
// forces conflicts, because an object that is replaced still exists. If the server reports that a
// field is immutable, it asks again, under another name. Every other error of the server ends the
// preview.
func (p *Provider) preview(ctx context.Context, o object, manager string) (*structpb.Struct, error) {
	if p.set().unreachable || hasUnknown(map[string]any(o)) {
		return wire(o)
	}
	live, err := p.patch(ctx, o, manager, true, metav1.DryRunAll)
	if apierrors.IsInvalid(err) && strings.Contains(err.Error(), validation.FieldImmutableErrorMsg) {
		renamed := o.clone()
		renamed.metadata()["name"] = o.name() + "-preview"
		live, err = p.patch(ctx, renamed, manager, true, metav1.DryRunAll)
		if err == nil {
			live.metadata()["name"] = o.name()
		}
	}
	// this deployment creates what is missing: a definition or a namespace
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return wire(o)
	}
	if err != nil {
		return nil, fmt.Errorf("preview %s %s: %w", o.kind(), o.id(), err)
	}
	delete(live, "status")
	return wire(live)
}

func (p *Provider) patch(ctx context.Context, o object, manager string, force bool, dryRun ...string) (object, error) {
	where, err := p.at(o)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(o.mounted(p.Mounts))
	if err != nil {
		return nil, err
	}
	live, err := where.Patch(ctx, o.name(), types.ApplyPatchType, text, metav1.PatchOptions{
		FieldManager: manager, Force: &force, FieldValidation: metav1.FieldValidationStrict, DryRun: dryRun,
	})
	if err != nil {
		return nil, err
	}
	return p.state(live, manager), nil
}

// Unmounted returns a live object in which the directories have the names that the stack uses for
// them.
func (p *Provider) Unmounted(live map[string]any) map[string]any {
	names := make(map[string]string)
	for stacks, nodes := range p.Mounts {
		names[nodes] = stacks
	}
	return object(live).mounted(names)
}

// state returns a live object in the form of the stack's state.
func (p *Provider) state(live *unstructured.Unstructured, manager string) object {
	o := object(p.Unmounted(live.Object))
	delete(o.metadata(), "managedFields")
	o[managerKey] = manager
	return o
}

// apply applies an object. It returns an existing object to Pulumi also if the object does not
// become ready, so that it is in the state.
func (p *Provider) apply(ctx context.Context, op string, o object, manager string, timeout float64) (object, error) {
	live, err := p.patch(ctx, o, manager, o.annotation("patchForce") == "true")
	if err != nil {
		return nil, fmt.Errorf("%s %s %s: %w", op, o.kind(), o.id(), err)
	}
	p.did(op, live)
	if o.annotation("skipAwait") == "true" {
		return live, nil
	}
	is := ready(o.kind())
	if is == nil || is(live) {
		return live, nil
	}
	last := live
	err = p.until(ctx, live, timeout, func(now object) bool {
		if now == nil {
			return false
		}
		last = now
		return is(now)
	})
	last[managerKey] = manager
	if err == nil {
		return last, nil
	}
	err = fmt.Errorf("%s %s %s: it is there, but not ready: %w", op, o.kind(), o.id(), err)
	state, _ := wire(last)
	failed, _ := status.New(codes.Unknown, err.Error()).WithDetails(&pulumirpc.ErrorResourceInitFailed{
		Id: live.id(), Properties: state, Reasons: []string{err.Error()},
	})
	return nil, failed.Err()
}

// until polls an object until a condition is true; the condition gets nil if the object is deleted.
// A timeout of 0 means the provider's default.
func (p *Provider) until(ctx context.Context, o object, timeout float64, is func(object) bool) error {
	limit := p.Patience
	if timeout > 0 {
		limit = time.Duration(timeout * float64(time.Second))
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	where, err := p.at(o)
	if err != nil {
		return err
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		live, err := where.Get(ctx, o.name(), metav1.GetOptions{})
		switch {
		case err == nil:
			if is(p.state(live, "")) {
				return nil
			}
		case apierrors.IsNotFound(err):
			if is(nil) {
				return nil
			}
		}
		last = err
		select {
		case <-ctx.Done():
			if last == nil {
				last = ctx.Err()
			}
			return fmt.Errorf("after %v: %w", limit, last)
		case <-tick.C:
		}
	}
}

// Read returns the present object. Its inputs are the parts that were requested, so that the next
// up sees what others have changed.
func (p *Provider) Read(ctx context.Context, r *pulumirpc.ReadRequest) (*pulumirpc.ReadResponse, error) {
	old, inputs := object(plain(r.Properties)), plain(r.Inputs)
	where, err := p.at(old)
	if meta.IsNoMatchError(err) {
		return &pulumirpc.ReadResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	live, err := where.Get(ctx, old.name(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return &pulumirpc.ReadResponse{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", old.kind(), old.id(), err)
	}
	now := p.state(live, old.text(managerKey))
	p.did("read", now)
	state, err := wire(now)
	if err != nil {
		return nil, err
	}
	seen, err := wire(pruned(map[string]any(now), inputs).(map[string]any))
	return &pulumirpc.ReadResponse{Id: r.Id, Properties: state, Inputs: seen}, err
}

// Delete deletes an object, and waits until it does not exist any more.
func (p *Provider) Delete(ctx context.Context, r *pulumirpc.DeleteRequest) (*emptypb.Empty, error) {
	o := object(plain(r.Properties))
	if r.OldInputs != nil { // the annotations of the inputs count
		o["metadata"] = map[string]any{"name": o.name(), "namespace": o.namespace(),
			"annotations": object(plain(r.OldInputs)).metadata()["annotations"]}
	}
	where, err := p.at(o)
	if meta.IsNoMatchError(err) {
		return &emptypb.Empty{}, nil
	}
	if err != nil {
		return nil, err
	}
	policy := metav1.DeletePropagationForeground
	switch strings.ToLower(o.annotation("deletionPropagationPolicy")) {
	case "background":
		policy = metav1.DeletePropagationBackground
	case "orphan":
		policy = metav1.DeletePropagationOrphan
	}
	if err := where.Delete(ctx, o.name(),
		metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("delete %s %s: %w", o.kind(), o.id(), err)
	}
	if !skipsDeletion(o) {
		if err := p.until(ctx, o, r.Timeout, func(now object) bool { return now == nil }); err != nil {
			return nil, fmt.Errorf("delete %s %s: finalizers might be preventing it: %w", o.kind(), o.id(), err)
		}
	}
	p.did("delete", o)
	return &emptypb.Empty{}, nil
}
