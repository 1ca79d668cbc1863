package provider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"

	"github.com/elasticdl/elasticdl/test/provider/cluster"
)

// Kubernetes simulates pulumi-kubernetes 4.24, for objects that no controller changes:
//
//   - It creates and updates by server-side apply, under a field manager of the object's own. So it
//     silently takes over an existing object, unless a field has another value by another manager:
//     then that is a conflict, which only `up` finds.
//   - A preview does a dry run at the API server, if the server can be reached and all values are
//     known. An error of the server ends the preview, except for an immutable field of an object
//     that is replaced.
//   - An update of a missing object fails.
//   - [cluster.Settings.Diff] lists the changes that replace an object.
type Kubernetes struct {
	base
	cloud *Cloud
	// DeleteUnreachable stands for PULUMI_K8S_DELETE_UNREACHABLE=true, which the real provider
	// reads from its environment.
	DeleteUnreachable atomic.Bool

	// Retried counts the warnings "Preview creation failed due to immutable fields; retrying". The
	// real provider logs one for each object that is previewed next to the one that it replaces.
	Retried atomic.Int32

	// by address
	clusters map[string]*apiServer
	// number of administrators, by address
	admins map[string]int
	// flags of minikube's profiles when they were last reached
	started map[string]string
	// address that the provider was configured with; "" = not known yet
	server string
	config Props
	// number of names of field managers that were assigned
	managers int
}

// managerKey is the key of the field manager in the state of an object.
const managerKey = "__fieldManager"

// open creates a cluster with one administrator, who may enter it; lose deletes it, with all
// objects.
func (k *Kubernetes) open(server string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.clusters[server] = newAPIServer()
	k.admins[server]++
}

func (k *Kubernetes) lose(server string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.clusters, server)
	delete(k.admins, server)
}

func (k *Kubernetes) admit(server string, n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.admins[server] += n
}

func (k *Kubernetes) left() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var left []string
	for address := range k.clusters {
		if server, err := k.reach(address); err == nil {
			for key := range server.objects {
				if key != keyOf(kubeSystem) {
					left = append(left, key)
				}
			}
		}
	}
	return left
}

// trains reports whether a job runs in any cluster.
func (k *Kubernetes) trains() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, server := range k.clusters {
		for _, o := range server.objects {
			if o.Kind == "batch/v1/Job" && !ended(o.Is) {
				return true
			}
		}
	}
	return false
}

// reach returns the API server at an address, or an error that says why it does not answer.
func (k *Kubernetes) reach(address string) (*apiServer, error) {
	if profile, ok := strings.CutPrefix(address, minikubeServer); ok {
		how, err := os.ReadFile(filepath.Join(k.cloud.profiles, profile))
		start, _, _ := strings.Cut(string(how), "\n")
		if err != nil || start != k.started[profile] { // or another profile of that name
			delete(k.clusters, address)
		}
		if err == nil && k.clusters[address] == nil {
			k.clusters[address], k.started[profile] = newAPIServer(), start
		}
	} else if strings.HasPrefix(address, existingServer) {
		if err := k.find(address); err != nil {
			return nil, err
		}
	} else if k.clusters[address] != nil && k.admins[address] < 1 {
		return nil, errors.New("the server has asked for the client to provide credentials: Unauthorized")
	}
	server, ok := k.clusters[address]
	if !ok {
		return nil, fmt.Errorf("configured Kubernetes cluster is unreachable: unable to load schema "+
			"information from the API server: dial tcp %s: no route to host", address)
	}
	return server, nil
}

// minikubeServer is the prefix of the address of a profile's API server, before the profile's name.
const minikubeServer = "https://minikube."

// Put creates objects in a profile of minikube, or in the cluster of a context of
// [ExistingKubeconfig], outside of Pulumi.
func (k *Kubernetes) Put(context string, objects ...Props) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	address := minikubeServer + context
	if strings.HasPrefix(context, contextPrefix) {
		address = existingServer + context
	}
	server, err := k.reach(address)
	if err != nil {
		return err
	}
	for _, o := range objects {
		if err := server.make(o, "kubectl-create"); err != nil {
			return err
		}
	}
	return nil
}

