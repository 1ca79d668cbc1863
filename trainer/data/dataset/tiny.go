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

// The archive of tiny-imagenet, and what it has in it at most. The published one has 120,000 images, of 250 MB together.
const (
	tinyArchive = "tiny-imagenet-200.zip"
	tinyRoot    = "tiny-imagenet-200/"
	tinyNotes   = tinyRoot + "val/val_annotations.txt"

	maxEntries  = 1 << 18
	maxEntry    = 1 << 24 // bytes
	maxUnpacked = 1 << 30
)

const tinyNote = `tiny-imagenet, arranged for ImageFolder by "elasticdl dataset tiny-imagenet".

train/WNID/images/*.JPEG   as in tiny-imagenet-200.zip
val/WNID/images/*.JPEG     of val/images, by the second column of val/val_annotations.txt
words.txt                  what a WNID stands for, as in the archive

Left out: the images without labels (test), and the bounding boxes.
`

// tinyFiles are the content of the archive.
type tinyFiles struct {
	train map[string]*zip.File // by WNID/images/NAME
	val   map[string]*zip.File // by NAME
	notes *zip.File
	words *zip.File // may be missing
}

// fillTiny arranges the archive for ImageFolder, which takes every directory of train and of val for a class.
func fillTiny(ctx context.Context, m *making) error {
	in := m.inputs[tinyArchive]
	if err := in.unpackTiny(ctx, m); err != nil {
		return fmt.Errorf("read %s: %w", in.name, err)
	}
	return create(filepath.Join(m.dir, "README.txt"), []byte(tinyNote))
}

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

// unpack writes the pictures of a part.
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

// sortTiny finds the files of the archive that are of use, and refuses an archive that is not as it should be.
func sortTiny(files []*zip.File) (*tinyFiles, error) {
	t := &tinyFiles{train: map[string]*zip.File{}, val: map[string]*zip.File{}}
	if len(files) > maxEntries {
		return nil, fmt.Errorf("%d entries, want at most %d", len(files), maxEntries)
	}
	var total uint64
	for _, f := range files {
		switch mode := f.Mode(); {
		case !filepath.IsLocal(f.Name) || strings.ContainsRune(f.Name, '\\') || path.Clean(f.Name) != strings.TrimSuffix(f.Name, "/"):
			return nil, fmt.Errorf("entry %q: a path that is not clean or leads outside", f.Name)
		case mode.IsDir():
			continue
		case !mode.IsRegular():
			return nil, fmt.Errorf("entry %s: want a file or a directory, not %s", f.Name, mode)
		case f.UncompressedSize64 > maxEntry:
			return nil, fmt.Errorf("entry %s: %d bytes, want at most %d", f.Name, f.UncompressedSize64, maxEntry)
		}
		if total += f.UncompressedSize64; total > maxUnpacked {
			return nil, fmt.Errorf("more than %d bytes in it", maxUnpacked)
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

// sort puts one file where it belongs.
func (t *tinyFiles) sort(f *zip.File) error {
	name := strings.TrimPrefix(f.Name, tinyRoot)
	parts, to, key := strings.Split(name, "/"), map[string]*zip.File(nil), ""
	switch {
	case name == f.Name:
		return nil // beside it, as what macOS adds
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
		return fmt.Errorf("entry %s: it is there twice", f.Name)
	}
	to[key] = f
	return nil
}

// arrange returns the images of val by WNID/images/NAME, as the annotations have it.
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
			return nil, fmt.Errorf("%s: %s is of class %s, of which there are no images in train", tinyNotes, name, class)
		}
		inVal[class] = true
		val[class+"/images/"+name] = t.val[name]
	}
	for name := range t.val {
		if classes[name] == "" {
			return nil, fmt.Errorf("%s: nothing of val/images/%s", tinyNotes, name)
		}
	}
	for class := range inTrain {
		if !inVal[class] {
			return nil, fmt.Errorf("%s: no image of class %s; ImageFolder would number the classes differently", tinyNotes, class)
		}
	}
	return val, nil
}

// parseNotes reads lines of NAME, WNID and a box, with tabs between. It returns the WNID of each name.
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
			return nil, fmt.Errorf("line %d: %s is there twice", n, name)
		}
		classes[name] = class
	}
	return classes, lines.Err()
}

// isName reports whether s names something in a directory.
func isName(s string) bool {
	return s != "" && s != "." && s != ".." && !strings.ContainsAny(s, "/\\\x00")
}

// unpack reads a file of an archive, and its checksum with it.
func unpack(f *zip.File) ([]byte, error) {
	r, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("entry %s: %w", f.Name, err)
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, maxEntry+1))
	if err == nil && len(b) > maxEntry {
		err = errors.New("it is larger than it says")
	}
	if err != nil {
		return nil, fmt.Errorf("entry %s: %w", f.Name, err)
	}
	return b, nil
}
