package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// api is a client of the API server, with the rights of the admin.
type api struct {
	client kubernetes.Interface
}

func (s *state) connect() (*api, error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.path("admin.kubeconfig"))
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // no rate limit
	config.Timeout = 30 * time.Second
	// a proxy cannot reach this machine's own addresses
	config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	client, err := kubernetes.NewForConfig(config)
	return &api{client}, err
}

// storeServes returns nil if etcd answers with its version.
func (s *state) storeServes(ctx context.Context) error {
	return get(ctx, http.DefaultClient, s.Store+"/version")
}

// serverReady returns nil if the API server is ready.
func (s *state) serverReady(ctx context.Context) error {
	authority, err := os.ReadFile(s.path("pki/ca.crt"))
	if err != nil {
		return err
	}
	cert, err := tls.LoadX509KeyPair(s.path("pki/apiserver-kubelet.crt"), s.path("pki/apiserver-kubelet.key"))
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{cert}}}
	defer transport.CloseIdleConnections()
	return get(ctx, &http.Client{Transport: transport, Timeout: 5 * time.Second}, s.Server+"/readyz")
}

// registryServes returns nil if the registry serves this cluster's images.
func (s *state) registryServes(ctx context.Context) error {
	return servesImages(ctx, registryAddress, s.path("images"))
}

func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: %s", url, response.Status)
	}
	return nil
}

// serviceAccount returns nil if the default ServiceAccount exists, without which no pod can be
// created.
func (a *api) serviceAccount(ctx context.Context) error {
	_, err := a.client.CoreV1().ServiceAccounts(meta.NamespaceDefault).Get(ctx, "default", meta.GetOptions{})
	return err
}

// createDNSService makes the address of DNS, as pods know it, lead to the CoreDNS of this machine.
// It can be called again after an error.
func (a *api) createDNSService(ctx context.Context) error {
	ports := map[string]core.Protocol{"dns": core.ProtocolUDP, "dns-tcp": core.ProtocolTCP}
	service := &core.Service{ObjectMeta: meta.ObjectMeta{Name: "kube-dns"},
		Spec: core.ServiceSpec{ClusterIP: dnsService}}
	slice := &discovery.EndpointSlice{
		ObjectMeta: meta.ObjectMeta{Name: "kube-dns",
			Labels: map[string]string{discovery.LabelServiceName: "kube-dns"}},
		AddressType: discovery.AddressTypeIPv4,
		Endpoints:   []discovery.Endpoint{{Addresses: []string{nodeAddress}}},
	}
	for name, protocol := range ports {
		service.Spec.Ports = append(service.Spec.Ports,
			core.ServicePort{Name: name, Port: 53, TargetPort: intstr.FromInt32(53), Protocol: protocol})
		slice.Ports = append(slice.Ports, discovery.EndpointPort{Name: new(name), Port: new(int32(53)),
			Protocol: new(protocol)})
	}
	if _, err := a.client.CoreV1().Services(meta.NamespaceSystem).Create(ctx, service,
		meta.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create service kube-dns: %w", err)
	}
	if _, err := a.client.DiscoveryV1().EndpointSlices(meta.NamespaceSystem).Create(ctx, slice,
		meta.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create the endpoints of kube-dns: %w", err)
	}
	return nil
}

// nodeSays returns why the node does not report that it is ready, or nil.
func (a *api) nodeSays(ctx context.Context, name string) error {
	node, err := a.client.CoreV1().Nodes().Get(ctx, name, meta.GetOptions{})
	if err != nil {
		return err
	}
	return says(node)
}

// nodeReady returns why the node does not accept pods, or has not reported since a time, or nil.
func (a *api) nodeReady(ctx context.Context, name string, since time.Time) error {
	node, err := a.client.CoreV1().Nodes().Get(ctx, name, meta.GetOptions{})
	if err != nil {
		return err
	}
	if err := ready(node); err != nil || since.IsZero() {
		return err
	}
	lease, err := a.client.CoordinationV1().Leases(core.NamespaceNodeLease).Get(ctx, name, meta.GetOptions{})
	if err == nil && (lease.Spec.RenewTime == nil || lease.Spec.RenewTime.Time.Before(since)) {
		err = fmt.Errorf("%s has not renewed its lease", name)
	}
	return err
}

func ready(node *core.Node) error {
	if err := says(node); err != nil {
		return err
	}
	if len(node.Spec.Taints) > 0 {
		return fmt.Errorf("%s has the taint %s", node.Name, node.Spec.Taints[0].Key)
	}
	return nil
}

func says(node *core.Node) error {
	for _, condition := range node.Status.Conditions {
		if condition.Type != core.NodeReady {
			continue
		}
		if condition.Status != core.ConditionTrue {
			return fmt.Errorf("%s is not ready: %s", node.Name, condition.Message)
		}
		return nil
	}
	return fmt.Errorf("%s has not said yet whether it is ready", node.Name)
}

// setSlots sets the number of slots of a node. The kubelet keeps that number while it runs, and
// assigns slots to pods.
func (a *api) setSlots(ctx context.Context, name string, n int) error {
	node, err := a.client.CoreV1().Nodes().Get(ctx, name, meta.GetOptions{})
	if err != nil {
		return err
	}
	slots := node.Status.Allocatable[SlotResource]
	if slots.Value() == int64(n) {
		return nil
	}
	path := strings.ReplaceAll(SlotResource, "/", "~1")
	var patch []map[string]any
	for _, field := range []string{"capacity", "allocatable"} {
		patch = append(patch, map[string]any{"op": "add", "path": "/status/" + field + "/" + path,
			"value": fmt.Sprint(n)})
	}
	body, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	_, err = a.client.CoreV1().Nodes().Patch(ctx, name, types.JSONPatchType, body, meta.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("give %s its slots: %w", name, err)
	}
	return fmt.Errorf("%s has %v of %d slots", name, slots.String(), n) // the caller polls
}

// fakesReady returns why fewer than n fake nodes accept pods, or nil.
func (a *api) fakesReady(ctx context.Context, n int) error {
	nodes, err := a.client.CoreV1().Nodes().List(ctx, meta.ListOptions{LabelSelector: fakeLabel, ResourceVersion: "0"})
	if err != nil {
		return err
	}
	good := 0
	for i := range nodes.Items {
		if err = ready(&nodes.Items[i]); err == nil {
			good++
		}
	}
	if good < n {
		return fmt.Errorf("%d of %d fake nodes are ready: %w", good, n, err)
	}
	return nil
}
