package bucket

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"

	"gocloud.dev/blob"
	"gocloud.dev/blob/gcsblob"
	"gocloud.dev/blob/s3blob"
	"gocloud.dev/gcp"

	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
)

// Open opens a place by its name: the path of a directory, s3://BUCKET/PREFIX or
// gs://BUCKET/PREFIX. Nothing need be there yet. All reading and writing in a bucket ends with ctx.
//
// Credentials are those of the environment, as each cloud's own tools find them: variables, files,
// the identity of the pod or machine. The part after a question mark is for S3's client: region,
// endpoint and use_path_style=true for a store that speaks S3's protocol, and others that
// https://pkg.go.dev/gocloud.dev/aws#V2ConfigFromURLParams lists.
func Open(ctx context.Context, location string) (checkpoint.Files, error) {
	u, err := checkpoint.ParseLocation(location)
	if err != nil {
		return nil, err
	}
	if u == nil {
		return checkpoint.Local(location), nil
	}
	open := openS3
	if u.Scheme == "gs" {
		open = openGoogle
	}
	b, err := open(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", location, err)
	}
	return over(ctx, b, u), nil
}

// Opener returns a function that opens directories of commits by their names as [Open] does, each
// one once.
func Opener(ctx context.Context) checkpoint.Opener {
	var mu sync.Mutex
	opened := make(map[string]checkpoint.Files)
	return func(location string) (checkpoint.Dir, error) {
		mu.Lock()
		defer mu.Unlock()
		if opened[location] == nil {
			f, err := Open(ctx, location)
			if err != nil {
				return checkpoint.Dir{}, err
			}
			opened[location] = f
		}
		return checkpoint.Dir{Files: opened[location]}, nil
	}
}

func openS3(ctx context.Context, u *url.URL) (*blob.Bucket, error) {
	client, query := *u, u.Query()
	if !query.Has(validation) {
		query.Set(validation, "when_required")
	}
	client.Path, client.RawQuery = "", query.Encode()
	return new(s3blob.URLOpener).OpenBucketURL(ctx, &client)
}

// openGoogle says at once that there are no credentials; the client's own opener would continue
// with none.
func openGoogle(ctx context.Context, u *url.URL) (*blob.Bucket, error) {
	if u.RawQuery != "" {
		return nil, fmt.Errorf("%q: nothing can be reported of Google Cloud Storage after a question mark", u.RawQuery)
	}
	client := gcp.NewAnonymousHTTPClient(gcp.DefaultTransport())
	if os.Getenv("STORAGE_EMULATOR_HOST") == "" {
		credentials, err := gcp.DefaultCredentials(ctx)
		if err != nil {
			return nil, fmt.Errorf("no credentials; expected the identity of the pod or the "+
				"machine, a file that GOOGLE_APPLICATION_CREDENTIALS names, "+
				"or those of gcloud auth application-default login: %w", err)
		}
		if client, err = gcp.NewHTTPClient(gcp.DefaultTransport(),
			gcp.CredentialsTokenSource(credentials)); err != nil {
			return nil, err
		}
	}
	return gcsblob.OpenBucket(ctx, client, u.Host, nil)
}

// validation is whether S3's client compares checksums of what it reads. It warns of every range
// that has none; a checkpoint's own checksums are compared whatever the store has.
const validation = "response_checksum_validation"

// over returns the files of a bucket below the path of u.
func over(ctx context.Context, b *blob.Bucket, u *url.URL) files {
	f := files{ctx: ctx, bucket: b, name: u.Scheme + "://" + u.Host + u.Path, part: partSize}
	if prefix := strings.TrimPrefix(u.Path, "/"); prefix != "" {
		f.prefix = prefix + "/"
	}
	return f
}
