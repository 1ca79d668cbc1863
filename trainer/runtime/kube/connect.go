package kube

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/dynamic"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // of clusters with OpenID
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/elasticdl/elasticdl/trainer/runtime/kube/clientset"
)

// ErrNoCluster is wrapped by errors of [Connect] if no cluster is configured.
var ErrNoCluster = errors.New("no cluster is known here")

// Rate limit of one command's requests: per second, and burst.
const (
	clientRate  = 50
	clientBurst = 100
)

// Place names a cluster and a namespace. The zero value stands for what kubectl uses.
type Place struct {
	// file; "" = $KUBECONFIG, else ~/.kube/config, else the cluster that this process runs in
	Kubeconfig string
	// of the kubeconfig; "" = its current one
	Context string
	// "" = the context's
	Namespace string
	// for warnings, and for what is waited for; nil: none
	Notes io.Writer
	// Patience is the time that a request is repeated that the cluster cannot answer. 0:
	// [DefaultPatience] for a cluster that has answered before, otherwise a second. Below 0: each
	// is made once.
	Patience time.Duration
}

// Client talks to one cluster, in one namespace.
type Client struct {
	set clientset.Interface
	// for objects of Kueue
	objects dynamic.Interface
	// for streams
	config    *rest.Config
	namespace string
	// address
	server string
	// "", or which context of which kubeconfig names it, in brackets
	context string
	// the flags that select it
	place string
	notes io.Writer
	// guards writing notes
	noting sync.Mutex
	// the cluster has answered once
	reached atomic.Bool
	// see [Place.Patience]
	patience time.Duration
	// when it was last noted that it does not answer, in nanoseconds; 0: it answers
	noted atomic.Int64
	// why it has never answered; nil: it has, or was not asked
	lost atomic.Pointer[error]
}

// Connect reads where the cluster is; it does not talk to it yet. It is
// [ErrNoCluster] if neither a kubeconfig nor the surroundings tell.
func Connect(at Place) (*Client, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = at.Kubeconfig
	rules.WarnIfAllMissing = false
	overrides := &clientcmd.ConfigOverrides{CurrentContext: at.Context}
	overrides.Context.Namespace = at.Namespace
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	files := strings.Join(rules.GetLoadingPrecedence(), ", ")
	raw, err := loader.RawConfig()
	if err == nil && at.Context != "" && raw.Contexts[at.Context] == nil {
		return nil, fmt.Errorf("--context=%s: there is no such context in %s", at.Context, files)
	}
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, at.explain(err, files)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, at.explain(err, files)
	}
	config.QPS, config.Burst = clientRate, clientBurst
	config.Dial = (&net.Dialer{Timeout: firstAnswer, KeepAlive: 30 * time.Second}).DialContext
	config.UserAgent = "elasticdl"
	config.WarningHandler = rest.NoWarnings{}
	if at.Notes != nil {
		config.WarningHandler = rest.NewWarningWriter(at.Notes, rest.WarningWriterOptions{Deduplicate: true})
	}
	set, err := clientset.New(config)
	if err != nil {
		return nil, at.explain(err, config.Host)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, at.explain(err, config.Host)
	}
	return &Client{set: set, objects: objects, config: config, namespace: namespace, server: config.Host,
		context: contextOf(raw, at.Context), place: at.flags(), notes: at.Notes, patience: at.Patience}, nil
}

// contextOf returns which context of which file names a cluster; "" if none does: it is the one
// that this process runs in.
func contextOf(raw clientcmdapi.Config, name string) string {
	name = cmp.Or(name, raw.CurrentContext)
	c := raw.Contexts[name]
	if c == nil {
		return ""
	}
	return fmt.Sprintf(" (context %s of %s)", name, c.LocationOfOrigin)
}

// clusterName returns the cluster's name for errors: its address, and what selected it.
func (c *Client) clusterName() string { return c.server + c.context }

// flags returns the flags that select the same place.
func (at Place) flags() string {
	var b strings.Builder
	for _, f := range [][2]string{{"namespace", at.Namespace}, {"context", at.Context}, {"kubeconfig", at.Kubeconfig}} {
		if f[1] != "" {
			fmt.Fprintf(&b, " --%s=%s", f[0], f[1])
		}
	}
	return b.String()
}

// explain returns an error that says where the cluster was looked for, and what is wrong there.
func (at Place) explain(err error, where string) error {
	switch {
	case at.Kubeconfig != "" && errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("--kubeconfig=%s: no such file", at.Kubeconfig)
	case clientcmd.IsEmptyConfig(err) && at.Kubeconfig == "":
		return fmt.Errorf("%w: there is no kubeconfig at %s", ErrNoCluster, where)
	}
	return fmt.Errorf("read %s: %w", where, err)
}

// Namespace returns the namespace in which the client looks for jobs.
func (c *Client) Namespace() string { return c.namespace }

// Flags returns the flags with which kubectl and elasticdl select the same place: "", or for
// example " --namespace=other".
func (c *Client) Flags() string { return c.place }

// Server returns the address of the cluster.
func (c *Client) Server() string { return c.server }
