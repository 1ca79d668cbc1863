package recordio

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// original returns record i of the files in testdata, which wangkuiyi/recordio wrote.
func original(i int) []byte {
	n := i * i % 997
	if i%50 == 0 {
		n = 0
	}
	b := make([]byte, n)
	for j := range b {
		b[j] = byte(i*31 + j*7)
	}
	return b
}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// readRecords reads a whole file in sequence.
func readRecords(file []byte) ([][]byte, error) {
	r := bytes.NewReader(file)
	x, err := ReadIndex(r, r.Size())
	if err != nil {
		return nil, err
	}
	var records [][]byte
	for record, err := range NewReader(r, x).Records(0, x.Records()) {
		if err != nil {
			return nil, err
		}
		records = append(records, record)
	}
	return records, nil
}

func writeRecords(t testing.TB, c Compressor, maxChunk int, records [][]byte) []byte {
	t.Helper()
	var file bytes.Buffer
	w, err := NewWriter(&file, c, maxChunk)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// Files that wangkuiyi/recordio wrote, one per compressor, are read.
func TestReadsTheOriginal(t *testing.T) {
	for name, c := range map[string]Compressor{"none": None, "snappy": Snappy, "gzip": Gzip} {
		file := readFile(t, name+".recordio")
		records, err := readRecords(file)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		sum := sha256.New()
		for i, r := range records {
			if !bytes.Equal(r, original(i)) {
				t.Fatalf("%s: record %d is wrong", name, i)
			}
			sum.Write(r)
		}
		const want = "5c09742a6b10df613046fc904128eca8a0e836523d1514e8e3b8cda27931536e"
		if got := hex.EncodeToString(sum.Sum(nil)); len(records) != 300 || got != want {
			t.Errorf("%s: %d records, sum %s", name, len(records), got)
		}
		x, err := ReadIndex(bytes.NewReader(file), int64(len(file)))
		if err != nil || x.Chunks()[0].Compressor != c {
			t.Errorf("%s: compressor %v, %v", name, x.Chunks()[0].Compressor, err)
		}
	}
}

// Files have the same chunks as those that wangkuiyi/recordio wrote; without compression they have
// the same bytes.
func TestWritesAsTheOriginal(t *testing.T) {
	records := make([][]byte, 300)
	for i := range records {
		records[i] = original(i)
	}
	if got := writeRecords(t, None, 16384, records); !bytes.Equal(got, readFile(t, "none.recordio")) {
		t.Error("the files differ")
	}
	for c, name := range map[Compressor]string{Snappy: "snappy", Gzip: "gzip"} {
		file := writeRecords(t, c, 16384, records)
		ours, err := ReadIndex(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			t.Fatal(err)
		}
		file = readFile(t, name+".recordio")
		theirs, err := ReadIndex(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.EqualFunc(ours.Chunks(), theirs.Chunks(), func(a, b Chunk) bool {
			return a.Records == b.Records && a.First == b.First
		}) {
			t.Errorf("%v: chunks %v, want %v", c, ours.Chunks(), theirs.Chunks())
		}
	}
}

func recordsGen() *rapid.Generator[[][]byte] {
	return rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 99), 0, 50)
}

// Laws 1, 2 and 3.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := recordsGen().Draw(t, "records")
		c := rapid.SampledFrom([]Compressor{None, Snappy, Gzip}).Draw(t, "compressor")
		maxChunk := rapid.IntRange(100, 1000).Draw(t, "maxChunk")
		file := bytes.NewBuffer(nil)
		w, err := NewWriter(file, c, maxChunk)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			if err := w.Write(r); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		counted := &countingReaderAt{r: bytes.NewReader(file.Bytes())}
		x, err := ReadIndex(counted, int64(file.Len()))
		if err != nil {
			t.Fatal(err)
		}
		if x.Records() != int64(len(records)) || counted.bytes != headerSize*len(x.Chunks()) {
			t.Fatalf("%d records, want %d; %d bytes read for %d chunks", x.Records(), len(records),
				counted.bytes, len(x.Chunks()))
		}
		start := rapid.Int64Range(-2, x.Records()+2).Draw(t, "start")
		end := rapid.Int64Range(start, x.Records()+2).Draw(t, "end")
		random := NewReader(counted, x)
		i := max(start, 0)
		for got, err := range NewReader(counted, x).Records(start, end) {
			if err != nil || !bytes.Equal(got, records[i]) {
				t.Fatalf("record %d: %v, %v", i, got, err)
			}
			j := rapid.Int64Range(0, x.Records()-1).Draw(t, "j")
			if got, err := random.Record(j); err != nil || !bytes.Equal(got, records[j]) {
				t.Fatalf("record %d alone: %v, %v", j, got, err)
			}
			i++
		}
		if want := min(end, x.Records()); i < want {
			t.Fatalf("ended at %d, want %d", i, want)
		}
		for _, i := range []int64{-1, x.Records()} {
			if _, err := random.Record(i); err == nil {
				t.Fatalf("record %d: no error", i)
			}
		}
	})
}

