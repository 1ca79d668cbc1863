//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// api is the client of the API server, through kubectl proxy.
var api *http.Client

// startProxy starts kubectl proxy, which has the credentials; stop ends it.
func startProxy(socket string) (stop func(), err error) {
	cmd := exec.Command("kubectl", "proxy", "--unix-socket="+socket)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
	if _, err := out.Read(make([]byte, 64)); err != nil { // it prints a line when it serves
		stop()
		return nil, fmt.Errorf("start kubectl proxy: %w", err)
	}
	go io.Copy(io.Discard, out)
	api = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	return stop, nil
}

// object has the fields of an object that the tests read.
type object struct {
	Metadata struct {
		Name              string
		UID               string
		ResourceVersion   string
		Labels            map[string]string
		DeletionTimestamp *time.Time
		OwnerReferences   []ownerReference
	}
	Spec struct {
		NodeName string
		Replicas int
		// of a workload
		QueueName string
		Priority  int
	}
	Status struct {
		Phase             string
		PodIP             string
		ReadyReplicas     int
		Allocatable       map[string]string
		Conditions        []condition
		ContainerStatuses []struct {
			State struct{ Running *struct{} }
		}
	}
	Data map[string]string
}

type condition struct{ Type, Status, Reason, Message string }

type ownerReference struct {
	Kind, Name, UID string
	Controller      bool
}

// is reports whether a condition has a status; an absent condition has none.
func (o *object) is(condition, status string) bool {
	c := o.condition(condition)
	return c != nil && c.Status == status
}

func (o *object) condition(name string) *condition {
	if o == nil {
		return nil
	}
	for i, c := range o.Status.Conditions {
		if c.Type == name {
			return &o.Status.Conditions[i]
		}
	}
	return nil
}

// running reports whether a pod's container runs, and the pod is not being deleted.
func (o *object) running() bool {
	return o != nil && o.Status.Phase == "Running" && o.Metadata.DeletionTimestamp == nil &&
		len(o.Status.ContainerStatuses) > 0 && o.Status.ContainerStatuses[0].State.Running != nil
}

func (o *object) leaving() bool { return o != nil && o.Metadata.DeletionTimestamp != nil }

// kind is a resource that a view watches: "pods", or its path below that of the namespace.
type kind string

// The kinds that a namespace's view watches.
const (
	pods        kind = "api/v1/pods"
	configMaps  kind = "api/v1/configmaps"
	jobs        kind = "apis/batch/v1/jobs"
	deployments kind = "apis/apps/v1/deployments"
	nodes       kind = "api/v1/nodes" // nodes have no namespace
)

func (k kind) path(namespace string) string {
	if namespace == "" {
		return "/" + string(k)
	}
	i := strings.LastIndex(string(k), "/")
	return "/" + string(k[:i]) + "/namespaces/" + namespace + string(k[i:])
}

// view has the present state of some kinds of objects, as the watch reports it.
type view struct {
	mu sync.Mutex
	// by name
	now map[kind]map[string]*object
	// last versions of ConfigMaps, including deleted ones
	last map[string]*object
	// closed at the next change
	changed chan struct{}
}

// look watches some kinds in a namespace until ctx ends.
func look(ctx context.Context, namespace string, kinds ...kind) *view {
	v := &view{now: map[kind]map[string]*object{}, last: map[string]*object{}, changed: make(chan struct{})}
	v.add(ctx, namespace, kinds...)
	return v
}

// add watches further kinds.
func (v *view) add(ctx context.Context, namespace string, kinds ...kind) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, k := range kinds {
		v.now[k] = map[string]*object{}
		go v.follow(ctx, k, k.path(namespace))
	}
}