// Change changes an object outside of Pulumi, under another field manager.
func (k *Kubernetes) Change(key string, change func(is Props)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	server, err := k.reach(k.server)
	if err != nil {
		return err
	}
	return server.write(key, "elasticdl", change)
}

// Remove deletes objects outside of Pulumi.
func (k *Kubernetes) Remove(keys ...string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	server, err := k.reach(k.server)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if server.objects[key] == nil {
			return notFound(key)
		}
		delete(server.objects, key)
	}
	return nil
}

// Object returns a copy of the object with a key: "batch/v1/Job elasticdl/x".
func (k *Kubernetes) Object(key string) (Props, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	server, err := k.reach(k.server)
	if err != nil {
		return nil, err
	}
	if server.objects[key] == nil {
		return nil, fmt.Errorf("%w; there are %v", notFound(key), slices.Sorted(maps.Keys(server.objects)))
	}
	return jsonic(server.objects[key].Is).(Props), nil
}

// DiffConfig reports whether a changed configuration of a provider means another cluster: then
// every object within is replaced.
func (k *Kubernetes) DiffConfig(_ context.Context, q *pulumirpc.DiffRequest) (*pulumirpc.DiffResponse, error) {
	was, now := open(wire(q.Olds)), open(wire(q.News))
	r, err := diff(was, nil, now, q.IgnoreChanges, nil)
	if err != nil || len(r.Diffs) == 0 {
		return r, err
	}
	r.DetailedDiff, r.HasDetailedDiff = nil, false
	switch old, id := was["clusterIdentifier"], now["clusterIdentifier"]; {
	case id != nil && old == id && id != Unknown:
		// the same cluster, whatever else has changed
	case id != nil && old != nil:
		r.Replaces = []string{"clusterIdentifier"}
	case now["kubeconfig"] == Unknown:
		r.Replaces = []string{"kubeconfig"}
	case serverOf(was) != serverOf(now):
		r.Replaces = []string{"kubeconfig"}
	}
	return r, nil
}

func (k *Kubernetes) Configure(_ context.Context, q *pulumirpc.ConfigureRequest) (*pulumirpc.ConfigureResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.config = open(wire(q.Args))
	k.server = serverOf(k.config)
	return &pulumirpc.ConfigureResponse{AcceptSecrets: true, SupportsPreview: true}, nil
}

// serverOf returns the address in the kubeconfig of a configuration, or "". Without one the
// provider reads the files of the machine.
func serverOf(config Props) string {
	context := text(config, "context")
	if text(config, "kubeconfig") == "" && strings.HasPrefix(context, contextPrefix) {
		return existingServer + context
	}
	var kubeconfig struct {
		Current  string `json:"current-context"`
		Clusters []struct {
			Name    string
			Cluster struct{ Server string }
		}
		Contexts []struct {
			Name    string
			Context struct{ Cluster string }
		}
	}
	if yaml.Unmarshal([]byte(text(config, "kubeconfig")), &kubeconfig) != nil {
		return ""
	}
	current := cmp.Or(context, kubeconfig.Current)
	for _, c := range kubeconfig.Contexts {
		for _, cluster := range kubeconfig.Clusters {
			if c.Name == current && cluster.Name == c.Context.Cluster {
				return cluster.Cluster.Server
			}
		}
	}
	return ""
}

