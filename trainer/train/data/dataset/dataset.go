// Package dataset makes training data from public data sets: RecordIO files of
// tf.train.Example for the built-in models, or one directory of images per class
// for scripts that read them with torchvision's ImageFolder.
//
// Laws:
//
//  1. The output directory exists and is complete, or it does not exist.
//  2. Making a data set again from the same files changes nothing. A directory
//     made from other files, or not by this package, is never changed.
//  3. Files from the public mirrors have the published checksums.
//  4. No file is written outside the output directory, whatever names an archive holds.
//  5. The training and the validation images have the same classes, so that a class
//     has the same number in both.
package dataset

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
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

// format describes the source files of a data set.
type format struct {
	// names the files in errors: "the four IDX files"
	sources string
	// names of the files of the training part
	train []string
	// names of the files of the test part
	test []string
	// bytes of an image
	image int
	// opens the files of one part
	open func(files []input) (items, error)
}

// items reads the images of a part with their labels, in order.
type items interface {
	total() int                                // number of items
	next(image []byte) (label byte, err error) // fills image with the next item
	end() error                                // fails if bytes follow the last item
	close()
}

// files returns the names of the files of both parts.
func (f *format) files() []string { return slices.Concat(f.train, f.test) }

// Layout describes the output directory of a data set.
type Layout struct {
	// "record" or "image"
	Unit string
	// names of the directories of the two parts
	Train, Test string
	// the flags of `elasticdl dataset` that have an effect on this data set
	Flags []string
}

// set is a data set that this package can make.
type set struct {
	Layout
	// names the source files in errors: "the four IDX files"
	sources string
	// names of the source files; none: the set is generated
	files []string
	// added to the names on a mirror
	suffix string
	// URLs of directories; none: the user has to give --source
	mirrors []string
	// tells the user where to get the files if there are no mirrors
	source string
	// checksums by file, as sumOf returns them
	sums map[string]string
	// writes both parts
	fill func(ctx context.Context, m *making) error
}

var (
	inRecords = Layout{Unit: "record", Train: "train", Test: "test", Flags: []string{"source", "records_per_shard"}}
	inFolders = Layout{Unit: "image", Train: "train", Test: "val", Flags: []string{"source"}}
)

var mnist = set{
	Layout: inRecords, sources: digits.sources, files: digits.files(), suffix: ".gz", fill: digits.records,
	mirrors: []string{"https://storage.googleapis.com/cvdf-datasets/mnist",
		"https://ossci-datasets.s3.amazonaws.com/mnist"},
	sums: map[string]string{
		trainImages: "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
		trainLabels: "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
		testImages:  "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
		testLabels:  "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
	},
}

var sets = map[string]set{
	"cifar10": {
		Layout: inRecords, sources: cifar.sources, files: cifar.files(), suffix: ".gz", fill: cifar.records,
		source: "unpack cifar-10-binary.tar.gz of https://www.cs.toronto.edu/~kriz/cifar.html and " +
			"give its directory with --source",
	},
	"mnist": mnist,
	"mnist-png": {
		Layout:  Layout{Unit: "image", Train: "training", Test: "testing", Flags: []string{"source"}},
		fill:    digits.pictures,
		sources: mnist.sources, files: mnist.files, suffix: mnist.suffix, mirrors: mnist.mirrors, sums: mnist.sums,
	},
	"fashion-mnist": {
		Layout: inRecords, sources: digits.sources, files: digits.files(), suffix: ".gz", fill: digits.records,
		mirrors: []string{"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
			"https://storage.googleapis.com/tensorflow/tf-keras-datasets"},
		sums: map[string]string{
			trainImages: "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7",
			trainLabels: "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056",
			testImages:  "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936907477e6dd344da56eaa",
			testLabels:  "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05",
		},
	},
	"tiny-imagenet": {
		Layout: inFolders, sources: "the archive", files: []string{tinyArchive}, fill: fillTiny,
		// Stanford's course hosts the archive of 248,100,043 bytes and publishes no checksum. This
		// MD5 is the one that public loaders check, for example Avalanche's
		// (avalanche/benchmarks/datasets/tiny_imagenet). It detects damage, not an attack.
		mirrors: []string{"https://cs231n.stanford.edu", "http://cs231n.stanford.edu"},
		sums:    map[string]string{tinyArchive: md5Sum + "90528d7ca1a48142e341f4ef8d21d0de"},
	},
	"images-synthetic": {
		Layout: Layout{Unit: "image", Train: "train", Test: "val",
			Flags: []string{"classes", "per_class", "size", "seed"}}, fill: fillSynthetic,
	},
}

