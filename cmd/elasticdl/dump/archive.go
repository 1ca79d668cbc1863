package dump

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// ManifestFile is the first file of a dump.
const ManifestFile = "manifest.json"

// Save writes the archive, which only its owner may read, as a new file. A file that is not
// complete has another name, and is removed.
func (d *Dump) Save(file string) error {
	if _, err := os.Lstat(file); err == nil {
		return fmt.Errorf("%s: %w", file, fs.ErrExist)
	}
	out, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-*") // mode 0600
	if err != nil {
		return err
	}
	directory := strings.TrimSuffix(filepath.Base(file), ".tar.gz")
	if strings.Trim(directory, ".") == "" {
		directory = "debug-dump"
	}
	err = d.write(out, directory)
	if err = errors.Join(err, out.Sync(), out.Close()); err == nil {
		// unlike a rename it replaces no file
		err = os.Link(out.Name(), file)
		if err != nil && !errors.Is(err, fs.ErrExist) { // a file system without links
			err = os.Rename(out.Name(), file)
		}
	}
	if removed := os.Remove(out.Name()); !errors.Is(removed, fs.ErrNotExist) {
		err = cmp.Or(err, removed)
	}
	return err
}

// write writes the archive; its files are in one directory.
func (d *Dump) write(w io.Writer, directory string) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	add := func(name string, text []byte) error {
		if !safe(name) {
			return fmt.Errorf("%q cannot be a file of the archive", name)
		}
		err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: directory + "/" + name, Mode: 0o600,
			Size: int64(len(text)), ModTime: d.Created.Truncate(time.Second)})
		if err == nil {
			_, err = t.Write(text)
		}
		return err
	}
	if err := add(ManifestFile, encode(d.Manifest)); err != nil {
		return err
	}
	for i, f := range d.Files {
		if err := add(f.Name, d.texts[i]); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), z.Close())
}
