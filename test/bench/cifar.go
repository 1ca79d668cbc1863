package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/elasticdl/elasticdl/trainer/train/data/example"
	"github.com/elasticdl/elasticdl/trainer/train/recordio"
)

const cifarRecords = 2048

// cifar creates, once, a directory with train: RecordIO of cifarRecords examples, in the form that
// a zoo model for CIFAR-10 reads. The images are noise with a bright stripe whose height depends on
// the label: there is something to learn, and it does not affect the speed.
func (b *bench) cifar(ctx context.Context) (dir string, err error) {
	dir = filepath.Join(b.dir, "cifar10")
	train := filepath.Join(dir, "train")
	if _, err := os.Stat(train); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(train, 0o777); err != nil {
		return "", err
	}
	file, err := os.Create(filepath.Join(train, "data-00000"))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	w, err := recordio.NewWriter(file, recordio.Snappy, 256<<10)
	if err != nil {
		return "", err
	}
	random := rand.New(rand.NewPCG(5, 6))
	var image [32 * 32 * 3]byte
	for i := range cifarRecords {
		label := i % 10
		for at := range image {
			image[at] = byte(random.IntN(192))
			if at/(3*32*3) == label {
				image[at] += 63
			}
		}
		record := example.Append(nil,
			example.Value{Name: "image", Bytes: [][]byte{image[:]}},
			example.Value{Name: "label", Ints: []int64{int64(label)}})
		if err := w.Write(record); err != nil {
			return "", fmt.Errorf("write CIFAR-like records: %w", err)
		}
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
	}
	return dir, w.Close()
}
