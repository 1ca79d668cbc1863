// Package fetch gets a user's program from where package source says that it is.
//
// Laws:
//
//  1. A fetched file is in the directory whole, or not at all; several may fetch into one directory
//     at the same time.
//  2. A directory is named by the checksum of what is in it, so that a program that changed does
//     not change under those who run it.
//  3. Nothing is written outside the directory, whatever an archive has in it, and no more than the
//     limits say.
//  4. A program that has not the checksum that was asked for is not run.
package fetch

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"syscall"

	"github.com/elasticdl/elasticdl/trainer/download"
	"github.com/elasticdl/elasticdl/trainer/elastic/source"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
)

// maxFile is the number of bytes that a program, or an archive, may have.
const maxFile = 512 << 20

// Options say how to fetch.
type Options struct {
	// Open opens the place of an object, as bucket.Open does. nil: nothing comes from buckets.
	Open func(ctx context.Context, location string) (checkpoint.Files, error)
	// Client makes the requests over the web. nil: one of its own.
	Client *http.Client
}

// Fetch gets a program into a directory below dir and returns the path of its script. A local
// program stays where it is.
//
// The script may be executed. It is at dir/CHECKSUM/NAME, or at dir/CHECKSUM/SCRIPT of an archive.
// An existing file is not fetched again if the checksum of the program is given.
func Fetch(ctx context.Context, p source.Program, dir string, o Options) (path string, err error) {
	if p.Kind == source.Local {
		return p.Location, checkLocal(p)
	}
	if p.SHA256 != "" {
		if path, err := found(p, filepath.Join(dir, p.SHA256)); err == nil {
			return path, nil
		}
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", fmt.Errorf("fetch %s: %w", p, err)
	}
	temp, err := os.MkdirTemp(dir, ".fetch-")
	if err != nil {
		return "", fmt.Errorf("fetch %s: %w", p, err)
	}
	defer os.RemoveAll(temp)
	file := filepath.Join(temp, "file")
	if p.Kind == source.Bucket {
		err = o.object(ctx, p, file)
	} else {
		err = o.web(ctx, p, file)
	}
	if err != nil {
		return "", fmt.Errorf("fetch %s: %w", p, err)
	}
	sum, err := sumOf(file)
	if err != nil {
		return "", fmt.Errorf("fetch %s: %w", p, err)
	}
	if p.SHA256 != "" && sum != p.SHA256 {
		return "", mismatch("fetch "+p.String(), sum, p.SHA256)
	}
	return install(p, file, filepath.Join(temp, "whole"), filepath.Join(dir, sum))
}

// install gives what was fetched its name.
func install(p source.Program, file, whole, to string) (path string, err error) {
	err = os.Mkdir(whole, 0o777)
	switch {
	case err != nil:
	case p.Archive != source.Single:
		err = unpack(file, p.Archive, whole)
	default:
		if err = os.Chmod(file, 0o755); err == nil {
			err = os.Rename(file, filepath.Join(whole, p.Name))
		}
	}
	if err == nil {
		_, err = found(p, whole)
	}
	if err != nil {
		return "", fmt.Errorf("fetch %s: %w", p, err)
	}
	// A directory that another process made meanwhile has the same content. Directories are renamed
	// when complete, so an incomplete one is not of this package.
	if err = os.Rename(whole, to); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("fetch %s: %w", p, err)
	}
	if path, err = found(p, to); err != nil {
		return "", fmt.Errorf("fetch %s: %w; remove %s", p, err, to)
	}
	return path, nil
}

// found returns the path of the script in a directory, and sees to it that it may be executed.
func found(p source.Program, dir string) (string, error) {
	name := p.Name
	if p.Archive != source.Single {
		name = p.Script
	}
	path := filepath.Join(dir, filepath.FromSlash(name))
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("no %s in the archive; expected the path of the script from the archive's top", name)
	}
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a file; expected a script", name)
	}
	if mode := info.Mode().Perm(); mode&0o100 == 0 {
		return path, os.Chmod(path, mode|0o111&(mode>>2)|0o100)
	}
	return path, nil
}

