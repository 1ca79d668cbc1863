// Package recordio reads and writes RecordIO files, byte-compatible with
// wangkuiyi/recordio and pyrecordio.
//
// A file is a sequence of chunks and nothing else. A file of no chunks is empty.
// A chunk is a header of five little-endian uint32 and a payload:
//
//	 0  magic       0x01020304
//	 4  checksum    CRC-32 (IEEE) of the payload as stored in the file
//	 8  compressor  0 none, 1 Snappy in frames, 2 gzip
//	12  size        bytes of the payload as stored in the file
//	16  records     number of records
//	20  payload     {uint32 length, bytes} of each record, compressed
//
// The original, wangkuiyi/recordio, reads files that this package writes without
// compression or with Snappy. It hangs on any chunk with gzip, its own too.
//
// To write, make a [Writer], Write each record, and Close it. To read, make an
// [Index] with [ReadIndex] and a [Reader] over it, or read single chunks with
// [Chunk.Read].
//
// Laws:
//
//  1. The records that are read are the records that were written, empty ones included.
//  2. Record i read alone equals record i read in sequence.
//  3. Making an index reads each header once, and no payload.
//  4. The memory that a file can make a reader allocate is bounded. Sizes in headers are
//     checked against the size of the file first. A payload may decompress to 64 MiB or
//     to 16 times its own size, whichever is more, and to at most 1 GiB. Each record
//     takes 24 bytes more, for its slice. A chunk whose content differs from its header
//     is an error that gives its offset.
package recordio

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"sort"
)

// Compressor is a method of compression.
type Compressor uint32

// The numbers are those in the header of a chunk.
const (
	None   Compressor = 0
	Snappy Compressor = 1 // the default of the original
	Gzip   Compressor = 2
)

func (c Compressor) String() string {
	switch c {
	case None:
		return "none"
	case Snappy:
		return "snappy"
	case Gzip:
		return "gzip"
	}
	return fmt.Sprintf("compressor %d", uint32(c))
}

// DefaultChunkSize is the limit of the bytes of records in a chunk before compression, as in the
// original.
const DefaultChunkSize = 32 << 20

const (
	magic      = 0x01020304
	headerSize = 20
	lengthSize = 4
	// bytes of the payload of any chunk before compression
	maxPayload = 1 << 30
	// Limits of law 4 for compressed chunks. A payload of plainPayload bytes is always accepted,
	// and this package writes none larger. A larger one of another writer is accepted if its ratio
	// of compression is at most maxCompression: records are hardly ever compressed by more,
	// decompression bombs always are.
	plainPayload   = 2 * DefaultChunkSize
	maxCompression = 16
)

// mostPayload returns the limit of the decompressed bytes of a payload that has size bytes in the
// file.
func mostPayload(size int) int { return min(max(plainPayload, maxCompression*size), maxPayload) }

// A CorruptError describes a chunk that does not have the format of RecordIO.
type CorruptError struct {
	Offset int64 // of the chunk in the file
	Err    error // what is wrong
}

func (e *CorruptError) Error() string { return fmt.Sprintf("chunk at offset %d: %v", e.Offset, e.Err) }
func (e *CorruptError) Unwrap() error { return e.Err }

// ErrMagic is in the error of what does not begin as a chunk does: at offset 0, a file that is no
// RecordIO file.
var ErrMagic = errors.New("no chunk")

// A Chunk is the header of one chunk, and its position in the file.
type Chunk struct {
	// of the header in the file
	Offset int64
	// index in the file of the chunk's first record
	First int64
	// number of records
	Records int
	// bytes of the payload as stored in the file
	Size       int
	Compressor Compressor
	// of the payload as stored in the file
	Checksum uint32
}

// Length returns the bytes of header and payload in the file.
func (c Chunk) Length() int64 { return headerSize + int64(c.Size) }

// parseHeader parses a header, and checks it against rest, the bytes of the file behind it.
func parseHeader(b []byte, rest int64) (Chunk, error) {
	u := func(i int) uint32 { return binary.LittleEndian.Uint32(b[i:]) }
	c := Chunk{Checksum: u(4), Compressor: Compressor(u(8)), Size: int(u(12)), Records: int(u(16))}
	if u(0) != magic {
		return c, fmt.Errorf("%w: magic %#08x, want %#08x", ErrMagic, u(0), uint32(magic))
	}
	if int64(c.Size) > rest {
		return c, fmt.Errorf("payload of %d bytes, the file has %d", c.Size, rest)
	}
	// limit of the decompressed bytes, by the best ratio of the compressor
	most := int64(c.Size)
	switch c.Compressor {
	case None:
	case Snappy:
		most = min(32*most, int64(mostPayload(c.Size)))
	case Gzip:
		most = min(1040*most, int64(mostPayload(c.Size)))
	default:
		return c, fmt.Errorf("unknown %v", c.Compressor)
	}
	if int64(c.Records)*lengthSize > most {
		return c, fmt.Errorf("%d records in a payload of %d bytes", c.Records, c.Size)
	}
	return c, nil
}

