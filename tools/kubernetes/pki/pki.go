// Package pki creates the certificates of a short-lived cluster: one authority, short keys, no
// renewal.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// lifetime is the time for which all certificates are valid.
const lifetime = 365 * 24 * time.Hour

// Pair is a certificate and its key in PEM.
type Pair struct {
	Cert, Key []byte
}

// Authority signs certificates.
type Authority struct {
	Pair
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority returns a new authority, valid from an hour before now.
func NewAuthority(now time.Time) (*Authority, error) {
	template, err := newTemplate(pkix.Name{CommonName: "elasticdl-cluster"}, now.Add(-time.Hour))
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage |= x509.KeyUsageCertSign
	a := new(Authority)
	if a.cert, a.key, a.Pair, err = sign(template, nil, nil); err != nil {
		return nil, fmt.Errorf("make the authority: %w", err)
	}
	return a, nil
}

// Issue returns a certificate for servers at hosts (names or addresses; none for a client) and for
// a client of that name. Kubernetes uses the name as the user and the groups as the user's groups.
func (a *Authority) Issue(name string, groups, hosts []string) (Pair, error) {
	template, err := newTemplate(pkix.Name{CommonName: name, Organization: groups}, a.cert.NotBefore)
	if err != nil {
		return Pair{}, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	_, _, pair, err := sign(template, a.cert, a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("issue a certificate for %s: %w", name, err)
	}
	return pair, nil
}

// NewKey returns a key and its public half in PEM, with which service account tokens are signed.
func NewKey() (key, public []byte, err error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	if key, err = encodeKey(k); err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(&k.PublicKey)
	if err != nil {
		return nil, nil, fmt.Errorf("encode a public key: %w", err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

// Kubeconfig returns the kubeconfig with which the client of a pair reaches the API server at that
// URL.
func Kubeconfig(server string, authority []byte, pair Pair) []byte {
	encode := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: elasticdl
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: elasticdl
  user:
    client-certificate-data: %s
    client-key-data: %s
contexts:
- name: elasticdl
  context: {cluster: elasticdl, user: elasticdl}
current-context: elasticdl
`, server, encode(authority), encode(pair.Cert), encode(pair.Key))
}

func newTemplate(subject pkix.Name, notBefore time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    notBefore,
		NotAfter:     notBefore.Add(lifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}, nil
}

// sign returns a new key and a certificate for it, signed by parent or, without one, on its own.
func sign(template, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate,
	*ecdsa.PrivateKey, Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, Pair{}, err
	}
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		return nil, nil, Pair{}, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, Pair{}, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, nil, Pair{}, err
	}
	return cert, key, Pair{Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), Key: keyPEM}, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}