// Check adds missing names, and refuses fields that the API does not have, of which the real
// provider only warns.
func (k *Kubernetes) Check(_ context.Context, q *pulumirpc.CheckRequest) (*pulumirpc.CheckResponse, error) {
	if isRelease(q.Urn) {
		return checkRelease(q)
	}
	in := wire(q.News)
	object := open(in)
	r := &pulumirpc.CheckResponse{}
	for _, reason := range malformed(object) {
		r.Failures = append(r.Failures, &pulumirpc.CheckFailure{Reason: reason})
	}
	if text(object, "metadata", "name") == "" && at(object, "metadata", "generateName") == nil {
		metadata, _ := in["metadata"].(map[string]any)
		metadata = maps.Clone(metadata)
		if metadata == nil {
			metadata = Props{}
		}
		if old := text(open(wire(q.Olds)), "metadata", "name"); old != "" {
			metadata["name"] = old
		} else {
			metadata["name"] = nameOf(q.Urn) + "-" + digest(string(q.RandomSeed)+q.Urn)
		}
		annotations, _ := metadata["annotations"].(map[string]any)
		annotations = maps.Clone(annotations)
		if annotations == nil {
			annotations = Props{}
		}
		annotations["pulumi.com/autonamed"] = "true"
		metadata["annotations"] = annotations
		in["metadata"] = metadata
	}
	var err error
	r.Inputs, err = as(in)
	return r, err
}

// malformed returns the errors of a strict validation of fields, by the types of k8s.io/api.
func malformed(object Props) []string {
	if hasUnknown(object) {
		object = known(object).(Props)
	}
	kind := schema.FromAPIVersionAndKind(text(object, "apiVersion"), text(object, "kind"))
	typed, err := typeOfKind(kind)
	if err != nil {
		return []string{err.Error()}
	}
	s, err := structpb.NewStruct(object)
	if err != nil {
		return []string{err.Error()}
	}
	text, err := s.MarshalJSON()
	if err != nil {
		return []string{err.Error()}
	}
	unknown, err := unmarshal(text, typed)
	if err != nil {
		return []string{err.Error()}
	}
	var reasons []string
	for _, u := range unknown {
		reasons = append(reasons, u.Error())
	}
	return reasons
}

// known returns v without unknown values.
func known(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := Props{}
		for k, e := range v {
			if e != Unknown {
				out[k] = known(e)
			}
		}
		return out
	case []any:
		out := []any{}
		for _, e := range v {
			if e != Unknown {
				out = append(out, known(e))
			}
		}
		return out
	}
	return v
}

// Diff compares the live object, as far as it was requested, with the new inputs.
func (k *Kubernetes) Diff(_ context.Context, q *pulumirpc.DiffRequest) (*pulumirpc.DiffResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if isRelease(q.Urn) {
		return diffRelease(q)
	}
	return cluster.SettingsOf(k.config).Diff(q), nil
}

// Create applies an object. In a preview it forces conflicts, because an object that is replaced
// still exists.
func (k *Kubernetes) Create(_ context.Context, q *pulumirpc.CreateRequest) (*pulumirpc.CreateResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if isRelease(q.Urn) {
		return k.createRelease(q)
	}
	in := wire(q.Properties)
	object := open(in)
	server, err := k.reach(k.server)
	if q.Preview && (err != nil || hasUnknown(object)) { // the real provider warns, and continues
		return &pulumirpc.CreateResponse{Properties: q.Properties}, nil
	} else if err != nil {
		return nil, err
	}
	k.managers++
	manager := "pulumi-kubernetes-" + digest(fmt.Sprint(q.Urn, k.managers))
	live, err := server.apply(object, manager, q.Preview || forces(object), q.Preview)
	if q.Preview && immutableField(err) { // it retries, under another name
		k.Retried.Add(1)
		renamed := jsonic(object).(Props)
		renamed["metadata"].(Props)["name"] = text(object, "metadata", "name") + "-preview"
		live, err = server.apply(renamed, manager, true, true)
	}
	// its namespace, or the definition of its kind, does not exist yet
	if q.Preview && (apierrors.IsNotFound(err) || meta.IsNoMatchError(err)) {
		return &pulumirpc.CreateResponse{Properties: q.Properties}, nil
	}
	if err == nil && !q.Preview {
		err = server.bound(object)
	}
	if err != nil {
		return nil, fmt.Errorf("resource %q was not successfully created by the Kubernetes API "+
			"server: %w", q.Urn, explained(err, manager))
	}
	out, err := state(in, live, manager)
	if q.Preview {
		return &pulumirpc.CreateResponse{Properties: out}, err
	}
	k.calls = append(k.calls, Call{"create", typeOf(q.Urn), nameOf(q.Urn), keyOf(object)})
	return &pulumirpc.CreateResponse{Id: idOf(object), Properties: out}, err
}

