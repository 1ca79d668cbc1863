package incluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/elasticdl/elasticdl/test/kubetest"
	"github.com/elasticdl/elasticdl/test/prove"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/clientset"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/credential"
)

// issuer signs tokens as a cluster does.
type issuer struct {
	id  string
	key *ecdsa.PrivateKey
}

func newIssuer(id string) *issuer {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return &issuer{id, key}
}

// said has the claims of a token.
type said = map[string]any

// bound returns the claims of a pod's token, of the job "uid" in the namespace "default".
func bound(name string, uid types.UID) said {
	now := time.Now()
	return said{
		"iss": "https://kubernetes.default.svc", "sub": "system:serviceaccount:default:elasticdl-test",
		"aud": []string{"uid"},
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix(),
		"kubernetes.io": said{
			"namespace": "default", "serviceaccount": said{"name": "elasticdl-test", "uid": "sa"},
			"pod": said{"name": name, "uid": string(uid)},
		},
	}
}

// with returns a token with these claims and one of them changed, removed if value is nil.
func (i *issuer) with(says said, name string, value any) string {
	changed := said{}
	maps.Copy(changed, says)
	if changed[name] = value; value == nil {
		delete(changed, name)
	}
	return i.sign(changed)
}

func (i *issuer) sign(says said) string {
	return signed(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: i.key, KeyID: i.id}}, says)
}

func signed(key jose.SigningKey, says said) string {
	signer, err := jose.NewSigner(key, nil)
	if err != nil {
		panic(err)
	}
	token, err := jwt.Signed(signer).Claims(says).Serialize()
	if err != nil {
		panic(err)
	}
	return token
}

// jwks returns the published keys of a cluster with these issuers.
func jwks(issuers ...*issuer) []byte {
	var set jose.JSONWebKeySet
	for _, i := range issuers {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: i.key.Public(), KeyID: i.id, Algorithm: "ES256", Use: "sig"})
	}
	text, err := json.Marshal(set)
	if err != nil {
		panic(err)
	}
	return text
}

// crowd returns the pods that a master knows: worker-3 as "w", ps-0 as "p", and "e", which has
// ended.
func crowd() *Runtime {
	r := NewRuntime(RuntimeConfig{Client: kubetest.Set(fake.NewClientset()),
		Job: &job.Job{Name: "test", Namespace: "default"}})
	for uid, e := range map[types.UID]pod.Event{
		"w": {ID: pod.ID{Role: pod.Worker, Index: 3}, Incarnation: 2},
		"p": {ID: pod.ID{Role: pod.PS, Index: 0}, Incarnation: 7},
		"e": {ID: pod.ID{Role: pod.Worker, Index: 1}, Incarnation: 1, Phase: pod.Failed},
	} {
		r.known[uid] = &known{reported: e, deletion: e}
	}
	return r
}

// newTestCertifier returns a certifier of job "uid" that accepts tokens of these issuers.
func newTestCertifier(issuers ...*issuer) *certifier {
	return newCertifier(certifierConfig{
		Job: "uid", Namespace: "default", Pods: crowd(), Authority: prove.Authority("uid"), Once: true,
		Keys: &keys{read: func(context.Context) ([]byte, error) { return jwks(issuers...), nil }},
	})
}

