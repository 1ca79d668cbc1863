package incluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	authorization "k8s.io/api/authorization/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	api "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"

	"github.com/elasticdl/elasticdl/trainer/runtime/kube/clientset"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// apiServer is a fake API server with the Jobs, pods, ConfigMaps, Secrets and events of the
// namespace "default". The test acts as the kubelet.
type apiServer struct {
	*testing.T
	http *httptest.Server
	// signs the tokens
	issuer *issuer

	mu      sync.Mutex
	version int
	// watches cannot begin before this version
	oldest  int
	jobs    map[string]*batch.Job
	pods    map[string]*core.Pod
	maps    map[string]*core.ConfigMap
	secrets map[string]*core.Secret
	// nil: nobody may read them
	nodes map[string]*core.Node
	// creation time of pods
	born    meta.Time
	events  []*core.Event
	log     []change
	changed chan struct{}
	// closed to end all watches
	cut  chan struct{}
	down bool
	// requests of a method that found it down
	missed map[string]int
	// error in the place of an answer, before the request is performed; after: when it was
	// performed
	refuse func(method, path string) error
	after  func(method, path string) error
	// number of requests to create
	creates int
}

// change is an event of a watch.
type change struct {
	version int
	kind    string // name of the collection, such as "pods"
	verb    string
	object  meta.Object
}

func newAPIServer(t *testing.T) *apiServer {
	s := &apiServer{
		T: t, issuer: newIssuer("k"), version: 1, jobs: make(map[string]*batch.Job),
		pods: make(map[string]*core.Pod), maps: make(map[string]*core.ConfigMap),
		secrets: make(map[string]*core.Secret),
		changed: make(chan struct{}), cut: make(chan struct{}), missed: make(map[string]int),
	}
	s.http = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() {
		s.away(true)
		s.http.Close()
	})
	return s
}

func (s *apiServer) client() clientset.Interface {
	s.Helper()
	client, err := clientset.New(&rest.Config{Host: s.http.URL, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		s.Fatal(err)
	}
	return client
}

// away closes all connections, and makes the server refuse requests until it is called with false.
func (s *apiServer) away(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
	if down {
		close(s.cut)
		s.cut = make(chan struct{})
	}
}

// compact removes all earlier versions, so that watches cannot continue from them.
func (s *apiServer) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.oldest = s.version
}

// note adds a change and wakes the watches. The caller holds the mutex.
func (s *apiServer) note(kind, verb string, o meta.Object) {
	s.version++
	o.SetResourceVersion(strconv.Itoa(s.version))
	s.log = append(s.log, change{s.version, kind, verb, o})
	s.wake()
}

// wake makes watches and await check again. The caller holds the mutex.
func (s *apiServer) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// change changes an existing pod, or removes it if how is nil.
func (s *apiServer) change(name string, how func(*core.Pod)) {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pods[name]
	switch {
	case p == nil:
		s.Errorf("there is no pod %s", name)
	case how == nil:
		delete(s.pods, name)
		s.note("pods", "DELETED", p.DeepCopy())
	default:
		p = p.DeepCopy()
		how(p)
		s.pods[name] = p
		s.note("pods", "MODIFIED", p)
	}
}

// get returns a pod, nil if there is none.
func (s *apiServer) get(name string) *core.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods[name]
}

// put creates an object as another client does.
func (s *apiServer) put(o meta.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(o)
}

func (s *apiServer) add(o meta.Object) {
	o.SetUID(types.UID(fmt.Sprintf("uid-%d", s.version)))
	switch o := o.(type) {
	case *core.Pod:
		if o.Spec.NodeName == "" && len(o.Spec.SchedulingGates) == 0 {
			o.Spec.NodeName = "node-1"
			if manifest.Avoids(o) {
				o.Spec.NodeName = "node-2"
			}
		}
		o.CreationTimestamp = s.born
		s.pods[o.Name] = o
		s.note("pods", "ADDED", o)
	case *core.Node:
		verb := "MODIFIED"
		if s.nodes[o.Name] == nil {
			verb = "ADDED"
		}
		s.nodes[o.Name] = o
		s.note("nodes", verb, o)
	case *core.ConfigMap:
		s.maps[o.Name] = o
		s.note("configmaps", "ADDED", o)
	case *core.Secret:
		s.secrets[o.Name] = o
		s.note("secrets", "ADDED", o)
	}
}

