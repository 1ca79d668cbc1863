package provider

import (
	"context"
	_ "embed"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

//go:embed tools.sh
var tools []byte

// Key is a secret in minikube's kubeconfigs and the password of registries. It must not be in plain
// text anywhere.
const Key = "UFJJVkFURS1LRVk="

// Cloud has the simulated resources of one stack: those of Google, Amazon and minikube, and the
// objects in their clusters.
type Cloud struct {
	Google, Amazon, Commands *Provider
	Kubernetes               *Kubernetes

	// AccountWithoutGPUs simulates a new account, to which Amazon gives no GPUs: a group of nodes
	// with GPUs fails.
	AccountWithoutGPUs bool
	// LogsReturn makes EKS's own role create the log group of a cluster again after it is deleted.
	LogsReturn bool
	// Home is the directory where the providers of Google and Amazon look for the credentials that
	// a login command writes; "" = they have credentials.
	Home string
	// Now is the clock of the clouds; by it EKS ends the support of versions.
	Now func() time.Time
	// GKE does not turn on subsetting for internal load balancers on its own, as before 2025
	NoL4Subsetting bool

	// directory of minikube's profiles, each of them a file
	profiles string
	// PATH of commands: a directory with tools.sh under the names of the commands
	path  string
	debug []string
}

// Start serves the providers until the test ends.
func Start(t testing.TB) *Cloud {
	t.Helper()
	c := &Cloud{profiles: t.TempDir(), path: t.TempDir(), Now: func() time.Time {
		return time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	}}
	for _, tool := range []string{"minikube", "kubectl", "elasticdl", "gcloud", "gke-gcloud-auth-plugin", "aws"} {
		if err := os.WriteFile(filepath.Join(c.path, tool), tools, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c.path += string(os.PathListSeparator) + os.Getenv("PATH")
	of := func(pkg, version string, types map[string]Type, functions map[string]func(Props) (Props, error)) *Provider {
		p := &Provider{base: base{pkg: pkg, version: version, mu: new(sync.Mutex)}, cloud: c, types: types,
			functions: functions, live: map[string]*Resource{}}
		c.debug = append(c.debug, fmt.Sprintf("%s:%d", pkg, serve(t, p)))
		return p
	}
	c.Google = of("gcp", "7.38.0", google, googleFunctions())
	c.Amazon = of("aws", "6.83.0", amazon, amazonFunctions(c))
	c.Commands = of("command", "1.2.1", commands, nil)
	c.Kubernetes = &Kubernetes{base: base{pkg: "kubernetes", version: "4.24.0", mu: new(sync.Mutex)}, cloud: c,
		clusters: map[string]*apiServer{}, admins: map[string]int{}, started: map[string]string{}}
	c.debug = append(c.debug, fmt.Sprintf("kubernetes:%d", serve(t, c.Kubernetes)))
	return c
}

// Debug returns the value of PULUMI_DEBUG_PROVIDERS.
func (c *Cloud) Debug() string { return strings.Join(c.debug, ",") }

// Env returns the environment of the Pulumi CLI, without the user's settings and network access.
// The Automation API sets home and backend.
func (c *Cloud) Env() map[string]string {
	return map[string]string{
		"PATH":                                        c.path,
		"PULUMI_DEBUG_PROVIDERS":                      c.Debug(),
		"PULUMI_CONFIG_PASSPHRASE":                    "of a test",
		"PULUMI_BACKEND_URL":                          "", // the project defines the backend
		"PULUMI_SKIP_UPDATE_CHECK":                    "true",
		"PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
	}
}

// Find returns the path of a program of the simulated clouds, as exec.LookPath does. It finds no
// other programs.
func (c *Cloud) Find(name string) (string, error) {
	if !strings.Contains(name, "/") {
		bin, _, _ := strings.Cut(c.path, string(os.PathListSeparator))
		name = filepath.Join(bin, name)
	}
	_, err := os.Stat(name)
	return name, err
}

// Uninstall removes a program of the simulated clouds.
func (c *Cloud) Uninstall(name string) error {
	path, err := c.Find(name)
	if err != nil {
		return err
	}
	return os.Remove(path)
}

// StartMinikube starts a profile, as a user would.
func (c *Cloud) StartMinikube(profile string) error {
	return os.WriteFile(filepath.Join(c.profiles, profile), []byte("by hand\n"), 0o600)
}

// Minikubes returns how each present profile was started, by profile.
func (c *Cloud) Minikubes() (map[string]string, error) {
	files, err := os.ReadDir(c.profiles)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(c.profiles, f.Name()))
		if err != nil {
			return nil, err
		}
		all[f.Name()] = strings.TrimSpace(string(text))
	}
	return all, nil
}

// DeleteMinikube deletes a profile, as a user would.
func (c *Cloud) DeleteMinikube(profile string) error {
	return os.Remove(filepath.Join(c.profiles, profile))
}

// Get returns an object of a simulated cluster: see infra.Live. Without a kubeconfig a context is a
// profile of minikube, or one that [ExistingKubeconfig] has.
func (c *Cloud) Get(_ context.Context, kubeconfig, of string, kind schema.GroupVersionKind,
	namespace, name string) (map[string]any, error) {
	server := serverOf(Props{"kubeconfig": kubeconfig, "context": of})
	if kubeconfig == "" && server == "" {
		server = minikubeServer + of
	}
	k := c.Kubernetes
	k.mu.Lock()
	defer k.mu.Unlock()
	there, err := k.reach(server)
	if err != nil {
		return nil, err
	}
	key := kind.GroupVersion().String() + "/" + kind.Kind + " " + name
	if namespace != "" {
		key = kind.GroupVersion().String() + "/" + kind.Kind + " " + namespace + "/" + name
	}
	if there.objects[key] == nil {
		return nil, nil
	}
	return jsonic(there.objects[key].Is).(Props), nil
}

// Calls returns the calls to all providers that changed a resource, in their order.
func (c *Cloud) Calls() []Call {
	var all []Call
	for _, b := range []*base{&c.Google.base, &c.Amazon.base, &c.Commands.base, &c.Kubernetes.base} {
		b.mu.Lock()
		all = append(all, b.calls...)
		b.mu.Unlock()
	}
	return all
}

// Left returns the resources that exist, by type and name. Of commands it returns those that have a
// delete command.
func (c *Cloud) Left() []string {
	var left []string
	for _, p := range []*Provider{c.Google, c.Amazon, c.Commands} {
		p.mu.Lock()
		for _, r := range p.live {
			if p != c.Commands || text(r.In, "delete") != "" {
				left = append(left, r.Type+" "+r.Name)
			}
		}
		p.mu.Unlock()
	}
	left = append(left, c.Kubernetes.left()...)
	slices.Sort(left)
	return left
}

// Lose deletes a resource and everything in it, as a user could in the console.
func (c *Cloud) Lose(kind, name string) error {
	p := c.of(kind)
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, r := range p.live {
		if r.Type == kind && r.Name == name {
			delete(p.live, key)
			p.calls = append(p.calls, Call{"delete", r.Type, r.Name, r.ID})
			switch kind {
			case "gcp:container/cluster:Cluster":
				c.Kubernetes.lose("https://" + googleServer)
				for key, pool := range p.live {
					if pool.In["cluster"] == r.ID {
						delete(p.live, key)
						p.calls = append(p.calls, Call{"delete", pool.Type, pool.Name, pool.ID})
					}
				}
			case "aws:eks/cluster:Cluster":
				c.Kubernetes.lose(amazonServer)
				for key, part := range p.live {
					if part.In["clusterName"] == r.ID {
						delete(p.live, key)
						p.calls = append(p.calls, Call{"delete", part.Type, part.Name, part.ID})
					}
				}
			}
			return nil
		}
	}
	return fmt.Errorf("%s %s is not there", kind, name)
}

// of returns the provider of a type.
func (c *Cloud) of(kind string) *Provider {
	switch kind[:strings.Index(kind, ":")] {
	case "gcp":
		return c.Google
	case "aws":
		return c.Amazon
	}
	return c.Commands
}

// all returns the resources of a type, in the order of their ids. The caller holds their provider's
// lock.
func (c *Cloud) all(kind string) iter.Seq[*Resource] {
	live := c.of(kind).live
	return func(yield func(*Resource) bool) {
		for _, key := range slices.Sorted(maps.Keys(live)) {
			if live[key].Type == kind && !yield(live[key]) {
				return
			}
		}
	}
}

func (c *Cloud) first(kind string) *Resource {
	for r := range c.all(kind) {
		return r
	}
	return nil
}

func (c *Cloud) count(kind string) (n int) {
	for range c.all(kind) {
		n++
	}
	return n
}

// id returns the ID of a new resource.
func (p *Provider) id(r *Resource) string {
	var id string
	switch p.pkg {
	case "gcp":
		id = googleID(r)
	case "aws":
		id = amazonID(r)
	}
	if id != "" {
		return id
	}
	p.serial++
	return fmt.Sprintf("%s-%s", r.Name, digest(fmt.Sprint(r.URN, p.serial)))
}