// applicant returns a credential without a certificate.
func applicant(t testing.TB) *credential.Credential {
	t.Helper()
	c, err := credential.New(prove.Authority("uid").Root())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// ask requests a certificate and takes it into by.
func (c *certifier) ask(t testing.TB, by *credential.Credential, token string) error {
	t.Helper()
	request, err := by.Request()
	if err != nil {
		t.Fatal(err)
	}
	reply, err := c.Certify(t.Context(), &wire.CertifyRequest{Token: token, Request: request})
	if err != nil {
		return err
	}
	return by.Take(reply.Certificate)
}

// A pod's token gives its bearer a certificate for the pod as the master knows it, valid for a day
// or longer.
func TestCertify(t *testing.T) {
	cluster := newIssuer("k")
	for uid, want := range map[types.UID]identity.Name{
		"w": {Job: "uid", ID: pod.ID{Role: pod.Worker, Index: 3}, Incarnation: 2},
		"p": {Job: "uid", ID: pod.ID{Role: pod.PS, Index: 0}, Incarnation: 7},
	} {
		c := applicant(t)
		if err := newTestCertifier(cluster).ask(t, c,
			cluster.sign(bound("whatever-it-says", uid))); err != nil || c.Name() != want {
			t.Errorf("%s: %v is %v, expected %v", uid, err, c.Name(), want)
		}
		if since, expiry := c.Validity(); expiry.Sub(since) < 24*time.Hour {
			t.Errorf("valid from %v to %v", since, expiry)
		}
	}
}

// Every other token is refused, and neither the error nor the log contains it.
func TestNobodyElseIsCertified(t *testing.T) {
	cluster, stranger := newIssuer("k"), newIssuer("k")
	good := bound("w", "w")
	text, _ := json.Marshal(good)
	unsigned := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","kid":"k"}`)) + "." +
		base64.RawURLEncoding.EncodeToString(text) + "."
	public, err := json.Marshal(jose.JSONWebKey{Key: cluster.key.Public()})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	token := cluster.sign(good)
	head, payload, _ := strings.Cut(token, ".")
	payload, signature, _ := strings.Cut(payload, ".")
	other, _ := json.Marshal(bound("p", "p"))
	spaced := func(namespace string, p any) said {
		its := said{"namespace": namespace}
		if p != nil {
			its["pod"] = p
		}
		return its
	}
	for name, tt := range map[string]struct {
		token string
		code  codes.Code
		says  string
	}{
		"none":               {"", codes.Unauthenticated, "not a token"},
		"a word":             {"hunter2", codes.Unauthenticated, "not a token"},
		"too long":           {strings.Repeat("x", maxToken+1), codes.Unauthenticated, "bytes"},
		"nobody's signature": {unsigned, codes.Unauthenticated, "not a token"},
		"a forged one":       {stranger.sign(good), codes.Unauthenticated, "has not signed"},
		"a changed one": {head + "." + base64.RawURLEncoding.EncodeToString(other) + "." +
			signature, codes.Unauthenticated, "has not signed"},
		"a cut one": {head + "." + payload + ".", codes.Unauthenticated, ""},
		"a public key as a secret": {signed(jose.SigningKey{Algorithm: jose.HS256,
			Key: jose.JSONWebKey{Key: public, KeyID: "k"}}, good), codes.Unauthenticated, "not a token"},
		"an unknown key": {newIssuer("other").sign(good), codes.Unauthenticated, "does not have"},
		"expired": {cluster.with(good, "exp", now.Add(-2*time.Minute).Unix()),
			codes.Unauthenticated, "expired"},
		"for ever": {cluster.with(good, "exp", nil), codes.Unauthenticated, "expires"},
		"not yet valid": {cluster.with(good, "nbf", now.Add(2*time.Minute).Unix()),
			codes.Unavailable, "later"},
		"made tomorrow": {cluster.with(good, "iat", now.Add(24*time.Hour).Unix()),
			codes.Unavailable, "later"},
		"of another job": {cluster.with(good, "aud", []string{"uid-2"}), codes.Unauthenticated, "aud"},
		"for the API server": {cluster.with(good, "aud",
			[]string{"https://kubernetes.default.svc"}), codes.Unauthenticated, "aud"},
		"for anybody": {cluster.with(good, "aud", nil), codes.Unauthenticated, "aud"},
		"of another namespace": {cluster.with(good, "kubernetes.io",
			spaced("other", said{"name": "w", "uid": "w"})), codes.Unauthenticated, `"other"`},
		"of no pod": {cluster.with(good, "kubernetes.io", spaced("default", nil)),
			codes.Unauthenticated, "bound to a pod"},
		"of a ServiceAccount": {cluster.with(good, "kubernetes.io", nil), codes.Unauthenticated,
			"bound to a pod"},
		"of a pod of another shape": {cluster.with(good, "kubernetes.io", spaced("default", "w")),
			codes.Unauthenticated, ""},
		"of an unknown pod":     {cluster.sign(bound("w", "w2")), codes.Unavailable, "not known"},
		"of one that has ended": {cluster.sign(bound("e", "e")), codes.Unauthenticated, "has ended"},
	} {
		var log strings.Builder
		c, by := newTestCertifier(cluster), applicant(t)
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
		err := c.ask(t, by, tt.token)
		if status.Code(err) != tt.code || !strings.Contains(fmt.Sprint(err), tt.says) ||
			by.Name() != (identity.Name{}) {
			t.Errorf("%s: %v, expected %v: %s", name, err, tt.code, tt.says)
		}
		for _, told := range []string{fmt.Sprint(err), log.String()} {
			if len(tt.token) > 6 && strings.Contains(told, tt.token) {
				t.Errorf("%s: the token is reported: %s", name, told)
			}
		}
	}
}

// A request is refused if it does not prove the possession of its key.
func TestCertifyProvenKeysOnly(t *testing.T) {
	cluster := newIssuer("k")
	c := newTestCertifier(cluster)
	request, err := applicant(t).Request()
	if err != nil {
		t.Fatal(err)
	}
	broken := append([]byte(nil), request...)
	broken[len(broken)-1] ^= 1
	for name, request := range map[string][]byte{"none": nil, "another's": broken,
		"4097 bytes": make([]byte, maxRequest+1)} {
		_, err := c.Certify(t.Context(), &wire.CertifyRequest{Token: cluster.sign(bound("w", "w")), Request: request})
		// too long
		if status.Code(err) != codes.InvalidArgument ||
			strings.Contains(err.Error(), "4097 bytes") != (len(request) > maxRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A stolen token is refused once its pod has a certificate, because the thief has another key. This
// does not hold where the process of a pod may be restarted, because it has another key each time.
func TestATokenIsOfOneKey(t *testing.T) {
	cluster := newIssuer("k")
	c, first, thief := newTestCertifier(cluster), applicant(t), applicant(t)
	// the second time it renews its certificate
	for range 2 {
		if err := c.ask(t, first, cluster.sign(bound("w", "w"))); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.ask(t, thief, cluster.sign(bound("w", "w"))); status.Code(
		err) != codes.Unauthenticated || !strings.Contains(err.Error(), "another key") {
		t.Errorf("a second key: %v", err)
	}
	if err := c.ask(t, thief, cluster.sign(bound("p", "p"))); err != nil {
		t.Errorf("another pod: %v", err)
	}
	again := newTestCertifier(cluster)
	again.Once = false
	for range 2 {
		if err := again.ask(t, applicant(t), cluster.sign(bound("w", "w"))); err != nil {
			t.Errorf("a pod whose process may be started again: %v", err)
		}
	}
}

// The noted key of a pod is forgotten with the pod. A pod that has ended gets no certificate with
// any key.
func TestKeysGoWithTheirPods(t *testing.T) {
	r := crowd()
	key, other := fingerprint{1}, fingerprint{2}
	for range 2 {
		if !r.pin("w", key) {
			t.Error("the first key of a pod is refused")
		}
	}
	if r.pin("w", other) {
		t.Error("a pod is held to another key than its first")
	}
	if !r.pin("p", other) {
		t.Error("a pod is held to the key of another")
	}
	r.mu.Lock()
	r.forget("w", r.known["w"], pod.Event{ID: pod.ID{Role: pod.Worker, Index: 3}, Incarnation: 2, Phase: pod.Deleted})
	r.mu.Unlock()
	if r.pin("w", key) {
		t.Error("a deleted pod has a key")
	}
	if len(r.known) != 2 {
		t.Errorf("%d pods are known, want 2", len(r.known))
	}
}

// keySource has the keys of a cluster, which a test changes.
type keySource struct {
	keys
	text  []byte
	err   error
	reads int
}

func newKeySource(issuers ...*issuer) *keySource {
	k := &keySource{text: jwks(issuers...)}
	k.keys.read = func(context.Context) ([]byte, error) {
		k.reads++
		return k.text, k.err
	}
	return k
}

// expect checks whether a token is accepted, and how often the keys were read up to then.
func (k *keySource) expect(t *testing.T, what, token string, want string, reads int) {
	t.Helper()
	var says claims
	err := k.verify(t.Context(), token, &says)
	if got := map[bool]string{true: "good", false: "bad"}[err == nil]; got != want &&
		!(want == "not yet" && errors.Is(err, errNotYet)) || err != nil &&
		errors.Is(err, errNotYet) != (want == "not yet") || k.reads != reads {
		t.Errorf("%s: %v after %d reads, expected %s after %d", what, err, k.reads, want, reads)
	}
}

// A cluster changes its keys from time to time. Tokens with unknown keys neither cause the keys to
// be read all the time, nor block known keys.
func TestKeysAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, next, none := newIssuer("old"), newIssuer("next"), newIssuer("none")
		k := newKeySource(old)
		says := bound("w", "w")
		k.expect(t, "the first", old.sign(says), "good", 1)
		k.expect(t, "the next", old.sign(says), "good", 1)
		time.Sleep(keysPause)
		k.expect(t, "an unknown key", none.sign(says), "bad", 2)
		k.text = jwks(old, next)
		k.expect(t, "a new key, at once", next.sign(says), "not yet", 2)
		k.expect(t, "an old one meanwhile", old.sign(says), "good", 2)
		time.Sleep(keysPause)
		k.expect(t, "a new key", next.sign(says), "good", 3)
		k.text = jwks(next)
		k.expect(t, "a key of before", old.sign(says), "good", 3)
		time.Sleep(keysPause)
		k.expect(t, "an unknown key", none.sign(says), "bad", 4)
		time.Sleep(keysPause)
		k.expect(t, "a deleted key", old.sign(says), "bad", 5)
	})
}

// While the keys of a cluster cannot be read, tokens with known keys are accepted, and others are
// asked to try again.
func TestKeysThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, next := newIssuer("old"), newIssuer("next")
		k := newKeySource(old, next)
		k.err = errors.New("down")
		says := bound("w", "w")
		k.expect(t, "the first", old.sign(says), "not yet", 1)
		k.expect(t, "the second, at once", old.sign(says), "not yet", 1)
		k.err = nil
		time.Sleep(keysPause)
		k.expect(t, "later", old.sign(says), "good", 2)
		k.text, k.err = []byte("<html>"), nil
		time.Sleep(keysPause)
		k.expect(t, "nonsense", newIssuer("third").sign(says), "not yet", 3)
		k.expect(t, "what was known", next.sign(says), "good", 3)
	})
}

