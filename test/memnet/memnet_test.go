package memnet

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

func pair(t *testing.T, size int) (near, far net.Conn) {
	t.Helper()
	l := Listen(size)
	accepted := make(chan net.Conn)
	go func() {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	near, err := l.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	return near, <-accepted
}

// Bytes arrive as they were sent, through a pipe of a few, and the end of the file behind them.
func TestBytesAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pair(t, 3)
		sent := bytes.Repeat([]byte("0123456789"), 100)
		go func() {
			if n, err := near.Write(sent); n != len(sent) || err != nil {
				t.Errorf("write: %d, %v", n, err)
			}
			near.Close()
		}()
		if got, err := io.ReadAll(far); err != nil || !bytes.Equal(got, sent) {
			t.Errorf("read %d bytes, %v", len(got), err)
		}
		if _, err := far.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("write to who has left: %v", err)
		}
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("read after close: %v", err)
		}
	})
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pair(t, 1)
		start := time.Now()
		near.SetReadDeadline(start.Add(2 * time.Second))
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) ||
			time.Since(start) != 2*time.Second {
			t.Errorf("read: %v after %v", err, time.Since(start))
		}
		near.SetDeadline(start) // past
		if _, err := near.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("write: %v", err)
		}
		near.SetDeadline(time.Time{})
		go func() {
			time.Sleep(time.Hour)
			far.Write([]byte("x"))
		}()
		if n, err := near.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Errorf("read without deadline: %d, %v", n, err)
		}
	})
}

func TestClosedListener(t *testing.T) {
	l := Listen(1)
	l.Close()
	l.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept: %v", err)
	}
	if _, err := l.DialContext(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("dial: %v", err)
	}
}