func checkLocal(p source.Program) error {
	if p.SHA256 == "" {
		return nil
	}
	sum, err := sumOf(p.Location)
	if err != nil {
		return fmt.Errorf("program %s: %w", p, err)
	}
	if sum != p.SHA256 {
		return mismatch("program "+p.String(), sum, p.SHA256)
	}
	return nil
}

func mismatch(what, sum, want string) error {
	return fmt.Errorf("%s: sha256 %s, expected %s: correct the address or the checksum", what, sum, want)
}

func sumOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// object copies an object of a bucket to a file.
func (o Options) object(ctx context.Context, p source.Program, to string) error {
	if o.Open == nil {
		return errors.New("programs in buckets are not fetched here; expected a path or https://")
	}
	parent, name := checkpoint.Split(p.Location)
	if unescaped, err := url.PathUnescape(name); err == nil {
		name = unescaped
	}
	files, err := o.Open(ctx, parent)
	if err != nil {
		return err
	}
	from, size, closer, err := files.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("no such object; expected the bucket, a slash and the object's whole name")
	}
	if err != nil {
		return err
	}
	defer closer.Close()
	if size > maxFile {
		return fmt.Errorf("%d bytes, expected at most %d: data belongs on a volume", size, maxFile)
	}
	file, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, contextual{ctx, io.NewSectionReader(from, 0, size)})
	return errors.Join(err, file.Close())
}

// contextual ends reading with a context, also between the reads of a place that knows none.
type contextual struct {
	ctx context.Context
	r   io.Reader
}

func (c contextual) Read(b []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(b)
}

// web downloads a file.
func (o Options) web(ctx context.Context, p source.Program, to string) error {
	client := http.Client{}
	if o.Client != nil {
		client = *o.Client
	} else {
		client = *download.NewClient()
	}
	if p.SHA256 != "" {
		client.Transport = private(client.Transport)
	}
	client.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if p.SHA256 == "" && !source.Secure(r.URL) {
			return fmt.Errorf("%w: redirected to %s; expected https://, as http:// would let anyone "+
				"on the way change the program", download.ErrRefused, source.Shown(r.URL.String()))
		}
		if len(via) >= 10 {
			return fmt.Errorf("%w: more than 10 redirects", download.ErrRefused)
		}
		return nil
	}
	r := download.Request{Client: &client, URL: p.Location, Name: p.String(), Max: maxFile}
	err := r.File(ctx, to)
	if e, ok := errors.AsType[*download.StatusError](err); ok {
		switch e.Code {
		case http.StatusNotFound, http.StatusGone:
			return fmt.Errorf("%w; correct the address", err)
		case http.StatusUnauthorized, http.StatusForbidden:
			return fmt.Errorf("%w; expected a public address, or a signed one that has not expired", err)
		}
	}
	return err
}

// private returns a transport that makes requests by http to private networks only, whatever a name
// is resolved to. Those by https are made as before.
func private(t http.RoundTripper) http.RoundTripper {
	from, ok := cmp.Or(t, http.DefaultTransport).(*http.Transport)
	if !ok {
		return t
	}
	plain := from.Clone()
	plain.DialContext = (&net.Dialer{ControlContext: func(_ context.Context, _, address string,
		_ syscall.RawConn) error {
		if a, err := netip.ParseAddrPort(address); err != nil || !source.Private(a.Addr()) {
			return fmt.Errorf("%w: %s is not on a private network; expected https://", download.ErrRefused, address)
		}
		return nil
	}}).DialContext
	return bySchemes{plain: plain, secure: from}
}

// bySchemes makes requests by the transport of their URL's scheme.
type bySchemes struct{ plain, secure http.RoundTripper }

func (b bySchemes) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == "http" {
		return b.plain.RoundTrip(r)
	}
	return b.secure.RoundTrip(r)
}
