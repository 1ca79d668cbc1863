package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/elasticdl/elasticdl/tools/kubernetes/proc"
)

// Kueue is the name of the component that admits pods and Jobs through queues. It is optional: Up
// does not start it.
const Kueue = "kueue"

// QueuedLabel is the label, with the value "true", of the namespaces whose pods and Jobs Kueue
// manages. If Kueue has ended, the API server refuses new pods in these namespaces.
const QueuedLabel = "elastic.dev/queued"

// queues has the addresses of Kueue, host:port.
type queues struct {
	Webhook string `json:"webhook"`
	Health  string `json:"health"`
}

// AddKueue starts Kueue with its resources and webhooks, and returns when it serves. If Kueue runs
// with another value of fairSharing, it is started again.
func AddKueue(ctx context.Context, dir string, fairSharing bool) error {
	return locked(dir, func(s *state) error { return s.addKueue(ctx, fairSharing) })
}

// RemoveKueue ends Kueue and deletes its webhooks, so that no object waits for it. Its resource
// definitions stay.
func RemoveKueue(ctx context.Context, dir string) error {
	return locked(dir, func(s *state) error {
		if _, ok := s.process(Kueue); !ok {
			return nil
		}
		if err := s.kubectl(ctx, nil, "delete", "--ignore-not-found",
			"mutatingwebhookconfiguration/"+mutatingWebhooks,
			"validatingwebhookconfiguration/"+validatingWebhooks); err != nil {
			return err
		}
		return s.remove(Kueue)
	})
}

func (s *state) addKueue(ctx context.Context, fairSharing bool) error {
	if os.Geteuid() != 0 {
		return errors.New("add kueue: this is not root: Kueue has a root directory of its own, which " +
			"needs root")
	}
	shipped, err := os.ReadFile(filepath.Join(s.Bin, "kueue.yaml"))
	if err != nil {
		return fmt.Errorf("add kueue: %w; `make cluster-tools` writes it", err)
	}
	if s.Queues == nil {
		addresses, err := freeAddresses(2)
		if err != nil {
			return err
		}
		s.Queues = &queues{Webhook: addresses[0], Health: addresses[1]}
	}
	authority, err := os.ReadFile(s.path("pki/ca.crt"))
	if err != nil {
		return err
	}
	parts, err := readKueue(shipped, "https://"+s.Queues.Webhook, authority)
	if err != nil {
		return err
	}
	settings := parts.configure(s.Queues, fairSharing)
	if s.Kwok > 0 { // as the controllers and the scheduler of a cluster with many nodes
		settings["clientConnection"] = map[string]any{"qps": 500, "burst": 1000}
	}
	config, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(s.kueueFile("config.yaml")); err == nil && bytes.Equal(old, config) {
		if p, ok := s.process(Kueue); ok && p.State() == proc.Running {
			return nil
		}
	}
	if err := s.writeKueue(config); err != nil {
		return err
	}
	return s.startKueue(ctx, parts)
}

// startKueue creates the objects of Kueue, starts its manager, and waits until the manager serves.
func (s *state) startKueue(ctx context.Context, parts *kueueParts) error {
	objects, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": parts.objects})
	if err != nil {
		return err
	}
	if err := s.kubectl(ctx, objects, "apply", "--server-side", "--force-conflicts", "-f", "-"); err != nil {
		return err
	}
	established := append([]string{"wait", "--for=condition=Established", "--timeout=1m"}, parts.definitions()...)
	if err := s.kubectl(ctx, nil, established...); err != nil {
		return err
	}
	if err := s.end(Kueue); err != nil {
		return err
	}
	if err := s.run(s.kueue()); err != nil {
		return err
	}
	return s.await(ctx, "Kueue", []string{Kueue, "apiserver"}, s.kueueServes)
}

// kueueServes returns nil if Kueue is ready, which includes its webhooks.
func (s *state) kueueServes(ctx context.Context) error {
	return get(ctx, &http.Client{Timeout: time.Second}, "http://"+s.Queues.Health+"/readyz")
}

// kueueCerts is the directory, in the root directory of Kueue, with the certificate of its
// webhooks. Kueue reads the certificate of its metrics there, even if it serves no metrics, and
// has no setting for that path: hence a root directory of its own.
const kueueCerts = "/etc/kueue/metrics/certs"

// kueue returns the command of Kueue's manager. All paths are below its root directory.
func (s *state) kueue() proc.Command {
	c := s.command(Kueue, "kueue", "--config=/config.yaml", "--kubeconfig=/kubeconfig", "--zap-log-level=2")
	c.Args[0], c.Root = "/kueue", s.path(Kueue)
	return c
}

func (s *state) kueueFile(elements ...string) string {
	return s.path(append([]string{Kueue}, elements...)...)
}

// writeKueue writes the root directory of Kueue: its program, settings, credentials and
// certificate.
func (s *state) writeKueue(config []byte) error {
	if err := os.MkdirAll(s.kueueFile(kueueCerts), 0o755); err != nil {
		return err
	}
	if err := s.end(Kueue); err != nil { // the program of a process cannot be overwritten
		return err
	}
	for to, from := range map[string]string{
		"kueue":                 filepath.Join(s.Bin, "kueue"),
		"kubeconfig":            s.path("pki/kueue.kubeconfig"),
		kueueCerts + "/tls.crt": s.path("pki/kueue-webhook.crt"),
		kueueCerts + "/tls.key": s.path("pki/kueue-webhook.key"),
	} {
		content, err := os.ReadFile(from)
		if err != nil {
			return fmt.Errorf("add kueue: %w; `make cluster-tools` builds its program", err)
		}
		if err := os.WriteFile(s.kueueFile(to), content, 0o755); err != nil {
			return err
		}
	}
	return os.WriteFile(s.kueueFile("config.yaml"), config, 0o644)
}

// kubectl runs kubectl as the cluster's admin.
func (s *state) kubectl(ctx context.Context, input []byte, args ...string) error {
	cmd := exec.CommandContext(ctx, s.path("bin/kubectl"), args...)
	cmd.Env = append(os.Environ(), append(noProxy(), "KUBECONFIG="+s.path("admin.kubeconfig"))...)
	cmd.Stdin = bytes.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w\n%s", args[0], err, out)
	}
	return nil
}

// configure returns the shipped settings of Kueue, changed for a process of this machine that
// serves the integrations with pods and Jobs only.
func (k *kueueParts) configure(at *queues, fairSharing bool) map[string]any {
	host, port, _ := net.SplitHostPort(at.Webhook)
	number, _ := strconv.Atoi(port)
	config := k.config
	config["webhook"] = map[string]any{"host": host, "port": number, "certDir": kueueCerts}
	config["health"] = map[string]any{"healthProbeBindAddress": at.Health}
	config["metrics"] = map[string]any{"bindAddress": "0"}
	config["leaderElection"] = map[string]any{"leaderElect": false}
	config["internalCertManagement"] = map[string]any{"enable": false}
	// It would listen on all addresses, with a certificate from a path of its own.
	config["featureGates"] = map[string]any{"VisibilityOnDemand": false}
	config["integrations"] = map[string]any{"frameworks": []string{"batch/job", "pod"}}
	config["managedJobsNamespaceSelector"] = queued
	if fairSharing {
		config["fairSharing"] = map[string]any{
			"preemptionStrategies": []string{"LessThanOrEqualToFinalShare", "LessThanInitialShare"}}
	}
	return config
}
