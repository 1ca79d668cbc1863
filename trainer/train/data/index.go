package data

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"sort"

	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/train/recordio"
)

// index holds the positions of the records of a file, as blocks. A block is read as a whole. An
// index does not change.
type index struct {
	// in order; each has records
	blocks []task.Block
	// of all blocks
	records int64
	// size of the file
	bytes int64
	// of the content, as the checksums of the blocks tell it
	sum uint64
}

// seal sets size and checksum of a complete index. Above is the checksum of what is not in a block,
// as a header is.
func (x *index) seal(size int64, above uint32) {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %08x\n", size, above)
	for _, b := range x.blocks {
		fmt.Fprintf(h, "%d %d %d %08x\n", b.Records, b.Offset, b.Size, b.Checksum)
	}
	x.bytes, x.sum = size, h.Sum64()
}

// changed is the error of a block whose bytes are not those that were indexed.
func changed(b task.Block, is uint32) error {
	return fmt.Errorf("offset %d: the checksum of %d records is %08x, was %08x when the data was "+
		"indexed: the file has changed; restore it, or begin a new job", b.Offset, b.Records, is, b.Checksum)
}

// format is a file format.
type format interface {
	// index finds the blocks of a file of size bytes.
	index(r io.ReaderAt, size int64) (*index, error)
	// read returns the records of a block.
	read(r io.ReaderAt, b task.Block) ([][]byte, error)
}

// recordIO is the RecordIO format. Its blocks are chunks.
type recordIO struct{}

func (recordIO) index(r io.ReaderAt, size int64) (*index, error) {
	chunks, err := recordio.ReadIndex(r, size)
	if err != nil {
		return nil, foreign(err)
	}
	x := &index{records: chunks.Records()}
	for _, c := range chunks.Chunks() {
		if c.Records > 0 {
			x.blocks = append(x.blocks, task.Block{First: c.First, Records: int64(c.Records),
				Offset: c.Offset, Size: c.Length(), Checksum: c.Checksum})
		}
	}
	x.seal(size, 0)
	return x, nil
}

// foreign returns an error of reading a header, in other words if the file is no RecordIO file at
// all.
func foreign(err error) error {
	if corrupt, ok := errors.AsType[*recordio.CorruptError](err); ok && corrupt.Offset == 0 &&
		errors.Is(err, recordio.ErrMagic) {
		return errors.New("it is no RecordIO file; want one, as elasticdl dataset writes it, or a " +
			".csv file; what is no data is left out if its name begins with a dot")
	}
	return err
}

// Peek returns an error if Open was given a single file that is no RecordIO file and should be one.
func (f *Files) Peek() error {
	if f.only == "" || f.csv(f.only) {
		return nil
	}
	return f.open(f.only, func(r io.ReaderAt, size int64) error {
		if size == 0 { // it has no record, which Shards says
			return nil
		}
		_, err := recordio.ReadHeader(r, 0, size)
		return foreign(err)
	})
}

func (recordIO) read(r io.ReaderAt, b task.Block) ([][]byte, error) {
	c, err := recordio.ReadHeader(r, b.Offset, b.Size)
	if err != nil {
		return nil, err
	}
	if c.Length() != b.Size || int64(c.Records) != b.Records {
		return nil, fmt.Errorf("chunk at offset %d: %d records in %d bytes, had %d in %d: the file "+
			"has changed", b.Offset, c.Records, c.Length(), b.Records, b.Size)
	}
	if c.Checksum != b.Checksum {
		return nil, changed(b, c.Checksum)
	}
	return c.Read(r)
}

// find returns the block that holds record i, and false if none does.
func find(blocks []task.Block, i int64) (task.Block, bool) {
	n := sort.Search(len(blocks), func(k int) bool { return blocks[k].First > i }) - 1
	if n < 0 || i >= blocks[n].First+blocks[n].Records {
		return task.Block{}, false
	}
	return blocks[n], true
}

// Blocks returns the blocks that hold the records [start, end) of a shard, nil if [Files.Shards]
// did not list it. Callers must not change them.
func (f *Files) Blocks(shard string, start, end int64) []task.Block {
	f.mu.Lock()
	x := f.indexes[shard]
	f.mu.Unlock()
	if x == nil {
		return nil
	}
	from := sort.Search(len(x.blocks), func(k int) bool { return x.blocks[k].First+x.blocks[k].Records > start })
	to := sort.Search(len(x.blocks), func(k int) bool { return x.blocks[k].First >= end })
	return x.blocks[from:max(from, to):max(from, to)]
}

// Learn stores the positions of some records of a shard, so that reading them does not index the
// file. The blocks are in order.
func (f *Files) Learn(shard string, blocks []task.Block) error {
	var end int64
	for _, b := range blocks {
		if b.First < end || b.Records <= 0 || b.First+b.Records <= b.First || b.Offset < 0 ||
			b.Size <= 0 || b.Offset+b.Size <= b.Offset {
			return fmt.Errorf("blocks of %s: %+v after record %d: not a block, or not in order", f.name(shard), b, end)
		}
		end = b.First + b.Records
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.known[shard]
	for _, b := range blocks {
		n, found := slices.BinarySearchFunc(known, b.First, func(k task.Block, first int64) int {
			return int(k.First - first)
		})
		if found {
			known[n] = b
		} else {
			known = slices.Insert(known, n, b)
		}
	}
	f.known[shard] = known
	return nil
}

// block returns the block of record i. It indexes the file if the block was not learned.
func (f *Files) block(shard string, i int64) (task.Block, error) {
	f.mu.Lock()
	b, ok := find(f.known[shard], i)
	f.mu.Unlock()
	if ok {
		return b, nil
	}
	x, err := f.index(shard)
	if err != nil {
		return task.Block{}, err
	}
	if b, ok = find(x.blocks, i); !ok {
		return b, fmt.Errorf("read %s: record %d of %d", f.name(shard), i, x.records)
	}
	return b, nil
}

// read returns the records of a block.
func (f *Files) read(shard string, b task.Block) (records [][]byte, err error) {
	err = f.open(shard, func(r io.ReaderAt, size int64) error {
		if b.Offset+b.Size > size {
			return fmt.Errorf("offset %d: %d bytes, the file has %d: it has changed", b.Offset, b.Size, size)
		}
		records, err = f.format(shard).read(r, b)
		return err
	})
	if err != nil || !f.csv(shard) {
		return records, err
	}
	order, err := f.orderOf(shard)
	if err != nil || order == nil {
		return records, err
	}
	return arrange(records, order, f.delimiter), nil
}

// orderOf returns the order of the columns of a CSV file, see order. It reads the first row of the
// file on the first call.
func (f *Files) orderOf(shard string) ([]int, error) {
	f.mu.Lock()
	order, known := f.orders[shard]
	f.mu.Unlock()
	if known {
		return order, nil
	}
	first, err := f.firstRow(shard)
	if err != nil {
		return nil, err
	}
	if first != nil {
		if order, err = f.order(shard, first); err != nil {
			return nil, fmt.Errorf("read %s: %w", f.name(shard), err)
		}
	}
	f.mu.Lock()
	f.orders[shard] = order
	f.mu.Unlock()
	return order, nil
}

// format returns the format of a file.
func (f *Files) format(shard string) format {
	if f.csv(shard) {
		return csvFormat{f.delimiter, f.header}
	}
	return recordIO{}
}
