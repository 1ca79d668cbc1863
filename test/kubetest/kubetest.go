// Package kubetest has what the tests of the command line and of the master share for clusters: a
// job, and the errors of an API server. Only tests import it.
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

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// Job returns a valid job for a cluster, with the name test.
func Job() *job.Job {
	j := job.Default()
	j.Name, j.ModelDef, j.TrainingData, j.Image = "test", "mnist.mnist_mlp.custom_model", "/data",
		"registry/elasticdl:test"
	return j
}

// Refused is the error of a request to an API server that refuses connections.
var Refused = &url.Error{Op: "Get", URL: "https://cluster/api",
	Err: &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}}

// Fail makes the next n requests with that verb and resource fail with err.
func Fail(set *fake.Clientset, verb, resource string, n int, err error) {
	set.PrependReactor(verb, resource, func(kubetesting.Action) (bool, runtime.Object, error) {
		n--
		return n >= 0, nil, err
	})
}

// Forbidden returns the error of a request for which its user has no permission.
func Forbidden(verb, resource string) error {
	return api.NewForbidden(schema.GroupResource{Resource: resource}, "",
		fmt.Errorf("%s cannot %s resource %q", `User "jane"`, verb, resource))
}
