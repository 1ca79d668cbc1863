package data

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"

	"github.com/elasticdl/elasticdl/trainer/elastic/task"
)

// csvFormat is the CSV format of RFC 4180, as encoding/csv reads it: a quoted field may hold
// delimiters, line ends and doubled quotes; empty lines are ignored; all rows have as many fields
// as the first. A block holds many rows, so that a large file has a small index.
type csvFormat struct {
	delimiter byte
	header    bool // the first row is not a record
}

// byteOrderMark may precede the first row; spreadsheets write it.
const byteOrderMark = "\ufeff"

// Limits of a block. A row that would exceed one begins the next block.
const (
	blockRows  = 1024
	blockBytes = 256 << 10
)

// A RowError describes a malformed row of CSV.
type RowError struct {
	Line int // line of the file, from 1
	Err  error
}

func (e *RowError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }
func (e *RowError) Unwrap() error { return e.Err }

var (
	errBareQuote = errors.New("quote within a field that does not begin with one")
	errAfter     = errors.New("text behind the closing quote of a field")
	errUnclosed  = errors.New("quoted field without closing quote")
)

// scan returns a scanner of the rows of a file.
func (c csvFormat) scan(r io.ReaderAt, size int64, buffer int) (*rowScanner, error) {
	start := int64(len(byteOrderMark))
	var mark [len(byteOrderMark)]byte
	n, err := r.ReadAt(mark[:], 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	switch begin := string(mark[:n]); {
	case strings.HasPrefix(begin, "\xff\xfe"), strings.HasPrefix(begin, "\xfe\xff"):
		return nil, errUTF16
	case begin != byteOrderMark:
		start = 0
	}
	file := io.NewSectionReader(r, start, size-start)
	return &rowScanner{br: bufio.NewReaderSize(file, buffer), delimiter: c.delimiter, offset: start}, nil
}

// index reads the file once, in constant memory, and checks every row.
func (c csvFormat) index(r io.ReaderAt, size int64) (*index, error) {
	s, err := c.scan(r, size, 1<<16)
	if err != nil {
		return nil, err
	}
	file := &summed{r: io.NewSectionReader(r, s.offset, size-s.offset), from: s.offset}
	s.br.Reset(file)
	x := new(index)
	above := uint32(0)
	fields := 0
	for {
		row, err := s.next()
		if err == io.EOF {
			x.seal(size, above)
			return x, nil
		} else if err != nil {
			return nil, err
		}
		if fields == 0 {
			fields = row.fields
			if c.header {
				above = file.sum(0, row.start, s.offset)
				continue
			}
		}
		if row.fields != fields {
			return nil, &RowError{row.line, fmt.Errorf("%d fields, the first row has %d", row.fields, fields)}
		}
		x.add(row.start, s.offset, file)
	}
}

// add appends a row that occupies the bytes [start, end) of the file.
func (x *index) add(start, end int64, file *summed) {
	if n := len(x.blocks); n > 0 {
		last := &x.blocks[n-1]
		if last.Records < blockRows && end-last.Offset <= blockBytes {
			// with empty lines between the rows
			last.Checksum = file.sum(last.Checksum, last.Offset+last.Size, end)
			last.Records, last.Size = last.Records+1, end-last.Offset
			x.records++
			return
		}
	}
	x.blocks = append(x.blocks, task.Block{First: x.records, Records: 1, Offset: start,
		Size: end - start, Checksum: file.sum(0, start, end)})
	x.records++
}

// summed keeps the bytes that were read until their checksum is computed.
type summed struct {
	r io.Reader
	// offset in the file of the first byte of kept
	from int64
	// the first done of them are not needed any more
	kept []byte
	done int64
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (s *summed) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.kept = append(append(s.kept[:0], s.kept[s.done:]...), p[:n]...)
	s.from, s.done = s.from+s.done, 0
	return n, err
}

// sum adds the bytes [start, end) of the file, which were read, to a checksum, and forgets those
// before end.
func (s *summed) sum(crc uint32, start, end int64) uint32 {
	s.done = end - s.from
	return crc32.Update(crc, castagnoli, s.kept[start-s.from:s.done])
}

func (c csvFormat) read(r io.ReaderAt, b task.Block) ([][]byte, error) {
	buf := make([]byte, b.Size)
	if n, err := r.ReadAt(buf, b.Offset); n < len(buf) {
		return nil, fmt.Errorf("offset %d: %w", b.Offset, err)
	}
	if is := crc32.Checksum(buf, castagnoli); is != b.Checksum {
		return nil, changed(b, is)
	}
	s := rowScanner{br: bufio.NewReader(bytes.NewReader(buf)), delimiter: c.delimiter}
	rows := make([][]byte, 0, min(b.Records, b.Size))
	for {
		row, err := s.next()
		if err == io.EOF {
			break
		} else if err != nil {
			return nil, fmt.Errorf("the file has changed: %w", err)
		}
		rows = append(rows, buf[row.start:row.end:row.end])
	}
	if int64(len(rows)) != b.Records {
		return nil, fmt.Errorf("offset %d: %d rows, had %d: the file has changed", b.Offset, len(rows), b.Records)
	}
	return rows, nil
}