// Reading the keys continues when the caller that caused it has left. Tokens with known keys do not
// wait for it.
func TestKeysAreReadForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := newIssuer("old")
		hangs := make(chan struct{})
		reads := 0
		k := &keys{read: func(ctx context.Context) ([]byte, error) {
			if reads++; reads == 2 {
				<-hangs
			}
			return jwks(old), ctx.Err()
		}}
		says := bound("w", "w")
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		var into claims
		if err := k.verify(gone, old.sign(says), &into); err != nil {
			t.Errorf("a deleted pod: %v", err)
		}
		time.Sleep(keysPause)
		go func() { var into claims; k.verify(t.Context(), newIssuer("none").sign(says), &into) }()
		synctest.Wait()
		if err := k.verify(t.Context(), old.sign(says), &into); err != nil {
			t.Errorf("a known key while others are read: %v", err)
		}
		if err := k.verify(gone, newIssuer("none").sign(says), &into); !errors.Is(err, errNotYet) {
			t.Errorf("who does not wait: %v", err)
		}
		close(hangs)
		synctest.Wait()
		if reads != 2 {
			t.Errorf("read %d times", reads)
		}
	})
}

// If a pod may not read the keys from the API server, they are read from their issuer.
func TestPublishedKeys(t *testing.T) {
	cluster := newIssuer("k")
	var allowed, lies, plain atomic.Bool
	mux := http.NewServeMux()
	server := httptest.NewTLSServer(mux)
	defer server.Close()
	before := issuers.Transport
	issuers.Transport = server.Client().Transport
	defer func() { issuers.Transport = before }()
	mux.HandleFunc("/openid/v1/jwks", func(w http.ResponseWriter, _ *http.Request) {
		if !allowed.Load() {
			http.Error(w, "forbidden", http.StatusForbidden)
			return
		}
		w.Write(jwks(cluster))
	})
	mux.HandleFunc("/id/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		says := map[string]string{"issuer": server.URL + "/id", "jwks_uri": server.URL + "/keys"}
		if lies.Load() {
			says["issuer"] = "https://another"
		}
		if plain.Load() {
			says["jwks_uri"] = "http" + strings.TrimPrefix(says["jwks_uri"], "https")
		}
		json.NewEncoder(w).Encode(says)
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) { w.Write(jwks(cluster)) })
	client, err := clientset.New(&rest.Config{Host: server.URL,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(t.TempDir(), "token")
	verify := func() error {
		var says claims
		return clusterKeys(client, own).verify(t.Context(), cluster.sign(bound("w", "w")), &says)
	}
	if err := verify(); !errors.Is(err, errNotYet) ||
		!strings.Contains(err.Error(), "system:service-account-issuer-discovery") {
		t.Errorf("without a token: %v", err)
	}
	if err := os.WriteFile(own, []byte(newIssuer("own").with(bound("m", "m"), "iss", server.URL+"/id")+
		"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := verify(); err != nil {
		t.Errorf("published: %v", err)
	}
	for what, flag := range map[string]*atomic.Bool{"another": &lies, "https://": &plain} {
		flag.Store(true)
		if err := verify(); !errors.Is(err, errNotYet) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
		flag.Store(false)
	}
	plain.Store(true)
	lies.Store(true)
	allowed.Store(true)
	if err := verify(); err != nil {
		t.Errorf("of the API server: %v", err)
	}
}

// A redirect of an issuer to an address without TLS is refused.
func TestPublishedKeysStayOnHTTPS(t *testing.T) {
	open := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("{}")) }))
	defer open.Close()
	server := httptest.NewTLSServer(http.RedirectHandler(open.URL, http.StatusFound))
	defer server.Close()
	client := server.Client()
	client.CheckRedirect = issuers.CheckRedirect
	if text, err := get(t.Context(), client, server.URL); err == nil || !strings.Contains(err.Error(), "https://") {
		t.Errorf("%q, %v", text, err)
	}
}