// maximum evaluates a number after each change, and returns a function that returns its maximum.
func (v *view) maximum(ctx context.Context, number func() int) (most func() int) {
	ctx, stop := context.WithCancel(ctx)
	result := make(chan int, 1)
	go func() {
		most := 0
		for {
			_, changed := v.ask(func() bool {
				most = max(most, number())
				return false
			})
			select {
			case <-changed:
			case <-ctx.Done():
				result <- most
				return
			}
		}
	}()
	return func() int {
		stop()
		return <-result
	}
}

// follow lists and watches in a loop: the API server may be down for a while.
func (v *view) follow(ctx context.Context, k kind, path string) {
	for ctx.Err() == nil {
		err := v.watch(ctx, k, path)
		if ctx.Err() == nil && err != nil {
			wait, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			<-wait.Done()
			cancel()
		}
	}
}

// watch lists the objects, and follows their changes until the connection ends.
func (v *view) watch(ctx context.Context, k kind, path string) error {
	var list struct {
		Metadata struct{ ResourceVersion string }
		Items    []object
	}
	if err := get(ctx, path, &list); err != nil {
		return err
	}
	v.change(func() {
		clear(v.now[k])
		for i := range list.Items {
			v.set(k, &list.Items[i])
		}
	})
	body, err := open(ctx, path+"?watch=1&resourceVersion="+list.Metadata.ResourceVersion)
	if err != nil {
		return err
	}
	defer body.Close()
	for d := json.NewDecoder(body); ; {
		var event struct {
			Type   string
			Object object
		}
		if err := d.Decode(&event); err != nil {
			return err
		}
		switch event.Type {
		case "ADDED", "MODIFIED":
			v.change(func() { v.set(k, &event.Object) })
		case "DELETED":
			v.change(func() { delete(v.now[k], event.Object.Metadata.Name) })
		default:
			return errors.New(event.Type)
		}
	}
}

func (v *view) set(k kind, o *object) {
	v.now[k][o.Metadata.Name] = o
	if k == configMaps {
		v.last[o.Metadata.Name] = o
	}
}

func (v *view) change(f func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f()
	close(v.changed)
	v.changed = make(chan struct{})
}

// until waits until a condition is true. It calls is after each change, with v locked.
func (v *view) until(t *testing.T, what string, limit time.Duration, is func() bool) {
	t.Helper()
	if !v.within(limit, is) {
		v.miss(t, what, limit)
	}
}

// miss ends the test, because a condition was not true in time.
func (v *view) miss(t *testing.T, what string, limit time.Duration) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	missed(t, what, limit, v.describe())
}

// within reports whether a condition becomes true in time.
func (v *view) within(limit time.Duration, is func() bool) bool {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for {
		so, changed := v.ask(is)
		if so {
			return true
		}
		select {
		case <-changed:
		case <-deadline.C:
			return false
		}
	}
}

// ask evaluates a condition on the present state; changed is closed at the next change. The
// condition may end the test.
func (v *view) ask(is func() bool) (so bool, changed <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return is(), v.changed
}

// describe returns one line per object.
func (v *view) describe() string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(v.now)) {
		for _, name := range slices.Sorted(maps.Keys(v.now[k])) {
			o := v.now[k][name]
			fmt.Fprintf(&b, "  %s %s %s %s", k[strings.LastIndex(string(k), "/")+1:], name,
				o.Status.Phase, o.Spec.NodeName)
			if o.leaving() {
				b.WriteString(" leaving")
			}
			for _, c := range o.Status.Conditions {
				if c.Status == "True" {
					b.WriteString(" " + c.Type)
				}
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// open sends a GET request to the API server; the caller closes the response.
func open(ctx context.Context, path string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := api.Do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		return nil, fmt.Errorf("get %s: %s: %.300s", path, answer.Status, text)
	}
	return answer.Body, nil
}

func get(ctx context.Context, path string, into any) error {
	body, err := open(ctx, path)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(into); err != nil {
		return fmt.Errorf("get %s: %w", path, err)
	}
	return nil
}

// ready reports whether a Deployment has n ready replicas.
func (o *object) ready(n int) bool { return o != nil && o.Status.ReadyReplicas == n }
