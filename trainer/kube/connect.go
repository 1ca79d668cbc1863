package kube

import (
	"k8s.io/client-go/kubernetes"
	_ "k8s.io/client-go/kubernetes/fake" // held for the tests
	_ "k8s.io/client-go/tools/cache"
	_ "k8s.io/client-go/tools/clientcmd"
	_ "k8s.io/client-go/tools/remotecommand"
	_ "k8s.io/client-go/util/flowcontrol"
	_ "k8s.io/client-go/util/retry"
	_ "sigs.k8s.io/yaml"
)

// Client talks to one cluster, in one namespace.
type Client struct {
	set       kubernetes.Interface
	namespace string
}