// Update applies an existing object. Ignored fields keep their values and managers.
func (k *Kubernetes) Update(_ context.Context, q *pulumirpc.UpdateRequest) (*pulumirpc.UpdateResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if isRelease(q.Urn) {
		return k.updateRelease(q)
	}
	in := wire(q.News)
	object := open(in)
	server, err := k.reach(k.server)
	if q.Preview && (err != nil || hasUnknown(object)) {
		return &pulumirpc.UpdateResponse{Properties: q.News}, nil
	} else if err != nil {
		return nil, err
	}
	key, manager := keyOf(object), text(wire(q.Olds), managerKey)
	there := server.objects[key]
	if there == nil {
		return nil, errors.Join(fmt.Errorf("update of resource %q failed: %w", q.Urn, notFound(key)),
			fmt.Errorf("unable to get cluster state: %w", notFound(key)))
	}
	ignore(object, there.Is, q.IgnoreChanges)
	live, err := server.apply(object, manager, forces(object), q.Preview)
	if err != nil {
		return nil, k.partly(q.Id, in, there.Is, manager, explained(err, manager))
	}
	out, err := state(in, live, manager)
	if !q.Preview {
		k.calls = append(k.calls, Call{"update", typeOf(q.Urn), nameOf(q.Urn), key})
	}
	return &pulumirpc.UpdateResponse{Properties: out}, err
}

// partly returns the error by which the real provider reports a refused update: the object exists,
// but is not up to date.
func (k *Kubernetes) partly(id string, in, is Props, manager string, err error) error {
	err = fmt.Errorf("the Kubernetes API server reported that %q failed to fully initialize or "+
		"become live: %w", id, err)
	out, wrong := state(in, is, manager)
	if wrong != nil {
		return wrong
	}
	told, wrong := status.New(codes.Unknown, err.Error()).WithDetails(
		&pulumirpc.ErrorResourceInitFailed{Id: id, Properties: out, Reasons: []string{err.Error()}})
	if wrong != nil {
		return wrong
	}
	return told.Err()
}

// state returns a live object in the form of a stack's state, with the secrets of the inputs.
func state(in, live Props, manager string) (*structpb.Struct, error) {
	out := kept(in, live).(Props)
	metadata := maps.Clone(out["metadata"].(Props))
	delete(metadata, "managedFields")
	out["metadata"], out[managerKey] = metadata, manager
	return as(out)
}

// forces reports whether an object takes over the fields of others.
func forces(object Props) bool {
	return text(object, "metadata", "annotations", "pulumi.com/patchForce") == "true"
}

// immutableField reports whether an error of the API server contains "field is immutable".
func immutableField(err error) bool {
	return apierrors.IsInvalid(err) && strings.Contains(err.Error(), validation.FieldImmutableErrorMsg)
}

// explained adds to a conflict the explanation of the real provider.
func explained(err error, manager string) error {
	if !apierrors.IsConflict(err) {
		return err
	}
	// the text of the real provider
	const says = "Server-Side Apply field conflict detected.\nThe resource managed by field manager " +
		"%q had an apply conflict: %w"
	return fmt.Errorf(says, manager, err)
}

// ignore copies the existing values at paths.
func ignore(object, is Props, paths []string) {
	for _, path := range paths {
		keys := pathKeys(path)
		value := at(is, keys...)
		parent, _ := at(object, keys[:len(keys)-1]...).(Props)
		if parent != nil && value != nil {
			parent[keys[len(keys)-1].(string)] = value
		}
	}
}

