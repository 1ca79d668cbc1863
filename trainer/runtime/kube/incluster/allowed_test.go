package incluster

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	batch "k8s.io/api/batch/v1"
	api "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/elasticdl/elasticdl/test/kubetest"
)

func TestAllowed(t *testing.T) {
	for _, lacks := range []struct{ verb, resource, says string }{
		{"", "", ""},
		{"list", "pods", "list pods: "},
		{"get", "jobs", "read the Job: "},
		{"patch", "jobs", "patch the Job: "},
		{"watch", "pods", "watch pods: "},
		{"watch", "configmaps", "watch what the job is: "},
	} {
		set := fake.NewClientset(&batch.Job{ObjectMeta: meta.ObjectMeta{Name: "elasticdl-j-master", Namespace: "n"}})
		forbidden := api.NewForbidden(schema.GroupResource{Resource: lacks.resource}, "",
			errors.New("cannot "+lacks.verb))
		if lacks.verb != "" && lacks.verb != "watch" {
			set.PrependReactor(lacks.verb, lacks.resource, func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, forbidden
			})
		} else if lacks.verb != "" {
			set.PrependWatchReactor(lacks.resource, func(clienttesting.Action) (bool, watch.Interface, error) {
				return true, nil, forbidden
			})
		}
		m := &kubeMaster{MasterConfig: MasterConfig{Job: "j", Namespace: "n", Client: kubetest.Set(set)},
			log: slog.New(slog.DiscardHandler)}
		err := m.allowed(t.Context())
		if lacks.verb == "" && err != nil {
			t.Errorf("with every permission: %v", err)
		}
		if lacks.verb != "" && (!api.IsForbidden(err) || !strings.HasPrefix(err.Error(), lacks.says)) {
			t.Errorf("without %s %s: %v", lacks.verb, lacks.resource, err)
		}
	}
}
