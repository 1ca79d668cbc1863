package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
)

// Data are the objects of a bucket whose names begin with a prefix, as files of training data: they
// are read in ranges, whose pieces are kept in a temporary file of this machine.
type Data struct {
	files
	kept *pieces
	end  context.CancelFunc // of the context of files

	mu sync.Mutex
	// by name; that an object is replaced is noticed by the checksums of its records
	sizes map[string]int64
}

// OpenData opens data by its name, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX as for [Open]. If an
// object has exactly that name, the place is the one around it, and only is its name there. It is
// an error if there is nothing.
func OpenData(ctx context.Context, location string) (d *Data, only string, err error) {
	u, err := checkpoint.ParseLocation(location)
	if err == nil && u == nil {
		err = fmt.Errorf("%s: expected s3://BUCKET/PREFIX or gs://BUCKET/PREFIX", location)
	}
	if err != nil {
		return nil, "", err
	}
	if d, err = newData(ctx, location, keepBytes); err != nil {
		return nil, "", err
	}
	opened := d
	defer func() {
		if err != nil {
			opened.Close()
		}
	}()
	if key := strings.TrimSuffix(d.prefix, "/"); key != "" {
		request, cancel := d.request()
		defer cancel()
		a, err := d.bucket.Attributes(request, key)
		switch code := gcerrors.Code(err); {
		case err == nil:
			dir, name := path.Split(key)
			d.prefix, d.name = dir, strings.TrimSuffix(d.name, name)
			d.sizes[name] = a.Size
			return d, name, nil
		case code != gcerrors.NotFound:
			return nil, "", fmt.Errorf("%s: %w", location, explain(err))
		}
	}
	found := false
	if err = d.list(func(string, int64) bool { found = true; return false }); err == nil && !found {
		err = fmt.Errorf("no object's name begins with it and a slash: %w", fs.ErrNotExist)
	}
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", location, err)
	}
	return d, "", nil
}

// newData returns the objects of a place, of which it keeps that many bytes.
func newData(ctx context.Context, location string, keep int64) (*Data, error) {
	ctx, end := context.WithCancel(ctx)
	place, err := Open(ctx, location)
	if err != nil {
		end()
		return nil, err
	}
	return &Data{files: place.(files), end: end, kept: newPieces(keep), sizes: map[string]int64{}}, nil
}

// Name returns the URL of a file.
func (d *Data) Name(name string) string { return d.path(name) }

// Walk calls visit with each object below the prefix, sorted as a directory is walked: by the
// elements of the names. It leaves out what [Data.list] does.
func (d *Data) Walk(visit func(name string, size int64) error) error {
	type object struct {
		elements []string
		size     int64
	}
	var all []object
	if err := d.list(func(name string, size int64) bool {
		all = append(all, object{strings.Split(name, "/"), size})
		return true
	}); err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b object) int { return slices.Compare(a.elements, b.elements) })
	for _, o := range all {
		name := strings.Join(o.elements, "/")
		d.mu.Lock()
		d.sizes[name] = o.size
		d.mu.Unlock()
		if err := visit(name, o.size); err != nil {
			return err
		}
	}
	return nil
}

// list calls see with each object below the prefix, in the order of the bucket, until it returns
// false. It leaves out hidden objects, and those that consoles make for directories.
func (d *Data) list(see func(name string, size int64) bool) error {
	for objects := d.bucket.List(&blob.ListOptions{Prefix: d.prefix}); ; {
		request, cancel := d.request()
		o, err := objects.Next(request)
		cancel()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return explain(err)
		}
		name := strings.TrimPrefix(o.Key, d.prefix)
		if name == "" || strings.HasSuffix(name, "/") || strings.HasPrefix(name, ".") || strings.Contains(name, "/.") {
			continue
		}
		if !see(name, o.Size) {
			return nil
		}
	}
}

// Open returns an object, whose size it asks for once.
func (d *Data) Open(name string) (io.ReaderAt, int64, io.Closer, error) {
	d.mu.Lock()
	size, known := d.sizes[name]
	d.mu.Unlock()
	if !known {
		request, cancel := d.request()
		defer cancel()
		a, err := d.bucket.Attributes(request, d.prefix+name)
		if gcerrors.Code(err) == gcerrors.NotFound {
			return nil, 0, nil, fs.ErrNotExist
		}
		if err != nil {
			return nil, 0, nil, explain(err)
		}
		size = a.Size
		d.mu.Lock()
		d.sizes[name] = size
		d.mu.Unlock()
	}
	o := &object{d: d, name: name, size: size}
	return o, size, o, nil
}

// Close ends all reading, and releases the pieces.
func (d *Data) Close() error {
	d.end()
	return errors.Join(d.kept.close(), d.bucket.Close())
}

// Reads of at most smallRead bytes that are more than jump bytes from the one before read only
// their own bytes: they are headers of chunks, of which an index of a RecordIO file reads each. All
// other reads take whole pieces.
const (
	smallRead = 4 << 10
	jump      = 1 << 20
)

// object is an object that is read.
type object struct {
	d    *Data
	name string
	size int64

	mu   sync.Mutex
	last int64 // end of the last read; 0 = none
}

func (o *object) Close() error { return nil }

func (o *object) ReadAt(b []byte, offset int64) (int, error) {
	if offset < 0 {
		return 0, errors.New("read at a negative offset")
	}
	o.mu.Lock()
	last := o.last
	o.last = offset + int64(len(b))
	o.mu.Unlock()
	want := min(int64(len(b)), max(0, o.size-offset))
	n := 0
	for int64(n) < want {
		at := offset + int64(n)
		key := pieceKey{o.name, at / pieceSize}
		begin := key.index * pieceSize
		part := b[n:min(want, int64(n)+begin+pieceSize-at)]
		if got := o.d.kept.read(key, part, at-begin); got {
			n += len(part)
			continue
		}
		far := last > 0 && (at-last > jump || last-at > jump)
		if far && len(b) <= smallRead || !o.d.kept.able() {
			if err := o.fetch(part, at); err != nil {
				return n, err
			}
			n += len(part)
			continue
		}
		piece := make([]byte, min(pieceSize, o.size-begin))
		if err := o.fetch(piece, begin); err != nil {
			return n, err
		}
		o.d.kept.keep(key, piece)
		n += copy(part, piece[at-begin:])
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// fetch reads a range of the object. It continues where a response ends early, and gives up after
// some requests without a byte.
func (o *object) fetch(b []byte, offset int64) error {
	for n, left := 0, attempts; n < len(b); {
		got, err := o.response(b[n:], offset+int64(n))
		if n += got; got > 0 {
			left = attempts
		}
		if err == nil {
			continue
		}
		if gcerrors.Code(err) == gcerrors.NotFound {
			return fs.ErrNotExist
		}
		if left--; left == 0 || o.d.ctx.Err() != nil {
			return explain(err)
		}
	}
	return nil
}

// response reads as much of a range as one response has.
func (o *object) response(b []byte, offset int64) (int, error) {
	ctx, cancel := o.d.request()
	defer cancel()
	r, err := o.d.bucket.NewRangeReader(ctx, o.d.prefix+o.name, offset, int64(len(b)), nil)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	n, err := io.ReadFull(r, b)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