// FuzzToken checks that only a token that the cluster has signed is accepted.
func FuzzToken(f *testing.F) {
	cluster := newIssuer("k")
	c := newTestCertifier(cluster)
	good := cluster.sign(bound("w", "w"))
	f.Add(good)
	f.Add(newIssuer("k").sign(bound("w", "w")))
	f.Add(good[:len(good)-1])
	f.Add(`{"payload":"e30","signatures":[{"protected":"e30","signature":""}]}`)
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Fuzz(func(t *testing.T, token string) {
		b, err := c.bearer(t.Context(), token)
		// white space around a token is accepted, as files of tokens have it
		if err == nil && (token != good || b.uid != "w") {
			if strings.TrimSpace(token) != good {
				t.Errorf("%q is of %v", token, b.name)
			}
		}
	})
}

// FuzzClaims checks that the bearer of any accepted token is a pod of this job that the master
// knows.
func FuzzClaims(f *testing.F) {
	cluster := newIssuer("k")
	c := newTestCertifier(cluster)
	text, _ := json.Marshal(bound("w", "w"))
	f.Add(text)
	f.Add([]byte(`{"aud":"uid","exp":1e300,"kubernetes.io":{"namespace":"default","pod":{"uid":"w"}}}`))
	f.Add([]byte(`{"aud":["uid"],"exp":null,"kubernetes.io":null}`))
	f.Add([]byte("[]"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256,
			Key: jose.JSONWebKey{Key: cluster.key, KeyID: "k"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		signature, err := signer.Sign(payload)
		if err != nil {
			t.Fatal(err)
		}
		token, err := signature.CompactSerialize()
		if err != nil {
			t.Fatal(err)
		}
		b, err := c.bearer(t.Context(), token)
		if err != nil {
			return
		}
		var says struct {
			Expiry *float64 `json:"exp"`
			Its    struct {
				Namespace string `json:"namespace"`
			} `json:"kubernetes.io"`
		}
		if _, _, ended, known := c.Pods.identify(b.uid); !known || ended || b.name.Job != "uid" ||
			json.Unmarshal(payload, &says) != nil || says.Expiry == nil || says.Its.Namespace != "default" {
			t.Errorf("%s makes somebody %v", payload, b.name)
		}
	})
}
