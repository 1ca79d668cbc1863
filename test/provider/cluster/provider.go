// Package cluster implements Pulumi's provider "kubernetes" for tests: it applies objects to a real
// API server, and runs in the process of the test. It treats objects as the real provider, version
// 4.24, does, so that a test sees what a user gets:
//
//   - It uses server-side apply under a field manager of the object's own, and overwrites conflicts
//     only where pulumi.com/patchForce reports it. Unlike the real provider, it makes the server
//     refuse unknown fields.
//   - A preview is a dry run on the server, or the unchanged inputs if the server cannot know.
//   - It compares the live object, as far as the inputs mention it, with the new inputs: a field
//     that the server writes in another form, or that others have changed before a refresh, is a
//     difference.
//   - Some changes replace the object: see [forceNew].
//   - `up` waits until an object is ready, and `destroy` until it does not exist any more: see
//     [ready] and [skipsDeletion].
//
// It does not watch endpoints of Services, for which the real provider waits at least 10 seconds;
// its refresh does not wait; and it supports no charts, YAML files, lists and patches.
package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
)

// Version is the version of the provider that it simulates.
const Version = "4.24.0"

// Provider is the provider of one stack, for one cluster.
type Provider struct {
	pulumirpc.UnimplementedResourceProviderServer

	// Patience is the time limit for an object to become ready or to be deleted, 10 minutes for the
	// real provider.
	Patience time.Duration
	// Done is called after each operation on the cluster, before Pulumi gets the answer. It may be
	// nil; calls are concurrent.
	Done func(Call)
	// Mounts maps the names that a stack uses for directories of the nodes, as `minikube start
	// --mount` creates them, to their real names.
	Mounts map[string]string

	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper

	mu       sync.Mutex
	settings settings
	calls    []Call
}

// Call is an operation on the cluster: "create v1/ConfigMap ns/name".
type Call struct {
	Op   string // create, update, delete, or read
	Kind string // with the API's version: "batch/v1/Job"
	ID   string // name, or namespace/name
}

func (c Call) String() string { return c.Op + " " + c.Kind + " " + c.ID }

// settings has the arguments of the provider resource.
type settings struct {
	Settings
	unreachable bool // the cluster does not exist yet
	namespace   string
}

// New returns a provider of the cluster in a kubeconfig file, whatever kubeconfig the stack has.
func New(kubeconfig string) (*Provider, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // no rate limit
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	return &Provider{Patience: 2 * time.Minute, client: client,
		mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(kinds))}, nil
}

// Serve serves the provider on a port of this machine until stop is called.
// PULUMI_DEBUG_PROVIDERS=kubernetes:PORT makes Pulumi use it.
func (p *Provider) Serve() (port int, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, nil, err
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(100 << 20))
	pulumirpc.RegisterResourceProviderServer(server, p)
	go server.Serve(listener)
	return listener.Addr().(*net.TCPAddr).Port, server.Stop, nil
}

// Calls returns the operations on the cluster, in the order of their completion.
func (p *Provider) Calls() []Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

func (p *Provider) did(op string, o object) {
	c := Call{op, o.version() + "/" + o.kind(), o.id()}
	p.mu.Lock()
	p.calls = append(p.calls, c)
	p.mu.Unlock()
	if p.Done != nil {
		p.Done(c)
	}
}

func (p *Provider) set() settings {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.settings
}

// Handshake tells the engine that the engine handles secrets.
func (p *Provider) Handshake(context.Context,
	*pulumirpc.ProviderHandshakeRequest) (*pulumirpc.ProviderHandshakeResponse, error) {
	return &pulumirpc.ProviderHandshakeResponse{}, nil
}

func (p *Provider) Attach(context.Context, *pulumirpc.PluginAttach) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

func (p *Provider) Cancel(context.Context, *emptypb.Empty) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

func (p *Provider) GetPluginInfo(context.Context, *emptypb.Empty) (*pulumirpc.PluginInfo, error) {
	return &pulumirpc.PluginInfo{Version: Version}, nil
}

func (p *Provider) GetSchema(context.Context, *pulumirpc.GetSchemaRequest) (*pulumirpc.GetSchemaResponse, error) {
	return &pulumirpc.GetSchemaResponse{Schema: fmt.Sprintf(`{"name":"kubernetes","version":%q}`, Version)}, nil
}

