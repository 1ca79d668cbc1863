package dataset

import (
	"fmt"
	"io"
	"slices"
)

// cifar is the format of CIFAR-10's binary version: records of a label and an image. An image is
// one plane per colour.
var cifar = format{
	sources: "the files of CIFAR-10's binary version,",
	train:   []string{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"},
	test:    []string{"test_batch.bin"},
	image:   cifarColours * cifarPlane,
	open:    openCIFAR,
}

const (
	cifarColours = 3
	cifarPlane   = 32 * 32
	cifarRecord  = 1 + cifarColours*cifarPlane
)

// cifarItems are the records of several files, read one after another.
type cifarItems struct {
	files  []input           // the current file and those after it
	opened []io.Closer       // all files that were opened
	count  int               // records of all files
	from   io.Reader         // reads files[0]
	left   int               // records of files[0] that were not read
	record [cifarRecord]byte // the current record
}

func openCIFAR(files []input) (items, error) {
	c := &cifarItems{files: slices.Insert(slices.Clone(files), 0, input{})}
	for _, in := range files {
		if in.size == 0 || in.size%cifarRecord != 0 {
			return nil, fmt.Errorf("read %s: %d bytes, want a multiple of %d, the size of a record",
				in.name, in.size, cifarRecord)
		}
		c.count += int(in.size / cifarRecord)
	}
	return c, nil
}

func (c *cifarItems) total() int { return c.count }

// next reads a record and interleaves its planes.
func (c *cifarItems) next(image []byte) (byte, error) {
	if c.left == 0 {
		if err := c.advance(); err != nil {
			return 0, err
		}
	}
	c.left--
	in := c.files[0]
	if _, err := io.ReadFull(c.from, c.record[:]); err != nil {
		return 0, fmt.Errorf("read %s: %w", in.name, ended(err))
	}
	label, planes := c.record[0], c.record[1:]
	if label >= labels {
		return 0, fmt.Errorf("read %s: record %d has label %d, want less than %d", in.name,
			int(in.size/cifarRecord)-c.left-1, label, labels)
	}
	for i, v := range planes {
		image[i%cifarPlane*cifarColours+i/cifarPlane] = v
	}
	return label, nil
}

// advance opens the next file.
func (c *cifarItems) advance() error {
	c.files = c.files[1:]
	file, err := c.files[0].open()
	if err != nil {
		return err
	}
	c.opened = append(c.opened, file)
	c.left = int(c.files[0].size / cifarRecord)
	if c.from, err = gunzip(file); err != nil {
		return fmt.Errorf("read %s: %w", c.files[0].name, err)
	}
	return nil
}

// end returns nil: openCIFAR has checked the size of each file.
func (c *cifarItems) end() error { return nil }

func (c *cifarItems) close() {
	for _, file := range c.opened {
		file.Close()
	}
}
