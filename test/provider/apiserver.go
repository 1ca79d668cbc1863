package provider

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
)

// apiServer is the API server of a simulated cluster: it has the objects, and answers writers.
// Server-side apply, with field managers and conflicts, is Kubernetes' own code; the table
// [refusals] has the immutable fields. [apiServer.complete] simulates the controllers in a few
// lines.
type apiServer struct {
	// by kind and ID: "batch/v1/Job elasticdl/x"
	objects map[string]*Object
	serial  int
}

// Object is an object of a cluster.
type Object struct {
	Kind, ID string
	Is       Props
	Foreign  bool // created outside of Pulumi
}

func newAPIServer() *apiServer { return &apiServer{objects: map[string]*Object{}} }

// keyOf returns the key of an object among those of a server.
func keyOf(object Props) string { return kindOf(object) + " " + idOf(object) }

// kindOf returns the version and kind of an object: "batch/v1/Job".
func kindOf(object Props) string { return text(object, "apiVersion") + "/" + text(object, "kind") }

// idOf returns the namespace and name of an object, "elasticdl/name", or the name alone if it has
// no namespace.
func idOf(object Props) string {
	id := text(object, "metadata", "name")
	if ns := text(object, "metadata", "namespace"); ns != "" {
		id = ns + "/" + id
	}
	return id
}

// apply does a server-side apply: it creates an object, or changes the existing one, created by
// anyone. A dry run changes nothing.
func (s *apiServer) apply(object Props, manager string, force, dryRun bool) (Props, error) {
	if err := s.admits(object); err != nil {
		return nil, err
	}
	key := keyOf(object)
	there := s.objects[key]
	live := Props{"apiVersion": object["apiVersion"], "kind": object["kind"]}
	if there != nil {
		live = there.Is
	}
	merged, err := managed(live,
		func(m *managedfields.FieldManager, live *unstructured.Unstructured) (runtime.Object, error) {
			return m.Apply(live, &unstructured.Unstructured{Object: jsonic(object).(Props)}, manager, force)
		})
	if err != nil {
		return nil, err
	}
	admitted(merged)
	if there == nil {
		s.complete(merged)
	} else if err := refused(there.Is, merged); err != nil {
		return nil, err
	}
	if dryRun {
		return merged, nil
	}
	switch {
	case there == nil:
		s.objects[key] = &Object{Kind: kindOf(object), ID: idOf(object), Is: merged}
	case text(there.Is, "metadata", "deletionTimestamp") != "":
		// it was being deleted, and is deleted together with what was applied to it
		delete(s.objects, key)
	default:
		there.Is = merged
	}
	return merged, nil
}

// write replaces the whole of an object, as a controller or `elasticdl scale` does.
func (s *apiServer) write(key, manager string, change func(is Props)) error {
	o := s.objects[key]
	if o == nil {
		return notFound(key)
	}
	now := jsonic(o.Is).(Props)
	change(now)
	merged, err := managed(o.Is,
		func(m *managedfields.FieldManager, live *unstructured.Unstructured) (runtime.Object, error) {
			return m.Update(live, &unstructured.Unstructured{Object: jsonic(now).(Props)}, manager)
		})
	if err == nil {
		err = refused(o.Is, merged)
	}
	if err == nil {
		o.Is = merged
	}
	return err
}

// make creates an object that belongs to no stack.
func (s *apiServer) make(object Props, manager string) error {
	if err := s.admits(object); err != nil {
		return err
	}
	made, err := managed(Props{"apiVersion": object["apiVersion"], "kind": object["kind"]},
		func(m *managedfields.FieldManager, live *unstructured.Unstructured) (runtime.Object, error) {
			return m.Update(live, &unstructured.Unstructured{Object: jsonic(object).(Props)}, manager)
		})
	if err != nil {
		return err
	}
	s.complete(made)
	s.objects[keyOf(object)] = &Object{Kind: kindOf(object), ID: idOf(object), Is: made, Foreign: true}
	return nil
}

// admits returns why an object is refused, from any writer.
func (s *apiServer) admits(object Props) error {
	if err := s.defined(object); err != nil {
		return err
	}
	namespace := text(object, "metadata", "namespace")
	if namespace == "" || namespace == "kube-system" || namespace == "default" ||
		s.objects["v1/Namespace "+namespace] != nil {
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, namespace)
}

