package credential

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
)

const (
	// Lasting is the time that an authority is valid, and the certificates of processes that nobody
	// can renew: as long as a job may stay suspended.
	Lasting = 10 * 365 * 24 * time.Hour
	// Lifetime is the time that a certificate of a pod is valid, which renews it after a third of
	// it: longer than a master is ever away.
	Lifetime = 7 * 24 * time.Hour
	// skew limits the difference of nodes' clocks.
	skew = time.Hour
)

// Authority signs the certificates of one job.
type Authority struct {
	root Root
	key  *ecdsa.PrivateKey
}

// NewAuthority makes the authority of a job, which is named by its UID.
func NewAuthority(job string, now time.Time) (*Authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "elasticdl job " + job},
		NotBefore: now.Add(-skew), NotAfter: now.Add(Lasting),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the authority of job %s: %w", job, err)
	}
	root, err := newRoot(der)
	return &Authority{root, key}, err
}

// ParseAuthority reads what [Authority.Encode] has written.
func ParseAuthority(text []byte) (*Authority, error) {
	ders, key, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("read the job's authority: %w", err)
	}
	root, err := newRoot(ders[0])
	if err != nil {
		return nil, fmt.Errorf("read the job's authority: %w", err)
	}
	if !key.PublicKey.Equal(root.certificate.PublicKey) {
		return nil, errors.New("read the job's authority: the key is not that of the certificate")
	}
	return &Authority{root, key}, nil
}

// Encode returns the authority as PEM, with its key: its holder can pose as any process of the job.
func (a *Authority) Encode() ([]byte, error) { return encode(a.key, a.root.certificate.Raw) }

// Root returns what everybody may know of the authority.
func (a *Authority) Root() Root { return a.root }

// Sign returns a certificate (DER) that identifies the holder of the key as n, from now on, for a
// time.
func (a *Authority) Sign(n identity.Name, key crypto.PublicKey, now time.Time, valid time.Duration) ([]byte, error) {
	uri, err := url.Parse(n.String())
	if err != nil {
		return nil, fmt.Errorf("sign a certificate of %v: %w", n, err)
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: n.ID.String()}, URIs: []*url.URL{uri},
		NotBefore: now.Add(-skew), NotAfter: now.Add(valid),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.root.certificate, key, a.key)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate of %v: %w", n, err)
	}
	return der, nil
}

// Issue makes a key and signs it: the card of a process of this machine.
func (a *Authority) Issue(n identity.Name, now time.Time, valid time.Duration) (Card, error) {
	key, err := newKey()
	if err != nil {
		return Card{}, err
	}
	der, err := a.Sign(n, key.Public(), now, valid)
	return Card{root: a.root, certificate: der, key: key}, err
}

// Root is the certificate of an authority. The zero Root is none.
type Root struct{ certificate *x509.Certificate }

func newRoot(der []byte) (Root, error) {
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return Root{}, err
	}
	if !c.IsCA {
		return Root{}, errors.New("not the certificate of an authority")
	}
	return Root{c}, nil
}

// String returns the root in one line, to be asked to processes by their environment. It is no
// secret.
func (r Root) String() string { return base64.StdEncoding.EncodeToString(r.certificate.Raw) }

// ParseRoot reads what [Root.String] has written.
func ParseRoot(text string) (Root, error) {
	der, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return Root{}, fmt.Errorf("read the certificate of the job's authority: %w", err)
	}
	r, err := newRoot(der)
	if err != nil {
		return Root{}, fmt.Errorf("read the certificate of the job's authority: %w", err)
	}
	return r, nil
}

// Card is the certificate and the key of one process.
type Card struct {
	root        Root
	certificate []byte // DER
	key         *ecdsa.PrivateKey
}

// Encode returns the card as PEM, with its key, and the authority's certificate.
func (c Card) Encode() ([]byte, error) { return encode(c.key, c.certificate, c.root.certificate.Raw) }

// ParseCard reads what [Card.Encode] has written.
func ParseCard(text []byte) (Card, error) {
	ders, key, err := decode(text)
	if err == nil && len(ders) != 2 {
		err = fmt.Errorf("found %d certificates, expected that of the process and that of the authority", len(ders))
	}
	if err != nil {
		return Card{}, fmt.Errorf("read the certificate of this process: %w", err)
	}
	root, err := newRoot(ders[1])
	if err != nil {
		return Card{}, fmt.Errorf("read the certificate of this process: %w", err)
	}
	return Card{root: root, certificate: ders[0], key: key}, nil
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return key, nil
}

func serial() *big.Int {
	var b [16]byte
	rand.Read(b[:]) // which never fails
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b[:])
}

// The types of what stands in PEM.
const (
	typeCertificate = "CERTIFICATE"
	typeKey         = "PRIVATE KEY"
)

func encode(key *ecdsa.PrivateKey, certificates ...[]byte) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: typeKey, Bytes: der})
	for _, c := range certificates {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: typeCertificate, Bytes: c})...)
	}
	return text, nil
}

// decode reads a key and one certificate or more. Its errors do not tell what it read.
func decode(text []byte) (certificates [][]byte, key *ecdsa.PrivateKey, err error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case typeCertificate:
			certificates = append(certificates, block.Bytes)
		case typeKey:
			parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil {
				return nil, nil, errors.New("the key cannot be read")
			}
			key, _ = parsed.(*ecdsa.PrivateKey)
		}
	}
	if key == nil || len(certificates) == 0 {
		return nil, nil, errors.New("expected a certificate and its key, as PEM")
	}
	return certificates, key, nil
}
