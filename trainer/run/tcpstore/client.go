package tcpstore

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// prefix is the prefix of each key of PyTorch's clients.
const prefix = "/"

// cancelLimit is the time that the server may take to confirm that a wait is cancelled.
const cancelLimit = 5 * time.Second

// Client is a connection to a store, in the protocol of 2.x. Its keys are those of PyTorch's
// clients. Its calls take turns; a call whose context ends while it waits for a key leaves the
// client usable, one that ends in the midst of an exchange does not.
type Client struct {
	conn net.Conn
	r    *bufio.Reader
	// holds one token; its taker may use the fields below
	turn chan struct{}
	// error of the call that broke the connection
	err error
}

// Dial connects to the store, and asks it for a sign of life.
func Dial(ctx context.Context, address string) (*Client, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return NewClient(ctx, conn)
}

// NewClient returns the client of a connection to a store, which it closes if the store gives no
// sign of life.
func NewClient(ctx context.Context, conn net.Conn) (*Client, error) {
	c := &Client{conn: conn, r: bufio.NewReader(conn), turn: make(chan struct{}, 1)}
	c.turn <- struct{}{}
	err := c.call(ctx, func() error {
		const nonce = 0x454C4153
		hello := request{kind: validate, number: magic}.append(nil, modern)
		if _, err := conn.Write(request{kind: ping, number: nonce}.append(hello, modern)); err != nil {
			return err
		}
		var b [4]byte
		if _, err := io.ReadFull(c.r, b[:]); err != nil {
			return err
		}
		if got := binary.LittleEndian.Uint32(b[:]); got != nonce {
			return fmt.Errorf("answer %#x, expected %#x: not a TCPStore of PyTorch 2.x", got, nonce)
		}
		return nil
	})
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("greet the store at %s: %w", conn.RemoteAddr(), err)
	}
	return c, nil
}

// Close ends the connection. Calls that are under way fail.
func (c *Client) Close() error { return c.conn.Close() }

// Set gives the key the value. It returns before the store has applied it; the client's next call
// sees it.
func (c *Client) Set(ctx context.Context, key string, value []byte) error {
	return c.ask(ctx, request{kind: set, keys: named(key), values: [][]byte{value}}, nil)
}

// Get waits until the key exists, and returns its value.
func (c *Client) Get(ctx context.Context, key string) (value []byte, err error) {
	if err := c.Wait(ctx, key); err != nil {
		return nil, err
	}
	err = c.ask(ctx, request{kind: get, keys: named(key)}, func() error { value, err = c.blob(); return err })
	return value, err
}

// Add adds to the number that the key's value is, 0 if there is none, and returns the sum.
func (c *Client) Add(ctx context.Context, key string, n int64) (sum int64, err error) {
	err = c.ask(ctx, request{kind: add, keys: named(key), number: n}, func() error {
		sum, err = c.number()
		return err
	})
	return sum, err
}

// Check reports whether all keys exist.
func (c *Client) Check(ctx context.Context, keys ...string) (all bool, err error) {
	err = c.ask(ctx, request{kind: check, keys: named(keys...)}, func() error {
		b, err := c.r.ReadByte()
		all = b == ready
		return err
	})
	return all, err
}

// CompareSet gives the key the desired value if it has the expected one, or if none is expected and
// there is no such key. It returns the value that the key has then; if there is no such key, it
// returns what was expected, as PyTorch does.
func (c *Client) CompareSet(ctx context.Context, key string, expected, desired []byte) (now []byte, err error) {
	err = c.ask(ctx, request{kind: compareSet, keys: named(key), values: [][]byte{expected, desired}}, func() error {
		now, err = c.blob()
		return err
	})
	return now, err
}

// Delete removes the key, and reports whether there was one.
func (c *Client) Delete(ctx context.Context, key string) (existed bool, err error) {
	err = c.ask(ctx, request{kind: deleteKey, keys: named(key)}, func() error {
		n, err := c.number()
		existed = n == 1
		return err
	})
	return existed, err
}

