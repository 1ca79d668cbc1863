// Package dataset makes training data of public data sets: RecordIO files of
// tf.train.Example.
//
// Laws:
//
//  1. The output directory is there and complete, or it is not there.
//  2. Made again from the same files, it stays as it is. What was made from
//     others, and what this package did not make, is never touched.
//  3. What was downloaded from the public mirrors has the published checksums.
package dataset

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
)

// The four files of a data set in the layout of MNIST, as IDX.
const (
	trainImages = "train-images-idx3-ubyte"
	trainLabels = "train-labels-idx1-ubyte"
	testImages  = "t10k-images-idx3-ubyte"
	testLabels  = "t10k-labels-idx1-ubyte"
)

// format is how the files of a data set hold its records.
type format struct {
	what        string   // for errors: "the four IDX files"
	train, test []string // the files of either part
	image       int      // bytes of an image
	open        func(files []input) (items, error)
}

// items are the records of a part, in their order.
type items interface {
	total() int
	next(image []byte) (label byte, err error)
	end() error // nothing comes behind the last
	close()
}

func (f *format) files() []string { return slices.Concat(f.train, f.test) }

// set is a public data set. sums are SHA-256 of the files without gzip.
type set struct {
	*format
	mirrors []string // none: source says where it is
	source  string
	sums    map[string]string
}

var sets = map[string]set{
	"cifar10": {
		format: &cifar,
		source: "unpack cifar-10-binary.tar.gz of https://www.cs.toronto.edu/~kriz/cifar.html and give its directory with --source",
	},
	"mnist": {
		format:  &digits,
		mirrors: []string{"https://storage.googleapis.com/cvdf-datasets/mnist", "https://ossci-datasets.s3.amazonaws.com/mnist"},
		sums: map[string]string{
			trainImages: "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
			trainLabels: "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
			testImages:  "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
			testLabels:  "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
		},
	},
	"fashion-mnist": {
		format:  &digits,
		mirrors: []string{"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com", "https://storage.googleapis.com/tensorflow/tf-keras-datasets"},
		sums: map[string]string{
			trainImages: "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7",
			trainLabels: "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056",
			testImages:  "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936907477e6dd344da56eaa",
			testLabels:  "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05",
		},
	},
}

// Names are the data sets that there are.
func Names() []string { return slices.Sorted(maps.Keys(sets)) }

// Options say what to make.
type Options struct {
	Name            string // one of Names
	Out             string // directory; gets train, test and a manifest
	Source          string // directory or URL of the set's files, gzip or not, in any number of records; empty: the public mirrors
	RecordsPerShard int    // records in a file; 0: 4096

	Client  *http.Client      // nil: one of its own
	Mirrors []string          // URLs in the place of the public mirrors
	Sums    map[string]string // by file name, in the place of the published ones
}

// Progress tells how far one step is.
type Progress struct {
	Step        string // "download train-images-idx3-ubyte.gz", "write train"
	Bytes       bool   // Done and Total are bytes, not records
	Done, Total int64  // Total is 0 while it is not known
}

// Result is what the output directory holds.
type Result struct {
	Train, Test int64 // records
	Existed     bool  // nothing was to be done
}

// Make makes the data set. progress, which may be nil, is called often, by one
// goroutine at a time. A record is an example of two features: image, one byte
// string of the pixels row by row, 0 to 255, of which a colour picture has three for each, and label, one int64.
func Make(ctx context.Context, o Options, progress func(Progress)) (Result, error) {
	s, ok := sets[o.Name]
	switch {
	case !ok:
		return Result{}, fmt.Errorf("data set %q: unknown; there are %s", o.Name, strings.Join(Names(), ", "))
	case o.Out == "":
		return Result{}, errors.New("data set " + o.Name + ": no output directory given")
	case o.RecordsPerShard < 0:
		return Result{}, fmt.Errorf("data set %s: %d records in a file", o.Name, o.RecordsPerShard)
	case o.RecordsPerShard == 0:
		o.RecordsPerShard = 4096
	}
	if o.Mirrors != nil {
		s.mirrors = o.Mirrors
	}
	if o.Sums != nil {
		s.sums = o.Sums
	}
	if progress == nil {
		progress = func(Progress) {}
	}
	m, made, err := readManifest(o.Out)
	if err != nil {
		return Result{}, err
	}
	want := manifest{Name: o.Name, RecordsPerShard: o.RecordsPerShard, Sums: s.sums}
	if made && o.Source == "" && m.sameInput(want) {
		return m.check(o.Out)
	}
	inputs, err := open(ctx, o, s, progress)
	if err != nil {
		return Result{}, err
	}
	want.Sums = map[string]string{}
	for name, in := range inputs {
		want.Sums[name] = in.sum
	}
	if made {
		if !m.sameInput(want) {
			return Result{}, fmt.Errorf("make %s: it holds %s, made from other files or cut otherwise; remove it first", o.Out, m.Name)
		}
		return m.check(o.Out)
	}
	return write(ctx, o.Out, want, s.format, inputs, progress)
}

// input is one file.
type input struct {
	name string // where it is, for errors
	sum  string // SHA-256 without gzip
	size int64  // bytes without gzip
	open func() (io.ReadCloser, error)
}

// open finds the files and their checksums.
func open(ctx context.Context, o Options, s set, progress func(Progress)) (map[string]input, error) {
	if o.Source != "" && !strings.Contains(o.Source, "://") {
		return openDir(o.Source, s.format)
	}
	if s.source != "" && o.Mirrors == nil {
		return nil, fmt.Errorf("download %s: no checksums to verify it with; %s", o.Name, s.source)
	}
	if u, err := url.Parse(o.Source); err != nil {
		return nil, fmt.Errorf("read source: %w", err)
	} else if o.Source != "" && u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("read source %s: want a directory, or a URL with http or https", o.Source)
	}
	d := downloader{client: o.Client, mirrors: s.mirrors, sums: s.sums, progress: progress}
	if o.Source != "" {
		d.mirrors, d.sums = []string{o.Source}, nil
	}
	if d.client == nil {
		d.client = newClient()
	}
	inputs := map[string]input{}
	for _, name := range s.files() {
		in, err := d.fetch(ctx, name)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("download %s.gz: %w", name, context.Cause(ctx))
		}
		if err != nil {
			hint := "give a directory or a URL that has it with --source"
			if o.Source != "" {
				hint = "give another --source"
			}
			return nil, fmt.Errorf("download %s.gz: %w; %s", name, err, hint)
		}
		inputs[name] = in
	}
	return inputs, nil
}

// openDir finds the files in a directory, with .gz or without.
func openDir(dir string, f *format) (map[string]input, error) {
	inputs := map[string]input{}
	for _, name := range f.files() {
		path, err := f.find(dir, name)
		if err != nil {
			return nil, err
		}
		in := input{name: path, open: func() (io.ReadCloser, error) { return os.Open(path) }}
		if in.sum, in.size, err = sumOf(in.open); err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		inputs[name] = in
	}
	return inputs, nil
}

func (f *format) find(dir, name string) (string, error) {
	for _, suffix := range []string{".gz", ""} {
		path := dir + string(os.PathSeparator) + name + suffix
		info, err := os.Stat(path)
		if err == nil && info.Mode().IsRegular() {
			return path, nil
		} else if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("read source: %w", err)
		}
	}
	return "", fmt.Errorf("read source %s: no %s.gz and no %[2]s; want %s %s", dir, name, f.what, strings.Join(f.files(), ", "))
}