// CheckConfig accepts the arguments of the provider resource unchanged.
func (p *Provider) CheckConfig(_ context.Context, r *pulumirpc.CheckRequest) (*pulumirpc.CheckResponse, error) {
	return &pulumirpc.CheckResponse{Inputs: r.News}, nil
}

// DiffConfig reports whether the provider's cluster is another one now, in which no object exists
// yet.
func (p *Provider) DiffConfig(_ context.Context, r *pulumirpc.DiffRequest) (*pulumirpc.DiffResponse, error) {
	old, now := plain(r.OldInputs), plain(r.News)
	if r.OldInputs == nil {
		old = plain(r.Olds)
	}
	all := differences(old, now)
	if len(all) == 0 {
		return &pulumirpc.DiffResponse{Changes: pulumirpc.DiffResponse_DIFF_NONE}, nil
	}
	answer := &pulumirpc.DiffResponse{Changes: pulumirpc.DiffResponse_DIFF_SOME}
	for _, d := range all {
		answer.Diffs = append(answer.Diffs, d.path)
	}
	const id = "clusterIdentifier"
	switch {
	case old[id] != nil && now[id] != nil && old[id] != now[id]:
		answer.Replaces = []string{id}
	case old[id] == now[id] && now[id] != nil:
	default:
		for _, key := range []string{"kubeconfig", "context", "cluster"} {
			if slices.Contains(answer.Diffs, key) {
				answer.Replaces = append(answer.Replaces, key)
			}
		}
	}
	return answer, nil
}

// Configure stores the arguments. Of the kubeconfig it only checks that it is valid.
func (p *Provider) Configure(_ context.Context, r *pulumirpc.ConfigureRequest) (*pulumirpc.ConfigureResponse, error) {
	s, err := parseSettings(plain(r.Args))
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settings = s
	return &pulumirpc.ConfigureResponse{SupportsPreview: true}, nil
}

func parseSettings(args map[string]any) (settings, error) {
	text, _ := args["kubeconfig"].(string)
	if text == unknown {
		return settings{unreachable: true}, nil
	}
	namespace, _ := args["namespace"].(string)
	s := settings{Settings: SettingsOf(args), namespace: namespace}
	if _, given := args["kubeconfig"]; !given {
		return s, nil // that of the machine
	}
	if !strings.Contains(text, "\n") && !strings.HasPrefix(text, "{") {
		return s, fmt.Errorf("kubeconfig: %q is none; expected its text", text)
	}
	config, err := clientcmd.Load([]byte(text))
	if err != nil {
		return s, fmt.Errorf("kubeconfig: %w", err)
	}
	chosen, _ := args["context"].(string)
	if chosen == "" {
		chosen = config.CurrentContext
	}
	if c := config.Contexts[chosen]; c == nil || config.Clusters[c.Cluster] == nil ||
		config.AuthInfos[c.AuthInfo] == nil {
		return s, fmt.Errorf("kubeconfig: no context %q with its cluster and user", chosen)
	}
	return s, nil
}

// Check sets a name for an object without one, and the namespace of the provider.
func (p *Provider) Check(_ context.Context, r *pulumirpc.CheckRequest) (*pulumirpc.CheckResponse, error) {
	o, old := object(plain(r.News)), object(plain(r.Olds))
	if o.name() == "" {
		name := old.name()
		if name == "" {
			suffix := make([]byte, 4)
			rand.Read(suffix)
			name = r.Urn[strings.LastIndex(r.Urn, "::")+2:] + "-" + hex.EncodeToString(suffix)
		}
		o.metadata()["name"] = name
		o.annotate("pulumi.com/autonamed", "true")
	}
	if namespace := p.set().namespace; namespace != "" && o.namespace() == "" &&
		!slices.Contains(clusterScoped, o.kind()) {
		o.metadata()["namespace"] = namespace
	}
	inputs, err := wire(o)
	return &pulumirpc.CheckResponse{Inputs: inputs}, err
}

// clusterScoped lists the kinds without a namespace, of those that a stack may have.
var clusterScoped = []string{"Namespace", "PersistentVolume", "PriorityClass", "StorageClass",
	"ClusterRole", "ClusterRoleBinding"}
