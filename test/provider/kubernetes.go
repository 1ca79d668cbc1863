package provider

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
)

// Kubernetes is the provider of pulumi-kubernetes 4.24, as it treats objects that no controller looks after.
type Kubernetes struct {
	base
	cloud *Cloud
	// DeleteUnreachable is PULUMI_K8S_DELETE_UNREACHABLE=true, which that provider finds in its environment.
	DeleteUnreachable atomic.Bool

	clusters map[string]map[string]*Object // by server, by id
	admins   map[string]int                // who may do anything, by server
	started  map[string]string             // how profiles of minikube were, when they were reached last
	server   string                        // that the provider was told of; "" = not known yet
	config   Props
}

// Object is what there is in a cluster.
type Object struct {
	Kind, ID string
	Is       Props
	URN      string
	// Foreign are the paths that somebody else has written last, as `elasticdl scale` writes a number of workers.
	Foreign []string
}

// open makes a cluster, which one may enter; lose ends it, with all that is within.
func (k *Kubernetes) open(server string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.clusters[server] = map[string]*Object{}
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
	for server := range k.clusters {
		objects, _ := k.reach(server)
		for _, o := range objects {
			left = append(left, o.Kind+" "+o.ID)
		}
	}
	return left
}

// reach is what a server has, or why it does not answer.
func (k *Kubernetes) reach(server string) (map[string]*Object, error) {
	if profile, ok := strings.CutPrefix(server, "https://minikube."); ok {
		how, err := os.ReadFile(filepath.Join(k.cloud.profiles, profile))
		start, _, _ := strings.Cut(string(how), "\n")
		if err != nil || start != k.started[profile] { // or another by that name
			delete(k.clusters, server)
		}
		if err == nil && k.clusters[server] == nil {
			k.clusters[server], k.started[profile] = map[string]*Object{}, start
		}
	} else if k.clusters[server] != nil && k.admins[server] < 1 {
		return nil, errors.New("the server has asked for the client to provide credentials: Unauthorized")
	}
	objects, ok := k.clusters[server]
	if !ok {
		return nil, fmt.Errorf("configured Kubernetes cluster is unreachable: unable to load schema information from the API server: dial tcp %s: no route to host", server)
	}
	return objects, nil
}

// Change changes an object as somebody beside Pulumi does, who owns the paths from then on.
func (k *Kubernetes) Change(id string, change func(is Props), owned ...string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	objects, err := k.reach(k.server)
	if err != nil {
		return err
	}
	o := objects[id]
	if o == nil {
		return fmt.Errorf("%s is not there; there are %v", id, slices.Sorted(maps.Keys(objects)))
	}
	change(o.Is)
	o.Is = jsonic(o.Is).(Props)
	o.Foreign = append(o.Foreign, owned...)
	return nil
}

// Object is what there is under an id: "batch/v1/Job elasticdl/x".
func (k *Kubernetes) Object(id string) (Props, error) {
	var found Props
	return found, k.Change(id, func(is Props) { found = is })
}