type countingReaderAt struct {
	r     io.ReaderAt
	bytes int
}

func (c *countingReaderAt) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.r.ReadAt(p, off)
	c.bytes += n
	return n, err
}

func TestSequenceReadsEachChunkOnce(t *testing.T) {
	file := readFile(t, "gzip.recordio")
	r := &countingReaderAt{r: bytes.NewReader(file)}
	x, err := ReadIndex(r, int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range NewReader(r, x).Records(0, x.Records()) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if r.bytes != len(file) {
		t.Errorf("%d bytes read of a file of %d", r.bytes, len(file))
	}
}

func TestEmptyFile(t *testing.T) {
	if file := writeRecords(t, Snappy, 0, nil); len(file) != 0 {
		t.Errorf("%d bytes", len(file))
	}
	x, err := ReadIndex(bytes.NewReader(nil), 0)
	if err != nil || x.Records() != 0 {
		t.Errorf("%v, %v", x, err)
	}
}

func TestOnlyEmptyRecords(t *testing.T) {
	records := make([][]byte, 100_000)
	for _, c := range []Compressor{None, Snappy, Gzip} {
		got, err := readRecords(writeRecords(t, c, 0, records))
		if err != nil || len(got) != len(records) {
			t.Errorf("%v: %d records, %v", c, len(got), err)
		}
	}
}

// Records behind a chunk without records are read. No writer makes such a chunk.
func TestEmptyChunk(t *testing.T) {
	one := writeRecords(t, None, 0, [][]byte{{1}})
	file := slices.Concat(chunk(None, 0, nil), one, chunk(None, 0, nil), chunk(None, 0, nil), one, chunk(None, 0, nil))
	records, err := readRecords(file)
	if err != nil || len(records) != 2 {
		t.Errorf("%v, %v", records, err)
	}
}

// chunk returns a chunk with a correct checksum of any payload.
func chunk(c Compressor, records int, payload []byte) []byte {
	var b []byte
	for _, v := range []int{magic, int(crc32.ChecksumIEEE(payload)), int(c), len(payload), records} {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return append(b, payload...)
}

func TestCorrupt(t *testing.T) {
	good := writeRecords(t, None, 10, [][]byte{[]byte("abc"), []byte("defghij"), []byte("k"), []byte("lmnopqrs")})
	x, err := ReadIndex(bytes.NewReader(good), int64(len(good)))
	if err != nil || len(x.Chunks()) != 2 {
		t.Fatal(x, err)
	}
	second := int(x.Chunks()[1].Offset)
	change := func(at int, to byte) []byte {
		b := slices.Clone(good)
		b[at] = to
		return b
	}
	gzipped, err := compress(Gzip, []byte{1, 0, 0, 0, 'a'})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		file   []byte
		offset int
		want   string
	}{
		"first magic":         {change(0, 0), 0, "magic 0x01020300, want 0x01020304"},
		"second magic":        {change(second+3, 9), second, "magic 0x09020304"},
		"header cut off":      {good[:second+19], second, "read header: unexpected EOF"},
		"payload cut off":     {good[:len(good)-1], second, "payload of 17 bytes, the file has 16"},
		"absurd size":         {change(second+15, 0xff), second, "payload of 4278190097 bytes"},
		"absurd records":      {change(second+19, 0xff), second, "records in a payload of 17 bytes"},
		"compressor":          {change(second+8, 3), second, "unknown compressor 3"},
		"payload":             {change(second+headerSize+6, 'X'), second, "checksum"},
		"checksum":            {change(second+4, good[second+4]+1), second, "checksum"},
		"snappy of nothing":   {chunk(Snappy, 1, []byte("no snappy")), 0, "decompress snappy: snappy: corrupt input"},
		"gzip of nothing":     {chunk(Gzip, 1, []byte("no gzip")), 0, "decompress gzip: "},
		"gzip cut off":        {chunk(Gzip, 1, gzipped[:len(gzipped)-3]), 0, "decompress gzip: unexpected EOF"},
		"record too long":     {chunk(None, 1, []byte{5, 0, 0, 0, 'a'}), 0, "record 0 of 1: 5 bytes, the chunk has 1"},
		"record absurd":       {chunk(None, 1, []byte{255, 255, 255, 255, 'a'}), 0, "record 0 of 1: 4294967295 bytes"},
		"fewer than reported": {chunk(None, 2, []byte{4, 0, 0, 0, 'a', 'b', 'c', 'd'}), 0, "record 1 of 2: truncated"},
		"many fewer":          {chunk(Gzip, 100, gzipped), 0, "100 records in 5 bytes"},
		"more than reported": {chunk(None, 1, []byte{0, 0, 0, 0, 0, 0, 0, 0}), 0,
			"4 bytes after the last of 1 records"},
		"text, not a recordio": {[]byte("a text file, longer than a header\n"), 0, "magic 0x65742061"},
	} {
		_, err := readRecords(c.file)
		corrupt, ok := errors.AsType[*CorruptError](err)
		if !ok || corrupt.Offset != int64(c.offset) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q at %d", name, err, c.want, c.offset)
		}
	}
}

