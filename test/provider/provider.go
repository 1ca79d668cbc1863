package provider

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"

	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
)

// Type defines how a cloud treats resources of a type.
type Type struct {
	// Terraform's name of the type in test/provider/schemas; "" = differences are those of inputs
	Schema string
	// input that gets the resource's name if it is absent
	Name string
	// its names must be globally unique, and not only within a scope
	Global bool
	// the cloud's error for a name that is taken; "" = an HTTP status
	Exists string
	// paths whose change replaces; only without Schema, which has them
	Replace []string

	// returns problems of the inputs besides those that the schema finds
	Check func(in Props) []string
	// Make returns the properties that the cloud adds to the inputs. It is called in previews too,
	// for their paths.
	Make func(ctx context.Context, r *Resource, op Op) (Props, error)
	// Fill adds to r.Is what the cloud fills in as soon as a resource is created or updated, so
	// that the state has it.
	Fill func(r *Resource)
	// Drift changes r.Is as the cloud does on its own after a while, which a refresh reads.
	Drift func(r *Resource)
	// Delete returns an error if the resource cannot be deleted.
	Delete func(ctx context.Context, r *Resource) error
	// AfterDelete simulates what the cloud does after a resource is deleted.
	AfterDelete func(r *Resource)
}

// Op is an operation on a resource.
type Op int

const (
	Preview Op = iota
	Create
	Update
)

// Resource is a resource that exists.
type Resource struct {
	Type, Name, ID, URN string
	// the inputs, with secrets replaced by their values
	In Props
	// its properties, with secrets replaced by their values
	Is Props
	// its properties, with secrets
	out Props
	// in the preview of an update: the former inputs
	asked Props
	// in an update, also in a preview: the plan, with secrets replaced by their values
	will Props
	// in an update: the paths in which the plan differs from the state
	changed []string
	// what the cloud stores and does not return
	memory Props
	cloud  *Cloud
}

// Call is a request of the engine to a provider.
type Call struct{ Op, Type, Name, ID string }

func (c Call) String() string { return strings.TrimSpace(c.Op + " " + c.Type + " " + c.Name) }

// base answers the requests that all providers answer in the same way.
type base struct {
	pulumirpc.UnimplementedResourceProviderServer
	pkg, version string

	mu    *sync.Mutex // held while a call is answered
	calls []Call
}

func (b *base) Handshake(context.Context,
	*pulumirpc.ProviderHandshakeRequest) (*pulumirpc.ProviderHandshakeResponse, error) {
	return &pulumirpc.ProviderHandshakeResponse{AcceptSecrets: true}, nil
}

func (b *base) GetPluginInfo(context.Context, *emptypb.Empty) (*pulumirpc.PluginInfo, error) {
	return &pulumirpc.PluginInfo{Version: b.version}, nil
}

func (b *base) Attach(context.Context, *pulumirpc.PluginAttach) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

func (b *base) Cancel(context.Context, *emptypb.Empty) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

func (b *base) GetSchema(context.Context, *pulumirpc.GetSchemaRequest) (*pulumirpc.GetSchemaResponse, error) {
	return &pulumirpc.GetSchemaResponse{Schema: fmt.Sprintf(`{"name":%q,"version":%q}`, b.pkg, b.version)}, nil
}

func (b *base) CheckConfig(_ context.Context, q *pulumirpc.CheckRequest) (*pulumirpc.CheckResponse, error) {
	return &pulumirpc.CheckResponse{Inputs: q.News}, nil
}

func (b *base) DiffConfig(_ context.Context, q *pulumirpc.DiffRequest) (*pulumirpc.DiffResponse, error) {
	return diff(open(wire(q.OldInputs)), nil, open(wire(q.News)), q.IgnoreChanges, nil)
}

func (b *base) Configure(context.Context, *pulumirpc.ConfigureRequest) (*pulumirpc.ConfigureResponse, error) {
	return &pulumirpc.ConfigureResponse{AcceptSecrets: true, SupportsPreview: true}, nil
}

// serve serves a provider until the test ends, and returns its port.
func serve(t testing.TB, p pulumirpc.ResourceProviderServer) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(1 << 28))
	pulumirpc.RegisterResourceProviderServer(server, p)
	var wg sync.WaitGroup
	wg.Go(func() {
		// it was stopped before it began
		if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Errorf("serve a provider: %v", err)
		}
	})
	t.Cleanup(func() {
		server.Stop()
		wg.Wait()
	})
	return listener.Addr().(*net.TCPAddr).Port
}

