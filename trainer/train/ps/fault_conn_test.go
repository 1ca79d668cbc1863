package ps

import (
	"context"
	"net"
	"sync/atomic"
	"testing/synctest"
)

// fragile is a connection that breaks after that many bytes, either way.
type fragile struct {
	net.Conn
	left atomic.Int64
}

func (c *fragile) spend(n int) {
	if c.left.Add(-int64(n)) < 0 {
		c.Close()
	}
}

func (c *fragile) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b[:min(len(b), int(max(1, c.left.Load())))])
	c.spend(n)
	return n, err
}

func (c *fragile) Write(b []byte) (int, error) {
	whole := len(b)
	if left := int(max(0, c.left.Load())); left < whole {
		c.Conn.Write(b[:left])
		c.spend(whole)
		return left, net.ErrClosed
	}
	n, err := c.Conn.Write(b)
	c.spend(n)
	return n, err
}

// gated is a connection whose reader stops after that many bytes until the gate opens.
type gated struct {
	net.Conn
	left int
	gate chan struct{}
}

func (c *gated) Read(b []byte) (int, error) {
	if c.left <= 0 {
		<-c.gate
	}
	n, err := c.Conn.Read(b)
	c.left -= n
	return n, err
}

// slowly starts a pull whose reader stops within the values; open lets it continue.
func (f *fleet) slowly(o PullOptions) (open func() ([]float32, Versions, error)) {
	const n = 3 * chunk
	gate := make(chan struct{})
	config := f.clientConfig(9, dense(n, 0))
	config.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := f.dial(ctx, addr)
		return &gated{conn, 2 * chunk, gate}, err
	}
	c, err := Dial(f.t.Context(), config)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { c.Close() })
	dst, done := make([]float32, n), make(chan error)
	var v Versions
	go func() {
		var err error
		v, err = c.Pull(f.t.Context(), dst, o)
		done <- err
	}()
	synctest.Wait()
	return func() ([]float32, Versions, error) {
		close(gate)
		err := <-done
		return dst, v, err
	}
}
