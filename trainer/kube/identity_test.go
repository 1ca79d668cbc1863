package kube

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	core "k8s.io/api/core/v1"
	api "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/elasticdl/elasticdl/trainer/manifest"
	"github.com/elasticdl/elasticdl/trainer/role"
)

func identityOf(secret string) *core.Secret {
	o := &core.Secret{ObjectMeta: meta.ObjectMeta{Name: "elasticdl-test-identity", Namespace: "default"}}
	if secret != "" {
		o.Data = map[string][]byte{manifest.KeySecret: []byte(secret)}
	}
	return o
}

func secretMaster(set *fake.Clientset, log *slog.Logger) *kubeMaster {
	return &kubeMaster{MasterConfig: MasterConfig{Job: "test", Namespace: "default", Client: set}, log: log}
}

func updates(set *fake.Clientset) (n int) {
	for _, a := range set.Actions() {
		if a.GetVerb() == "update" && a.GetResource().Resource == "secrets" {
			n++
		}
	}
	return n
}

// The first master fills the Secret, and every later one has what the first has written.
func TestSecretIsFilledOnce(t *testing.T) {
	set := fake.NewClientset(identityOf(""))
	var log bytes.Buffer
	m := secretMaster(set, slog.New(slog.NewTextHandler(&log, nil)))
	first, err := m.secret(t.Context())
	if err != nil || !role.IsSecret(first) {
		t.Fatalf("%q, %v", first, err)
	}
	if second, err := m.secret(t.Context()); err != nil || second != first {
		t.Errorf("%q, then %q, %v", first, second, err)
	}
	if n := updates(set); n != 1 {
		t.Errorf("written %d times", n)
	}
	if strings.Contains(log.String(), first) {
		t.Errorf("the log tells the secret: %s", log.String())
	}
}

// Of two masters that find it empty one wins; the other is refused by the resource version, and takes the winner's.
func TestSecretOfAnotherMasterWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, theirs := fake.NewClientset(identityOf("")), role.NewSecret()
		set.PrependReactor("update", "secrets", func(a kubetesting.Action) (bool, runtime.Object, error) {
			there, err := set.Tracker().Get(a.GetResource(), "default", "elasticdl-test-identity")
			if err != nil || len(there.(*core.Secret).Data) > 0 {
				return true, nil, api.NewConflict(schema.GroupResource{Resource: "secrets"}, "elasticdl-test-identity", err)
			}
			if err := set.Tracker().Update(a.GetResource(), identityOf(theirs), "default"); err != nil {
				t.Error(err)
			}
			return true, nil, api.NewConflict(schema.GroupResource{Resource: "secrets"}, "elasticdl-test-identity", nil)
		})
		if got, err := secretMaster(set, slog.New(slog.DiscardHandler)).secret(t.Context()); err != nil || got != theirs {
			t.Errorf("%q, %v, expected %q", got, err, theirs)
		}
	})
}

// kubectl apply makes one object after the other: the Secret may come later than the master.
func TestSecretMayComeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := fake.NewClientset()
		go func() {
			time.Sleep(20 * time.Second)
			if err := set.Tracker().Add(identityOf("")); err != nil {
				t.Error(err)
			}
		}()
		if got, err := secretMaster(set, slog.New(slog.DiscardHandler)).secret(t.Context()); err != nil || !role.IsSecret(got) {
			t.Errorf("%q, %v", got, err)
		}
	})
}

func TestSecretThatIsNone(t *testing.T) {
	set := fake.NewClientset(identityOf("hunter2"))
	_, err := secretMaster(set, slog.New(slog.DiscardHandler)).secret(t.Context())
	if err == nil || !strings.Contains(err.Error(), "elasticdl-test-identity") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v, expected an error that names the Secret and does not tell what is in it", err)
	}
	if n := updates(set); n != 0 {
		t.Error("what was there was written over")
	}
}