// await waits until ok returns true. It calls ok after every change.
func (s *apiServer) await(what string, ok func() bool) {
	s.Helper()
	for {
		s.mu.Lock()
		is, changed := ok(), s.changed
		s.mu.Unlock()
		if is {
			return
		}
		select {
		case <-changed:
		case <-s.Context().Done():
			s.Fatalf("never: %s", what)
		}
	}
}

func (s *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	_, path, _ := strings.Cut(r.URL.Path, "/namespaces/default/")
	if rest, ok := strings.CutPrefix(r.URL.Path, "/api/v1/nodes"); ok {
		path = "nodes" + rest
	}
	if rest, ok := strings.CutPrefix(r.URL.Path, "/apis/authorization.k8s.io/v1/"); ok {
		path = rest
	}
	kind, name, _ := strings.Cut(path, "/")
	s.mu.Lock()
	down, refuse, after := s.down, s.refuse, s.after
	if down {
		s.missed[r.Method]++
		close(s.changed)
		s.changed = make(chan struct{})
	}
	s.mu.Unlock()
	if down {
		panic(http.ErrAbortHandler)
	}
	if refuse != nil {
		if err := refuse(r.Method, r.URL.Path); err != nil {
			reply(w, nil, err)
			return
		}
	}
	switch {
	case r.URL.Path == "/openid/v1/jwks":
		w.Header().Set("Content-Type", "application/jwk-set+json")
		w.Write(jwks(s.issuer))
		return
	case r.URL.Query().Get("watch") != "":
		s.watch(w, r, kind)
		return
	}
	o, err := s.answer(r, kind, name)
	if after != nil {
		if lost := after(r.Method, r.URL.Path); lost != nil {
			panic(http.ErrAbortHandler)
		}
	}
	reply(w, o, err)
}

func reply(w http.ResponseWriter, o any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		status, ok := err.(api.APIStatus)
		if !ok {
			panic(http.ErrAbortHandler)
		}
		s := status.Status()
		s.Kind, s.APIVersion = "Status", "v1"
		w.WriteHeader(int(s.Code))
		json.NewEncoder(w).Encode(s)
		return
	}
	json.NewEncoder(w).Encode(o)
}

