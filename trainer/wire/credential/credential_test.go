package credential

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/test/memnet"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
)

var (
	server = identity.Name{Job: "uid", ID: pod.ID{Role: pod.PS, Index: 2}, Incarnation: 3}
	worker = identity.Name{Job: "uid", ID: pod.ID{Role: pod.Worker, Index: 7}, Incarnation: 1}
)

func authority(t testing.TB, job string) *Authority {
	a, err := NewAuthority(job, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func credential(t testing.TB, a *Authority, n identity.Name, valid time.Duration) *Credential {
	card, err := a.Issue(n, time.Now(), valid)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Of(card)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// wire is a connection in memory.
func wire(t testing.TB) (dialled, accepted net.Conn) {
	l := memnet.Listen(8 << 10)
	defer l.Close()
	got := make(chan net.Conn, 1)
	go func() {
		c, _ := l.Accept()
		got <- c
	}()
	dialled, err := l.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return dialled, <-got
}

// meet has two processes prove who they are, one of which has dialled.
func meet(t testing.TB, from, to *Credential, called pod.ID, strangers bool, protocol Protocol,
	accepts ...Protocol) (client, accepted *Conn, err, err2 error) {
	a, b := wire(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		accepted, err2 = to.Server(t.Context(), b, strangers, accepts...)
	}()
	client, err = from.Client(t.Context(), a, protocol, identity.Is(called))
	<-done
	if err == nil && err2 != nil { // who dialled hears of it when it reads
		_, err = client.Read(make([]byte, 1))
	}
	return client, accepted, err, err2
}

func TestBothEndsAreKnown(t *testing.T) {
	a := authority(t, "uid")
	to, from := credential(t, a, server, Lifetime), credential(t, a, worker, Lifetime)
	client, accepted, err, err2 := meet(t, from, to, server.ID, false, Push, GRPC, Push)
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	if client.Peer != server || accepted.Peer != worker || accepted.Protocol != Push || client.Bare() != client {
		t.Errorf("%v at the one end, %v at the other, of %v", client.Peer, accepted.Peer, accepted.Protocol)
	}
}

// Law 1 and 2: who is not whom the other end expects gets nothing through.
func TestStrangersAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, other := authority(t, "uid"), authority(t, "uid") // of a job that was given the same UID
		to, from := credential(t, a, server, time.Hour), credential(t, a, worker, time.Hour)
		nobody, err := New(a.Root())
		if err != nil {
			t.Fatal(err)
		}
		foreign := worker
		foreign.Job = "uid-2"
		later := server
		later.Index++
		expired := credential(t, a, worker, time.Minute)
		time.Sleep(2 * time.Minute)
		for name, c := range map[string]struct {
			from, to         *Credential
			strangers        bool
			client, accepted bool // who hears of it
		}{
			"a worker without a certificate":  {nobody, to, false, true, true},
			"a worker of another authority":   {credential(t, other, worker, time.Hour), to, false, true, true},
			"the same, where strangers may":   {credential(t, other, worker, time.Hour), to, true, true, true},
			"a server of another authority":   {from, credential(t, other, server, time.Hour), false, true, true},
			"another server of the job":       {from, credential(t, a, later, time.Hour), false, true, true},
			"a worker at a server's address":  {from, credential(t, a, worker, time.Hour), false, true, true},
			"a worker that nobody renewed":    {expired, to, false, true, true},
			"a server without a certificate":  {from, nobody, false, true, true},
			"a stranger, where that may come": {nobody, to, true, false, false},
		} {
			client, accepted, err, err2 := meet(t, c.from, c.to, server.ID, c.strangers, GRPC, GRPC)
			if (err != nil) != c.client || (err2 != nil) != c.accepted {
				t.Errorf("%s: who dialled: %v; who accepted: %v", name, err, err2)
			}
			if c.strangers && err2 == nil && accepted.Peer != (identity.Name{}) {
				t.Errorf("a stranger is %v", accepted.Peer)
			}
			for _, conn := range []*Conn{client, accepted} {
				if conn != nil {
					conn.Close()
				}
			}
		}
	})
}

