package role

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/run/program"
	"github.com/elasticdl/elasticdl/trainer/wire/credential"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// Identify reads the identity of the job from the environment, which the master sets for each pod,
// and a worker's error file. card is the certificate and key that the launcher gives a process of
// this machine; a pod of a cluster has none, and requests a certificate from the master.
func (r *Role) Identify(getenv func(name string) string, card []byte) {
	r.Job, r.Authority, r.Token, r.Card = getenv(job.EnvUID), getenv(job.EnvAuthority), getenv(job.EnvToken), card
	r.ErrorFile = getenv(program.ErrorFileVariable)
}

// checkIdentity returns an error if a part of the role's identity is missing.
func (r Role) checkIdentity() error {
	const made = "servers and workers are started by the master of their job"
	switch {
	case r.Job == "":
		return fmt.Errorf("%s is not set: expected the UID of the job; %s", job.EnvUID, made)
	case r.Incarnation < 1:
		return fmt.Errorf("--launch=%d: expected 1 or more", r.Incarnation)
	case r.Card == nil && (r.Authority == "" || r.Token == ""):
		return fmt.Errorf("%s and %s are not set: expected the certificate of the job's authority, "+
			"and the file of a ServiceAccount's token; %s", job.EnvAuthority, job.EnvToken, made)
	}
	return nil
}

// prove returns the identity of this process with its certificate, which is renewed until stop is
// called. It waits for the master for as long as that may be away.
func (r Role) prove(ctx context.Context, role pod.Role, log *slog.Logger) (self *rpc.Self, stop func(), err error) {
	if err := r.checkIdentity(); err != nil {
		return nil, nil, err
	}
	h := identity.Header{Job: r.Job, Role: role, Index: r.Index, Incarnation: r.Incarnation}
	var c *credential.Credential
	stop = func() {}
	if r.Card != nil {
		c, err = given(r.Card)
	} else {
		c, stop, err = r.request(ctx, log)
	}
	if err != nil {
		return nil, nil, err
	}
	if c.Name() != h.Name() {
		stop()
		return nil, nil, fmt.Errorf("the certificate of this process is of %v, expected %v", c.Name(), h.Name())
	}
	return rpc.NewSelf(h, c), stop, nil
}

// given returns the credential of a card.
func given(text []byte) (*credential.Credential, error) {
	card, err := credential.ParseCard(text)
	if err != nil {
		return nil, err
	}
	return credential.Of(card)
}

// request gets a certificate for this pod from the master, and renews it until stop is called.
func (r Role) request(ctx context.Context, log *slog.Logger) (c *credential.Credential, stop func(), err error) {
	root, err := credential.ParseRoot(r.Authority)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", job.EnvAuthority, err)
	}
	if c, err = credential.New(root); err != nil {
		return nil, nil, err
	}
	certify := func(ctx context.Context) error {
		token, err := os.ReadFile(r.Token) // the kubelet renews it
		if err != nil {
			return fmt.Errorf("%s: %w", job.EnvToken, err)
		}
		return rpc.Certify(ctx, r.Master, nil, c, strings.TrimSpace(string(token)))
	}
	first, cancel := ctx, context.CancelFunc(func() {})
	if limit := r.abandoned(); limit > 0 {
		first, cancel = context.WithTimeoutCause(ctx, limit, membership.ErrAbandoned)
	}
	defer cancel()
	if err := insist(first, certify, log); ctx.Err() != nil {
		return nil, nil, ErrLeft // no other process knows this one yet
	} else if err != nil {
		return nil, nil, fmt.Errorf("get a certificate of the master at %s: %w", r.Master, err)
	}
	renewing, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		renew(renewing, c.Validity, certify, log)
	}()
	return c, func() {
		end()
		<-ended
	}, nil
}

// insist calls f until it succeeds, until the master refuses the request, or until ctx ends.
func insist(ctx context.Context, f func(context.Context) error, log *slog.Logger) error {
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		err := f(ctx)
		if err == nil || refused(err) {
			return err
		}
		log.Debug("No certificate yet", "error", err)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(pause/2 + rand.N(pause)):
		}
	}
}

const (
	// firstPause is the first pause between two requests for a certificate, each later one being
	// twice as long.
	firstPause = 50 * time.Millisecond
	// longPause is the longest such pause, without jitter.
	longPause = timing.Reconnect
	// renewPause is the pause between two attempts to renew a certificate that is still valid.
	renewPause = time.Minute
)

// refused reports whether repeating a request for a certificate cannot help: the master refused it,
// or there is no token.
func refused(err error) bool {
	code := status.Code(err)
	return code == codes.Unauthenticated || code == codes.InvalidArgument || errors.Is(err, os.ErrNotExist)
}

// renew renews a certificate after each third of its validity, until ctx ends. A failed attempt is
// repeated after renewPause.
func renew(ctx context.Context, validity func() (since, expiry time.Time),
	certify func(context.Context) error, log *slog.Logger) {
	for {
		since, expiry := validity()
		wait := time.Until(since.Add(expiry.Sub(since) / 3))
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(max(wait, 0)):
			}
			err := certify(ctx)
			if err == nil {
				break
			}
			if ctx.Err() == nil {
				log.Warn("The certificate of this pod is not renewed yet", "expires", expiry, "error", err)
			}
			wait = renewPause
		}
	}
}