func (s *apiServer) answer(r *http.Request, kind, name string) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resource := schema.GroupResource{Resource: kind}
	selects := selection(r)
	version := meta.ListMeta{ResourceVersion: strconv.Itoa(s.version)}
	switch r.Method + " " + kind {
	case "POST pods":
		s.creates++
		s.wake()
		p := new(core.Pod)
		if err := json.NewDecoder(r.Body).Decode(p); err != nil {
			return nil, api.NewBadRequest(err.Error())
		}
		if s.pods[p.Name] != nil {
			return nil, api.NewAlreadyExists(resource, p.Name)
		}
		p.Status.Phase = core.PodPending
		s.add(p)
		return p, nil
	case "GET pods":
		if r.URL.Query().Get("resourceVersion") == "0" {
			s.Errorf(
				"asked for the pods that the server happens to remember, which may be older than what was reported")
		}
		list := &core.PodList{ListMeta: version}
		for _, p := range s.pods {
			if selects(p) {
				list.Items = append(list.Items, *p)
			}
		}
		return list, nil
	case "POST selfsubjectaccessreviews":
		review := new(authorization.SelfSubjectAccessReview)
		if err := json.NewDecoder(r.Body).Decode(review); err != nil {
			return nil, api.NewBadRequest(err.Error())
		}
		review.Status.Allowed = s.nodes != nil && review.Spec.ResourceAttributes.Resource == "nodes"
		return review, nil
	case "GET nodes":
		if s.nodes == nil {
			s.Error("the master lists nodes, which it may not")
			return nil, api.NewForbidden(resource, "", errors.New("it may not"))
		}
		list := &core.NodeList{ListMeta: version}
		for _, n := range s.nodes {
			list.Items = append(list.Items, *n)
		}
		return list, nil
	case "DELETE pods":
		o := new(meta.DeleteOptions)
		if err := json.NewDecoder(r.Body).Decode(o); err != nil {
			return nil, api.NewBadRequest(err.Error())
		}
		p := s.pods[name]
		switch {
		case p == nil:
			return nil, api.NewNotFound(resource, name)
		case o.Preconditions == nil || *o.Preconditions.UID != p.UID:
			return nil, api.NewConflict(resource, name, fmt.Errorf("the UID in the precondition does not match"))
		}
		p = p.DeepCopy()
		ended := p.Status.Phase == core.PodFailed || p.Status.Phase == core.PodSucceeded
		if ended { // two writes, as in Kubernetes
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(meta.Now()), new(int64(0))
			s.note("pods", "MODIFIED", p)
			p = p.DeepCopy()
		}
		if ended || o.GracePeriodSeconds != nil && *o.GracePeriodSeconds == 0 {
			delete(s.pods, name)
			s.note("pods", "DELETED", p)
			return p, nil
		}
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(meta.Now()), new(int64(30))
		s.pods[name] = p
		s.note("pods", "MODIFIED", p)
		return p, nil
	case "GET configmaps":
		if name != "" {
			if m := s.maps[name]; m != nil {
				return m, nil
			}
			return nil, api.NewNotFound(resource, name)
		}
		list := &core.ConfigMapList{ListMeta: version}
		for _, m := range s.maps {
			if selects(m) {
				list.Items = append(list.Items, *m)
			}
		}
		return list, nil
	case "GET jobs":
		if o := s.jobs[name]; o != nil {
			return o, nil
		}
		return nil, api.NewNotFound(resource, name)
	case "PATCH jobs":
		o, patch := s.jobs[name].DeepCopy(), new(batch.Job)
		if err := json.NewDecoder(r.Body).Decode(patch); err != nil {
			return nil, api.NewBadRequest(err.Error())
		}
		switch {
		case o == nil:
			return nil, api.NewNotFound(resource, name)
		case patch.UID != o.UID:
			return nil, api.NewInvalid(schema.GroupKind{Kind: "Job"}, name,
				field.ErrorList{field.Invalid(field.NewPath("metadata", "uid"), patch.UID, "field is immutable")})
		case strings.HasSuffix(r.URL.Path, "/status"):
			for _, c := range patch.Status.Conditions {
				o.Status.Conditions = slices.DeleteFunc(o.Status.Conditions, func(was batch.JobCondition) bool {
					return was.Type == c.Type
				})
				o.Status.Conditions = append(o.Status.Conditions, c)
			}
		case patch.Spec.BackoffLimit != nil:
			o.Spec.BackoffLimit = patch.Spec.BackoffLimit
		}
		s.jobs[name] = o
		s.wake()
		return o, nil
	case "GET secrets":
		if o := s.secrets[name]; o != nil {
			return o, nil
		}
		return nil, api.NewNotFound(resource, name)
	case "PUT secrets":
		o := new(core.Secret)
		if err := json.NewDecoder(r.Body).Decode(o); err != nil {
			return nil, api.NewBadRequest(err.Error())
		}
		if o.ResourceVersion != s.secrets[name].ResourceVersion {
			return nil, api.NewConflict(resource, name, fmt.Errorf("the object has been modified"))
		}
		s.secrets[name] = o
		s.note("secrets", "MODIFIED", o)
		return o, nil
	case "POST events":
		e := new(core.Event)
		if err := json.NewDecoder(r.Body).Decode(e); err != nil {
			return nil, api.NewBadRequest(err.Error())
		}
		s.events = append(s.events, e)
		s.wake()
		return e, nil
	case "PUT configmaps":
		m := new(core.ConfigMap)
		if err := json.NewDecoder(r.Body).Decode(m); err != nil {
			return nil, api.NewBadRequest(err.Error())
		}
		if s.maps[name] == nil {
			return nil, api.NewNotFound(resource, name)
		}
		if m.ResourceVersion != s.maps[name].ResourceVersion {
			return nil, api.NewConflict(resource, name, fmt.Errorf("the object has been modified"))
		}
		s.maps[name] = m
		s.note("configmaps", "MODIFIED", m)
		return m, nil
	}
	return nil, api.NewMethodNotSupported(resource, r.Method)
}

