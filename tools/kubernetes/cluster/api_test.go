package cluster

import (
	"archive/tar"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// A fake node accepts pods from the start, and has the requested resources.
func TestFakeNodes(t *testing.T) {
	s := newState(t, Config{Kwok: 40})
	a := &api{fake.NewClientset()}
	if err := a.fakesReady(t.Context(), s.Kwok); err == nil {
		t.Error("there are fake nodes")
	}
	if err := s.createFakeNodes(t.Context(), a.client); err != nil {
		t.Fatal(err)
	}
	if err := a.fakesReady(t.Context(), s.Kwok); err != nil {
		t.Error(err)
	}
	node, err := a.client.CoreV1().Nodes().Get(t.Context(), "fake-39", meta.GetOptions{})
	if err != nil || node.Status.Allocatable.Cpu().String() != "8" ||
		node.Status.Allocatable.Memory().String() != "1Gi" {
		t.Errorf("%v %v", node, err)
	}
	if err := s.createFakeNodes(t.Context(), a.client); err == nil ||
		!strings.HasPrefix(err.Error(), "create node fake-") {
		t.Errorf("created twice: %v", err)
	}
}

func TestNodeReady(t *testing.T) {
	node := func(status core.ConditionStatus, taints ...core.Taint) *core.Node {
		return &core.Node{Spec: core.NodeSpec{Taints: taints}, Status: core.NodeStatus{Conditions: []core.NodeCondition{
			{Type: core.NodeMemoryPressure, Status: core.ConditionFalse},
			{Type: core.NodeReady, Status: status, Message: "no network"},
		}}}
	}
	for want, n := range map[string]*core.Node{
		"":           node(core.ConditionTrue),
		"no network": node(core.ConditionFalse),
		"not-ready":  node(core.ConditionTrue, core.Taint{Key: "node.kubernetes.io/not-ready"}),
		"not said":   {},
	} {
		if err := ready(n); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	// A condition Ready that a killed kubelet has left is not enough.
	n := node(core.ConditionTrue)
	n.Name = "n"
	a := &api{fake.NewClientset(n)}
	if err := a.nodeReady(t.Context(), "n", time.Time{}); err != nil {
		t.Error(err)
	}
	if err := a.nodeReady(t.Context(), "n", time.Now()); err == nil {
		t.Error("a node without a lease is ready again")
	}
}

func TestSetSlots(t *testing.T) {
	a := &api{fake.NewClientset(&core.Node{
		ObjectMeta: meta.ObjectMeta{Name: "n"},
		Status: core.NodeStatus{Capacity: core.ResourceList{"pods": {}},
			Allocatable: core.ResourceList{"pods": {}}},
	})}
	for _, n := range []int{3, 0} {
		first := a.setSlots(t.Context(), "n", n)
		if again := a.setSlots(t.Context(), "n", n); first == nil || again != nil {
			t.Errorf("%d slots: %v, then %v; want an error that asks to look again, then none", n, first, again)
		}
	}
	if err := a.setSlots(t.Context(), "n", 0); err != nil {
		t.Error(err)
	}
}

func TestCreateDNSService(t *testing.T) {
	a := &api{fake.NewClientset()}
	// the first time, a part of it may have failed
	for range 2 {
		if err := a.createDNSService(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	service, err := a.client.CoreV1().Services("kube-system").Get(t.Context(), "kube-dns", meta.GetOptions{})
	if err != nil || service.Spec.ClusterIP != dnsService || len(service.Spec.Ports) != 2 ||
		len(service.Spec.Selector) > 0 {
		t.Errorf("service: %v %v", service, err)
	}
}

// Another registry is not taken for the cluster's.
func TestServesImages(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		handler http.Handler
		ours    bool
	}{
		"ours": {images(dir), true}, "another cluster's": {images(t.TempDir()), false},
		"another": {registry.New(), false},
	} {
		server := httptest.NewServer(c.handler)
		address := server.Listener.Addr().String()
		err := servesImages(t.Context(), address, dir)
		server.Close()
		if (err == nil) != c.ours || err != nil && !strings.Contains(err.Error(), address) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An image has the program, its links, and the same digest each time.
func TestImage(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("#!"), 0o755); err != nil {
		t.Fatal(err)
	}
	img, err := image([]string{"/bin/p"}, program, "/bin/p", []string{"ls"})
	if err != nil {
		t.Fatal(err)
	}
	again, err := image([]string{"/bin/p"}, program, "/bin/p", []string{"ls"})
	if err != nil {
		t.Fatal(err)
	}
	a, _ := img.Digest()
	if b, _ := again.Digest(); a != b || a.Hex == "" {
		t.Errorf("digests are %v and %v", a, b)
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, h.Name+h.Linkname)
	}
	if want := []string{"tmp/", "bin/", "bin/p", "bin/lsp"}; !slices.Equal(files, want) {
		t.Errorf("files are %q, want %q", files, want)
	}
}
