package incluster

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"

	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/credential"
)

// certifierConfig describes the pods that get certificates.
type certifierConfig struct {
	// UID: the audience of the tokens
	Job       string
	Namespace string
	Pods      roster
	Authority *credential.Authority
	// of the cluster
	Keys *keys
	// a pod's process is started once, so that it has one key
	Once bool
	Log  *slog.Logger
}

// roster knows the pods of a job by their objects. [Runtime] implements it.
type roster interface {
	// identify returns which start of which pod of the job a pod object is, whether it has ended,
	// and whether it is known.
	identify(types.UID) (id pod.ID, incarnation int, ended, known bool)
	// pin notes the key of a pod, until the pod is deleted, and reports whether it is the only one
	// that was noted. Of a pod that is not known there is none.
	pin(types.UID, fingerprint) bool
}

// fingerprint is the SHA-256 of a public key.
type fingerprint [sha256.Size]byte

// certifier gives certificates to pods of the job that prove their identity. The proof is a token
// of the pod's ServiceAccount, which its kubelet has: signed by the cluster, for this job only, and
// bound to the pod.
type certifier struct {
	wire.UnimplementedCertificationServer
	certifierConfig
}

func newCertifier(c certifierConfig) *certifier {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return &certifier{certifierConfig: c}
}

// The longest token and the longest request for a certificate that are looked at, in bytes.
const (
	maxToken   = 16 << 10
	maxRequest = 4 << 10
)

// Certify implements wire.CertificationServer.
func (c *certifier) Certify(ctx context.Context, r *wire.CertifyRequest) (*wire.CertifyReply, error) {
	switch {
	case len(r.Token) > maxToken:
		return nil, status.Errorf(codes.Unauthenticated, "a token of %d bytes, expected at most %d",
			len(r.Token), maxToken)
	case len(r.Request) > maxRequest:
		return nil, status.Errorf(codes.InvalidArgument,
			"a request for a certificate of %d bytes, expected at most %d", len(r.Request), maxRequest)
	}
	key, err := credential.ParseRequest(r.Request)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	it, err := c.bearer(ctx, r.Token)
	switch {
	case errors.Is(err, errNotYet):
		return nil, status.Error(codes.Unavailable, err.Error())
	case err != nil:
		c.Log.Warn("Refused a certificate", "error", err)
		return nil, status.Error(codes.Unauthenticated, err.Error())
	}
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if c.Once && !c.Pods.pin(it.uid, sha256.Sum256(der)) {
		c.Log.Warn("Refused a second certificate of a pod with another key: its token may have "+
			"been stolen", "pod", it.name.ID)
		return nil, status.Errorf(codes.Unauthenticated, "%v has a certificate of another key", it.name.ID)
	}
	signed, err := c.Authority.Sign(it.name, key, time.Now(), credential.Lifetime)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &wire.CertifyReply{Certificate: signed}, nil
}

// bearer is the pod to which a token is bound.
type bearer struct {
	uid  types.UID
	name identity.Name
}

// errNotYet is wrapped by errors of requests that may succeed soon.
var errNotYet = errors.New("not yet")

// claims are the claims of a ServiceAccount token.
type claims struct {
	jwt.Claims
	Kubernetes struct {
		Namespace string `json:"namespace"`
		Pod       struct {
			Name string    `json:"name"`
			UID  types.UID `json:"uid"`
		} `json:"pod"`
	} `json:"kubernetes.io"`
}

// bearer returns the pod that a token proves. Its ServiceAccount needs no look: the cluster binds a
// token to a pod of that account only.
func (c *certifier) bearer(ctx context.Context, token string) (bearer, error) {
	var says claims
	if err := c.Keys.verify(ctx, token, &says); err != nil {
		return bearer{}, err
	}
	err := says.Validate(jwt.Expected{AnyAudience: jwt.Audience{c.Job}, Time: time.Now()})
	switch {
	case errors.Is(err, jwt.ErrNotValidYet), errors.Is(err, jwt.ErrIssuedInTheFuture):
		// clocks differ
		return bearer{}, fmt.Errorf("%w: a token of later: %w", errNotYet, err)
	case err != nil:
		return bearer{}, fmt.Errorf("a token that is not good for this job now: %w", err)
	}
	its := says.Kubernetes
	if says.Expiry == nil || its.Namespace != c.Namespace || its.Pod.UID == "" {
		return bearer{}, fmt.Errorf("a token of namespace %q and pod %q, expected one that is bound "+
			"to a pod of namespace %q, and expires", its.Namespace, its.Pod.Name, c.Namespace)
	}
	id, incarnation, ended, known := c.Pods.identify(its.Pod.UID)
	switch {
	case !known:
		return bearer{}, fmt.Errorf("%w: pod %s (%s) is not known", errNotYet, its.Pod.Name, its.Pod.UID)
	case ended:
		return bearer{}, fmt.Errorf("a token of pod %s, which has ended", its.Pod.Name)
	}
	return bearer{its.Pod.UID, identity.Name{Job: c.Job, ID: id, Incarnation: incarnation}}, nil
}
