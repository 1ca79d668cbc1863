package cluster

import (
	"context"
	_ "embed"
	"fmt"
	"sync"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/elasticdl/elasticdl/tools/kubernetes/proc"
)

// stages is kwok's configuration.
//
//go:embed kwok.yaml
var stages []byte

// fakeLabel is the label, with the value fakeValue, of the nodes that kwok simulates. Karpenter's
// provider "kwok" gives it to the nodes that it creates.
const fakeLabel, fakeValue = "kwok.x-k8s.io/node", "fake"

func fakeName(i int) string { return fmt.Sprintf("fake-%d", i) }

func (s *state) kwok() proc.Command {
	return s.command("kwok", "kwok",
		"--config="+s.path("kwok.yaml"),
		"--kubeconfig="+s.path("admin.kubeconfig"),
		"--manage-nodes-with-label-selector="+fakeLabel+"="+fakeValue,
		fmt.Sprintf("--node-lease-duration-seconds=%d", s.graceSeconds()),
		"--node-ip=127.0.0.1",
		"--cidr=10.128.0.0/12",
	)
}

// fakeNode returns a node with its status, so that kwok only has to renew its lease.
func (s *state) fakeNode(i int) (*core.Node, error) {
	resources := core.ResourceList{core.ResourcePods: resource.MustParse("1000")}
	for name, value := range map[core.ResourceName]string{core.ResourceCPU: s.KwokCPU,
		core.ResourceMemory: s.KwokMemory, core.ResourceEphemeralStorage: "1Ti"} {
		quantity, err := resource.ParseQuantity(value)
		if err != nil {
			return nil, fmt.Errorf("parse %s %q of the fake nodes: %w", name, value, err)
		}
		resources[name] = quantity
	}
	now := meta.Now()
	return &core.Node{
		ObjectMeta: meta.ObjectMeta{Name: fakeName(i), Labels: map[string]string{
			fakeLabel: fakeValue, core.LabelHostname: fakeName(i), core.LabelOSStable: "linux",
			core.LabelArchStable: "amd64",
		}},
		Status: core.NodeStatus{
			Capacity:    resources,
			Allocatable: resources,
			Addresses: []core.NodeAddress{{Type: core.NodeInternalIP, Address: "127.0.0.1"},
				{Type: core.NodeHostName, Address: fakeName(i)}},
			Conditions: []core.NodeCondition{{
				Type: core.NodeReady, Status: core.ConditionTrue, Reason: "Fake",
				LastHeartbeatTime: now, LastTransitionTime: now,
			}},
		},
	}, nil
}

// createFakeNodes creates all fake nodes, 16 at a time.
func (s *state) createFakeNodes(ctx context.Context, client kubernetes.Interface) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	numbers := make(chan int)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for i := range numbers {
				node, err := s.fakeNode(i)
				if err == nil {
					_, err = client.CoreV1().Nodes().Create(ctx, node, meta.CreateOptions{})
				}
				if err != nil {
					cancel(fmt.Errorf("create node %s: %w", fakeName(i), err))
				}
			}
		})
	}
	for i := range s.Kwok {
		numbers <- i
	}
	close(numbers)
	wg.Wait()
	return context.Cause(ctx)
}
