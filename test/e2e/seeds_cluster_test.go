//go:build e2e

package e2e

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// A tutorial says how many nodes its cluster has, and of what size. Its pods request the CPUs and
// the memory of that cluster, which the machine of a test does not have. So its nodes are some of
// the test's, with as much of two resources that nothing but the scheduler counts, and a webhook
// makes each request of a pod a request of these. All else is real.
const (
	countedCPU    = "elastic.dev/millicpu"
	countedMemory = "elastic.dev/mebibytes"
)

// size is the size of a tutorial's cluster, and of what pods can have of each node.
type size struct {
	nodes, millicpu, mebibytes int
	// CPUs of the tutorial for each CPU that a container may use here
	slower int
}

// replica is the cluster of one tutorial.
type replica struct {
	size
	names []string
	// images of the internet, and what is run in their place
	images map[string]string
	// directories of a node, and directories of this machine that are mounted there
	mounts map[string]string
}

// webhook changes the pods of namespaces on their creation.
type webhook struct{ replicas sync.Map } // of *replica, by namespace

// waiting is the command of containers with an image of the internet: it waits for its end.
var waiting = []any{"sh", "-c", "trap 'exit 0' TERM; sleep 100000 & wait"}

// newWebhook registers a webhook for the pods of the namespaces of the tutorials. Replicas are
// added before their pods.
func newWebhook(t *testing.T) *webhook {
	t.Helper()
	w := new(webhook)
	own, authority := selfSigned(t, net.ParseIP("127.0.0.1"))
	server := httptest.NewUnstartedServer(w)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{own}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	const name = "elasticdl-seeds"
	text, err := json.Marshal(map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
		"metadata": map[string]any{"name": name},
		"webhooks": []any{map[string]any{
			"name": "seeds.elastic.dev", "sideEffects": "None",
			"admissionReviewVersions": []string{"v1"}, "failurePolicy": "Fail",
			"clientConfig": map[string]any{"url": server.URL + "/", "caBundle": authority},
			"rules": []any{map[string]any{"operations": []string{"CREATE"},
				"apiGroups": []string{""}, "apiVersions": []string{"v1"}, "resources": []string{"pods"}}},
			"matchConditions": []any{map[string]any{"name": "seeds",
				"expression": `request.namespace.startsWith("e2e-seeds-")`}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "kubectl", "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(string(text))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	t.Cleanup(func() { command("kubectl", "delete", "mutatingwebhookconfiguration", name, "--ignore-not-found") })
	return w
}

// ServeHTTP answers an AdmissionReview of a pod with a changed spec.
func (w *webhook) ServeHTTP(to http.ResponseWriter, r *http.Request) {
	var review struct {
		Request struct {
			UID, Namespace string
			Object         struct{ Spec map[string]any }
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(to, err.Error(), http.StatusBadRequest)
		return
	}
	response := map[string]any{"uid": review.Request.UID, "allowed": true}
	if c, ok := w.replicas.Load(review.Request.Namespace); ok {
		c.(*replica).change(review.Request.Object.Spec)
		patch, err := json.Marshal(
			[]any{map[string]any{"op": "replace", "path": "/spec", "value": review.Request.Object.Spec}})
		if err != nil {
			http.Error(to, err.Error(), http.StatusInternalServerError)
			return
		}
		response["patchType"], response["patch"] = "JSONPatch", patch
	}
	json.NewEncoder(to).Encode(map[string]any{"apiVersion": "admission.k8s.io/v1",
		"kind": "AdmissionReview", "response": response})
}

// change makes a pod one of this replica.
func (c *replica) change(spec map[string]any) {
	for _, of := range []string{"initContainers", "containers"} {
		containers, _ := spec[of].([]any)
		for _, each := range containers {
			container := each.(map[string]any)
			if image, ok := c.images[container["image"].(string)]; ok {
				container["image"], container["command"] = image, waiting
			}
			if of == "containers" {
				container["resources"] = c.scaled(container["resources"])
			}
		}
	}
	volumes, _ := spec["volumes"].([]any)
	for _, each := range volumes {
		if host, ok := each.(map[string]any)["hostPath"].(map[string]any); ok {
			if is, ok := c.mounts[host["path"].(string)]; ok {
				host["path"] = is
			}
		}
	}
}

// scaled returns the resources of a container with its CPUs and memory as the counted resources,
// and little of the machine's.
func (c *replica) scaled(resources any) map[string]any {
	all, _ := resources.(map[string]any)
	request, limit := map[string]any{}, map[string]any{}
	for name, of := range map[string]map[string]any{"limits": limit, "requests": request} {
		is, _ := all[name].(map[string]any)
		maps.Copy(of, is)
	}
	for name, counted := range map[string]string{"cpu": countedCPU, "memory": countedMemory} {
		wanted, ok := request[name]
		if !ok {
			wanted, ok = limit[name]
		}
		if ok {
			n := int64(math.Ceil(quantity(fmt.Sprint(wanted)) * map[string]float64{"cpu": 1e3,
				"memory": 1.0 / (1 << 20)}[name]))
			request[counted], limit[counted] = fmt.Sprint(n), fmt.Sprint(n)
		}
	}
	if cpu, ok := limit["cpu"]; ok {
		limit["cpu"] = fmt.Sprintf("%dm", max(100, int(1e3*quantity(fmt.Sprint(cpu))/float64(c.slower))))
	}
	request["cpu"], request["memory"] = "10m", "32Mi"
	return map[string]any{"requests": request, "limits": limit}
}

// quantity returns a quantity of Kubernetes as a number.
func quantity(text string) float64 {
	units := map[string]float64{"m": 1e-3, "": 1, "k": 1e3, "M": 1e6, "G": 1e9, "Ki": 1 << 10,
		"Mi": 1 << 20, "Gi": 1 << 30}
	parts := regexp.MustCompile(`^([0-9.]+)([a-zA-Z]*)$`).FindStringSubmatch(text)
	if parts == nil || units[parts[2]] == 0 {
		panic("quantity " + text)
	}
	n, err := strconv.ParseFloat(parts[1], 64)
	if err != nil {
		panic(err)
	}
	return n * units[parts[2]]
}

// newReplica creates the cluster of a tutorial on the first nodes, and a namespace on it.
func (w *webhook) newReplica(t *testing.T, of size, images map[string]string) (*namespace, *replica) {
	t.Helper()
	if len(names) < of.nodes {
		t.Fatalf("the cluster has %d nodes, expected %d at least: make cluster-down, then make e2e",
			len(names), of.nodes)
	}
	c := &replica{of, names[:of.nodes], images, make(map[string]string)}
	label := "elastic.dev/tutorial"
	selector := label + "=" + t.Name()[strings.LastIndex(t.Name(), "/")+1:]
	t.Cleanup(func() {
		command("kubectl", slices.Concat([]string{"label", "node"}, c.names, []string{label + "-"})...)
		c.setCapacity(t, nil, nil)
	})
	if err := command("kubectl", slices.Concat([]string{"label", "node", "--overwrite"}, c.names,
		[]string{selector})...); err != nil {
		t.Fatal(err)
	}
	c.setCapacity(t, fmt.Sprint(of.millicpu), fmt.Sprint(of.mebibytes))
	cluster := look(t.Context(), "", nodes)
	cluster.until(t, "resources of the tutorial", patience, func() bool {
		return !slices.ContainsFunc(c.names, func(name string) bool {
			o := cluster.now[nodes][name]
			return o == nil || !same(o.Status.Allocatable[countedCPU], of.millicpu) ||
				!same(o.Status.Allocatable[countedMemory], of.mebibytes)
		})
	})
	two := [2]string{c.names[0], c.names[len(c.names)-1]}
	ns := createNamespace(t, pair{selector, two})
	w.replicas.Store(ns.name, c)
	return ns, c
}

// same reports whether a quantity is a number.
func same(text string, n int) bool { return text != "" && int(quantity(text)) == n }

func (c *replica) setCapacity(t *testing.T, millicpu, mebibytes any) {
	t.Helper()
	patch, err := json.Marshal(
		map[string]any{"status": map[string]any{"capacity": map[string]any{countedCPU: millicpu,
			countedMemory: mebibytes}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range c.names {
		if err := command("kubectl", "patch", "node", name, "--subresource=status", "--type=merge",
			"-p", string(patch)); err != nil {
			t.Error(err)
		}
	}
}