// Provider simulates the provider of a cloud.
type Provider struct {
	base
	cloud     *Cloud
	types     map[string]Type
	functions map[string]func(args Props) (Props, error)
	live      map[string]*Resource // by type and ID
	serial    int
}

// Check adds missing names, and reports problems of the inputs.
func (p *Provider) Check(_ context.Context, q *pulumirpc.CheckRequest) (*pulumirpc.CheckResponse, error) {
	kind, name := typeOf(q.Urn), nameOf(q.Urn)
	t, ok := p.types[kind]
	if !ok {
		return nil, fmt.Errorf("%s: test/provider does not play this type: see its tables", kind)
	}
	schema, err := SchemaOf(kind)
	if err != nil {
		return nil, err
	}
	in := wire(q.News)
	if t.Name != "" && in[t.Name] == nil {
		if old := wire(q.Olds)[t.Name]; old != nil {
			in[t.Name] = old
		} else {
			in[t.Name] = name + "-" + digest(string(q.RandomSeed)+q.Urn)
		}
	}
	all, err := t.parts()
	if err != nil {
		return nil, err
	}
	in = withInitial(all, in)
	bad := schema.Check(open(in))
	r := &pulumirpc.CheckResponse{}
	for _, k := range slices.Sorted(maps.Keys(bad)) {
		r.Failures = append(r.Failures, &pulumirpc.CheckFailure{Property: k, Reason: bad[k]})
	}
	if t.Check != nil {
		for _, reason := range t.Check(open(in)) {
			r.Failures = append(r.Failures, &pulumirpc.CheckFailure{Reason: reason})
		}
	}
	r.Inputs, err = as(in)
	return r, err
}

// parts returns the attributes of a type that has a Schema.
func (t Type) parts() (parts, error) {
	if t.Schema == "" {
		return nil, nil
	}
	all, err := attributes()
	if err == nil && all[t.Schema] == nil {
		err = fmt.Errorf("test/provider/schemas has no resource %q", t.Schema)
	}
	return all[t.Schema], err
}

func (p *Provider) Diff(_ context.Context, q *pulumirpc.DiffRequest) (*pulumirpc.DiffResponse, error) {
	t := p.types[typeOf(q.Urn)]
	state, now := open(wire(q.Olds)), open(wire(q.News))
	if all, err := t.parts(); err != nil {
		return nil, err
	} else if all != nil {
		return diffAttributes(all, state, now, q.IgnoreChanges)
	}
	return diff(open(wire(q.OldInputs)), state, now, q.IgnoreChanges, t.Replace)
}

func (p *Provider) Create(ctx context.Context, q *pulumirpc.CreateRequest) (*pulumirpc.CreateResponse, error) {
	r := &Resource{Type: typeOf(q.Urn), Name: nameOf(q.Urn), URN: q.Urn, cloud: p.cloud}
	p.mu.Lock()
	defer p.mu.Unlock()
	in := wire(q.Properties)
	r.In = open(in)
	t := p.types[r.Type]
	if q.Preview {
		r.ID = Unknown
		out, err := p.made(ctx, r, in, Preview)
		return &pulumirpc.CreateResponse{Properties: out}, err
	}
	if hasUnknown(r.In) {
		return nil, fmt.Errorf("%s %s: something is not known: %v", r.Type, r.Name, r.In)
	}
	if p.pkg == "gcp" {
		if err := enabled(r); err != nil {
			return nil, fmt.Errorf("%s %s: %w", r.Type, r.Name, err)
		}
	}
	for _, other := range p.live {
		if t.Name != "" && other.Type == r.Type && other.In[t.Name] == r.In[t.Name] &&
			(t.Global || within(other) == within(r)) {
			return nil, fmt.Errorf("%s %s: %s: %v", r.Type, r.Name,
				cmp.Or(t.Exists, "409: already exists"), r.In[t.Name])
		}
	}
	r.ID = p.id(r)
	out, err := p.made(ctx, r, in, Create)
	if err != nil {
		return nil, err
	}
	p.calls = append(p.calls, Call{"create", r.Type, r.Name, r.ID})
	p.live[r.Type+" "+r.ID] = r
	return &pulumirpc.CreateResponse{Id: r.ID, Properties: out}, nil
}

