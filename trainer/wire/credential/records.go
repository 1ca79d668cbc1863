package credential

import (
	"bufio"
	"cmp"
	"net"
	"sync"
)

const (
	// record is the number of bytes that crypto/tls puts into one record, and writes at a time.
	record = 16 << 10
	// together is the number of bytes of records written by one system call: few calls, and the
	// other end need not wait long for the first of them.
	together = 8 * record
	// ahead is the number of bytes that a connection that carries values reads by one system call.
	ahead = 4 * record
)

// records is the connection below TLS. crypto/tls reads and writes it record by record; what one
// Write of many records makes goes out together, and many records are read at once.
type records struct {
	net.Conn
	// the connection carries values, in one direction
	values bool
	// nil: read as TLS asks; there is one from the first values on that come in
	in *bufio.Reader

	mu sync.Mutex
	// what is gathered; nil: nothing is
	out *[]byte
	// of a write: TLS has reported it as good to its user, so no later one may be
	err error
}

// gathered are buffers for records: a connection has one only while it writes.
var gathered = sync.Pool{New: func() any {
	b := make([]byte, 0, together+2*record)
	return &b
}}

// Read implements [net.Conn].
func (r *records) Read(b []byte) (int, error) {
	if r.in != nil {
		return r.in.Read(b)
	}
	n, err := r.Conn.Read(b)
	if r.values && n >= record {
		r.in = bufio.NewReaderSize(r.Conn, ahead)
	}
	return n, err
}

// Write implements [net.Conn]. Between gather and release it keeps what it is given, and writes it
// when there is enough.
func (r *records) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return 0, r.err
	}
	if r.out == nil {
		return r.Conn.Write(b)
	}
	*r.out = append(*r.out, b...)
	if len(*r.out) >= together {
		return len(b), r.flush()
	}
	return len(b), nil
}

// gather has what follows written together.
func (r *records) gather() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out = gathered.Get().(*[]byte)
}

// release writes what is gathered, and ends the gathering.
func (r *records) release() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.flush()
	gathered.Put(r.out)
	r.out = nil
	return err
}

// flush writes what is gathered. The caller holds mu.
func (r *records) flush() error {
	if len(*r.out) > 0 && r.err == nil {
		_, r.err = r.Conn.Write(*r.out)
	}
	*r.out = (*r.out)[:0]
	return r.err
}

// Write implements [net.Conn]. It may not be called from several goroutines at once.
func (c *Conn) Write(b []byte) (int, error) {
	if c.records == nil || len(b) <= record {
		return c.Conn.Write(b)
	}
	c.records.gather()
	n, err := c.Conn.Write(b)
	return n, cmp.Or(err, c.records.release())
}

// WriteAll writes several slices by one system call, if they are not too long. It may not be called
// from several goroutines at once.
func (c *Conn) WriteAll(all ...[]byte) (n int64, err error) {
	if c.records == nil {
		return (*net.Buffers)(&all).WriteTo(c.raw)
	}
	c.records.gather()
	for _, b := range all {
		var written int
		if written, err = c.Conn.Write(b); err != nil {
			break
		}
		n += int64(written)
	}
	return n, cmp.Or(err, c.records.release())
}