// DiffConfig tells whether what a provider was told of is another cluster: then everything within is replaced.
func (k *Kubernetes) DiffConfig(_ context.Context, q *pulumirpc.DiffRequest) (*pulumirpc.DiffResponse, error) {
	was, now := open(wire(q.Olds)), open(wire(q.News))
	r, err := diff(was, nil, now, q.IgnoreChanges, nil)
	if err != nil || len(r.Diffs) == 0 {
		return r, err
	}
	r.DetailedDiff, r.HasDetailedDiff = nil, false
	switch old, id := was["clusterIdentifier"], now["clusterIdentifier"]; {
	case id != nil && old == id && id != Unknown: // the same cluster, whatever else
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

// serverOf is where the kubeconfig of a configuration leads, or "".
func serverOf(config Props) string {
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
	current := kubeconfig.Current
	if c := text(config, "context"); c != "" {
		current = c
	}
	for _, c := range kubeconfig.Contexts {
		for _, cluster := range kubeconfig.Clusters {
			if c.Name == current && cluster.Name == c.Context.Cluster {
				return cluster.Cluster.Server
			}
		}
	}
	return ""
}

// Check is strict validation of fields, by the types of k8s.io/api.
func (k *Kubernetes) Check(_ context.Context, q *pulumirpc.CheckRequest) (*pulumirpc.CheckResponse, error) {
	in := wire(q.News)
	object := open(in)
	r := &pulumirpc.CheckResponse{}
	for _, reason := range invalid(object) {
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
		in["metadata"] = metadata
	}
	var err error
	r.Inputs, err = as(in)
	return r, err
}

func invalid(object Props) []string {
	if hasUnknown(object) {
		object = known(object).(Props)
	}
	kind := schema.FromAPIVersionAndKind(text(object, "apiVersion"), text(object, "kind"))
	typed, err := scheme.Scheme.New(kind)
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
	unknown, err := kjson.UnmarshalStrict(text, typed)
	if err != nil {
		return []string{err.Error()}
	}
	var reasons []string
	for _, u := range unknown {
		reasons = append(reasons, u.Error())
	}
	return reasons
}

// known is v without what is not known.
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

// forced are the paths of each kind that cannot be changed, beside those of all. What the API refuses and that provider does not know is
// refused in Update.
var forced = map[string][]string{
	"apps/v1/DaemonSet":                               {"spec.selector"},
	"apps/v1/Deployment":                              {"spec.selector"},
	"batch/v1/Job":                                    {"spec.completions", "spec.parallelism", "spec.selector", "spec.template"},
	"rbac.authorization.k8s.io/v1/RoleBinding":        {"roleRef"},
	"rbac.authorization.k8s.io/v1/ClusterRoleBinding": {"roleRef"},
	"storage.k8s.io/v1/StorageClass":                  {"parameters", "provisioner"},
	"v1/PersistentVolume":                             {"spec.csi", "spec.hostPath", "spec.local", "spec.nfs"},
	"v1/PersistentVolumeClaim":                        {"spec.accessModes", "spec.selector", "spec.storageClassName", "spec.volumeName"},
	"v1/ResourceQuota":                                {"spec.scopes"},
	"v1/Secret":                                       {"type"},
	"v1/Service":                                      {"spec.clusterIP"},
	"v1/Pod":                                          {"spec"},
}

// immutable are the paths that the API refuses to change, and that provider does not know.
var immutable = map[string][]string{
	"scheduling.k8s.io/v1/PriorityClass": {"value", "preemptionPolicy"},
	"storage.k8s.io/v1/StorageClass":     {"volumeBindingMode", "reclaimPolicy"},
	"batch/v1/Job":                       {"spec.completionMode", "spec.podFailurePolicy", "spec.podReplacementPolicy"},
}

func (k *Kubernetes) Diff(_ context.Context, q *pulumirpc.DiffRequest) (*pulumirpc.DiffResponse, error) {
	asked, is, now := open(wire(q.OldInputs)), open(wire(q.Olds)), open(wire(q.News))
	replace := append([]string{"apiVersion", "kind", "metadata.name", "metadata.namespace"}, forced[kindOf(now)]...)
	k.mu.Lock()
	mutable := k.config["enableConfigMapMutable"] == true || k.config["enableConfigMapMutable"] == "true"
	k.mu.Unlock()
	if kindOf(now) == "v1/ConfigMap" && (!mutable || now["immutable"] == true) {
		replace = append(replace, "data", "binaryData")
	}
	r, err := diff(asked, is, now, q.IgnoreChanges, replace)
	if err != nil {
		return nil, err
	}
	same := at(is, "metadata", "name") == at(now, "metadata", "name") && at(is, "metadata", "namespace") == at(now, "metadata", "namespace")
	r.DeleteBeforeReplace = len(r.Replaces) > 0 && same
	return r, nil
}

// kindOf is "batch/v1/Job".
func kindOf(object Props) string { return text(object, "apiVersion") + "/" + text(object, "kind") }

// idOf is "elasticdl/name", or the name of what is in no namespace.
func idOf(object Props) string {
	id := text(object, "metadata", "name")
	if ns := text(object, "metadata", "namespace"); ns != "" {
		id = ns + "/" + id
	}
	return id
}

func (k *Kubernetes) Create(_ context.Context, q *pulumirpc.CreateRequest) (*pulumirpc.CreateResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	in := wire(q.Properties)
	object := open(in)
	objects, err := k.reach(k.server)
	if q.Preview && (err != nil || hasUnknown(object)) { // that provider warns, and goes on
		return &pulumirpc.CreateResponse{Properties: q.Properties}, nil
	} else if err != nil {
		return nil, err
	}
	kind := kindOf(object)
	key := kind + " " + idOf(object)
	if objects[key] != nil && !q.Preview {
		return nil, fmt.Errorf("%s already exists", key)
	}
	namespace := text(object, "metadata", "namespace")
	if !q.Preview && namespace != "" && namespace != "kube-system" && namespace != "default" && objects["v1/Namespace "+namespace] == nil {
		return nil, fmt.Errorf("%s: namespaces %q not found", key, namespace)
	}
	if err := k.bound(objects, object); err != nil && !q.Preview {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	live := jsonic(object).(Props)
	set(live, q.Urn)
	if !q.Preview {
		objects[key] = &Object{Kind: kind, ID: idOf(object), URN: q.Urn, Is: live}
		k.calls = append(k.calls, Call{"create", typeOf(q.Urn), nameOf(q.Urn), key})
	}
	out, err := as(kept(in, live).(Props))
	if q.Preview {
		return &pulumirpc.CreateResponse{Properties: out}, err
	}
	return &pulumirpc.CreateResponse{Id: idOf(object), Properties: out}, err
}

// bound: a claim waits for its volume.
func (k *Kubernetes) bound(objects map[string]*Object, object Props) error {
	if kindOf(object) != "v1/PersistentVolumeClaim" {
		return nil
	}
	if at(object, "spec", "storageClassName") != "" {
		return errors.New("a claim without storageClassName: \"\" gets a disk of the default class")
	}
	volume := objects["v1/PersistentVolume "+text(object, "spec", "volumeName")]
	if volume == nil {
		return errors.New("5 minutes: PersistentVolumeClaim is not bound: its volume is not there")
	}
	if ref := at(volume.Is, "spec", "claimRef"); ref != nil && (text(ref, "name") != text(object, "metadata", "name") || text(ref, "namespace") != text(object, "metadata", "namespace")) {
		return fmt.Errorf("5 minutes: PersistentVolumeClaim is not bound: its volume is for %v", ref)
	}
	return nil
}

// set is what the API server and its controllers add.
func set(live Props, urn string) {
	metadata := live["metadata"].(Props)
	metadata["uid"], metadata["resourceVersion"] = digest(urn)+"-0000-4000-8000-000000000000", "1"
	metadata["creationTimestamp"] = "2026-11-21T00:00:00Z"
	switch kindOf(live) {
	case "batch/v1/Job":
		spec := live["spec"].(Props)
		spec["selector"] = Props{"matchLabels": Props{"batch.kubernetes.io/controller-uid": metadata["uid"]}}
		live["status"] = Props{"active": 1.0, "ready": 0.0}
	case "v1/PersistentVolumeClaim":
		live["status"] = Props{"phase": "Bound"}
	case "v1/Service":
		if spec := live["spec"].(Props); spec["clusterIP"] == nil {
			spec["clusterIP"] = "10.96.0.7"
		}
	case "v1/Namespace":
		live["spec"], live["status"] = Props{"finalizers": []any{"kubernetes"}}, Props{"phase": "Active"}
		if metadata["labels"] == nil {
			metadata["labels"] = Props{}
		}
		metadata["labels"].(Props)["kubernetes.io/metadata.name"] = metadata["name"]
	}
}

func (k *Kubernetes) Update(_ context.Context, q *pulumirpc.UpdateRequest) (*pulumirpc.UpdateResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	in := wire(q.News)
	object := open(in)
	objects, err := k.reach(k.server)
	if q.Preview && (err != nil || hasUnknown(object)) {
		return &pulumirpc.UpdateResponse{Properties: q.News}, nil
	} else if err != nil {
		return nil, err
	}
	key := kindOf(object) + " " + idOf(object)
	o := objects[key]
	if o == nil {
		return nil, fmt.Errorf("%s not found", key)
	}
	d, err := diff(open(wire(q.OldInputs)), o.Is, object, nil, immutable[kindOf(object)])
	if err != nil {
		return nil, err
	}
	if len(d.Replaces) > 0 && !q.Preview {
		return nil, fmt.Errorf("%s is invalid: %v: field is immutable", key, d.Replaces)
	}
	if at(object, "metadata", "annotations", "pulumi.com/patchForce") != "true" {
		for _, path := range d.Diffs {
			if slices.ContainsFunc(o.Foreign, func(p string) bool { return strings.HasPrefix(path, p) }) {
				return nil, fmt.Errorf("%s: Server-Side Apply field conflict detected: conflict with \"elasticdl\": %s", key, path)
			}
		}
	}
	live := applied(open(wire(q.OldInputs)), o.Is, object).(Props)
	out, err := as(kept(in, live).(Props))
	if !q.Preview {
		o.Is = live
		k.calls = append(k.calls, Call{"update", typeOf(q.Urn), nameOf(q.Urn), key})
	}
	return &pulumirpc.UpdateResponse{Properties: out}, err
}

// applied is how an object is when now is applied to it: what was asked for before and is no longer, goes.
func applied(asked, is, now any) any {
	n, ok := now.(map[string]any)
	i, was := is.(map[string]any)
	if !ok || !was {
		return jsonic(now)
	}
	a, _ := asked.(map[string]any)
	out := maps.Clone(i)
	for key := range a {
		if _, ok := n[key]; !ok {
			delete(out, key)
		}
	}
	for key, e := range n {
		out[key] = applied(a[key], i[key], e)
	}
	return out
}

func (k *Kubernetes) Read(_ context.Context, q *pulumirpc.ReadRequest) (*pulumirpc.ReadResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	objects, err := k.reach(k.server)
	if err != nil {
		if k.DeleteUnreachable.Load() {
			return &pulumirpc.ReadResponse{}, nil
		}
		return nil, errors.New("failed to read resource state due to unreachable cluster. If the cluster was deleted, you can remove this resource from " +
			"Pulumi state by rerunning the operation with the PULUMI_K8S_DELETE_UNREACHABLE environment variable set to \"true\"")
	}
	was := wire(q.Properties)
	o := objects[kindOf(open(was))+" "+q.Id]
	if o == nil {
		return &pulumirpc.ReadResponse{}, nil
	}
	live := kept(was, o.Is).(Props)
	out, err := as(live)
	if err != nil {
		return nil, err
	}
	in, err := as(shaped(wire(q.Inputs), live).(Props))
	return &pulumirpc.ReadResponse{Id: q.Id, Properties: out, Inputs: in}, err
}

func (k *Kubernetes) Delete(_ context.Context, q *pulumirpc.DeleteRequest) (*emptypb.Empty, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	objects, err := k.reach(k.server)
	if err != nil {
		if k.DeleteUnreachable.Load() {
			return &emptypb.Empty{}, nil
		}
		return nil, errors.New("configured Kubernetes cluster is unreachable. If the cluster was deleted, you can remove this resource from Pulumi state by " +
			"rerunning the operation with the PULUMI_K8S_DELETE_UNREACHABLE environment variable set to \"true\"")
	}
	was := open(wire(q.Properties))
	key := kindOf(was) + " " + q.Id
	if o := objects[key]; o != nil {
		if err := held(objects, o); err != nil {
			return nil, fmt.Errorf("%s: 10 minutes: %w", key, err)
		}
		delete(objects, key)
		k.calls = append(k.calls, Call{"delete", typeOf(q.Urn), nameOf(q.Urn), key})
		if text(was, "metadata", "annotations", "pulumi.com/deletionPropagationPolicy") == "" && kindOf(was) == "batch/v1/Job" && text(was, "metadata", "annotations", "pulumi.com/skipAwait") == "true" {
			o.Is["metadata"].(Props)["deletionTimestamp"] = "2026-11-21T00:00:01Z"
			objects[key] = o // its pods keep it, and nobody waits
		}
	}
	return &emptypb.Empty{}, nil
}

// held: what a job's pods use goes after the job.
func held(objects map[string]*Object, o *Object) error {
	for _, user := range objects {
		if user.Kind != "batch/v1/Job" {
			continue
		}
		namespace, name := text(user.Is, "metadata", "namespace"), text(o.Is, "metadata", "name")
		switch o.Kind {
		case "v1/Namespace":
			if name == namespace {
				return fmt.Errorf("finalizers might be preventing deletion: %s is there", user.ID)
			}
		case "v1/PersistentVolumeClaim":
			if text(o.Is, "metadata", "namespace") == namespace {
				return fmt.Errorf("kubernetes.io/pvc-protection: pods of %s use it", user.ID)
			}
		case "v1/PersistentVolume":
			return fmt.Errorf("kubernetes.io/pv-protection: pods of %s use it", user.ID)
		}
	}
	return nil
}
