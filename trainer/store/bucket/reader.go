package bucket

import (
	"errors"
	"io"
	"sync"
)

// attempts is the number of requests without a byte of a range before a reader gives up.
const attempts = 4

// reader reads an object in ranges. It continues with the response that it has as long as what is
// read follows on what was read before, and asks again, from there, when a response ends early.
type reader struct {
	size int64
	open func(offset int64) (io.ReadCloser, error) // a response from offset to the end

	mu       sync.Mutex
	response io.ReadCloser // nil: there is none
	at       int64         // what it gives next
}

func (r *reader) ReadAt(b []byte, offset int64) (int, error) {
	if offset < 0 {
		return 0, errors.New("read at a negative offset")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	var failed error
	for left := attempts; n < len(b) && offset+int64(n) < r.size; {
		got, err := r.read(b[n:min(int64(len(b)), r.size-offset)], offset+int64(n))
		if n += got; got > 0 {
			left = attempts
		}
		if err == nil {
			continue
		}
		r.drop()
		if failed = err; left <= 1 {
			return n, explain(failed)
		}
		left--
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// read reads something, from the response if it is there.
func (r *reader) read(b []byte, offset int64) (int, error) {
	if r.response == nil || r.at != offset {
		r.drop()
		response, err := r.open(offset)
		if err != nil {
			return 0, err
		}
		r.response, r.at = response, offset
	}
	n, err := r.response.Read(b)
	r.at += int64(n)
	if n > 0 {
		return n, nil // an error comes again
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return 0, err
}

// drop ends the response.
func (r *reader) drop() {
	if r.response != nil {
		r.response.Close()
		r.response = nil
	}
}

// Close ends all reading.
func (r *reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop()
	return nil
}