// Names lists the names of the data sets, sorted.
func Names() []string { return slices.Sorted(maps.Keys(sets)) }

// LayoutOf returns the layout of a data set; known is false if there is none of that name.
func LayoutOf(name string) (l Layout, known bool) {
	s, known := sets[name]
	return s.Layout, known
}

// Options describe the data set to make.
type Options struct {
	// one of Names
	Name string
	// output directory: gets the two directories of the layout and a manifest
	Out string
	// directory or URL of the source files, with gzip or without; empty: the public mirrors
	Source string
	// records in a file; 0: 4096
	RecordsPerShard int
	// parameters of images-synthetic
	Synthetic Synthetic

	// nil: a client of this package
	Client *http.Client
	// URLs that replace the public mirrors; nil: the public ones
	Mirrors []string
	// checksums by file that replace the published ones; nil: the published ones
	Sums map[string]string
}

// Progress is the progress of one step.
type Progress struct {
	// "download train-images-idx3-ubyte.gz", "write train"
	Step string
	// Done and Total count bytes, not records or images
	Bytes bool
	// Total is 0 while it is unknown
	Done, Total int64
}

// Result describes the content of the output directory.
type Result struct {
	// number of records or images
	Train, Test int64
	// the data set was complete before, so nothing was written
	Existed bool
}

// Make makes a data set. progress, which may be nil, is called often, by one goroutine at a time. A
// record is an example of two features: image is one byte string of the pixels row by row, 0 to
// 255, with three bytes per pixel of a colour image; label is one int64.
func Make(ctx context.Context, o Options, progress func(Progress)) (Result, error) {
	s, ok := sets[o.Name]
	switch {
	case !ok:
		return Result{}, fmt.Errorf("data set %q: unknown; there are %s", o.Name, strings.Join(Names(), ", "))
	case o.Out == "":
		return Result{}, errors.New("data set " + o.Name + ": no output directory given")
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
	want, err := s.manifest(o)
	if err != nil {
		return Result{}, err
	}
	m, made, err := readManifest(o.Out)
	if err != nil {
		return Result{}, err
	}
	if made && o.Source == "" && m.sameInput(want) {
		return m.check(o.Out, s.Layout)
	}
	space := workspace{out: o.Out}
	defer space.remove()
	inputs, err := open(ctx, o, s, &space, progress)
	if err != nil {
		return Result{}, err
	}
	want.Sums = nil
	for name, in := range inputs {
		if want.Sums == nil {
			want.Sums = map[string]string{}
		}
		want.Sums[name] = in.sum
	}
	if made {
		if !m.sameInput(want) {
			return Result{}, fmt.Errorf("make %s: it holds %s made from other files or with other "+
				"options; remove it first", o.Out, m.Name)
		}
		return m.check(o.Out, s.Layout)
	}
	return write(ctx, s, want, &space, inputs, progress)
}

// manifest returns the manifest of the data set that o describes, made from the published files.
func (s set) manifest(o Options) (manifest, error) {
	m := manifest{Name: o.Name, Sums: s.sums}
	if slices.Contains(s.Flags, "records_per_shard") {
		if o.RecordsPerShard < 0 {
			return m, fmt.Errorf("data set %s: --records_per_shard=%d: want 1 or more", o.Name, o.RecordsPerShard)
		}
		if m.RecordsPerShard = o.RecordsPerShard; m.RecordsPerShard == 0 {
			m.RecordsPerShard = 4096
		}
	}
	if slices.Contains(s.Flags, "classes") {
		synthetic, err := o.Synthetic.complete()
		if err != nil {
			return m, fmt.Errorf("data set %s: %w", o.Name, err)
		}
		m.Synthetic = &synthetic
	}
	return m, nil
}

// workspace is a temporary directory next to the output directory, on the same file system. It is
// made on first use.
type workspace struct{ out, dir string }

// path returns the path of a file in the workspace.
func (w *workspace) path(name string) (string, error) {
	if w.dir == "" {
		parent := filepath.Dir(filepath.Clean(w.out))
		err := os.MkdirAll(parent, 0o777)
		if err == nil {
			w.dir, err = os.MkdirTemp(parent, ".dataset-")
		}
		if err != nil {
			return "", fmt.Errorf("make %s: %w", w.out, err)
		}
	}
	return filepath.Join(w.dir, name), nil
}

func (w *workspace) remove() {
	if w.dir != "" {
		os.RemoveAll(w.dir)
	}
}