func (p *Provider) Update(ctx context.Context, q *pulumirpc.UpdateRequest) (*pulumirpc.UpdateResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	kind := typeOf(q.Urn)
	r := p.live[kind+" "+q.Id]
	if r == nil {
		return nil, fmt.Errorf("%s %s: 404: not found", kind, q.Id)
	}
	in := wire(q.News)
	plan, err := p.update(r, wire(q.Olds), in, q.IgnoreChanges, q.Preview)
	if err != nil {
		return nil, err
	}
	if q.Preview {
		preview := *r
		preview.In, preview.asked = open(in), r.In
		out, err := p.made(ctx, &preview, plan, Preview)
		return &pulumirpc.UpdateResponse{Properties: out}, err
	}
	asked := r.In
	r.In = open(in)
	out, err := p.made(ctx, r, plan, Update)
	if err != nil {
		r.In = asked
		return nil, err
	}
	p.calls = append(p.calls, Call{"update", r.Type, r.Name, r.ID})
	return &pulumirpc.UpdateResponse{Properties: out}, nil
}

// update returns the resource after an update, without what the cloud adds: in previews the plan,
// otherwise the resource with the changes of the plan. Without a schema it returns the inputs.
func (p *Provider) update(r *Resource, state, in Props, ignore []string, preview bool) (Props, error) {
	all, err := p.types[r.Type].parts()
	if all == nil || err != nil {
		return in, err
	}
	ignored, err := paths(ignore)
	if err != nil {
		return nil, err
	}
	plan := planned(all, state, in, ignored)
	r.will = open(plan)
	d, err := diffAttributes(all, open(state), r.will, nil)
	if err != nil {
		return nil, err
	}
	r.changed = d.Diffs
	if preview {
		return plan, nil
	}
	return pushed(r.out, state, plan), nil
}

// made sets the properties of a resource after its creation or update, and returns them.
func (p *Provider) made(ctx context.Context, r *Resource, in Props, op Op) (*structpb.Struct, error) {
	schema, err := SchemaOf(r.Type)
	if err != nil {
		return nil, err
	}
	t := p.types[r.Type]
	var added Props
	if t.Make != nil {
		if added, err = t.Make(ctx, r, op); err != nil {
			return nil, fmt.Errorf("%s %s: %w", r.Type, r.Name, err)
		}
		added = jsonic(added).(Props)
	}
	all, err := t.parts()
	if err != nil {
		return nil, err
	}
	if op != Preview {
		r.out = laid(in, added, false).(Props)
		r.Is = open(r.out)
		if t.Fill != nil {
			r.settle(t.Fill)
		}
		maps.Copy(r.out, schema.computed(r.out, text(r.In, "name")+r.ID))
		r.Is = open(r.out)
		return as(r.out)
	}
	if r.ID == Unknown {
		out := withUnknown(all, laid(in, added, true).(Props))
		maps.Copy(out, schema.unknown(out))
		return as(out)
	}
	out := laid(in, added, false).(Props)
	maps.Copy(out, schema.computed(out, text(r.In, "name")+r.ID))
	if all == nil {
		// values that the cloud has assigned before
		for k, v := range r.out {
			if _, ok := out[k]; !ok && r.asked[k] == nil {
				out[k] = v
			}
		}
	}
	return as(out)
}

// changes reports whether an update changes one of the properties, by the plan.
func (r *Resource) changes(properties ...string) bool {
	return slices.ContainsFunc(r.changed, func(path string) bool { return slices.Contains(properties, firstOf(path)) })
}

// changesOther reports whether an update changes a property other than those.
func (r *Resource) changesOther(properties []string) bool {
	return slices.ContainsFunc(r.changed, func(path string) bool { return !slices.Contains(properties, firstOf(path)) })
}

// firstOf returns the property at the beginning of a path.
func firstOf(path string) string {
	if i := strings.IndexAny(path, ".["); i >= 0 {
		return path[:i]
	}
	return path
}

// settle lets the cloud change the resource, and keeps its secrets.
func (r *Resource) settle(change func(*Resource)) {
	r.Is = open(r.Is)
	change(r)
	r.Is = jsonic(r.Is).(Props)
	r.out = kept(r.out, r.Is).(Props)
}

