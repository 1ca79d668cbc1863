package live

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// Context is a context of a kubeconfig.
type Context struct {
	Name   string // of the context
	Server string // URL of the API server
	// hash of the server's URL and certificate authority
	Hash string
}

// ContextOf returns a context of the files that kubectl reads. The name "" is the current context.
// The error lists the contexts that there are.
func ContextOf(name string) (*Context, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	config, err := rules.Load()
	if err != nil {
		return nil, err
	}
	files := strings.Join(rules.GetLoadingPrecedence(), string(os.PathListSeparator))
	if name == "" {
		name = config.CurrentContext
	}
	there := strings.Join(slices.Sorted(maps.Keys(config.Contexts)), ", ")
	context := config.Contexts[name]
	switch {
	case len(config.Contexts) == 0:
		return nil, fmt.Errorf("%s has no context: `kubectl config get-contexts` lists them", files)
	case name == "":
		return nil, fmt.Errorf("%s has no current context, and there are %s", files, there)
	case context == nil:
		return nil, fmt.Errorf("%s: %s has no such context, and there are %s", name, files, there)
	}
	cluster := config.Clusters[context.Cluster]
	if cluster == nil || cluster.Server == "" {
		return nil, fmt.Errorf("%s: %s does not say where the cluster %q of this context is", name,
			files, context.Cluster)
	}
	authority, err := authorityOf(cluster)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	hash := sha256.Sum256([]byte(cluster.Server + " " + cluster.TLSServerName + " " + string(authority)))
	return &Context{Name: name, Server: cluster.Server, Hash: fmt.Sprintf("%x", hash[:8])}, nil
}

// authorityOf returns the certificate authority of a cluster as PEM; nil = those of the machine.
func authorityOf(cluster *api.Cluster) ([]byte, error) {
	if len(cluster.CertificateAuthorityData) > 0 || cluster.CertificateAuthority == "" {
		return cluster.CertificateAuthorityData, nil
	}
	return os.ReadFile(cluster.CertificateAuthority)
}

// configOf returns the client configuration of a context. The kubeconfig is its text, or "" for the
// files that kubectl reads.
func configOf(kubeconfig, of string) (*rest.Config, error) {
	overrides := &clientcmd.ConfigOverrides{CurrentContext: of}
	if kubeconfig == "" {
		return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
			clientcmd.NewDefaultClientConfigLoadingRules(), overrides).ClientConfig()
	}
	config, err := clientcmd.Load([]byte(kubeconfig))
	if err != nil {
		return nil, err
	}
	return clientcmd.NewNonInteractiveClientConfig(*config, of, overrides, nil).ClientConfig()
}
