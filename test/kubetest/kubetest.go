// Package kubetest has what the tests of the command line and of the master share for clusters: a
// job, and the errors of an API server. Only tests import it.
package kubetest

import (
	"fmt"
	"net"
	"net/url"
	"syscall"

	api "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"
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

// Serve makes set treat new objects as an API server does, and a fake cluster does not: metadata
// that is not valid is refused (names, labels, annotations, owners), an object gets a UID and, if
// it asks for one, a name, and a dry run stores nothing.
func Serve(set *fake.Clientset) {
	set.PrependReactor("create", "*", func(a kubetesting.Action) (bool, runtime.Object, error) {
		create, ok := a.(kubetesting.CreateActionImpl)
		if !ok || create.Subresource != "" {
			return false, nil, nil
		}
		object, ok := create.Object.(meta.Object)
		if !ok {
			return false, nil, nil
		}
		if object.GetName() == "" && object.GetGenerateName() != "" {
			object.SetName(object.GetGenerateName() + rand.String(5))
		}
		if wrong := validation.ValidateObjectMetaAccessor(object, object.GetNamespace() != "",
			validation.NameIsDNSSubdomain, field.NewPath("metadata")); wrong != nil {
			return true, nil, api.NewInvalid(schema.GroupKind{Kind: a.GetResource().Resource}, object.GetName(), wrong)
		}
		if object.GetUID() == "" {
			object.SetUID(uuid.NewUUID())
		}
		if len(create.CreateOptions.DryRun) > 0 {
			return true, create.Object, nil
		}
		return true, create.Object, set.Tracker().Create(a.GetResource(), create.Object, a.GetNamespace())
	})
}

// Forbidden returns the error of a request for which its user has no permission.
func Forbidden(verb, resource string) error {
	return api.NewForbidden(schema.GroupResource{Resource: resource}, "",
		fmt.Errorf("%s cannot %s resource %q", `User "jane"`, verb, resource))
}
