package role

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/test/prove"
	"github.com/elasticdl/elasticdl/test/speak"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/credential"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// card holds the credentials of a process from its launcher.
func card(t *testing.T, n identity.Name) []byte {
	t.Helper()
	c, err := prove.Authority(n.Job).Issue(n, time.Now(), credential.Lasting)
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Nobody begins without what proves who he is, or with what proves somebody else.
func TestNoRoleBeginsWithoutAnIdentity(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // it would look for its master
	defer cancel()
	root := prove.Authority("uid").Root().String()
	name := func(role pod.Role, incarnation int) identity.Name {
		return identity.Name{Job: "uid", ID: pod.ID{Role: role}, Incarnation: incarnation}
	}
	mine := map[pod.Role][]byte{pod.PS: card(t, name(pod.PS, 1)), pod.Worker: card(t, name(pod.Worker, 1))}
	swapped := map[pod.Role][]byte{pod.PS: mine[pod.Worker], pod.Worker: mine[pod.PS]}
	former := map[pod.Role][]byte{pod.PS: card(t, name(pod.PS, 2)), pod.Worker: card(t, name(pod.Worker, 2))}
	broken := map[pod.Role][]byte{pod.PS: mine[pod.PS][:200], pod.Worker: []byte("hunter2")}
	for what, tt := range map[string]struct {
		job         string
		cards       map[pod.Role][]byte
		env         map[string]string
		incarnation int
		want        string
	}{
		"no job":       {"", mine, nil, 1, job.EnvUID},
		"launched not": {"uid", mine, nil, 0, "--launch=0"},
		"no card":      {"uid", nil, nil, 1, job.EnvAuthority},
		"no token":     {"uid", nil, map[string]string{job.EnvAuthority: root}, 1, job.EnvToken},
		"no authority": {"uid", nil, map[string]string{job.EnvToken: "/token"}, 1, job.EnvAuthority},
		"a broken authority": {"uid", nil, map[string]string{job.EnvAuthority: "hunter2",
			job.EnvToken: "/token"}, 1, job.EnvAuthority},
		"a token that is none": {"uid", nil, map[string]string{job.EnvAuthority: root,
			job.EnvToken: filepath.Join(t.TempDir(), "token")}, 1, job.EnvToken},
		"a broken card":       {"uid", broken, nil, 1, "certificate of this process"},
		"the card of another": {"uid", swapped, nil, 1, "expected"},
		"of another start":    {"uid", former, nil, 1, "expected"},
		"of another job's":    {"uid-2", mine, nil, 1, "expected"},
	} {
		for role, main := range map[pod.Role]func(context.Context, Role) error{pod.PS: RunPS, pod.Worker: RunWorker} {
			r := Role{Master: "127.0.0.1:1", Incarnation: tt.incarnation, Log: io.Discard}
			env := map[string]string{job.EnvUID: tt.job, job.EnvAuthority: tt.env[job.EnvAuthority],
				job.EnvToken: tt.env[job.EnvToken]}
			r.Identify(func(name string) string { return env[name] }, tt.cards[role])
			if err := main(ctx, r); err == nil || !strings.Contains(err.Error(), tt.want) ||
				strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%v with %s: %v, expected an error that names %s", role, what, err, tt.want)
			}
		}
	}
}

// certification answers like a master, as the test sets it.
type certification struct {
	wire.UnimplementedCertificationServer
	mu     sync.Mutex
	tokens []string
	answer func(n int) error
	name   identity.Name
}

func (c *certification) Certify(_ context.Context, r *wire.CertifyRequest) (*wire.CertifyReply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tokens = append(c.tokens, r.Token)
	if err := c.answer(len(c.tokens)); err != nil {
		return nil, err
	}
	key, err := credential.ParseRequest(r.Request)
	if err != nil {
		return nil, err
	}
	der, err := prove.Authority("uid").Sign(c.name, key, time.Now(), credential.Lifetime)
	return &wire.CertifyReply{Certificate: der}, err
}

// listen is a master that gives certificates as answer says, and a role that asks it.
func (c *certification) listen(t *testing.T) Role {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := rpc.NewServer(speak.Self(identity.Header{Job: "uid", Role: pod.Master, Incarnation: 1}), true)
	wire.RegisterCertificationServer(server, c)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("a token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return Role{Job: "uid", Index: 3, Incarnation: 2, Authority: prove.Authority("uid").Root().String(),
		Token: token, Master: listener.Addr().String(), Log: io.Discard}
}

var third = identity.Name{Job: "uid", ID: pod.ID{Role: pod.Worker, Index: 3}, Incarnation: 2}