// Keys returns how many keys there are.
func (c *Client) Keys(ctx context.Context) (n int64, err error) {
	err = c.ask(ctx, request{kind: numKeys}, func() (err error) {
		n, err = c.number()
		return err
	})
	return n, err
}

// Wait returns when each of the keys has existed at some time since the call.
func (c *Client) Wait(ctx context.Context, keys ...string) error {
	if err := c.acquire(ctx); err != nil {
		return err
	}
	defer c.release()
	if _, err := c.conn.Write(request{kind: wait, keys: named(keys...)}.append(nil, modern)); err != nil {
		return c.broken(err)
	}
	stop := c.interrupt(ctx)
	_, err := c.r.ReadByte()
	if interrupted := stop(); err == nil || !interrupted {
		return c.broken(err)
	}
	if err := c.cancel(); err != nil {
		return c.broken(err)
	}
	return fmt.Errorf("wait for keys %.200q: %w", keys, context.Cause(ctx))
}

// cancel ends a wait, which the store may have answered meanwhile.
func (c *Client) cancel() error {
	c.conn.SetDeadline(time.Now().Add(cancelLimit))
	defer c.conn.SetDeadline(time.Time{})
	if _, err := c.conn.Write(request{kind: cancelWait}.append(nil, modern)); err != nil {
		return err
	}
	for {
		if b, err := c.r.ReadByte(); err != nil || b == waitCanceled {
			return err
		}
	}
}

// ask sends a request and reads its answer, if it has one.
func (c *Client) ask(ctx context.Context, r request, answer func() error) error {
	return c.call(ctx, func() error {
		if _, err := c.conn.Write(r.append(nil, modern)); err != nil || answer == nil {
			return err
		}
		return answer()
	})
}

// call runs an exchange, which fails when the context ends; then the connection is broken.
func (c *Client) call(ctx context.Context, exchange func() error) error {
	if err := c.acquire(ctx); err != nil {
		return err
	}
	defer c.release()
	stop := c.interrupt(ctx)
	err := exchange()
	if interrupted := stop(); err != nil && interrupted {
		err = context.Cause(ctx)
	}
	return c.broken(err)
}

// interrupt makes reads and writes fail when the context ends. Calling stop ends that; it reports
// whether the context had not ended before.
func (c *Client) interrupt(ctx context.Context) (stop func() bool) {
	done := make(chan struct{})
	end := context.AfterFunc(ctx, func() {
		c.conn.SetDeadline(time.Unix(1, 0))
		close(done)
	})
	return func() bool {
		if end() {
			return false
		}
		<-done
		c.conn.SetDeadline(time.Time{})
		return true
	}
}

func (c *Client) acquire(ctx context.Context) error {
	select {
	case <-c.turn:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	err := c.err
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		c.release()
	}
	return err
}

func (c *Client) release() { c.turn <- struct{}{} }

// broken notes an error after which the connection cannot be used, and returns it.
func (c *Client) broken(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = fmt.Errorf("the store has closed the connection: %w", err)
	}
	if err != nil {
		c.err = err
		c.conn.Close()
	}
	return err
}

func (c *Client) number() (int64, error) {
	var b [8]byte
	_, err := io.ReadFull(c.r, b[:])
	return int64(binary.LittleEndian.Uint64(b[:])), err
}

func (c *Client) blob() ([]byte, error) {
	n, err := c.number()
	if err != nil {
		return nil, err
	}
	if n < 0 || n > maxMessage {
		return nil, errors.New("the store announces a value of more than 64 MiB")
	}
	b := make([]byte, n)
	_, err = io.ReadFull(c.r, b)
	return b, err
}

// named returns the keys with the prefix of the store.
func named(keys ...string) []string {
	all := make([]string, len(keys))
	for i, key := range keys {
		all[i] = prefix + key
	}
	return all
}
