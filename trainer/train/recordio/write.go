package recordio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// A Writer writes a file of records. The file is complete when Close has returned
// nil. The caller closes the underlying io.Writer.
type Writer struct {
	w          io.Writer
	compressor Compressor
	// limit of the bytes of records in a chunk
	maxChunk int
	// limit of the bytes of records and lengths in a chunk, by law 4
	most int
	// lengths and records of the chunk that is not written yet
	payload []byte
	// number of records in payload
	records int
	// the first error, which all later calls return
	err error
}

var errClosed = errors.New("writer is closed")

// NewWriter returns a writer whose chunks hold at most maxChunk bytes of records
// before compression; 0: [DefaultChunkSize].
func NewWriter(w io.Writer, c Compressor, maxChunk int) (*Writer, error) {
	if c > Gzip {
		return nil, fmt.Errorf("write records: unknown %v", c)
	}
	if maxChunk <= 0 {
		maxChunk = DefaultChunkSize
	}
	most := maxPayload / 2
	if c != None {
		most = plainPayload - lengthSize
	}
	if maxChunk > most {
		return nil, fmt.Errorf("write records: chunks of %d bytes, want at most %d", maxChunk, most)
	}
	return &Writer{w: w, compressor: c, maxChunk: maxChunk, most: most}, nil
}

// Write adds a record. It must be shorter than the limit of a chunk, as in the original.
func (w *Writer) Write(record []byte) error {
	if w.err != nil {
		return w.err
	}
	if len(record) >= w.maxChunk {
		return fmt.Errorf("write record: %d bytes, want less than the %d bytes of a chunk", len(record), w.maxChunk)
	}
	held := len(w.payload) - w.records*lengthSize
	// the latter for many short records
	if held+len(record) > w.maxChunk || len(w.payload)+len(record) > w.most {
		if err := w.Flush(); err != nil {
			return err
		}
	}
	w.payload = binary.LittleEndian.AppendUint32(w.payload, uint32(len(record)))
	w.payload = append(w.payload, record...)
	w.records++
	return nil
}

// Flush writes the chunk. The next record begins another one.
func (w *Writer) Flush() error {
	if w.err != nil || w.records == 0 {
		return w.err
	}
	payload, err := compress(w.compressor, w.payload)
	if err != nil {
		w.err = fmt.Errorf("write chunk: %w", err)
		return w.err
	}
	header := make([]byte, 0, headerSize)
	for _, v := range []uint32{magic, crc32.ChecksumIEEE(payload), uint32(w.compressor),
		uint32(len(payload)), uint32(w.records)} {
		header = binary.LittleEndian.AppendUint32(header, v)
	}
	for _, b := range [][]byte{header, payload} {
		if _, err := w.w.Write(b); err != nil {
			w.err = fmt.Errorf("write chunk: %w", err)
			return w.err
		}
	}
	w.payload, w.records = w.payload[:0], 0
	return nil
}

// Close writes the last chunk. Later calls of Write fail.
func (w *Writer) Close() error {
	err := w.Flush()
	if err == nil {
		w.err = errClosed
	}
	return err
}
