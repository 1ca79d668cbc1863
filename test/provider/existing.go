package provider

import (
	"fmt"
	"strings"
)

// existingServer is the prefix of the address of a cluster that no stack has created, before the
// name of its context, which begins with contextPrefix.
const (
	existingServer = "https://existing."
	contextPrefix  = "kind-"
)

// ExistingKubeconfig returns a kubeconfig with contexts of clusters that no stack has created; the
// first is the current one.
func ExistingKubeconfig(names ...string) string {
	var clusters, contexts strings.Builder
	for _, name := range names {
		fmt.Fprintf(&clusters, "- {name: %[1]s, cluster: {server: %[2]s%[1]s}}\n", contextPrefix+name,
			existingServer)
		fmt.Fprintf(&contexts, "- {name: %[1]s, context: {cluster: %[1]s, user: me}}\n", contextPrefix+name)
	}
	return fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: %s\nclusters:\n%scontexts:\n%s"+
		"users:\n- {name: me, user: {token: %s}}\n", contextPrefix+names[0], &clusters, &contexts, Key)
}

// kubeSystem is the namespace whose UID is the identity of a cluster.
var kubeSystem = Props{"apiVersion": "v1", "kind": "Namespace", "metadata": Props{"name": "kube-system"}}

// find adds the cluster at an address, if it is not there yet: it has existed before.
func (k *Kubernetes) find(address string) error {
	if k.clusters[address] != nil {
		return nil
	}
	server := newAPIServer()
	if err := server.make(kubeSystem, "kube-apiserver"); err != nil {
		return err
	}
	server.objects[keyOf(kubeSystem)].Is["metadata"].(Props)["uid"] = "uid-" + digest(address)
	k.clusters[address] = server
	return nil
}
