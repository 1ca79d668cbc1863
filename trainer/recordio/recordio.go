// Package recordio reads and writes RecordIO files, byte-compatible with
// wangkuiyi/recordio and pyrecordio.
//
// A file is chunks one after another, nothing before or behind; no chunk is an
// empty file. A chunk is a header of five little-endian uint32 and a payload:
//
//	 0  magic       0x01020304
//	 4  checksum    CRC-32 (IEEE) of the payload as it lies in the file
//	 8  compressor  0 none, 1 Snappy in frames, 2 gzip
//	12  size        of the payload as it lies in the file
//	16  records     how many
//	20  payload     records times {uint32 length, bytes}, compressed
//
// The original reads what this package writes with no compressor or Snappy. It
// hangs on any chunk with gzip, its own too.
//
// Laws:
//
//  1. What is written is what is read, records of no bytes included.
//  2. Record i read alone is record i read in sequence.
//  3. An index costs one read of each header and none of a payload.
//  4. No input makes more memory be taken than it has bytes to show for: sizes
//     in headers are checked against the file first, and a payload may decompress
//     to 64 MiB or to 16 times its own size, whichever is more, and to no more
//     than 1 GiB. Beside that a record takes the 24 bytes of its slice. A chunk that
//     does not hold what its header says is an error that tells its offset.
package recordio

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"sort"
)

// Compressor is how payloads are compressed.
type Compressor uint32

// The numbers are those in the files.
const (
	None   Compressor = 0
	Snappy Compressor = 1 // the original's default
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

// DefaultChunkSize is the original's: bytes of records in a chunk before compression.
const DefaultChunkSize = 32 << 20

const (
	magic      = 0x01020304
	headerSize = 20
	lengthSize = 4
	maxPayload = 1 << 30 // of any chunk, before compression
	// What law 4 allows of a compressed chunk. Writers stay below the first; of others' chunks, larger ones are read too if they
	// have not been compressed to less than a sixteenth, as records hardly ever are and decompression bombs always.
	plainPayload   = 2 * DefaultChunkSize
	maxCompression = 16
)

// mostPayload returns how many bytes a payload of so many bytes in the file may have before compression.
func mostPayload(size int) int { return min(max(plainPayload, maxCompression*size), maxPayload) }

// A CorruptError is a file that is not as the format wants it.
type CorruptError struct {
	Offset int64 // of the chunk in the file
	Err    error
}

func (e *CorruptError) Error() string { return fmt.Sprintf("chunk at offset %d: %v", e.Offset, e.Err) }
func (e *CorruptError) Unwrap() error { return e.Err }

// A Chunk is what the header of one chunk says.
type Chunk struct {
	Offset     int64 // of the header in the file
	First      int64 // number of its first record in the file
	Records    int
	Size       int // of the payload as it lies in the file
	Compressor Compressor
	Checksum   uint32
}

// Length returns how many bytes of the file header and payload are.
func (c Chunk) Length() int64 { return headerSize + int64(c.Size) }

// parseHeader reads a header; rest is how many bytes the file has behind it.
func parseHeader(b []byte, rest int64) (Chunk, error) {
	u := func(i int) uint32 { return binary.LittleEndian.Uint32(b[i:]) }
	c := Chunk{Checksum: u(4), Compressor: Compressor(u(8)), Size: int(u(12)), Records: int(u(16))}
	if u(0) != magic {
		return c, fmt.Errorf("magic %#08x, want %#08x", u(0), uint32(magic))
	}
	if int64(c.Size) > rest {
		return c, fmt.Errorf("payload of %d bytes, the file has %d", c.Size, rest)
	}
	most := int64(c.Size) // bytes before compression, by the best that the compressor can do
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

// Read reads the chunk's records from the file that its header was read from.
// They share memory that nobody else has: they stay valid, and must not be
// changed if they are shared.
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

// split cuts a payload into its n records.
func split(payload []byte, n int) ([][]byte, error) {
	if n > len(payload)/lengthSize {
		return nil, fmt.Errorf("%d records in %d bytes", n, len(payload))
	}
	records := make([][]byte, n)
	rest := payload
	for i := range records {
		if len(rest) < lengthSize {
			return nil, fmt.Errorf("record %d of %d: cut off", i, n)
		}
		size := int64(binary.LittleEndian.Uint32(rest))
		rest = rest[lengthSize:]
		if size > int64(len(rest)) {
			return nil, fmt.Errorf("record %d of %d: %d bytes, the chunk has %d", i, n, size, len(rest))
		}
		records[i], rest = rest[:size:size], rest[size:]
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("%d bytes behind the last of %d records", len(rest), n)
	}
	return records, nil
}

// unexpected is the error of a file that ended too early.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// An Index tells where the records of a file are. It does not change, so any
// number of readers may share it.
type Index struct {
	chunks  []Chunk
	records int64
}

// ReadIndex reads the headers of a file of the given size.
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

// ReadHeader reads the header of the chunk at an offset, which the file has so many bytes from on. Which of the file's records
// the chunk has is not known by it.
func ReadHeader(r io.ReaderAt, offset, size int64) (Chunk, error) {
	return readHeader(r, offset, size, new([headerSize]byte))
}

func readHeader(r io.ReaderAt, offset, size int64, header *[headerSize]byte) (Chunk, error) {
	if n, err := r.ReadAt(header[:min(headerSize, size)], offset); n < headerSize {
		if err == nil {
			err = io.EOF
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

// Records is how many records the file has.
func (x *Index) Records() int64 { return x.records }

// Chunks are the chunks of the file; not to be changed.
func (x *Index) Chunks() []Chunk { return x.chunks }

// Find is the number of the chunk that holds record i, which must be in [0, Records).
func (x *Index) Find(i int64) int {
	return sort.Search(len(x.chunks), func(c int) bool { return x.chunks[c].First > i }) - 1
}

// A Reader reads the records of one file; it keeps the last chunk. It is for
// one goroutine; others may have their own over the same file and index.
type Reader struct {
	r       io.ReaderAt
	index   *Index
	chunk   int // whose records are kept; -1: none
	records [][]byte
}

// NewReader makes a reader of the file that the index was read from.
func NewReader(r io.ReaderAt, index *Index) *Reader {
	return &Reader{r: r, index: index, chunk: -1}
}

// Record is record i. It stays valid; it must not be changed.
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

// Records yields the records from start up to, not including, end, as far as
// there are any. It ends with the first error.
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