// A sequence yields the records before a damaged chunk, then the error, and then ends.
func TestErrorEndsTheSequence(t *testing.T) {
	file := writeRecords(t, None, 4, [][]byte{[]byte("abc"), []byte("def"), []byte("ghi")})
	file[len(file)-4-3-headerSize-1] ^= 1
	r := bytes.NewReader(file)
	x, err := ReadIndex(r, r.Size())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for record, err := range NewReader(r, x).Records(0, 3) {
		got = append(got, fmt.Sprint(string(record), err != nil))
	}
	if want := []string{"abcfalse", "true"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestReadAllLimit(t *testing.T) {
	for n, ok := range map[int]bool{0: true, 99: true, 100: true, 101: false} {
		for _, r := range []io.Reader{bytes.NewReader(make([]byte, n)),
			iotest.OneByteReader(bytes.NewReader(make([]byte, n)))} {
			b, err := readAll(r, 3, 100)
			if ok != (err == nil) || ok && len(b) != n {
				t.Errorf("%d bytes of 100: %d, %v", n, len(b), err)
			}
		}
	}
}

// zeros is an endless reader that counts the bytes read.
type zeros struct{ read int }

func (z *zeros) Read(p []byte) (int, error) {
	clear(p)
	z.read += len(p)
	return len(p), nil
}

// allocated returns how many bytes a function allocates, whether they are kept or not.
func allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

// Law 4: of an endless payload, one byte more than the limit of the chunk is read, into less than
// four times as much memory.
func TestNoMoreIsReadThanAllowed(t *testing.T) {
	for size, most := range map[int]int{1: 64 << 20, 4 << 20: 64 << 20, 5 << 20: 80 << 20, 1 << 30: 1 << 30} {
		if got := mostPayload(size); got != most {
			t.Errorf("a payload of %d bytes may decompress to %d, want %d", size, got, most)
		}
	}
	const limit = 64 << 20
	var endless zeros
	took := allocated(func() {
		if _, err := readAll(&endless, 1, limit); err == nil {
			t.Error("an endless payload was accepted")
		}
	})
	if endless.read > limit+1 || took > 4*limit {
		t.Errorf("%d bytes were read and %d allocated, want at most %d and %d", endless.read, took, limit+1, 4*limit)
	}
}

// Law 4 with real bombs: chunks of up to 4 MB that decompress to a gigabyte of zeros, or to as much
// as the compressor allows, with one record or as many as fit.
func TestBomb(t *testing.T) {
	// as a sequence of streams, which readers read as one
	bomb := func(c Compressor, megabytes int) []byte {
		stream, err := compress(c, make([]byte, 1<<20))
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Repeat(stream, megabytes)
	}
	for name, payload := range map[string]struct {
		compressor Compressor
		bytes      []byte
	}{
		// 1 MB that decompress to 1 GB, the limit of deflate
		"gzip":   {Gzip, bomb(Gzip, 1<<10)},
		"snappy": {Snappy, bomb(Snappy, 80)},
	} {
		for _, records := range []int{1, 1 << 24} {
			file := chunk(payload.compressor, records, payload.bytes)
			var err error
			took := allocated(func() { _, err = readRecords(file) })
			if err == nil || !strings.Contains(err.Error(), "more than 67108864 bytes") {
				t.Errorf("%s of %d bytes, %d records: %v, want that it has more than 64 MiB", name,
					len(payload.bytes), records, err)
			}
			if took > 4*(64<<20)+len(file) {
				t.Errorf("%s of %d bytes took %d bytes", name, len(payload.bytes), took)
			}
		}
		// A number of records that cannot fit is refused before anything is decompressed.
		file := chunk(payload.compressor, 1<<25, payload.bytes)
		if _, err := readRecords(file); err == nil || !strings.Contains(err.Error(), "records in a payload of") {
			t.Errorf("%s with %d records: %v", name, 1<<25, err)
		}
	}
}

// A reader accepts every chunk that a writer makes, however well it compresses. With the largest
// chunks that a writer may be asked for, the lengths and the records together reach the limit.
func TestWriterStaysWithinTheLaw(t *testing.T) {
	// bytes of a record with its length; number of such records in a chunk
	const size, whole = 4096, plainPayload / 4096
	for c, chunks := range map[Compressor][]int{
		Snappy: {whole - 1, whole, 1},
		Gzip:   {whole - 1, 1}, // gzip is slow under the race detector
	} {
		var file bytes.Buffer
		w, err := NewWriter(&file, c, plainPayload-lengthSize)
		if err != nil {
			t.Fatal(err)
		}
		// One more record would take the first chunk 2 bytes beyond the limit. A second one is
		// filled exactly.
		first := make([]byte, size-lengthSize+2)
		err = w.Write(first)
		for i, n := range chunks {
			if i == 0 {
				n-- // it has the first record
			}
			for range n {
				err = errors.Join(err, w.Write(first[2:]))
			}
		}
		if err := errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		x, err := ReadIndex(bytes.NewReader(file.Bytes()), int64(file.Len()))
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		for _, one := range x.Chunks() {
			got = append(got, one.Records)
			if _, err := one.Read(bytes.NewReader(file.Bytes())); err != nil {
				t.Errorf("%v: %v", c, err)
			}
		}
		if !slices.Equal(got, chunks) {
			t.Errorf("%v: chunks of %d records, want %d", c, got, chunks)
		}
		if _, err := NewWriter(&file, c, plainPayload); err == nil {
			t.Errorf("%v: NewWriter accepts chunks that no reader accepts", c)
		}
	}
}

type failingWriter struct{ left int }

func (w *failingWriter) Write(b []byte) (int, error) {
	w.left -= len(b)
	if w.left < 0 {
		return 0, io.ErrShortWrite
	}
	return len(b), nil
}

func TestWriteErrors(t *testing.T) {
	if _, err := NewWriter(io.Discard, 3, 0); err == nil {
		t.Error("compressor 3: no error")
	}
	if _, err := NewWriter(io.Discard, None, 1<<40); err == nil {
		t.Error("huge chunks: no error")
	}
	w, err := NewWriter(io.Discard, None, 10)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(make([]byte, 10)); err == nil {
		t.Error("a record as long as a chunk: no error")
	}
	if err := errors.Join(w.Write(make([]byte, 9)), w.Close()); err != nil {
		t.Error(err)
	}
	if err := w.Write(nil); err == nil {
		t.Error("write after Close: no error")
	}
	w, err = NewWriter(&failingWriter{30}, None, 10)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(make([]byte, 9)); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := w.Flush(); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("flush to a full disk: %v", err)
		}
	}
	if err := w.Close(); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("close: %v", err)
	}
}

