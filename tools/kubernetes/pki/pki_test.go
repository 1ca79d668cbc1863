package pki

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

// A client with only the kubeconfig and a server with only its pair and the authority authenticate
// each other.
func TestKubeconfig(t *testing.T) {
	authority := newAuthority(t)
	user := issue(t, authority, "system:node:n", []string{"system:nodes"}, nil)
	server := serve(t, authority, issue(t, authority, "server", nil, []string{"localhost", "127.0.0.1"}))
	config, err := clientcmd.RESTConfigFromKubeConfig(Kubeconfig(server.URL, authority.Cert, user))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(config.CAData)
	client, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{client}}}
	response, err := (&http.Client{Transport: transport}).Get(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if got, want := response.Header.Get("User"), "system:node:n [system:nodes]"; got != want {
		t.Errorf("the server sees %q, want %q", got, want)
	}
}

// A client or server of another authority is refused, and so is a server under another name.
func TestStrangers(t *testing.T) {
	authority, other := newAuthority(t), newAuthority(t)
	good := issue(t, authority, "user", nil, nil)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority.Cert)
	for name, c := range map[string]struct {
		user  Pair
		hosts []string
	}{
		"user of another authority": {issue(t, other, "user", nil, nil), []string{"127.0.0.1"}},
		"server of another name":    {good, []string{"10.0.0.1", "elsewhere"}},
	} {
		server := serve(t, authority, issue(t, authority, "server", nil, c.hosts))
		client, err := tls.X509KeyPair(c.user.Cert, c.user.Key)
		if err != nil {
			t.Fatal(err)
		}
		// With a callback the certificate is sent even if the server does not name its authority.
		config := &tls.Config{RootCAs: pool,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return &client, nil
			}}
		response, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: config}}).Get(server.URL)
		if err == nil {
			response.Body.Close()
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestLifetime(t *testing.T) {
	pair := issue(t, newAuthority(t), "user", nil, nil)
	block, _ := pem.Decode(pair.Cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if now.Before(cert.NotBefore) || now.AddDate(0, 6, 0).After(cert.NotAfter) {
		t.Errorf("good from %v to %v", cert.NotBefore, cert.NotAfter)
	}
}

func TestNewKey(t *testing.T) {
	private, public, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(private)
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	block, _ = pem.Decode(public)
	got, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if !key.PublicKey.Equal(got) {
		t.Error("the public half is of another key")
	}
}

func newAuthority(t *testing.T) *Authority {
	t.Helper()
	a, err := NewAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func issue(t *testing.T, a *Authority, name string, groups, hosts []string) Pair {
	t.Helper()
	pair, err := a.Issue(name, groups, hosts)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// serve starts a server that answers with the name of the client.
func serve(t *testing.T, a *Authority, pair Pair) *httptest.Server {
	t.Helper()
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(a.Cert)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		subject := r.TLS.PeerCertificates[0].Subject
		w.Header().Set("User", fmt.Sprint(subject.CommonName, " ", subject.Organization))
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: pool,
		ClientAuth: tls.RequireAndVerifyClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}
