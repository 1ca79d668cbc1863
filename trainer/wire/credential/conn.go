package credential

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"

	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
)

// Protocol is the protocol of a connection, by its ALPN name.
type Protocol string

const (
	GRPC Protocol = "h2" // calls
	// gradients and values, of a worker and a parameter server
	Push Protocol = "elasticdl-ps"
	Mesh Protocol = "elasticdl-mesh" // of two workers of a ring
)

// plain ends the name of a protocol whose connections leave TLS.
const plain = "-plain"

// Plain returns the variant of the protocol for a network that encrypts below: both ends
// authenticate inside TLS, and then leave it. Later data is neither encrypted nor protected against
// change.
func (p Protocol) Plain() Protocol { return p + plain }

// leaves reports whether connections of the protocol leave TLS.
func (p Protocol) leaves() bool { return len(p) > len(plain) && p[len(p)-len(plain):] == plain }

// Conn is a connection whose other end is known. Close ends it at once: the protocols within say
// themselves where they end.
type Conn struct {
	// what is reported, within TLS or, when that was left, without
	net.Conn
	raw net.Conn
	// nil: TLS was left
	records *records
	// of raw; nil: that is no socket
	room *room
	// zero: a stranger, which has no certificate
	Peer     identity.Name
	Protocol Protocol
}

// Close implements [net.Conn].
func (c *Conn) Close() error { return c.raw.Close() }

// Bare returns the socket of an unencrypted connection, with which its user can do more, or c if it
// is encrypted.
func (c *Conn) Bare() net.Conn {
	if c.Protocol.leaves() {
		return c.raw
	}
	return c
}

// Client authenticates this process to the accepting end of a connection, and requires a peer for
// which expect returns no error. It does not outlast ctx, and closes the connection if it fails.
func (c *Credential) Client(ctx context.Context, conn net.Conn, protocol Protocol,
	expect func(identity.Name) error) (*Conn, error) {
	made := &Conn{raw: conn, Protocol: protocol}
	config := c.config(func(state tls.ConnectionState) (err error) {
		if made.Peer, err = c.peer(state, x509.ExtKeyUsageServerAuth); err != nil {
			return err
		}
		return expect(made.Peer)
	})
	config.NextProtos = []string{string(protocol)}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if h := c.held.Load(); h != nil {
			return &h.Certificate, nil
		}
		return new(tls.Certificate), nil
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	err := made.shake(config, tls.Client)
	if err == nil && protocol.leaves() {
		_, err = made.Conn.Read(make([]byte, 1)) // the other end has read all of TLS
		made.Conn, made.records = conn, nil
	}
	return made.proved(ctx, stop(), err)
}

// Server authenticates the dialling end of a connection, and this process to it. The protocol is
// the one of the list that the other end asks for. A stranger is let in only if strangers is true.
func (c *Credential) Server(ctx context.Context, conn net.Conn, strangers bool, protocols ...Protocol) (*Conn, error) {
	made := &Conn{raw: conn}
	config := c.config(func(state tls.ConnectionState) (err error) {
		if strangers && len(state.PeerCertificates) == 0 {
			return nil
		}
		made.Peer, err = c.peer(state, x509.ExtKeyUsageClientAuth)
		return err
	})
	for _, p := range protocols {
		config.NextProtos = append(config.NextProtos, string(p))
	}
	config.ClientAuth = tls.RequireAnyClientCert // which VerifyConnection verifies
	if strangers {
		config.ClientAuth = tls.RequestClientCert
	}
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if h := c.held.Load(); h != nil {
			return &h.Certificate, nil
		}
		return nil, errors.New("this process has no certificate yet")
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	err := made.shake(config, tls.Server)
	if err == nil && made.Protocol.leaves() {
		_, err = made.Conn.Write([]byte{0})
		// who dialled is the first to speak, after it has read that
		made.Conn, made.records = conn, nil
	}
	return made.proved(ctx, stop(), err)
}

// config returns what both ends have in common.
func (c *Credential) config(verify func(tls.ConnectionState) error) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true, DynamicRecordSizingDisabled: true,
		// a third of the default's time, which a world of many links feels
		CurvePreferences: []tls.CurveID{tls.CurveP256},
		// names are identities, not addresses: VerifyConnection checks them
		InsecureSkipVerify: true,
		VerifyConnection:   verify,
	}
}

// peer returns who is at the other end.
func (c *Credential) peer(state tls.ConnectionState, usage x509.ExtKeyUsage) (identity.Name, error) {
	if len(state.PeerCertificates) == 0 {
		return identity.Name{}, fmt.Errorf("%w: it shows no certificate", identity.ErrForeign)
	}
	return c.verify(state.PeerCertificates[0], usage)
}

// shake brings up TLS as one of its ends.
func (c *Conn) shake(config *tls.Config, end func(net.Conn, *tls.Config) *tls.Conn) error {
	c.records = &records{Conn: c.raw}
	conn := end(c.records, config)
	c.Conn = conn
	if err := conn.Handshake(); err != nil {
		return err
	}
	chosen := Protocol(conn.ConnectionState().NegotiatedProtocol)
	if chosen == "" || c.Protocol != "" && chosen != c.Protocol {
		return fmt.Errorf("%w: it speaks protocol %q, expected %q", identity.ErrForeign, chosen, c.Protocol)
	}
	c.Protocol = chosen
	c.records.values = chosen == Push || chosen == Mesh
	if chosen == Mesh {
		c.room = newRoom(c.raw)
	}
	return nil
}

// proved returns the connection, or closes it if there is an error or its context has ended.
func (c *Conn) proved(ctx context.Context, inTime bool, err error) (*Conn, error) {
	if !inTime {
		err = context.Cause(ctx)
	}
	if err != nil {
		c.raw.Close()
		return nil, fmt.Errorf("prove who is at both ends: %w", err)
	}
	return c, nil
}