// A master that does not know the pod yet is asked again, and then accepts the pod's identity.
func TestProveByAToken(t *testing.T) {
	c := &certification{name: third, answer: func(n int) error {
		if n < 3 {
			return status.Error(codes.Unavailable, "not known")
		}
		return nil
	}}
	self, stop, err := c.listen(t).prove(t.Context(), pod.Worker, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if self.Credential().Name() != third || len(c.tokens) != 3 || c.tokens[2] != "a token" {
		t.Errorf("%v after tokens %q", self.Credential().Name(), c.tokens)
	}
}

// A final refusal of the master ends the role, with the master's reason; what it says is another
// pod's certificate, too.
func TestProveRefused(t *testing.T) {
	refuses := &certification{answer: func(int) error {
		return status.Error(codes.Unauthenticated, "a token of pod x, which has ended")
	}}
	if _, _, err := refuses.listen(t).prove(t.Context(), pod.Worker,
		slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "which has ended") ||
		!strings.Contains(err.Error(), "certificate of the master at") || len(refuses.tokens) != 1 {
		t.Errorf("%v, after %d requests", err, len(refuses.tokens))
	}
	errs := &certification{name: identity.Name{Job: "uid", ID: pod.ID{Role: pod.PS, Index: 3},
		Incarnation: 2}, answer: func(int) error {
		return nil
	}}
	if _, _, err := errs.listen(t).prove(t.Context(), pod.Worker,
		slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "expected") {
		t.Errorf("the certificate of another: %v", err)
	}
}

// A false master, of another authority, gets no token: no token.
func TestProveToTheMasterOnly(t *testing.T) {
	c := &certification{name: third, answer: func(int) error { return nil }}
	r := c.listen(t)
	r.Authority = prove.Authority("another").Root().String()
	ctx, cancel := context.WithCancel(t.Context())
	log := slog.New(stops{slog.DiscardHandler, cancel})
	if _, _, err := r.prove(ctx, pod.Worker, log); !errors.Is(err, ErrLeft) || len(c.tokens) != 0 {
		t.Errorf("%v, and %d tokens were reported", err, len(c.tokens))
	}
}

// stops is a log that calls a function at its first line.
type stops struct {
	slog.Handler
	stop func()
}

func (s stops) Enabled(context.Context, slog.Level) bool  { return true }
func (s stops) Handle(context.Context, slog.Record) error { s.stop(); return nil }

// A master that is away is waited for, but not for ever; and not by who is asked to leave.
func TestInsist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		began, asked := time.Now(), 0
		err := insist(t.Context(), func(context.Context) error {
			if asked++; time.Since(began) < time.Minute {
				return status.Error(codes.Unavailable, "nobody is there")
			}
			return nil
		}, log)
		if err != nil || asked < 30 || asked > 200 {
			t.Errorf("%v, asked %d times", err, asked)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), abandoned, membership.ErrAbandoned)
		defer cancel()
		err = insist(ctx, func(context.Context) error {
			return status.Error(codes.Unavailable, "nobody is there")
		}, log)
		if !errors.Is(err, membership.ErrAbandoned) || !strings.Contains(err.Error(), "nobody is there") {
			t.Error(err)
		}
	})
}

// A certificate is renewed after a third of its time; while the master is away, or refuses, again
// and again until it is done.
func TestRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		since, expiry := began, began.Add(credential.Lifetime)
		var mu sync.Mutex
		var told []time.Duration
		var away atomic.Bool
		times := func() []time.Duration {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return told
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			renew(ctx, func() (time.Time, time.Time) {
				mu.Lock()
				defer mu.Unlock()
				return since, expiry
			}, func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, time.Since(began))
				if away.Load() {
					return status.Error(codes.Unauthenticated, "no")
				}
				since, expiry = time.Now(), time.Now().Add(credential.Lifetime)
				return nil
			}, slog.New(slog.DiscardHandler))
		}()
		third := credential.Lifetime / 3
		time.Sleep(third - time.Second)
		if asked := times(); len(asked) != 0 {
			t.Errorf("renewed after %v", asked)
		}
		time.Sleep(third + time.Hour)
		asked := times()
		if len(asked) != 2 || asked[0] != third || asked[1] != 2*third {
			t.Errorf("renewed after %v", asked)
		}
		away.Store(true)
		time.Sleep(third)
		asked = times()
		if n := len(asked); n < 50 || asked[n-1]-asked[n-2] != renewPause {
			t.Errorf("asked %d times while the master is away", n)
		}
		away.Store(false)
		time.Sleep(renewPause)
		n := len(times())
		time.Sleep(third - 2*renewPause)
		if more := len(times()) - n; more != 0 {
			t.Errorf("renewed %d times more", more)
		}
		cancel()
		<-ended
	})
}