// Any file gives an error, or records that are the same after they were written and read again.
func FuzzRead(f *testing.F) {
	for _, c := range []Compressor{None, Snappy, Gzip} {
		var records [][]byte
		for i := range 12 {
			records = append(records, original(i))
		}
		f.Add(writeRecords(f, c, 200, records))
		f.Add(writeRecords(f, c, 0, make([][]byte, 5)))
	}
	f.Add(chunk(Snappy, 7, []byte("\xff\x06\x00\x00sNaPpY\x01\x08\x00\x00")))
	f.Fuzz(func(t *testing.T, file []byte) {
		records, err := readRecords(file)
		if err != nil {
			if _, ok := errors.AsType[*CorruptError](err); !ok {
				t.Fatalf("error without offset: %v", err)
			}
			return
		}
		again, err := readRecords(writeRecords(t, Snappy, 0, records))
		if err != nil || !slices.EqualFunc(records, again, bytes.Equal) {
			t.Fatalf("%d records, then %d: %v", len(records), len(again), err)
		}
	})
}

func benchmarkFile(b *testing.B, c Compressor) (file []byte, size int64) {
	rng := make([]byte, 784)
	var records [][]byte
	for i := range 4096 {
		for j := 300; j < 500; j++ {
			rng[j] = byte(i * j * 7 >> 3)
		}
		records = append(records, slices.Clone(rng))
		size += int64(len(rng))
	}
	return writeRecords(b, c, 256<<10, records), size
}

func BenchmarkRead(b *testing.B) {
	for _, c := range []Compressor{None, Snappy, Gzip} {
		b.Run(c.String(), func(b *testing.B) {
			file, size := benchmarkFile(b, c)
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := readRecords(file); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkIndex(b *testing.B) {
	file, _ := benchmarkFile(b, Snappy)
	r := bytes.NewReader(file)
	for b.Loop() {
		if _, err := ReadIndex(r, r.Size()); err != nil {
			b.Fatal(err)
		}
	}
}
