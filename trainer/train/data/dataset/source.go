package dataset

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/elasticdl/elasticdl/trainer/download"
)

// input is a source file on this machine.
type input struct {
	// the path or URL that it came from, for errors
	name string
	// the path of the file
	path string
	// the checksum that sumOf returns
	sum string
	// bytes of the content, decompressed
	size int64
}

func (in input) open() (*os.File, error) { return os.Open(in.path) }

// open finds or downloads the source files of a set. It returns them by name, none for a generated
// set.
func open(ctx context.Context, o Options, s set, space *workspace, progress func(Progress)) (map[string]input, error) {
	if len(s.files) == 0 {
		if o.Source != "" {
			return nil, fmt.Errorf("read source %s: data set %s is generated and has no source; "+
				"leave --source out", o.Source, o.Name)
		}
		return nil, nil
	}
	if o.Source != "" && !strings.Contains(o.Source, "://") {
		return s.openDir(o.Source)
	}
	if s.source != "" && o.Mirrors == nil {
		return nil, fmt.Errorf("download %s: no checksums to verify it with; %s", o.Name, s.source)
	}
	if u, err := url.Parse(o.Source); err != nil {
		return nil, fmt.Errorf("read source: %w", err)
	} else if o.Source != "" && u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("read source %s: want a directory, or a URL with http or https", o.Source)
	}
	d := downloader{client: o.Client, mirrors: s.mirrors, sums: s.sums, kind: s.kind(), progress: progress}
	if o.Source != "" {
		d.mirrors, d.sums = []string{o.Source}, nil
		if file, ok := s.single(); ok {
			d.mirrors[0] = strings.TrimSuffix(o.Source, "/"+file)
		}
	}
	if d.client == nil {
		d.client = download.NewClient()
	}
	inputs := map[string]input{}
	for _, name := range s.files {
		path, err := space.path(name)
		if err != nil {
			return nil, err
		}
		in, err := d.fetch(ctx, name+s.suffix, name, path)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("download %s: %w", name+s.suffix, context.Cause(ctx))
		}
		if err != nil {
			hint := "give a directory or a URL that has it with --source"
			if o.Source != "" {
				hint = "give another --source"
			}
			return nil, fmt.Errorf("download %s: %w; %s", name+s.suffix, err, hint)
		}
		inputs[name] = in
	}
	return inputs, nil
}

// openDir returns the source files in a directory, whose names may have the suffix .gz.
func (s set) openDir(dir string) (map[string]input, error) {
	inputs := map[string]input{}
	for _, name := range s.files {
		path, err := s.find(dir, name)
		if err != nil {
			return nil, err
		}
		in := input{name: path, path: path}
		if in.sum, in.size, err = sumOf(path, s.kind()); err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		inputs[name] = in
	}
	return inputs, nil
}

// single returns the name of the source file of a set that has only one; --source may then name the
// file itself.
func (s set) single() (string, bool) {
	if len(s.files) != 1 {
		return "", false
	}
	return s.files[0] + s.suffix, true
}

// find returns the path of a source file in a directory.
func (s set) find(dir, name string) (string, error) {
	if _, ok := s.single(); ok {
		if info, err := os.Stat(dir); err == nil && info.Mode().IsRegular() {
			return dir, nil
		}
	}
	want := "no " + name
	suffixes := []string{""}
	if s.suffix != "" {
		want = "no " + name + s.suffix + " and no " + name
		suffixes = []string{s.suffix, ""}
	}
	for _, suffix := range suffixes {
		path := filepath.Join(dir, name+suffix)
		info, err := os.Stat(path)
		if err == nil && info.Mode().IsRegular() {
			return path, nil
		} else if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("read source: %w", err)
		}
	}
	return "", fmt.Errorf("read source %s: %s; want %s %s", dir, want, s.sources, strings.Join(s.files, ", "))
}

// A downloader downloads files from the first mirror that serves them with the right checksum.
type downloader struct {
	client  *http.Client
	mirrors []string
	// expected checksums by name; nil: any content is accepted
	sums map[string]string
	// of the checksums: as set.kind returns it
	kind     string
	progress func(Progress)
}

const maxDownload = 1 << 28 // bytes of a file

// fetch downloads a file to path and checks it. name is its key in the checksums.
func (d *downloader) fetch(ctx context.Context, file, name, path string) (input, error) {
	var problems []string
	for _, mirror := range d.mirrors {
		in, err := d.fetchFrom(ctx, strings.TrimSuffix(mirror, "/")+"/"+file, name, path)
		if err == nil {
			return in, nil
		}
		if ctx.Err() != nil {
			return in, context.Cause(ctx)
		}
		problems = append(problems, err.Error())
	}
	return input{}, errors.New(strings.Join(problems, "; "))
}

func (d *downloader) fetchFrom(ctx context.Context, url, name, path string) (in input, err error) {
	step := Progress{Step: "download " + url[strings.LastIndexByte(url, '/')+1:], Bytes: true}
	r := download.Request{Client: d.client, URL: url, Max: maxDownload, Progress: func(done, total int64) {
		step.Done, step.Total = done, total
		d.progress(step)
	}}
	if err := r.File(ctx, path); err != nil {
		return in, err
	}
	in = input{name: url, path: path}
	if in.sum, in.size, err = sumOf(path, d.kind); err != nil {
		return in, fmt.Errorf("%s: %w", url, err)
	}
	if want := d.sums[name]; d.sums != nil && in.sum != want {
		kind := "sha256 "
		if d.kind != "" {
			kind = ""
		}
		return in, fmt.Errorf("%s: %s%s, want %s", url, kind, in.sum, want)
	}
	return in, nil
}

// md5Sum is the prefix of MD5 checksums, for files of which no SHA-256 is published.
const md5Sum = "md5:"

// kind returns the prefix of the set's checksums: md5Sum, or nothing for SHA-256.
func (s set) kind() string {
	for _, sum := range s.sums {
		if strings.HasPrefix(sum, md5Sum) {
			return md5Sum
		}
	}
	return ""
}

// sumOf returns the checksum and the size in bytes of a file's decompressed content.
func sumOf(path, kind string) (sum string, size int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer file.Close()
	r, err := gunzip(file)
	if err != nil {
		return "", 0, err
	}
	h := sha256.New()
	if kind == md5Sum {
		h = md5.New()
	}
	if size, err = io.Copy(h, r); err != nil {
		return "", 0, err
	}
	return kind + hex.EncodeToString(h.Sum(nil)), size, nil
}