// bound returns an error that says why a claim is not bound. The real provider waits for that.
func (s *apiServer) bound(object Props) error {
	if kindOf(object) != "v1/PersistentVolumeClaim" ||
		text(object, "metadata", "annotations", "pulumi.com/skipAwait") == "true" {
		return nil
	}
	if at(object, "spec", "storageClassName") != "" {
		return errors.New("a claim without storageClassName: \"\" gets a disk of the default class")
	}
	volume := s.objects["v1/PersistentVolume "+text(object, "spec", "volumeName")]
	if volume == nil {
		return errors.New("5 minutes: PersistentVolumeClaim is not bound: its volume is not there")
	}
	if ref := at(volume.Is, "spec", "claimRef"); ref != nil &&
		(text(ref, "name") != text(object, "metadata", "name") ||
			text(ref, "namespace") != text(object, "metadata", "namespace")) {
		return fmt.Errorf("5 minutes: PersistentVolumeClaim is not bound: its volume is for %v", ref)
	}
	return nil
}

func (k *Kubernetes) Read(_ context.Context, q *pulumirpc.ReadRequest) (*pulumirpc.ReadResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if isRelease(q.Urn) {
		return k.readRelease(q)
	}
	server, err := k.reach(k.server)
	if err != nil {
		if k.DeleteUnreachable.Load() {
			return &pulumirpc.ReadResponse{}, nil
		}
		return nil, errors.New("failed to read resource state due to unreachable cluster. If the " +
			"cluster was deleted, you can remove this resource from " +
			"Pulumi state by rerunning the operation with the PULUMI_K8S_DELETE_UNREACHABLE " +
			"environment variable set to \"true\"")
	}
	was := wire(q.Properties)
	o := server.objects[kindOf(open(was))+" "+q.Id]
	if o == nil {
		return &pulumirpc.ReadResponse{}, nil
	}
	out, err := state(was, o.Is, text(was, managerKey))
	if err != nil {
		return nil, err
	}
	in, err := as(shaped(wire(q.Inputs), kept(was, o.Is)).(Props))
	return &pulumirpc.ReadResponse{Id: q.Id, Properties: out, Inputs: in}, err
}

// Delete deletes an object, created by anyone. A Job that is not awaited, and is not deleted in the
// background, remains as long as its pods exist.
func (k *Kubernetes) Delete(_ context.Context, q *pulumirpc.DeleteRequest) (*emptypb.Empty, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if isRelease(q.Urn) {
		return &emptypb.Empty{}, k.deleteRelease(q)
	}
	server, err := k.reach(k.server)
	if err != nil {
		if k.DeleteUnreachable.Load() {
			return &emptypb.Empty{}, nil
		}
		return nil, errors.New("configured Kubernetes cluster is unreachable. If the cluster was " +
			"deleted, you can remove this resource from Pulumi state by " +
			"rerunning the operation with the PULUMI_K8S_DELETE_UNREACHABLE environment variable set to \"true\"")
	}
	was := open(wire(q.Properties))
	key := kindOf(was) + " " + q.Id
	gone, err := server.delete(key)
	if err != nil {
		return nil, fmt.Errorf("%s: 10 minutes: %w", key, err)
	}
	for i, o := range gone {
		c := Call{"delete", o.Kind, idOf(o.Is), o.Kind + " " + o.ID}
		if i == 0 {
			c.Type, c.Name = typeOf(q.Urn), nameOf(q.Urn)
		}
		k.calls = append(k.calls, c)
	}
	lingers := text(was, "metadata", "annotations", "pulumi.com/deletionPropagationPolicy") == "" &&
		text(was, "metadata", "annotations", "pulumi.com/skipAwait") == "true"
	if len(gone) > 0 && gone[0].Kind == "batch/v1/Job" && lingers {
		gone[0].Is["metadata"].(Props)["deletionTimestamp"] = "2026-11-21T00:00:01Z"
		server.objects[key] = gone[0]
	}
	return &emptypb.Empty{}, nil
}
