package data

import (
	"io"
	"os"
	"sync/atomic"
)

// stored reads a file until its reader is closed.
type stored struct {
	io.ReaderAt
	closed *atomic.Bool // makes reads fail once it is true
}

func (s stored) ReadAt(b []byte, offset int64) (int, error) {
	if s.closed.Load() {
		return 0, os.ErrClosed
	}
	return s.ReaderAt.ReadAt(b, offset)
}

// counted counts the bytes that are read.
type counted struct {
	io.ReaderAt
	all []*atomic.Int64 // counters that several readers share
	own int64           // bytes read by this reader
}

func (c *counted) ReadAt(b []byte, offset int64) (int, error) {
	n, err := c.ReaderAt.ReadAt(b, offset)
	for _, all := range c.all {
		all.Add(int64(n))
	}
	c.own += int64(n)
	return n, err
}
