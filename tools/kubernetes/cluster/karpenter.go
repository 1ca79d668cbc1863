package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/elasticdl/elasticdl/tools/kubernetes/proc"
)

// Karpenter is the name of the component that makes fake nodes for pods that fit on no node. It is
// optional: Up does not start it.
const Karpenter = "karpenter"

// provisioner has the ports of Karpenter. It has no setting for the address: it listens on all
// addresses of the machine.
type provisioner struct {
	Metrics string `json:"metrics"`
	Health  string `json:"health"`
}

// AddKarpenter starts Karpenter with its resource definitions, and returns when it serves. The
// simulated cloud has that number of spot instances, any number if it is negative. If Karpenter
// runs with another number, it is started again. The caller creates the NodePools.
func AddKarpenter(ctx context.Context, dir string, spot int) error {
	return locked(dir, func(s *state) error { return s.addKarpenter(ctx, spot) })
}

// RemoveKarpenter ends Karpenter. Its resource definitions stay, and nodes that it has made: delete
// its NodePools before.
func RemoveKarpenter(dir string) error {
	return locked(dir, func(s *state) error { return s.remove(Karpenter) })
}

func (s *state) addKarpenter(ctx context.Context, spot int) error {
	if s.Kwok == 0 {
		return errors.New("add karpenter: this cluster has no kwok, which simulates the nodes; expected " +
			"a cluster of `cluster up --kwok=N`")
	}
	definitions := filepath.Join(s.Bin, "karpenter.yaml")
	for _, file := range []string{definitions, filepath.Join(s.Bin, Karpenter)} {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("add karpenter: %w; `make karpenter` makes it", err)
		}
	}
	if s.Provisioner == nil {
		addresses, err := freeAddresses(2)
		if err != nil {
			return err
		}
		_, metrics, _ := net.SplitHostPort(addresses[0])
		_, health, _ := net.SplitHostPort(addresses[1])
		s.Provisioner = &provisioner{Metrics: metrics, Health: health}
	}
	command := s.karpenter(spot)
	if p, ok := s.process(Karpenter); ok && p.State() == proc.Running && slices.Equal(p.Args, command.Args) {
		return nil
	}
	types, err := json.MarshalIndent(instanceTypes(), "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.path("instances.json"), types, 0o644); err != nil {
		return err
	}
	if err := s.kubectl(ctx, nil, "apply", "--server-side", "--force-conflicts", "-f", definitions); err != nil {
		return err
	}
	if err := s.kubectl(ctx, nil, "wait", "--for=condition=Established", "--timeout=1m", "-f",
		definitions); err != nil {
		return err
	}
	if err := s.end(Karpenter); err != nil {
		return err
	}
	if err := s.run(command); err != nil {
		return err
	}
	return s.await(ctx, "Karpenter", []string{Karpenter, "apiserver"}, s.karpenterServes)
}

// karpenter returns the command of Karpenter, which acts as the admin.
func (s *state) karpenter(spot int) proc.Command {
	c := s.command(Karpenter, Karpenter,
		"--metrics-port="+s.Provisioner.Metrics,
		"--health-probe-port="+s.Provisioner.Health,
		"--disable-leader-election=true",
		"--instance-types-file-path="+s.path("instances.json"),
		fmt.Sprintf("--spot-instances=%d", spot),
	)
	c.Env = append(c.Env, "KUBECONFIG="+s.path("admin.kubeconfig"))
	return c
}

// karpenterServes returns nil if Karpenter is ready, which includes its resource definitions.
func (s *state) karpenterServes(ctx context.Context) error {
	return get(ctx, &http.Client{Timeout: time.Second}, "http://127.0.0.1:"+s.Provisioner.Health+"/readyz")
}

// instanceTypes returns the instance types of the simulated cloud, in the format of Karpenter's
// provider "kwok": three sizes, each as spot and on demand in two zones. A spot instance costs 0.4
// of the price, which is in dollars an hour.
func instanceTypes() (types []map[string]any) {
	for _, size := range []struct {
		name        string
		cpu, memory string
		price       float64
	}{
		{"m7i.large", "2", "8Gi", 0.1008},
		{"m7i.xlarge", "4", "16Gi", 0.2016},
		{"m7i.2xlarge", "8", "32Gi", 0.4032},
	} {
		var offerings []map[string]any
		for _, zone := range []string{"zone-a", "zone-b"} {
			for capacity, price := range map[string]float64{"spot": 0.4 * size.price, "on-demand": size.price} {
				offerings = append(offerings, map[string]any{"Price": price, "Available": true,
					"Requirements": []map[string]any{
						{"key": "karpenter.sh/capacity-type", "operator": "In", "values": []string{capacity}},
						{"key": "topology.kubernetes.io/zone", "operator": "In", "values": []string{zone}},
					}})
			}
		}
		types = append(types, map[string]any{
			"name": size.name, "architecture": "amd64", "operatingSystems": []string{"linux"},
			"resources": map[string]any{"cpu": size.cpu, "memory": size.memory, "pods": "58",
				"ephemeral-storage": "20Gi"},
			"offerings": offerings,
		})
	}
	return types
}