// A certificate that expires does not end the connections that it has made.
func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := authority(t, "uid")
		to, from := credential(t, a, server, Lasting), credential(t, a, worker, Lifetime)
		client, accepted, err, err2 := meet(t, from, to, server.ID, false, Push, Push)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		time.Sleep(Lifetime + time.Minute)
		go client.Write([]byte("more"))
		if _, err := io.ReadFull(accepted, make([]byte, 4)); err != nil {
			t.Error(err)
		}
		client.Close()
		accepted.Close()
		if _, _, err, err2 = meet(t, from, to, server.ID, false, Push, Push); err == nil ||
			err2 == nil || !errors.Is(err2, identity.ErrForeign) {
			t.Errorf("after %v: %v, %v", Lifetime, err, err2)
		}
		request, err := from.Request()
		if err != nil {
			t.Fatal(err)
		}
		key, err := ParseRequest(request)
		if err != nil {
			t.Fatal(err)
		}
		der, err := a.Sign(worker, key, time.Now(), Lifetime)
		if err != nil {
			t.Fatal(err)
		}
		if err := from.Take(der); err != nil {
			t.Fatal(err)
		}
		if since, expiry := from.Validity(); !since.Equal(time.Now().Truncate(time.Second)) ||
			expiry.Sub(since) != Lifetime {
			t.Errorf("from %v to %v", since, expiry)
		}
		client, accepted, err, err2 = meet(t, from, to, server.ID, false, Push, Push)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		client.Close()
		accepted.Close()
	})
}

// A protocol that leaves TLS is proved like another, both ends must want it, and nothing of what
// follows is lost.
func TestPlain(t *testing.T) {
	a := authority(t, "uid")
	to, from := credential(t, a, server, Lifetime), credential(t, a, worker, Lifetime)
	for _, c := range []struct{ from, to Protocol }{{Push, Push.Plain()}, {Push.Plain(), Push}, {Push, Mesh}} {
		if _, _, err, err2 := meet(t, from, to, server.ID, false, c.from, c.to); err == nil || err2 == nil {
			t.Errorf("%v speaks to %v: %v, %v", c.from, c.to, err, err2)
		}
	}
	dialled, raw := wire(t)
	said := make(chan error, 1)
	go func() {
		c, err := from.Client(t.Context(), dialled, Mesh.Plain(), identity.Is(server.ID))
		if err == nil {
			_, err = c.Bare().Write(bytes.Repeat([]byte("hello"), 1000))
		}
		said <- err
	}()
	c, err := to.Server(t.Context(), raw, false, Mesh.Plain())
	if err != nil {
		t.Fatal(err)
	}
	if c.Peer != worker || c.Bare() != raw {
		t.Errorf("%v, by %T", c.Peer, c.Bare())
	}
	heard := make([]byte, 5000)
	if _, err := io.ReadFull(c.Bare(), heard); err != nil || string(heard[:10]) != "hellohello" {
		t.Errorf("%q: %v", heard[:10], err)
	}
	if err := <-said; err != nil {
		t.Error(err)
	}
	if _, _, err, err2 := meet(t, credential(t, authority(t, "uid"), worker, Lifetime), to, server.ID,
		false, Mesh.Plain(), Mesh.Plain()); err == nil || err2 == nil {
		t.Errorf("a stranger: %v, %v", err, err2)
	}
}

// A silent peer is waited for until the context ends.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := authority(t, "uid")
		c := credential(t, a, worker, Lifetime)
		for name, shake := range map[string]func(context.Context, net.Conn) error{
			"client": func(ctx context.Context, conn net.Conn) error {
				_, err := c.Client(ctx, conn, GRPC, identity.Is(server.ID))
				return err
			},
			"server": func(ctx context.Context, conn net.Conn) error {
				_, err := c.Server(ctx, conn, true, GRPC)
				return err
			},
		} {
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("too late"))
			one, other := wire(t)
			if err := shake(ctx, one); err == nil || !strings.Contains(err.Error(), "too late") {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := io.Copy(io.Discard, other); err != nil { // it is closed
				t.Errorf("%s: %v", name, err)
			}
			cancel()
		}
	})
}

