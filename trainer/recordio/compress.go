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

// readAll reads r to its end, which must come within limit bytes; guess is
// how much will come, about. It reads one byte more than the limit at most, and
// takes less than four times the limit in all. What it returns has little room
// to spare: records are kept, and the room would be kept with them.
func readAll(r io.Reader, guess, limit int) ([]byte, error) {
	out := make([]byte, 0, max(min(guess, limit+1), 1))
	for {
		n, err := r.Read(out[len(out):cap(out)])
		out = out[:len(out)+n]
		switch {
		case len(out) > limit:
			return nil, fmt.Errorf("more than %d bytes, which is more than such a chunk may have", limit)
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
