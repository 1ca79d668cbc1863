package dataset

import (
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// The archive of tiny-imagenet, and limits of its content. The published archive has 120,000 images
// of 250 MB in total.
const (
	tinyArchive = "tiny-imagenet-200.zip"
	tinyRoot    = "tiny-imagenet-200/"
	tinyNotes   = tinyRoot + "val/val_annotations.txt"

	maxEntries  = 1 << 18
	maxEntry    = 1 << 24 // bytes of an entry, decompressed
	maxUnpacked = 1 << 30 // bytes of all entries, decompressed
)

const tinyNote = `tiny-imagenet, arranged for ImageFolder by "elasticdl dataset tiny-imagenet".

train/WNID/images/*.JPEG   as in tiny-imagenet-200.zip
val/WNID/images/*.JPEG     of val/images, by the second column of val/val_annotations.txt
words.txt                  what a WNID stands for, as in the archive

Left out: the images without labels (test), and the bounding boxes.
`

// tinyFiles is the content of the archive. A WNID is the name of a class in WordNet.
type tinyFiles struct {
	train map[string]*zip.File // training images by WNID/images/NAME
	val   map[string]*zip.File // validation images by NAME
	notes *zip.File            // the classes of the validation images
	words *zip.File            // the description of each WNID; may be nil
}

// fillTiny unpacks the archive in the layout of ImageFolder, for which every directory of train and
// of val is a class.
func fillTiny(ctx context.Context, m *making) error {
	in := m.inputs[tinyArchive]
	if err := in.unpackTiny(ctx, m); err != nil {
		return fmt.Errorf("read %s: %w", in.name, err)
	}
	return create(filepath.Join(m.dir, "README.txt"), []byte(tinyNote))
}

// unpackTiny writes both parts and the descriptions of the classes.
func (in input) unpackTiny(ctx context.Context, m *making) error {
	archive, err := zip.OpenReader(in.path)
	if err != nil {
		return err
	}
	defer archive.Close()
	t, err := sortTiny(archive.File)
	if err != nil {
		return err
	}
	val, err := t.arrange()
	if err != nil {
		return err
	}
	m.manifest.Train, m.manifest.Test = int64(len(t.train)), int64(len(val))
	if err := m.unpack(ctx, m.Layout.Train, t.train); err != nil {
		return err
	}
	if err := m.unpack(ctx, m.Layout.Test, val); err != nil {
		return err
	}
	if t.words == nil {
		return nil
	}
	words, err := unpack(t.words)
	if err != nil {
		return err
	}
	return create(filepath.Join(m.dir, "words.txt"), words)
}

// unpack writes the images of a part.
func (m *making) unpack(ctx context.Context, part string, files map[string]*zip.File) error {
	to := m.folders(part, int64(len(files)))
	for _, name := range slices.Sorted(maps.Keys(files)) {
		picture, err := unpack(files[name])
		if err != nil {
			return err
		}
		if err := to.add(ctx, name, picture); err != nil {
			return err
		}
	}
	return nil
}

// sortTiny selects the files of the archive that are used. It refuses unsafe paths, files over the
// limits and a wrong layout.
func sortTiny(files []*zip.File) (*tinyFiles, error) {
	t := &tinyFiles{train: map[string]*zip.File{}, val: map[string]*zip.File{}}
	if len(files) > maxEntries {
		return nil, fmt.Errorf("%d entries, want at most %d", len(files), maxEntries)
	}
	var total uint64
	for _, f := range files {
		switch mode := f.Mode(); {
		case !filepath.IsLocal(f.Name) || strings.ContainsRune(f.Name, '\\') ||
			path.Clean(f.Name) != strings.TrimSuffix(f.Name, "/"):
			return nil, fmt.Errorf("entry %q: the path is not clean or leads out of the archive", f.Name)
		case mode.IsDir():
			continue
		case !mode.IsRegular():
			return nil, fmt.Errorf("entry %s: want a file or a directory, not %s", f.Name, mode)
		case f.UncompressedSize64 > maxEntry:
			return nil, fmt.Errorf("entry %s: %d bytes, want at most %d", f.Name, f.UncompressedSize64, maxEntry)
		}
		if total += f.UncompressedSize64; total > maxUnpacked {
			return nil, fmt.Errorf("more than %d bytes decompressed", maxUnpacked)
		}
		if err := t.sort(f); err != nil {
			return nil, err
		}
	}
	switch {
	case len(t.train) == 0:
		return nil, fmt.Errorf("no %strain/WNID/images/*.JPEG in it", tinyRoot)
	case t.notes == nil:
		return nil, fmt.Errorf("no %s in it", tinyNotes)
	}
	return t, nil
}

// sort adds one file to the field that it belongs to, and ignores files that are not used.
func (t *tinyFiles) sort(f *zip.File) error {
	name := strings.TrimPrefix(f.Name, tinyRoot)
	parts, to, key := strings.Split(name, "/"), map[string]*zip.File(nil), ""
	switch {
	case name == f.Name:
		// outside the root directory, as the files that macOS adds
		return nil
	case f.Name == tinyNotes:
		t.notes = f
	case name == "words.txt":
		t.words = f
	case !isImage(name):
	case len(parts) == 4 && parts[0] == "train" && parts[2] == "images":
		to, key = t.train, strings.TrimPrefix(name, "train/")
	case len(parts) == 3 && parts[0] == "val" && parts[1] == "images":
		to, key = t.val, parts[2]
	}
	if to == nil {
		return nil
	}
	if to[key] != nil {
		return fmt.Errorf("entry %s: duplicate", f.Name)
	}
	to[key] = f
	return nil
}

// arrange returns the validation images by WNID/images/NAME, with the classes of the annotations.
func (t *tinyFiles) arrange() (map[string]*zip.File, error) {
	notes, err := unpack(t.notes)
	if err != nil {
		return nil, err
	}
	classes, err := parseNotes(notes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", tinyNotes, err)
	}
	inTrain, inVal := map[string]bool{}, map[string]bool{}
	for name := range t.train {
		class, _, _ := strings.Cut(name, "/")
		inTrain[class] = true
	}
	val := map[string]*zip.File{}
	for name, class := range classes {
		switch {
		case t.val[name] == nil:
			return nil, fmt.Errorf("%s: %s is not in the archive", tinyNotes, name)
		case !inTrain[class]:
			return nil, fmt.Errorf("%s: %s is of class %s, of which there are no images in train",
				tinyNotes, name, class)
		}
		inVal[class] = true
		val[class+"/images/"+name] = t.val[name]
	}
	for name := range t.val {
		if classes[name] == "" {
			return nil, fmt.Errorf("%s: no line for val/images/%s", tinyNotes, name)
		}
	}
	for class := range inTrain {
		if !inVal[class] {
			return nil, fmt.Errorf("%s: no image of class %s; ImageFolder would number the classes "+
				"differently", tinyNotes, class)
		}
	}
	return val, nil
}

// parseNotes parses lines of NAME, WNID and a bounding box, separated by tabs. It returns the WNID
// of each name.
func parseNotes(b []byte) (map[string]string, error) {
	classes := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(b))
	for n := 1; lines.Scan(); n++ {
		name, rest, _ := strings.Cut(lines.Text(), "\t")
		class, _, _ := strings.Cut(rest, "\t")
		switch {
		case strings.TrimSpace(lines.Text()) == "":
			continue
		case !isName(name) || !isName(class):
			return nil, fmt.Errorf("line %d: want a file's name, a tab and a class's name", n)
		case classes[name] != "":
			return nil, fmt.Errorf("line %d: duplicate %s", n, name)
		}
		classes[name] = class
	}
	return classes, lines.Err()
}

// isName reports whether s is a valid name of a file in a directory.
func isName(s string) bool {
	return s != "" && s != "." && s != ".." && !strings.ContainsAny(s, "/\\\x00")
}

// unpack reads a file of an archive and verifies its checksum.
func unpack(f *zip.File) ([]byte, error) {
	r, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("entry %s: %w", f.Name, err)
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, maxEntry+1))
	if err == nil && len(b) > maxEntry {
		err = errors.New("larger than its header says")
	}
	if err != nil {
		return nil, fmt.Errorf("entry %s: %w", f.Name, err)
	}
	return b, nil
}
