package incluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/elasticdl/elasticdl/trainer/runtime/kube/clientset"
)

// keys are the public keys that verify a cluster's ServiceAccount tokens. Clusters rotate them: a
// token with an unknown key makes them be read again, once for all waiting callers.
type keys struct {
	// a JSON Web Key Set
	read func(context.Context) ([]byte, error)

	mu  sync.Mutex
	set jose.JSONWebKeySet
	// when they were read, or could not be
	last time.Time
	// why not
	err error
	// closed when they have been read; nil: no read is in progress
	reading chan struct{}
}

// keysPause is the least time between two reads because of unknown keys: a stranger can name any
// key.
const keysPause = 5 * time.Second

// keysLimit is the time that a cluster may take to tell its keys.
const keysLimit = 10 * time.Second

// accountToken is the path of a pod's ServiceAccount token.
const accountToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// maxKeys is the largest set of keys, in bytes.
const maxKeys = 1 << 20

// algorithms are those that clusters sign with.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.ES256, jose.ES384,
	jose.ES512, jose.EdDSA}

// verify decodes the claims of a token, if the cluster has signed it. The error wraps errNotYet if
// the keys cannot be read.
func (k *keys) verify(ctx context.Context, token string, into any) error {
	t, err := jwt.ParseSigned(token, algorithms)
	if err != nil {
		// what was sent instead may be one of another kind
		return errors.New("not a token of a ServiceAccount")
	}
	if len(t.Headers) != 1 {
		return fmt.Errorf("a token with %d signatures, expected 1", len(t.Headers))
	}
	found, err := k.find(ctx, t.Headers[0].KeyID)
	if err != nil {
		return err
	}
	for _, key := range found {
		if t.Claims(key.Key, into) == nil {
			return nil
		}
	}
	return errors.New("a token that this cluster has not signed")
}

// find returns the keys with an ID. It reports that there are none only by a set that was read
// after the call.
func (k *keys) find(ctx context.Context, id string) ([]jose.JSONWebKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if found := k.set.Key(id); len(found) > 0 {
		return found, nil
	}
	switch {
	case k.reading != nil:
		reading := k.reading
		k.mu.Unlock()
		select {
		case <-reading:
		case <-ctx.Done():
		}
		k.mu.Lock()
	case !k.last.IsZero() && time.Since(k.last) < keysPause:
	default:
		k.again(ctx)
		if k.err == nil && len(k.set.Key(id)) == 0 {
			return nil, errors.New("a token of a key that this cluster does not have")
		}
	}
	found := k.set.Key(id)
	switch {
	case len(found) > 0:
		return found, nil
	case k.err != nil:
		return nil, fmt.Errorf("%w: the cluster's keys cannot be read: %w", errNotYet, k.err)
	}
	return nil, fmt.Errorf("%w: a token of a key that this cluster did not have a moment ago", errNotYet)
}

// again reads the keys, even if the caller that needs them stops waiting, as others may wait for
// them, too. The caller holds the mutex, which is released during the read.
func (k *keys) again(ctx context.Context) {
	k.reading = make(chan struct{})
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keysLimit)
	defer cancel()
	var set jose.JSONWebKeySet
	text, err := k.read(ctx)
	if err == nil {
		err = json.Unmarshal(text, &set)
	}
	k.mu.Lock()
	if k.last, k.err = time.Now(), err; err == nil {
		k.set = set
	}
	close(k.reading)
	k.reading = nil
}

// clusterKeys returns the keys of a cluster. Its API server has them, for every ServiceAccount;
// where that is not allowed, the issuer of the master's own token publishes them, as GKE and EKS
// do.
func clusterKeys(client clientset.Interface, ownToken string) *keys {
	return &keys{read: func(ctx context.Context) ([]byte, error) {
		text, err := client.Discovery().RESTClient().Get().AbsPath("/openid/v1/jwks").DoRaw(ctx)
		if err == nil {
			return text, nil
		}
		text, err2 := published(ctx, issuers, ownToken)
		if err2 != nil {
			return nil, fmt.Errorf("%w (the ClusterRole system:service-account-issuer-discovery "+
				"allows it); nor does their issuer publish them: %w", err, err2)
		}
		return text, nil
	}}
}

// issuers reads what issuers publish. It follows redirects only to https://, so that nothing can be
// changed on the way.
var issuers = &http.Client{CheckRedirect: func(r *http.Request, before []*http.Request) error {
	if r.URL.Scheme != "https" || len(before) > 3 {
		return fmt.Errorf("sent on to %s: expected https://, and few others before", r.URL.Redacted())
	}
	return nil
}}

// published reads the keys that the issuer of a token publishes: OpenID Connect Discovery 1.0,
// section 4.
func published(ctx context.Context, client *http.Client, tokenFile string) ([]byte, error) {
	token, err := os.ReadFile(tokenFile)
	if err != nil {
		return nil, err
	}
	t, err := jwt.ParseSigned(strings.TrimSpace(string(token)), algorithms)
	if err != nil {
		return nil, fmt.Errorf("%s: not a token of a ServiceAccount", tokenFile)
	}
	var own jwt.Claims
	if err := t.UnsafeClaimsWithoutVerification(&own); err != nil { // the kubelet has brought it
		return nil, fmt.Errorf("%s: %w", tokenFile, err)
	}
	text, err := get(ctx, client, strings.TrimSuffix(own.Issuer, "/")+"/.well-known/openid-configuration")
	if err != nil {
		return nil, err
	}
	var says struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(text, &says); err != nil {
		return nil, fmt.Errorf("read what issuer %s publishes: %w", own.Issuer, err)
	}
	if says.Issuer != own.Issuer {
		return nil, fmt.Errorf("issuer %s calls itself %s", own.Issuer, says.Issuer)
	}
	return get(ctx, client, says.Keys)
}

// get reads a small file over HTTPS.
func get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	if !strings.HasPrefix(url, "https://") {
		return nil, fmt.Errorf("%q: expected https://", url)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, response.Status)
	}
	return io.ReadAll(io.LimitReader(response.Body, maxKeys))
}
