package mesh

import (
	"bytes"
	"io"
	"net"
	"sync"
)

// cut is a connection that breaks after that many bytes were written or read, from the hello on.
type cut struct {
	net.Conn
	mu   sync.Mutex
	left int
	// the hello was written; bytes before it are of TLS
	said bool
}

func (c *cut) take(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.said {
		return n
	}
	n = min(n, c.left)
	c.left -= n
	return n
}

func (c *cut) Write(b []byte) (int, error) {
	if bytes.HasPrefix(b, helloMagic[:]) {
		c.mu.Lock()
		c.said = true
		c.mu.Unlock()
	}
	n, err := c.Conn.Write(b[:c.take(len(b))])
	if err == nil && n < len(b) {
		c.Close()
		err = io.ErrClosedPipe
	}
	return n, err
}

func (c *cut) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.take(n) < n {
		c.Close()
		return 0, io.ErrClosedPipe
	}
	return n, err
}