// Read returns the current properties of a resource, and those of its inputs.
func (p *Provider) Read(_ context.Context, q *pulumirpc.ReadRequest) (*pulumirpc.ReadResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	kind := typeOf(q.Urn)
	r := p.live[kind+" "+q.Id]
	if r == nil {
		return &pulumirpc.ReadResponse{}, nil
	}
	if t := p.types[kind]; t.Drift != nil {
		r.settle(t.Drift)
	}
	out, err := as(r.out)
	if err != nil {
		return nil, err
	}
	in, err := as(shaped(wire(q.Inputs), r.out).(Props))
	return &pulumirpc.ReadResponse{Id: r.ID, Properties: out, Inputs: in}, err
}

// kept returns the current value, in which the secrets of the former value are secrets again.
func kept(was, is any) any {
	switch is := is.(type) {
	case map[string]any:
		was, _ := was.(map[string]any)
		out := make(Props, len(is))
		for k, e := range is {
			if old, ok := was[k].(map[string]any); ok && old[signature] == secretSignature {
				out[k] = secret(e)
			} else {
				out[k] = kept(was[k], e)
			}
		}
		return out
	}
	return is
}

// shaped returns the current value, reduced to the parts that were requested.
func shaped(asked, is any) any {
	switch asked := asked.(type) {
	case map[string]any:
		if is, ok := is.(map[string]any); ok && asked[signature] == nil && is[signature] == nil {
			out := make(Props, len(asked))
			for k, e := range asked {
				if now, ok := is[k]; ok {
					out[k] = shaped(e, now)
				} else if strings.HasPrefix(k, "__") {
					out[k] = e
				}
			}
			return out
		}
	case []any:
		if is, ok := is.([]any); ok && len(is) == len(asked) {
			out := make([]any, len(asked))
			for i, e := range asked {
				out[i] = shaped(e, is[i])
			}
			return out
		}
	}
	return is
}

func (p *Provider) Delete(ctx context.Context, q *pulumirpc.DeleteRequest) (*emptypb.Empty, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	kind := typeOf(q.Urn)
	r := p.live[kind+" "+q.Id]
	if r == nil {
		// 404: a deleted resource need not be deleted
		return &emptypb.Empty{}, nil
	}
	if user := p.user(r); user != nil {
		return nil, fmt.Errorf("%s %s: 409: in use by %s %s", r.Type, r.Name, user.Type, user.Name)
	}
	if t := p.types[kind]; t.Delete != nil {
		if err := t.Delete(ctx, r); err != nil {
			return nil, fmt.Errorf("%s %s: %w", r.Type, r.Name, err)
		}
	}
	p.calls = append(p.calls, Call{"delete", r.Type, r.Name, r.ID})
	delete(p.live, kind+" "+r.ID)
	if gone := p.types[kind].AfterDelete; gone != nil {
		gone(r)
	}
	return &emptypb.Empty{}, nil
}

// user returns a resource that refers to r by its id, or nil.
func (p *Provider) user(r *Resource) *Resource {
	for _, key := range slices.Sorted(maps.Keys(p.live)) {
		if other := p.live[key]; other != r && names(other.In, r.ID) {
			return other
		}
	}
	return nil
}

func names(v any, id string) bool {
	switch v := v.(type) {
	case string:
		return v == id
	case map[string]any:
		for k, e := range v {
			if !slices.Contains([]string{"name", "tags", "labels", "resourceLabels"}, k) && names(e, id) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, func(e any) bool { return names(e, id) })
	}
	return false
}

func (p *Provider) Invoke(_ context.Context, q *pulumirpc.InvokeRequest) (*pulumirpc.InvokeResponse, error) {
	f, ok := p.functions[q.Tok]
	if !ok {
		return nil, fmt.Errorf("%s: test/provider does not play this function: see its tables", q.Tok)
	}
	result, err := f(open(wire(q.Args)))
	if err != nil {
		return nil, err
	}
	s, err := as(result)
	return &pulumirpc.InvokeResponse{Return: s}, err
}

// within returns the scope in which a resource's name must be unique.
func within(r *Resource) string {
	return text(r.In, "cluster") + text(r.In, "clusterName") + text(r.In, "router")
}

func nameOf(urn string) string { return urn[strings.LastIndex(urn, "::")+2:] }

func typeOf(urn string) string {
	parts := strings.Split(urn, "::")
	return parts[2][strings.LastIndex(parts[2], "$")+1:]
}

// digest returns a hash of s as 7 hexadecimal digits.
func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:4])[:7]
}