// Read reads the chunk's records from r, the file that its header was read from.
// The records share memory that belongs to the caller.
func (c Chunk) Read(r io.ReaderAt) ([][]byte, error) {
	payload := make([]byte, c.Size)
	if n, err := r.ReadAt(payload, c.Offset+headerSize); n < len(payload) {
		return nil, &CorruptError{c.Offset, fmt.Errorf("read payload: %w", unexpected(err))}
	}
	if sum := crc32.ChecksumIEEE(payload); sum != c.Checksum {
		return nil, &CorruptError{c.Offset, fmt.Errorf("checksum %#08x, want %#08x", sum, c.Checksum)}
	}
	payload, err := decompress(c.Compressor, payload)
	if err != nil {
		return nil, &CorruptError{c.Offset, fmt.Errorf("decompress %v: %w", c.Compressor, err)}
	}
	records, err := split(payload, c.Records)
	if err != nil {
		return nil, &CorruptError{c.Offset, err}
	}
	return records, nil
}

// split splits a decompressed payload into its n records.
func split(payload []byte, n int) ([][]byte, error) {
	if n > len(payload)/lengthSize {
		return nil, fmt.Errorf("%d records in %d bytes", n, len(payload))
	}
	records := make([][]byte, n)
	rest := payload
	for i := range records {
		if len(rest) < lengthSize {
			return nil, fmt.Errorf("record %d of %d: truncated", i, n)
		}
		size := int64(binary.LittleEndian.Uint32(rest))
		rest = rest[lengthSize:]
		if size > int64(len(rest)) {
			return nil, fmt.Errorf("record %d of %d: %d bytes, the chunk has %d", i, n, size, len(rest))
		}
		records[i], rest = rest[:size:size], rest[size:]
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("%d bytes after the last of %d records", len(rest), n)
	}
	return records, nil
}

// unexpected turns io.EOF into io.ErrUnexpectedEOF.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// An Index holds the headers of a file's chunks. It does not change, so any number
// of readers may share it.
type Index struct {
	chunks  []Chunk
	records int64
}

// ReadIndex reads the headers of a file of size bytes.
func ReadIndex(r io.ReaderAt, size int64) (*Index, error) {
	x := &Index{}
	var header [headerSize]byte
	for offset := int64(0); offset < size; {
		c, err := readHeader(r, offset, size-offset, &header)
		if err != nil {
			return nil, err
		}
		c.First = x.records
		x.chunks = append(x.chunks, c)
		x.records += int64(c.Records)
		offset += c.Length()
	}
	return x, nil
}

// ReadHeader reads the header of the chunk at an offset; size is the number of bytes from there to
// the end of the file. It does not set [Chunk.First], which depends on the chunks before.
func ReadHeader(r io.ReaderAt, offset, size int64) (Chunk, error) {
	return readHeader(r, offset, size, new([headerSize]byte))
}

func readHeader(r io.ReaderAt, offset, size int64, header *[headerSize]byte) (Chunk, error) {
	if n, err := r.ReadAt(header[:min(headerSize, size)], offset); n < headerSize {
		if err == nil {
			err = io.EOF
		}
		if begin := binary.LittleEndian.AppendUint32(nil, magic); n > 0 && errors.Is(err, io.EOF) &&
			!bytes.HasPrefix(begin, header[:min(n, len(begin))]) {
			return Chunk{}, &CorruptError{offset, fmt.Errorf("%w: %d bytes, expected a header of %d",
				ErrMagic, n, headerSize)}
		}
		return Chunk{}, &CorruptError{offset, fmt.Errorf("read header: %w", unexpected(err))}
	}
	c, err := parseHeader(header[:], size-headerSize)
	if err != nil {
		return c, &CorruptError{offset, err}
	}
	c.Offset = offset
	return c, nil
}

// Records returns the number of records in the file.
func (x *Index) Records() int64 { return x.records }

// Chunks returns the chunks of the file in order. Callers must not change them.
func (x *Index) Chunks() []Chunk { return x.chunks }

// Find returns the index of the chunk that holds record i, which must be in [0, Records).
func (x *Index) Find(i int64) int {
	return sort.Search(len(x.chunks), func(c int) bool { return x.chunks[c].First > i }) - 1
}

// A Reader reads the records of one file, and caches the last chunk. It is not safe
// for concurrent use; several readers may share a file and an index.
type Reader struct {
	r       io.ReaderAt
	index   *Index
	chunk   int      // index of the cached chunk; -1: none
	records [][]byte // records of the cached chunk
}

// NewReader returns a reader of the file that the index was read from.
func NewReader(r io.ReaderAt, index *Index) *Reader {
	return &Reader{r: r, index: index, chunk: -1}
}

// Record returns record i. It stays valid. Callers must not change it.
func (r *Reader) Record(i int64) ([]byte, error) {
	if i < 0 || i >= r.index.records {
		return nil, fmt.Errorf("record %d of %d", i, r.index.records)
	}
	n := r.index.Find(i)
	c := r.index.chunks[n]
	if n != r.chunk {
		r.chunk, r.records = -1, nil
		records, err := c.Read(r.r)
		if err != nil {
			return nil, err
		}
		r.chunk, r.records = n, records
	}
	return r.records[i-c.First], nil
}

// Records yields those of the records [start, end) that the file has. It yields the
// first error, and then ends.
func (r *Reader) Records(start, end int64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for i := max(start, 0); i < min(end, r.index.records); i++ {
			record, err := r.Record(i)
			if !yield(record, err) || err != nil {
				return
			}
		}
	}
}
