package credential

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
)

// Credential holds the certificate and the key of a process. It is safe for concurrent use.
type Credential struct {
	pool *x509.CertPool
	key  *ecdsa.PrivateKey
	held atomic.Pointer[held]
}

// held is a certificate, and what it says.
type held struct {
	tls.Certificate
	name          identity.Name
	since, expiry time.Time
}

// New makes the credential of a process that has a key of its own, and no certificate yet: see
// [Credential.Take].
func New(root Root) (*Credential, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	return from(root, key), nil
}

func from(root Root, key *ecdsa.PrivateKey) *Credential {
	c := &Credential{pool: x509.NewCertPool(), key: key}
	c.pool.AddCert(root.certificate)
	return c
}

// Of makes the credential of a process that was given its card.
func Of(card Card) (*Credential, error) {
	c := from(card.root, card.key)
	return c, c.Take(card.certificate)
}

// Request returns the request for a certificate of the credential's key (DER of PKCS #10), which
// proves that this process has it.
func (c *Credential) Request() ([]byte, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, new(x509.CertificateRequest), c.key)
	if err != nil {
		return nil, fmt.Errorf("request a certificate: %w", err)
	}
	return der, nil
}

// ParseRequest returns the key that a certificate is requested for, if who requests has it.
func ParseRequest(der []byte) (*ecdsa.PublicKey, error) {
	r, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, fmt.Errorf("read the request for a certificate: %w", err)
	}
	key, ok := r.PublicKey.(*ecdsa.PublicKey)
	if !ok {
		return nil, fmt.Errorf("read the request for a certificate: found a key of %v, expected one "+
			"of ECDSA", r.PublicKeyAlgorithm)
	}
	if err := r.CheckSignature(); err != nil {
		return nil, fmt.Errorf("read the request for a certificate: %w", err)
	}
	return key, nil
}

// Take makes a certificate (DER) of the credential's key what it proves itself with from now on.
func (c *Credential) Take(der []byte) error {
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return fmt.Errorf("take a certificate: %w", err)
	}
	name, err := c.verify(leaf, x509.ExtKeyUsageClientAuth)
	if err != nil {
		return fmt.Errorf("take a certificate: %w", err)
	}
	if !c.key.PublicKey.Equal(leaf.PublicKey) {
		return errors.New("take a certificate: it is of another key")
	}
	c.held.Store(&held{
		Certificate: tls.Certificate{Certificate: [][]byte{bytes.Clone(der)}, PrivateKey: c.key, Leaf: leaf},
		name:        name, since: leaf.NotBefore.Add(skew), expiry: leaf.NotAfter,
	})
	return nil
}

// Name returns whom this process can prove to be; nobody, if it has no certificate yet.
func (c *Credential) Name() identity.Name {
	if h := c.held.Load(); h != nil {
		return h.name
	}
	return identity.Name{}
}

// Validity returns from when to when the certificate is valid that the process has; the zero times,
// if none.
func (c *Credential) Validity() (since, expiry time.Time) {
	if h := c.held.Load(); h != nil {
		return h.since, h.expiry
	}
	return since, expiry
}

// verify returns whom a certificate names that the job's authority has signed.
func (c *Credential) verify(leaf *x509.Certificate, usage x509.ExtKeyUsage) (identity.Name, error) {
	_, err := leaf.Verify(x509.VerifyOptions{Roots: c.pool, KeyUsages: []x509.ExtKeyUsage{usage},
		CurrentTime: time.Now()})
	if err != nil {
		return identity.Name{}, fmt.Errorf("%w: %w", identity.ErrForeign, err)
	}
	if len(leaf.URIs) != 1 {
		return identity.Name{}, fmt.Errorf("%w: a certificate with %d names, expected 1",
			identity.ErrForeign, len(leaf.URIs))
	}
	return identity.ParseName(leaf.URIs[0].String())
}
