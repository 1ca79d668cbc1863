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
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

//go:embed tools.sh
var tools []byte

// Key is in the kubeconfigs of minikube and the password of registries, and must be in clear nowhere.
const Key = "UFJJVkFURS1LRVk="

// Cloud is the world of one stack: what there is of Google's, Amazon's, minikube's, and within their clusters.
type Cloud struct {
	Google, Amazon, Commands *Provider
	Kubernetes               *Kubernetes

	// AccountWithoutGPUs: Amazon gives a new account no GPUs; a group of nodes with some fails.
	AccountWithoutGPUs bool
	// LogsReturn: when the log group of a cluster is deleted, EKS's own role writes it again, for nobody.
	LogsReturn     bool
	NoL4Subsetting bool // GKE does not turn on subsetting for internal load balancers by itself, as it did until 2025

	profiles string // directory of files, which are minikube's profiles
	path     string // for commands: where tools.sh is, under its names
	debug    []string
}

// Start serves the providers until the test ends.
func Start(t testing.TB) *Cloud {
	t.Helper()
	c := &Cloud{profiles: t.TempDir(), path: t.TempDir()}
	for _, tool := range []string{"minikube", "kubectl", "elasticdl", "gcloud", "gke-gcloud-auth-plugin", "aws"} {
		if err := os.WriteFile(filepath.Join(c.path, tool), tools, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c.path += string(os.PathListSeparator) + os.Getenv("PATH")
	of := func(pkg, version string, types map[string]Type, functions map[string]func(Props) (Props, error)) *Provider {
		p := &Provider{base: base{pkg: pkg, version: version}, cloud: c, types: types, functions: functions, live: map[string]*Resource{}}
		c.debug = append(c.debug, fmt.Sprintf("%s:%d", pkg, serve(t, p)))
		return p
	}
	c.Google = of("gcp", "7.38.0", google, nil)
	c.Amazon = of("aws", "6.83.0", amazon, amazonFunctions(c))
	c.Commands = of("command", "1.2.1", commands, nil)
	c.Kubernetes = &Kubernetes{base: base{pkg: "kubernetes", version: "4.24.0"}, cloud: c, clusters: map[string]*apiServer{}, admins: map[string]int{}, started: map[string]string{}}
	c.debug = append(c.debug, fmt.Sprintf("kubernetes:%d", serve(t, c.Kubernetes)))
	return c
}

// Debug returns the value of PULUMI_DEBUG_PROVIDERS.
func (c *Cloud) Debug() string { return strings.Join(c.debug, ",") }

// Env returns the environment of the Pulumi CLI: nothing is of this user or asked of the world, but for its home and backend,
// which Automation API sets.
func (c *Cloud) Env() map[string]string {
	return map[string]string{
		"PATH":                                        c.path,
		"PULUMI_DEBUG_PROVIDERS":                      c.Debug(),
		"PULUMI_CONFIG_PASSPHRASE":                    "of a test",
		"PULUMI_BACKEND_URL":                          "", // the project says which
		"PULUMI_SKIP_UPDATE_CHECK":                    "true",
		"PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
	}
}

// Find returns where a program of the simulated clouds is, as exec.LookPath does; others are not there.
func (c *Cloud) Find(name string) (string, error) {
	if !strings.Contains(name, "/") {
		bin, _, _ := strings.Cut(c.path, string(os.PathListSeparator))
		name = filepath.Join(bin, name)
	}
	_, err := os.Stat(name)
	return name, err
}

// Uninstall takes a program of the simulated clouds away.
func (c *Cloud) Uninstall(name string) error {
	path, err := c.Find(name)
	if err != nil {
		return err
	}
	return os.Remove(path)
}

// StartMinikube starts a profile, as its user did.
func (c *Cloud) StartMinikube(profile string) error {
	return os.WriteFile(filepath.Join(c.profiles, profile), []byte("by hand\n"), 0o600)
}

// Minikubes returns the profiles that there are, each with how it was started.
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

// DeleteMinikube deletes a profile, as its user did.
func (c *Cloud) DeleteMinikube(profile string) error {
	return os.Remove(filepath.Join(c.profiles, profile))
}

// Get reads an object of a simulated cluster: see infra.Live. Without a kubeconfig a context is a profile of minikube.
func (c *Cloud) Get(_ context.Context, kubeconfig, of string, kind schema.GroupVersionKind, namespace, name string) (map[string]any, error) {
	server := serverOf(Props{"kubeconfig": kubeconfig, "context": of})
	if kubeconfig == "" {
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

// Calls returns those that changed anything, of all providers, in their order.
func (c *Cloud) Calls() []Call {
	var all []Call
	for _, b := range []*base{&c.Google.base, &c.Amazon.base, &c.Commands.base, &c.Kubernetes.base} {
		b.mu.Lock()
		all = append(all, b.calls...)
		b.mu.Unlock()
	}
	return all
}

// Left returns what there is, by type and name. Of commands these are the ones that something undoes.
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

// Lose takes a resource away, as somebody did in the console, and what is within it.
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

// of is the provider of a type.
func (c *Cloud) of(kind string) *Provider {
	switch kind[:strings.Index(kind, ":")] {
	case "gcp":
		return c.Google
	case "aws":
		return c.Amazon
	}
	return c.Commands
}

// all are the resources of a type, in the order of their ids. Their provider is locked by who asks.
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

// id is that of a new resource.
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
