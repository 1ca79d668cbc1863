// Package kubetest is what tests of both sides of a cluster share: a job, and how an API server refuses. It is for tests only.
package kubetest

import (
	"fmt"
	"net"
	"net/url"
	"syscall"

	api "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/elasticdl/elasticdl/trainer/job"
)

// Job returns a valid job for a cluster, of the name test.
func Job() *job.Job {
	j := job.Default()
	j.Name, j.ModelDef, j.TrainingData, j.Image = "test", "mnist.mnist_mlp.custom_model", "/data", "registry/elasticdl:test"
	return j
}

// Refused is the error of a request to a cluster where nobody listens.
var Refused = &url.Error{Op: "Get", URL: "https://cluster/api", Err: &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}}

// Fail has the next n requests of a kind end in err.
func Fail(set *fake.Clientset, verb, resource string, n int, err error) {
	set.PrependReactor(verb, resource, func(kubetesting.Action) (bool, runtime.Object, error) {
		n--
		return n >= 0, nil, err
	})
}

// Forbidden returns the error of a request that its user may not make.
func Forbidden(verb, resource string) error {
	return api.NewForbidden(schema.GroupResource{Resource: resource}, "", fmt.Errorf("%s cannot %s resource %q", `User "jane"`, verb, resource))
}
