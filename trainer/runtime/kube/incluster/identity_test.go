package incluster

import (
	"bytes"
	"encoding/base64"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
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

	"github.com/elasticdl/elasticdl/test/kubetest"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/clientset"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
	"github.com/elasticdl/elasticdl/trainer/wire/credential"
)

func identityOf(authority []byte) *core.Secret {
	o := &core.Secret{ObjectMeta: meta.ObjectMeta{Name: "elasticdl-test-identity", Namespace: "default"}}
	if authority != nil {
		o.Data = map[string][]byte{manifest.KeyAuthority: authority}
	}
	return o
}

func newAuthority(t *testing.T) (a *credential.Authority, text []byte) {
	t.Helper()
	a, err := credential.NewAuthority("uid", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if text, err = a.Encode(); err != nil {
		t.Fatal(err)
	}
	return a, text
}

func authorityMaster(set clientset.Interface, log *slog.Logger) *kubeMaster {
	return &kubeMaster{MasterConfig: MasterConfig{Job: "test", Namespace: "default", Client: set},
		env: map[string]string{job.EnvUID: "uid"}, log: log}
}

func updates(set *fake.Clientset) (n int) {
	for _, a := range set.Actions() {
		if a.GetVerb() == "update" && a.GetResource().Resource == "secrets" {
			n++
		}
	}
	return n
}

// The first master writes the authority into the Secret, and every later one uses it.
func TestAuthorityIsMadeOnce(t *testing.T) {
	set := fake.NewClientset(identityOf(nil))
	var log bytes.Buffer
	m := authorityMaster(kubetest.Set(set), slog.New(slog.NewTextHandler(&log, nil)))
	first, err := m.authority(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if second, err := m.authority(t.Context()); err != nil || second.Root().String() != first.Root().String() {
		t.Errorf("another authority, %v", err)
	}
	if n := updates(set); n != 1 {
		t.Errorf("written %d times", n)
	}
	o, err := set.CoreV1().Secrets("default").Get(t.Context(), "elasticdl-test-identity", meta.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(o.Data[manifest.KeyAuthority]), "\n") {
		if len(line) > 40 && strings.Contains(log.String(), line) {
			t.Errorf("the log tells the authority: %s", log.String())
		}
	}
}

// When several masters find the Secret empty, one writes it. The others are refused because of the
// resource version, and use its authority.
func TestAuthorityOfRacingMasters(t *testing.T) {
	s := newAPIServer(t)
	s.put(identityOf(nil))
	var wrote atomic.Int32
	s.after = func(method, path string) error {
		if method == "PUT" && strings.Contains(path, "/secrets/") && wrote.Add(1) == 1 {
			// it reads the Secret again, and finds its own authority
			return errors.New("the answer is lost")
		}
		return nil
	}
	var roots sync.Map
	var masters sync.WaitGroup
	for range 4 {
		masters.Go(func() {
			a, err := authorityMaster(s.client(), slog.New(slog.DiscardHandler)).authority(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			roots.Store(a.Root().String(), true)
		})
	}
	masters.Wait()
	n := 0
	roots.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d authorities", n)
	}
}

// A master whose update is refused because of the resource version uses the authority in the
// Secret.
func TestAuthorityOfAnotherMasterWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := fake.NewClientset(identityOf(nil))
		theirs, text := newAuthority(t)
		set.PrependReactor("update", "secrets", func(a kubetesting.Action) (bool, runtime.Object, error) {
			there, err := set.Tracker().Get(a.GetResource(), "default", "elasticdl-test-identity")
			if err != nil || len(there.(*core.Secret).Data) > 0 {
				return true, nil, api.NewConflict(schema.GroupResource{Resource: "secrets"},
					"elasticdl-test-identity", err)
			}
			if err := set.Tracker().Update(a.GetResource(), identityOf(text), "default"); err != nil {
				t.Error(err)
			}
			return true, nil, api.NewConflict(schema.GroupResource{Resource: "secrets"}, "elasticdl-test-identity", nil)
		})
		if got, err := authorityMaster(kubetest.Set(set), slog.New(slog.DiscardHandler)).authority(
			t.Context()); err != nil || got.Root().String() != theirs.Root().String() {
			t.Errorf("%v, or another's authority", err)
		}
	})
}

// kubectl apply creates one object after another, so the Secret may be created after the master has
// begun.
func TestAuthorityMayComeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := fake.NewClientset()
		go func() {
			time.Sleep(20 * time.Second)
			if err := set.Tracker().Add(identityOf(nil)); err != nil {
				t.Error(err)
			}
		}()
		m := authorityMaster(kubetest.Set(set), slog.New(slog.DiscardHandler))
		if _, err := m.authority(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A Secret without a valid authority gives an error that names the Secret and does not contain its
// data. The Secret is not changed.
func TestAuthorityThatIsNone(t *testing.T) {
	_, one := newAuthority(t)
	_, other := newAuthority(t)
	const end = "-----END PRIVATE KEY-----\n"
	key, _, _ := strings.Cut(string(one), end)
	_, certificate, _ := strings.Cut(string(other), end)
	for _, text := range []string{"hunter2", string(one[:len(one)/2]), key + end, key + end + certificate} {
		set := fake.NewClientset(identityOf([]byte(text)))
		_, err := authorityMaster(kubetest.Set(set), slog.New(slog.DiscardHandler)).authority(t.Context())
		if err == nil || !strings.Contains(err.Error(), "elasticdl-test-identity") ||
			strings.Contains(err.Error(), "hunter2") ||
			strings.Contains(err.Error(), base64.StdEncoding.EncodeToString([]byte(text))) {
			t.Errorf("%q: %v", text, err)
		}
		if n := updates(set); n != 0 {
			t.Error("what was there was written over")
		}
	}
}
