//go:build ignore

// Command cut writes the first 10,000 training and 2,000 test digits of MNIST
// as IDX files into the current directory:
//
//	cd examples/mnist/data && go run cut.go DIR
//
// DIR holds the four files of the complete set, with gzip.
package main

import (
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run cut.go DIR")
		os.Exit(2)
	}
	for _, f := range []struct {
		name         string
		header, item int // bytes
		items        int
	}{
		{"train-images-idx3-ubyte.gz", 16, 28 * 28, 10_000},
		{"train-labels-idx1-ubyte.gz", 8, 1, 10_000},
		{"t10k-images-idx3-ubyte.gz", 16, 28 * 28, 2_000},
		{"t10k-labels-idx1-ubyte.gz", 8, 1, 2_000},
	} {
		if err := cut(filepath.Join(os.Args[1], f.name), f.name, f.header, f.item, f.items); err != nil {
			fmt.Fprintln(os.Stderr, "cut:", err)
			os.Exit(1)
		}
	}
}

// cut copies the header, with the new number of items in it, and the first items.
func cut(from, to string, header, item, items int) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	z, err := gzip.NewReader(in)
	if err != nil {
		return fmt.Errorf("read %s: %w", from, err)
	}
	b := make([]byte, header+item*items)
	if _, err := io.ReadFull(z, b); err != nil {
		return fmt.Errorf("read %s: %w", from, err)
	}
	binary.BigEndian.PutUint32(b[4:], uint32(items))
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	w, err := gzip.NewWriterLevel(out, gzip.BestCompression) // no name and no time in its header
	if err != nil {
		return err
	}
	if _, err := w.Write(b); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return out.Close()
}
