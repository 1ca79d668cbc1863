package data

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"sort"
)

// A csvIndex tells where the rows of a CSV file are: not each of them, but
// every block of some, so that a large file has a small index. Rows are as
// RFC 4180 has them, as encoding/csv reads them: a quoted field may hold
// delimiters, line ends and doubled quotes; empty lines are no rows; all rows
// have as many fields as the first.
type csvIndex struct {
	delimiter byte
	blocks    []csvBlock
	rows      int64
}

type csvBlock struct {
	first       int64 // number of its first row
	offset, end int64 // in the file
}

// byteOrderMark is what spreadsheets put before the first row.
const byteOrderMark = "\ufeff"

// A block is ended where it has so many rows or bytes.
const (
	blockRows  = 1024
	blockBytes = 256 << 10
)

// A RowError is a row that is not as CSV wants it.
type RowError struct {
	Line int // of the file, from 1, in which the row begins
	Err  error
}

func (e *RowError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }
func (e *RowError) Unwrap() error { return e.Err }

var (
	errBareQuote = errors.New("quote within a field that does not begin with one")
	errAfter     = errors.New("text behind the closing quote of a field")
	errUnclosed  = errors.New("quoted field without closing quote")
)

// indexCSV reads the file once, in constant memory, and checks every row.
func indexCSV(r io.ReaderAt, size int64, delimiter byte, header bool) (*csvIndex, error) {
	start := int64(len(byteOrderMark))
	var mark [len(byteOrderMark)]byte
	if n, err := r.ReadAt(mark[:], 0); err != nil && err != io.EOF {
		return nil, err
	} else if string(mark[:n]) != byteOrderMark {
		start = 0
	}
	file := io.NewSectionReader(r, start, size-start)
	s := rowScanner{br: bufio.NewReaderSize(file, 1<<16), delimiter: delimiter, offset: start}
	x := &csvIndex{delimiter: delimiter}
	fields := 0
	for {
		row, err := s.next()
		if err == io.EOF {
			return x, nil
		} else if err != nil {
			return nil, err
		}
		if fields == 0 {
			fields = row.fields
			if header {
				continue
			}
		}
		if row.fields != fields {
			return nil, &RowError{row.line, fmt.Errorf("%d fields, the first row has %d", row.fields, fields)}
		}
		x.add(row.start, s.offset)
	}
}

// add adds a row that lies from start to end.
func (x *csvIndex) add(start, end int64) {
	if n := len(x.blocks); n > 0 {
		last := &x.blocks[n-1]
		if x.rows-last.first < blockRows && end-last.offset <= blockBytes {
			last.end = end
			x.rows++
			return
		}
	}
	x.blocks = append(x.blocks, csvBlock{first: x.rows, offset: start, end: end})
	x.rows++
}

func (x *csvIndex) Records() int64        { return x.rows }
func (x *csvIndex) First(block int) int64 { return x.blocks[block].first }

func (x *csvIndex) Find(i int64) int {
	return sort.Search(len(x.blocks), func(b int) bool { return x.blocks[b].first > i }) - 1
}

func (x *csvIndex) ReadBlock(r io.ReaderAt, block int) ([][]byte, error) {
	b := x.blocks[block]
	buf := make([]byte, b.end-b.offset)
	if n, err := r.ReadAt(buf, b.offset); n < len(buf) {
		return nil, fmt.Errorf("offset %d: %w", b.offset, err)
	}
	want := x.rows - b.first
	if block+1 < len(x.blocks) {
		want = x.blocks[block+1].first - b.first
	}
	s := rowScanner{br: bufio.NewReader(bytes.NewReader(buf)), delimiter: x.delimiter}
	rows := make([][]byte, 0, want)
	for {
		row, err := s.next()
		if err == io.EOF {
			break
		} else if err != nil {
			return nil, fmt.Errorf("the file has changed: %w", err)
		}
		rows = append(rows, buf[row.start:row.end:row.end])
	}
	if int64(len(rows)) != want {
		return nil, fmt.Errorf("offset %d: %d rows, had %d: the file has changed", b.offset, len(rows), want)
	}
	return rows, nil
}
