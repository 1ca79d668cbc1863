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
		return readAll(snappy.NewReader(bytes.NewReader(payload)), 3*len(payload), maxPayload)
	case Gzip:
		z, err := gzip.NewReader(bytes.NewReader(payload))
		if err != nil {
			return nil, err
		}
		return readAll(z, 8*len(payload), maxPayload)
	}
	return payload, nil
}

// readAll reads r to its end, which must come within limit bytes; guess is
// how much will come, about. What it returns has little room to spare: records
// are kept, and the room would be kept with them.
func readAll(r io.Reader, guess, limit int) ([]byte, error) {
	out := bytes.NewBuffer(make([]byte, 0, min(guess, limit)+bytes.MinRead))
	n, err := out.ReadFrom(io.LimitReader(r, int64(limit)+1))
	if err != nil {
		return nil, err
	}
	if n > int64(limit) {
		return nil, fmt.Errorf("more than %d bytes", limit)
	}
	if out.Available() > out.Len()/8 {
		return bytes.Clone(out.Bytes()), nil
	}
	return out.Bytes(), nil
}
