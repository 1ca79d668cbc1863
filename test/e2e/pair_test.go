//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

// pair is two nodes of the cluster, which are a cluster of their own for the namespaces whose pods
// are scheduled on them only. Jobs wait most of the time, so tests on different pairs run side by
// side.
type pair struct {
	selector string // of its nodes, LABEL=VALUE
	nodes    [2]string
}

// pairLabel is a label of nodes. A namespace's pods get it as their node selector, by the API
// server's plugin PodNodeSelector.
const (
	pairLabel      = "elastic.dev/pair"
	selectorOfPods = "scheduler.alpha.kubernetes.io/node-selector"
)

var (
	// the pair of the tests that disturb no node
	shared pair
	// one for each namespace on it, which limits the load
	places = make(chan struct{}, 5)
	// the others: each belongs to one test at a time
	apart = make(chan pair, maxPairs-1)
	names []string // of all nodes, sorted
)

const maxPairs = 4

// findPairs labels the nodes. In a cluster of only two nodes all tests run on them, one after the
// other.
func findPairs() (parallel bool, err error) {
	out, err := exec.Command("kubectl", "get", "nodes", "-o", "jsonpath={.items[*].metadata.name}").Output()
	if err != nil {
		return false, fmt.Errorf("kubectl get nodes: %w", err)
	}
	names = strings.Fields(string(out))
	slices.Sort(names)
	if len(names) < 2 {
		return false, fmt.Errorf("the cluster has the nodes %q, expected two at least: make "+
			"cluster-down, then make e2e", names)
	}
	n := 0
	for two := range slices.Chunk(names[:min(len(names), 2*maxPairs)/2*2], 2) {
		p := pair{fmt.Sprintf("%s=%d", pairLabel, n), [2]string(two)}
		if err := command("kubectl", "label", "node", two[0], two[1], "--overwrite", p.selector); err != nil {
			return false, err
		}
		if n == 0 {
			shared = p
		} else {
			apart <- p
		}
		n++
	}
	if n == 1 {
		apart <- shared
	}
	return n > 1, nil
}

// newNamespace creates a namespace on the pair that tests share.
func newNamespace(t *testing.T) *namespace {
	t.Helper()
	takePlace(t)
	return createNamespace(t, shared)
}

// takePlace waits until the shared pair has room for a test, which gives it back by release, at the
// latest at its end.
func takePlace(t *testing.T) (release func()) {
	places <- struct{}{}
	release = sync.OnceFunc(func() { <-places })
	t.Cleanup(release)
	return release
}

// newNamespaceApart creates a namespace on a pair of nodes that belongs to the test until its end.
func newNamespaceApart(t *testing.T) *namespace {
	t.Helper()
	p := <-apart
	t.Cleanup(func() { apart <- p })
	return createNamespace(t, p)
}

// createNamespace creates a namespace whose pods are scheduled on the pair only.
func (p pair) createNamespace(name string) error {
	object := map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{
		"name": name, "annotations": map[string]string{selectorOfPods: p.selector},
	}}
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	cmd := exec.Command("kubectl", "create", "-f", "-")
	cmd.Stdin = bytes.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	return nil
}

// cordon keeps new pods from a node until uncordon, or the test's end.
func (ns *namespace) cordon(node string) {
	ns.t.Helper()
	ns.kubectl("cordon", node)
	ns.t.Cleanup(func() { command("kubectl", "uncordon", node) })
}
