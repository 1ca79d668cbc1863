package dataset

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// An IDX file begins with four bytes: 0, 0, the type of the elements, and the number
// of dimensions. The dimensions follow as big-endian uint32, then the elements. The
// files read here have elements of unsigned bytes.

const (
	idxUbyte = 0x08
	maxItems = 1 << 28
)

// idxReader reads an IDX file item by item along the first dimension.
type idxReader struct {
	r     io.Reader
	items int // number of items in the file
	read  int // number of items read
}

// newIDX reads the header of a file. item is the expected shape of an item; empty: one byte.
func newIDX(file io.Reader, item ...int) (*idxReader, error) {
	r, err := gunzip(file)
	if err != nil {
		return nil, err
	}
	header := make([]byte, 4+4*(1+len(item)))
	if _, err := io.ReadFull(r, header[:4]); err != nil {
		return nil, fmt.Errorf("read IDX header: %w", ended(err))
	}
	if header[0] != 0 || header[1] != 0 || header[2] != idxUbyte || int(header[3]) != 1+len(item) {
		return nil, fmt.Errorf("IDX magic %#x, want %#x", header[:4], []byte{0, 0, idxUbyte, byte(1 + len(item))})
	}
	if _, err := io.ReadFull(r, header[4:]); err != nil {
		return nil, fmt.Errorf("read IDX header: %w", ended(err))
	}
	items := binary.BigEndian.Uint32(header[4:])
	if items == 0 || items > maxItems {
		return nil, fmt.Errorf("%d items, want 1 to %d", items, maxItems)
	}
	for i, want := range item {
		if got := binary.BigEndian.Uint32(header[8+4*i:]); int64(got) != int64(want) {
			return nil, fmt.Errorf("dimension %d is %d, want %d", i+1, got, want)
		}
	}
	return &idxReader{r: r, items: int(items)}, nil
}

// next fills item with the next item.
func (x *idxReader) next(item []byte) error {
	if _, err := io.ReadFull(x.r, item); err != nil {
		return fmt.Errorf("item %d of %d: %w", x.read, x.items, ended(err))
	}
	x.read++
	return nil
}

// end fails if bytes follow the last item. It also makes gzip verify its checksum.
func (x *idxReader) end() error {
	var b [1]byte
	switch _, err := io.ReadFull(x.r, b[:]); err {
	case io.EOF:
		return nil
	case nil:
		return fmt.Errorf("more bytes than the header's %d items have", x.items)
	default:
		return err
	}
}

// gunzip returns a reader of the content of file: decompressed if it is gzip, else unchanged.
func gunzip(file io.Reader) (io.Reader, error) {
	r := bufio.NewReaderSize(file, 1<<16)
	if b, err := r.Peek(2); err == nil && b[0] == 0x1f && b[1] == 0x8b {
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, fmt.Errorf("gunzip: %w", err)
		}
		return bufio.NewReaderSize(z, 1<<16), nil
	}
	return r, nil
}

// ended turns io.EOF into io.ErrUnexpectedEOF.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// digits is the format of MNIST: each part is a file of images and a file of labels.
var digits = format{
	sources: "the four IDX files",
	train:   []string{trainImages, trainLabels}, test: []string{testImages, testLabels},
	image: side * side,
	open:  openDigits,
}

// digitItems reads the items of a file of images and a file of labels.
type digitItems struct {
	files          []io.Closer
	images, labels string // names of the files, for errors
	pixels, digits *idxReader
}

func openDigits(inputs []input) (items, error) {
	d := &digitItems{images: inputs[0].name, labels: inputs[1].name}
	for i, in := range inputs {
		file, err := in.open()
		if err != nil {
			d.close()
			return nil, err
		}
		d.files = append(d.files, file)
		if i == 0 {
			d.pixels, err = newIDX(file, side, side)
		} else {
			d.digits, err = newIDX(file)
		}
		if err != nil {
			d.close()
			return nil, fmt.Errorf("read %s: %w", in.name, err)
		}
	}
	if d.pixels.items != d.digits.items {
		d.close()
		return nil, fmt.Errorf("read %s: %d images, but %d labels in %s", d.images, d.pixels.items,
			d.digits.items, d.labels)
	}
	return d, nil
}

func (d *digitItems) total() int { return d.pixels.items }

func (d *digitItems) next(image []byte) (byte, error) {
	if err := d.pixels.next(image); err != nil {
		return 0, fmt.Errorf("read %s: %w", d.images, err)
	}
	var label [1]byte
	if err := d.digits.next(label[:]); err != nil {
		return 0, fmt.Errorf("read %s: %w", d.labels, err)
	}
	if label[0] >= labels {
		return 0, fmt.Errorf("read %s: item %d has label %d, want less than %d", d.labels,
			d.digits.read-1, label[0], labels)
	}
	return label[0], nil
}

func (d *digitItems) end() error {
	if err := d.pixels.end(); err != nil {
		return fmt.Errorf("read %s: %w", d.images, err)
	}
	if err := d.digits.end(); err != nil {
		return fmt.Errorf("read %s: %w", d.labels, err)
	}
	return nil
}

func (d *digitItems) close() {
	for _, file := range d.files {
		file.Close()
	}
}