// delete deletes an object, or a namespace with all objects in it. While a stack's job runs, its
// namespace and the objects that its pods use remain.
func (s *apiServer) delete(key string) (gone []*Object, err error) {
	o := s.objects[key]
	if o == nil {
		return nil, nil
	}
	if err := cmp.Or(s.held(o), s.inUse(o)); err != nil {
		return nil, err
	}
	gone = []*Object{o}
	delete(s.objects, key)
	if o.Kind == "v1/Namespace" {
		for _, key := range slices.Sorted(maps.Keys(s.objects)) {
			if strings.HasPrefix(s.objects[key].ID, o.ID+"/") {
				gone = append(gone, s.objects[key])
				delete(s.objects, key)
			}
		}
	}
	return gone, nil
}

// held returns why an object cannot be deleted yet.
func (s *apiServer) held(o *Object) error {
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		user := s.objects[key]
		namespace, name := text(user.Is, "metadata", "namespace"), text(o.Is, "metadata", "name")
		job := user.Kind == "batch/v1/Job" && !user.Foreign && !ended(user.Is)
		switch {
		case o.Kind == "v1/Namespace" && job && namespace == name:
			return fmt.Errorf("finalizers might be preventing deletion: %s is there", user.ID)
		case o.Kind == "v1/PersistentVolumeClaim" && job && namespace == text(o.Is, "metadata", "namespace"):
			return fmt.Errorf("kubernetes.io/pvc-protection: pods of %s use it", user.ID)
		case o.Kind == "v1/PersistentVolume" && user.Kind == "v1/PersistentVolumeClaim" &&
			text(user.Is, "spec", "volumeName") == name:
			return fmt.Errorf("kubernetes.io/pv-protection: %s is bound to it", user.ID)
		}
	}
	return nil
}

// ended reports whether a Job has ended, and its pods, too.
func ended(job Props) bool {
	conditions, _ := at(job, "status", "conditions").([]any)
	return slices.ContainsFunc(conditions, func(c any) bool {
		return text(c, "status") == "True" && (text(c, "type") == "Complete" || text(c, "type") == "Failed")
	})
}

// complete adds to a new object what the API server and its controllers add.
func (s *apiServer) complete(live Props) {
	metadata := live["metadata"].(Props)
	s.serial++
	metadata["uid"] = fmt.Sprintf("%s-0000-4000-8000-%012d", digest(keyOf(live)), s.serial)
	metadata["resourceVersion"] = fmt.Sprint(s.serial)
	metadata["creationTimestamp"] = "2026-11-21T00:00:00Z"
	switch kindOf(live) {
	case "batch/v1/Job":
		spec := live["spec"].(Props)
		spec["selector"] = Props{"matchLabels": Props{"batch.kubernetes.io/controller-uid": metadata["uid"]}}
		live["status"] = Props{"active": 1.0, "ready": 0.0, "startTime": metadata["creationTimestamp"]}
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

// managed merges an object by Kubernetes' field manager.
func managed(live Props, merge func(m *managedfields.FieldManager,
	live *unstructured.Unstructured) (runtime.Object, error)) (Props, error) {
	kind := schema.FromAPIVersionAndKind(text(live, "apiVersion"), text(live, "kind"))
	types := fieldTypes()
	// the server knows other kinds by their definitions only
	if !scheme.Scheme.Recognizes(kind) {
		types = managedfields.NewDeducedTypeConverter()
	}
	m, err := managedfields.NewDefaultFieldManager(types, oneVersion{}, oneVersion{},
		oneVersion{}, kind, kind.GroupVersion(), "", nil)
	if err != nil {
		return nil, err
	}
	merged, err := merge(m, &unstructured.Unstructured{Object: jsonic(live).(Props)})
	if err != nil {
		return nil, err
	}
	u, ok := merged.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("%s: merged to %T", kindOf(live), merged)
	}
	return jsonic(u.Object).(Props), nil
}

var fieldTypes = sync.OnceValue(func() managedfields.TypeConverter {
	return applyconfigurations.NewTypeConverter(scheme.Scheme)
})

// oneVersion converts objects that have only one version and no defaults.
type oneVersion struct{}

func (oneVersion) Convert(in, out, _ any) error { return fmt.Errorf("convert %T to %T", in, out) }

func (oneVersion) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}

func (oneVersion) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

func (oneVersion) Default(runtime.Object) {}

func (oneVersion) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{Object: Props{}}
	u.SetGroupVersionKind(kind)
	return u, nil
}

// notFound returns the API server's error for a missing object: configmaps "x" not found.
func notFound(key string) error {
	kind, id, _ := strings.Cut(key, " ")
	i := strings.LastIndex(kind, "/")
	plural, _ := meta.UnsafeGuessKindToResource(schema.FromAPIVersionAndKind(kind[:i], kind[i+1:]))
	return apierrors.NewNotFound(plural.GroupResource(), id[strings.LastIndex(id, "/")+1:])
}
