package data

import (
	"io"
	"os"
	"sync/atomic"

	"github.com/elasticdl/elasticdl/trainer/store/outage"
)

// stored reads a file, and returns errors of its storage as an [outage.Error].
type stored struct {
	io.ReaderAt
	closed *atomic.Bool // makes reads fail once it is true
}

func (s stored) ReadAt(b []byte, offset int64) (int, error) {
	if s.closed.Load() {
		return 0, os.ErrClosed
	}
	n, err := s.ReaderAt.ReadAt(b, offset)
	if err != nil && err != io.EOF {
		err = outage.Of(cause(err))
	}
	return n, err
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
