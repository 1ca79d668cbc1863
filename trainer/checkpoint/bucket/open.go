package bucket

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"strings"
	"sync"

	"gocloud.dev/blob"
	"gocloud.dev/blob/gcsblob"
	"gocloud.dev/blob/s3blob"
	"gocloud.dev/gcp"

	"github.com/elasticdl/elasticdl/trainer/checkpoint"
)

// Open opens a place by its name: the path of a directory, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX. Nothing need be there yet. All
// reading and writing in a bucket ends with ctx.
//
// Credentials are those of the environment, as each cloud's own tools find them: variables, files, the identity of the pod or machine.
// What follows a question mark is for S3's client: region, endpoint and use_path_style=true for a store that speaks S3's
// protocol, and others that https://pkg.go.dev/gocloud.dev/aws#V2ConfigFromURLParams lists.
func Open(ctx context.Context, location string) (checkpoint.Files, error) {
	u, err := parse(location)
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

// Opener returns a function that opens directories of commits by their names as [Open] does, each one once.
func Opener(ctx context.Context) func(location string) (checkpoint.Dir, error) {
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

// openGoogle says at once that there are no credentials; the client's own opener would go on with none.
func openGoogle(ctx context.Context, u *url.URL) (*blob.Bucket, error) {
	if u.RawQuery != "" {
		return nil, fmt.Errorf("%q: nothing can be said of Google Cloud Storage after a question mark", u.RawQuery)
	}
	client := gcp.NewAnonymousHTTPClient(gcp.DefaultTransport())
	if os.Getenv("STORAGE_EMULATOR_HOST") == "" {
		credentials, err := gcp.DefaultCredentials(ctx)
		if err != nil {
			return nil, fmt.Errorf("no credentials; expected the identity of the pod or the machine, a file that GOOGLE_APPLICATION_CREDENTIALS names, "+
				"or those of gcloud auth application-default login: %w", err)
		}
		if client, err = gcp.NewHTTPClient(gcp.DefaultTransport(), gcp.CredentialsTokenSource(credentials)); err != nil {
			return nil, err
		}
	}
	return gcsblob.OpenBucket(ctx, client, u.Host, nil)
}

// validation is whether S3's client compares checksums of what it reads. It warns of every range that has none; a checkpoint's own
// checksums are compared whatever the store has.
const validation = "response_checksum_validation"

// over returns the files of a bucket below the path of u.
func over(ctx context.Context, b *blob.Bucket, u *url.URL) files {
	f := files{ctx: ctx, bucket: b, name: u.Scheme + "://" + u.Host + u.Path, part: partSize}
	if prefix := strings.TrimPrefix(u.Path, "/"); prefix != "" {
		f.prefix = prefix + "/"
	}
	return f
}

// Check says what is wrong with the name of a place, without a look at it.
func Check(location string) error {
	_, err := parse(location)
	return err
}

// parse reads the name of a place in a bucket, whose path has no slash at its end. It returns nil for a directory's.
func parse(location string) (*url.URL, error) {
	const expected = "expected a directory, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX"
	if location == "" {
		return nil, errors.New("it is empty; " + expected)
	}
	scheme, _, isURL := strings.Cut(location, "://")
	if !isURL {
		return nil, nil
	}
	if scheme != "s3" && scheme != "gs" {
		return nil, fmt.Errorf("%s: unknown kind of place %q; %s", location, scheme, expected)
	}
	u, err := url.Parse(location)
	if err != nil {
		return nil, fmt.Errorf("%w; %s", err, expected)
	}
	u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/"), ""
	switch {
	case u.Host == "":
		return nil, fmt.Errorf("%s: the bucket is missing; %s", location, expected)
	case u.User != nil || u.Port() != "":
		return nil, fmt.Errorf("%s: %q is no bucket; %s; the address of a store goes into ?endpoint=", location, location[len(scheme)+3:], expected)
	case u.Fragment != "" || strings.Contains(location, "#"):
		return nil, fmt.Errorf("%s: a # in it; %s", location, expected)
	case u.Path != "" && path.Clean(u.Path) != u.Path:
		return nil, fmt.Errorf("%s: %q is no prefix: empty parts, . and .. have no meaning in a bucket; %s", location, u.Path, expected)
	case u.Query().Has("prefix"):
		return nil, fmt.Errorf("%s: ?prefix= is not taken; write it after the bucket: %s://%s/%s", location, scheme, u.Host, u.Query().Get("prefix"))
	}
	return u, nil
}