// Nothing but TLS 1.3, and no tickets by which a later connection would prove less.
func TestVersion(t *testing.T) {
	a := authority(t, "uid")
	to := credential(t, a, server, Lifetime)
	dialled, raw := wire(t)
	go to.Server(t.Context(), raw, true, GRPC)
	err := tls.Client(dialled, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12,
		NextProtos: []string{"h2"}}).Handshake()
	if err == nil {
		t.Error("TLS 1.2 is spoken")
	}
}

func TestCardsAndAuthoritiesAreWritten(t *testing.T) {
	a := authority(t, "uid")
	text, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseAuthority(text)
	if err != nil {
		t.Fatal(err)
	}
	card, err := again.Issue(worker, time.Now(), Lifetime)
	if err != nil {
		t.Fatal(err)
	}
	written, err := card.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if card, err = ParseCard(written); err != nil {
		t.Fatal(err)
	}
	from, err := Of(card)
	if err != nil {
		t.Fatal(err)
	}
	root, err := ParseRoot(a.Root().String())
	if err != nil {
		t.Fatal(err)
	}
	to, err := New(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := to.Take(credential(t, a, server, Lifetime).held.Load().Certificate.Certificate[0]); err == nil {
		t.Error("a certificate of another key is taken")
	}
	if _, _, err, err2 := meet(t, from, credential(t, a, server, Lifetime), server.ID, false, Push,
		Push); err != nil || err2 != nil {
		t.Error(err, err2)
	}
	for name, text := range map[string][]byte{"nothing": nil,
		"no key": bytes.Split(text, []byte("-----BEGIN CERT"))[0], "a card": written[:len(written)/2]} {
		if _, err := ParseAuthority(text); err == nil {
			t.Errorf("%s is an authority", name)
		}
		if _, err := ParseCard(text); err == nil {
			t.Errorf("%s is a card", name)
		}
	}
	if _, err := ParseAuthority(written); err == nil {
		t.Error("a card is an authority")
	}
}

// A certificate of a process signs no other.
func TestPodsAreNoAuthorities(t *testing.T) {
	a := authority(t, "uid")
	card, err := a.Issue(worker, time.Now(), Lifetime)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(card.certificate)
	if err != nil {
		t.Fatal(err)
	}
	upstart := &Authority{Root{leaf}, card.key}
	forged, err := upstart.Sign(server, credential(t, a, worker, Lifetime).key.Public(), time.Now(), Lifetime)
	if err != nil {
		t.Fatal(err)
	}
	c := credential(t, a, worker, Lifetime)
	der, err := x509.ParseCertificate(forged)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.verify(der, x509.ExtKeyUsageServerAuth); !errors.Is(err, identity.ErrForeign) {
		t.Errorf("a certificate that a worker has signed: %v", err)
	}
}

func FuzzParseRequest(f *testing.F) {
	a := authority(f, "uid")
	request, err := credential(f, a, worker, Lifetime).Request()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(request)
	f.Add(request[:len(request)/2])
	f.Fuzz(func(t *testing.T, der []byte) {
		if key, err := ParseRequest(der); (key == nil) == (err == nil) {
			t.Fatal(key, err)
		}
	})
}

func FuzzParsePEM(f *testing.F) {
	a := authority(f, "uid")
	text, err := a.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text, a.Root().String())
	card, err := a.Issue(worker, time.Now(), Lifetime)
	if err != nil {
		f.Fatal(err)
	}
	written, err := card.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(written, "")
	f.Fuzz(func(t *testing.T, text []byte, root string) {
		if a, err := ParseAuthority(text); err == nil {
			if _, err := a.Encode(); err != nil {
				t.Fatal(err)
			}
		}
		ParseCard(text)
		if r, err := ParseRoot(root); err == nil && r.String() == "" {
			t.Fatal("an empty root")
		}
	})
}
