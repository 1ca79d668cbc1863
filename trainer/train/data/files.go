package data

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"golang.org/x/sync/errgroup"
)

// Files reads the files of a place. It is a [Reader].
type Files struct {
	// as given to Open, for errors
	path string
	// the directory of the files, or their prefix in a bucket
	place Place
	// the single file of the place that is read; empty: all files
	only string
	options

	closed atomic.Bool
	// bytes that the last call of Shards has indexed
	scanned atomic.Int64
	// bytes that the last call of Shards has to index
	size atomic.Int64
	// bytes read by all indexing
	looked atomic.Int64

	// guards the fields below
	mu sync.Mutex
	// by shard: complete indexes
	indexes map[string]*index
	// by shard: blocks passed to Learn, in order
	known map[string][]task.Block
	// blocks read last
	cache cache
	// by CSV file: which fields of its rows become those of records; nil: all unchanged
	orders map[string][]int
	// of CSV files; nil: not known yet
	want *columns
	// those whose columns f has; nil: it has its own
	like *Files
}

// Close makes running and later reads fail.
func (f *Files) Close() error {
	f.closed.Store(true)
	return f.place.Close()
}

// Scanned returns how many bytes of the files [Files.Shards] has indexed, and how many there are.
// It may be called while Shards runs.
func (f *Files) Scanned() (bytes, of int64) { return f.scanned.Load(), f.size.Load() }

// Looked implements [Reader].
func (f *Files) Looked() int64 { return f.looked.Load() }

// indexers is the number of files that are indexed at once, to hide the latency of network file
// systems.
const indexers = 8

// Shards indexes all files, and lists those that have records.
func (f *Files) Shards() ([]task.Shard, error) {
	names, sizes, err := f.names()
	if err != nil {
		return nil, err
	}
	f.scanned.Store(0)
	f.size.Store(0)
	for _, size := range sizes {
		f.size.Add(size)
	}
	shards := make([]task.Shard, len(names))
	var g errgroup.Group
	g.SetLimit(indexers)
	for i, name := range names {
		g.Go(func() error {
			x, err := f.index(name)
			if err != nil {
				return err
			}
			shards[i] = task.Shard{Name: name, Count: x.records, Bytes: x.bytes, Sum: x.sum}
			f.scanned.Add(sizes[i])
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	full := shards[:0]
	for _, s := range shards {
		if s.Count > 0 {
			full = append(full, s)
		}
	}
	if len(full) == 0 {
		return nil, fmt.Errorf("read data %s: %w", f.path, f.nothing(names, sizes))
	}
	return full, nil
}

// nothing describes files without a record.
func (f *Files) nothing(names []string, sizes []int64) error {
	const want = "want RecordIO files, as elasticdl dataset writes them, or .csv files"
	for i, name := range names {
		if f.csv(name) && f.header && sizes[i] > 0 {
			return fmt.Errorf("no record in %d files: the first row of %s names the columns, and no "+
				"other follows; if the files have no header: --data_reader_params=header=false; %s",
				len(names), name, want)
		}
	}
	return fmt.Errorf("no record in %d files; %s", len(names), want)
}

// names lists the files, sorted, with the size of each in bytes.
func (f *Files) names() (names []string, sizes []int64, err error) {
	err = f.walk(func(name string, size int64) error {
		names, sizes = append(names, name), append(sizes, size)
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read data %s: %w", f.path, err)
	}
	return names, sizes, nil
}

// walk calls visit with each file, sorted by name.
func (f *Files) walk(visit func(name string, size int64) error) error {
	if f.only == "" {
		return f.place.Walk(visit)
	}
	_, size, file, err := f.place.Open(f.only)
	if err != nil {
		return err
	}
	file.Close()
	return visit(f.only, size)
}

// ReadAt implements [Reader].
func (f *Files) ReadAt(shard string, i int64) ([]byte, error) {
	b, err := f.block(shard, i)
	if err != nil {
		return nil, err
	}
	key := blockKey{shard, b}
	f.mu.Lock()
	records, ok := f.cache.get(key)
	f.mu.Unlock()
	if !ok {
		if records, err = f.read(shard, b); err != nil {
			return nil, err
		}
		f.mu.Lock()
		f.cache.put(key, records)
		f.mu.Unlock()
	}
	return records[i-b.First], nil
}

// index returns the index of a file. It makes the index on the first call.
func (f *Files) index(shard string) (*index, error) {
	f.mu.Lock()
	x, ok := f.indexes[shard]
	f.mu.Unlock()
	if ok {
		return x, nil
	}
	if f.only != "" && shard != f.only {
		return nil, fmt.Errorf("read %s: not the file %s", f.name(shard), f.path)
	}
	err := f.open(shard, func(r io.ReaderAt, size int64) (err error) {
		seen := &counted{ReaderAt: r, all: []*atomic.Int64{&f.scanned, &f.looked}}
		x, err = f.format(shard).index(seen, size)
		f.scanned.Add(-seen.own) // Shards counts whole files
		return err
	})
	if err != nil {
		return nil, err
	}
	if f.csv(shard) {
		if _, err := f.orderOf(shard); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	f.indexes[shard] = x
	f.mu.Unlock()
	return x, nil
}

// open calls use with an open file, and adds the file's name to the error. Files are open only
// while they are read, so that their number is not limited.
func (f *Files) open(shard string, use func(r io.ReaderAt, size int64) error) error {
	r, size, file, err := f.place.Open(shard)
	if err == nil {
		err = use(stored{r, &f.closed}, size)
		file.Close()
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", f.name(shard), err)
	}
	return nil
}

func (f *Files) name(shard string) string { return f.place.Name(shard) }

// cause strips operation and path from an error of the file system; callers name the file
// themselves.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
