package recordio

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"

	"github.com/golang/snappy"
)

func compress(c Compressor, payload []byte) ([]byte, error) {
	var out bytes.Buffer
	var w io.WriteCloser
	switch c {
	case None:
		return payload, nil
	case Snappy:
		w = snappy.NewBufferedWriter(&out)
	case Gzip:
		w = gzip.NewWriter(&out)
	}
	if _, err := w.Write(payload); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func decompress(c Compressor, payload []byte) ([]byte, error) {
	switch c {
	case Snappy:
		return readAll(snappy.NewReader(bytes.NewReader(payload)), 3*len(payload), mostPayload(len(payload)))
	case Gzip:
		z, err := gzip.NewReader(bytes.NewReader(payload))
		if err != nil {
			return nil, err
		}
		return readAll(z, 8*len(payload), mostPayload(len(payload)))
	}
	return payload, nil
}

// readAll reads r to its end, and fails if that is more than limit bytes; guess is
// the expected number of bytes. It reads at most limit+1 bytes, and allocates less
// than four times the limit. The result has little spare capacity, because records
// are kept in memory and the capacity with them.
func readAll(r io.Reader, guess, limit int) ([]byte, error) {
	out := make([]byte, 0, max(min(guess, limit+1), 1))
	for {
		n, err := r.Read(out[len(out):cap(out)])
		out = out[:len(out)+n]
		switch {
		case len(out) > limit:
			return nil, fmt.Errorf("more than %d bytes, the limit of a chunk of this size", limit)
		case err == io.EOF && cap(out)-len(out) > len(out)/8:
			return bytes.Clone(out), nil
		case err == io.EOF:
			return out, nil
		case err != nil:
			return nil, err
		case len(out) == cap(out):
			out = append(make([]byte, 0, min(2*cap(out), limit+1)), out...)
		}
	}
}