// selection returns a function that reports whether a list or watch selects an object.
func selection(r *http.Request) func(meta.Object) bool {
	q := r.URL.Query()
	selector, err := labels.Parse(q.Get("labelSelector"))
	if err != nil {
		panic(err)
	}
	name, one := strings.CutPrefix(q.Get("fieldSelector"), "metadata.name=")
	return func(o meta.Object) bool {
		return selector.Matches(labels.Set(o.GetLabels())) && (!one || o.GetName() == name)
	}
}

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, kind string) {
	q := r.URL.Query()
	if q.Get("sendInitialEvents") != "" {
		reply(w, nil, api.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil))
		return
	}
	from, _ := strconv.Atoi(q.Get("resourceVersion"))
	s.mu.Lock()
	gone, cut, down := from < s.oldest, s.cut, s.down
	s.mu.Unlock()
	if down {
		panic(http.ErrAbortHandler)
	}
	if gone {
		reply(w, nil, api.NewResourceExpired("too old resource version"))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.(http.Flusher).Flush()
	selects := selection(r)
	for {
		s.mu.Lock()
		news := slices.Clone(s.log)
		changed, away := s.changed, s.cut != cut
		s.mu.Unlock()
		if away { // nobody reports changes since then
			panic(http.ErrAbortHandler)
		}
		for _, c := range news {
			if c.version > from && c.kind == kind && selects(c.object) {
				json.NewEncoder(w).Encode(map[string]any{"type": c.verb, "object": typedAs(c.object)})
			}
		}
		if len(news) > 0 {
			from = max(from, news[len(news)-1].version)
		}
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-cut:
			panic(http.ErrAbortHandler)
		case <-r.Context().Done():
			return
		}
	}
}

// typedAs returns an object with its type, as objects of a watch have it.
func typedAs(o meta.Object) any {
	switch o := o.(type) {
	case *core.Pod:
		o = o.DeepCopy()
		o.TypeMeta = meta.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		return o
	case *core.Node:
		o = o.DeepCopy()
		o.TypeMeta = meta.TypeMeta{APIVersion: "v1", Kind: "Node"}
		return o
	case *core.ConfigMap:
		o = o.DeepCopy()
		o.TypeMeta = meta.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
		return o
	}
	panic(fmt.Sprintf("%T", o))
}

// Changes that a kubelet makes to a pod.

func runs(p *core.Pod) {
	p.Spec.NodeName = "node-1"
	p.Status.Phase = core.PodRunning
}

func exits(code int32) func(*core.Pod) {
	return func(p *core.Pod) {
		p.Status.Phase = core.PodSucceeded
		if code != 0 {
			p.Status.Phase = core.PodFailed
		}
		p.Status.ContainerStatuses = []core.ContainerStatus{{
			Name:  p.Labels[manifest.LabelRole],
			State: core.ContainerState{Terminated: &core.ContainerStateTerminated{ExitCode: code}},
		}}
	}
}

func preempted(p *core.Pod) {
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(meta.Now()), new(int64(30))
	p.Status.Conditions = append(p.Status.Conditions, core.PodCondition{
		Type: core.DisruptionTarget, Status: core.ConditionTrue,
		Reason: core.PodReasonPreemptionByScheduler, Message: "preempting",
	})
}
