// Package bucket opens the place of a checkpoint by its name: a directory, or a prefix in a bucket
// of Amazon S3, of what speaks S3's protocol, or of Google Cloud Storage.
//
//	ckpt                                        a directory of this machine
//	s3://bucket/path/ckpt?region=eu-west-1      objects whose names begin with path/ckpt/
//	gs://bucket/path/ckpt
//
// It is a package of its own because the clouds' SDKs are large: only who opens a place by its name
// links them.
//
// On an object store no file is renamed. An object appears, whole, when its upload is complete, and
// not before, as [checkpoint.Files] requires. Large files are uploaded in parts while they are
// written, and read in ranges.
package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/s3/manager"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/store/outage"
)

// partSize is the size of an uploaded part of a file. S3 takes 10,000 parts, so that the largest
// file is 160 GB.
const partSize = 16 << 20

// uploads is the number of parts of a file that are uploaded to S3 at the same time. A file that is
// written takes partSize × (uploads + 1) of memory.
const uploads = 4

// patience limits a request without content, with its retries.
const patience = time.Minute

// files are the objects of a bucket whose names begin with a prefix.
type files struct {
	ctx    context.Context // ends all reading and writing
	bucket *blob.Bucket
	prefix string // "" or ends with a slash
	name   string // to users
	part   int    // bytes
}

func (f files) String() string { return f.name }

// request bounds the time of a request.
func (f files) request() (context.Context, context.CancelFunc) {
	return context.WithTimeout(f.ctx, patience)
}

func (f files) Create(name string) (checkpoint.Writer, error) { return f.create(name, false) }

func (f files) CreateNew(name string) (checkpoint.Writer, error) { return f.create(name, true) }

func (f files) create(name string, exclusive bool) (checkpoint.Writer, error) {
	ctx, cancel := context.WithCancel(f.ctx)
	w, err := f.bucket.NewWriter(ctx, f.prefix+name, &blob.WriterOptions{
		ContentType: "application/octet-stream", BufferSize: f.part, MaxConcurrency: uploads,
		BeforeWrite: abortable, IfNotExist: exclusive,
	})
	if err != nil {
		cancel()
		return nil, explain(err)
	}
	return &writer{w: w, cancel: cancel, exclusive: exclusive}, nil
}

// writer is an object that is being uploaded.
type writer struct {
	w      *blob.Writer
	cancel context.CancelFunc
	// it appears only if there is none of its name
	exclusive bool
	closed    bool
}

func (w *writer) Write(b []byte) (int, error) {
	n, err := w.w.Write(b)
	return n, explain(err)
}

func (w *writer) Commit() error {
	if w.closed {
		return errors.New("the file was committed or aborted before")
	}
	w.closed = true
	defer w.cancel()
	err := w.w.Close()
	if w.exclusive && gcerrors.Code(err) == gcerrors.FailedPrecondition {
		return fmt.Errorf("%w: %w", fs.ErrExist, err)
	}
	return explain(err)
}

// Abort ends the upload: what is closed when its context has ended does not appear.
func (w *writer) Abort() {
	if !w.closed {
		w.closed = true
		w.cancel()
		w.w.Close()
	}
}

// abortable has the parts of an upload to S3 removed when its context has ended: the SDK would use
// that context for it.
func abortable(as func(any) bool) error {
	var u *manager.Uploader
	if as(&u) {
		u.S3 = aborter{u.S3}
	}
	return nil
}

type aborter struct{ manager.UploadAPIClient }

func (a aborter) AbortMultipartUpload(ctx context.Context, in *s3.AbortMultipartUploadInput,
	options ...func(*s3.Options)) (*s3.AbortMultipartUploadOutput, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return a.UploadAPIClient.AbortMultipartUpload(ctx, in, options...)
}

func (f files) Open(name string) (io.ReaderAt, int64, io.Closer, error) {
	ctx, cancel := f.request()
	defer cancel()
	a, err := f.bucket.Attributes(ctx, f.prefix+name)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil, 0, nil, &fs.PathError{Op: "open", Path: f.path(name), Err: fs.ErrNotExist}
	}
	if err != nil {
		return nil, 0, nil, explain(err)
	}
	r := &reader{size: a.Size, open: func(offset int64) (io.ReadCloser, error) {
		return f.bucket.NewRangeReader(f.ctx, f.prefix+name, offset, -1, nil)
	}}
	return r, a.Size, r, nil
}

func (f files) path(name string) string { return strings.TrimSuffix(f.name, "/") + "/" + name }

func (f files) List(dir string) ([]string, error) {
	prefix := f.prefix
	if dir != "" {
		prefix += dir + "/"
	}
	ctx, cancel := f.request()
	defer cancel()
	var names []string
	for objects := f.bucket.List(&blob.ListOptions{Prefix: prefix, Delimiter: "/"}); ; {
		o, err := objects.Next(ctx)
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err != nil {
			return nil, explain(err)
		}
		if o.Key != prefix { // which consoles make for a directory
			names = append(names, path.Base(o.Key))
		}
	}
}

func (f files) Remove(name string) error {
	if err := f.remove(f.prefix + name); err != nil {
		return err
	}
	ctx, cancel := f.request()
	defer cancel()
	for objects := f.bucket.List(&blob.ListOptions{Prefix: f.prefix + name + "/"}); ; {
		o, err := objects.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return explain(err)
		}
		if err := f.remove(o.Key); err != nil {
			return err
		}
	}
}

func (f files) remove(key string) error {
	ctx, cancel := f.request()
	defer cancel()
	err := f.bucket.Delete(ctx, key)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil
	}
	return explain(err)
}

// explain says what to do about an error of a store, and makes those that may be over later errors
// of storage.
func explain(err error) error {
	switch code := gcerrors.Code(err); {
	case err == nil, errors.Is(err, context.Canceled), code == gcerrors.Canceled,
		code == gcerrors.InvalidArgument, code == gcerrors.Unimplemented:
		return err
	case code == gcerrors.NotFound:
		return fmt.Errorf("there is no such bucket, or not in this region: %w", err)
	case code == gcerrors.PermissionDenied:
		return fmt.Errorf("access denied; expected permission to list the bucket and to read "+
			"its objects; for checkpoints also to write and delete them: %w", err)
	case strings.Contains(err.Error(), "get credentials: "):
		// as S3's client says it; there is no type for it
		err = fmt.Errorf("no credentials; expected AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a "+
			"profile, or the identity of the pod or the machine: %w", err)
	case strings.Contains(err.Error(), "endpoint rule error, ") && strings.Contains(err.Error(), "region"):
		return fmt.Errorf("no region; expected ?region=REGION after the bucket's name, or AWS_REGION: %w", err)
	}
	return &outage.Error{Err: err}
}
