package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
)

// Upload copies the files of a directory to a prefix of a bucket, s3://BUCKET/PREFIX or
// gs://BUCKET/PREFIX. Hidden files are left out. Objects that have the content already stay, and
// existed reports whether all have; one with other content, or one that is no file of the
// directory, is an error, and nothing is copied. Progress is called with the bytes of files that
// are in the bucket. After an error another call continues.
func Upload(ctx context.Context, dir, location string, progress func(done, total int64)) (existed bool, err error) {
	u, err := checkpoint.ParseLocation(location)
	if err == nil && u == nil {
		err = fmt.Errorf("%s: expected s3://BUCKET/PREFIX or gs://BUCKET/PREFIX", location)
	}
	if err != nil {
		return false, err
	}
	d, err := newData(ctx, location, pieceSize)
	if err != nil {
		return false, err
	}
	defer d.Close()
	names, sizes, err := filesIn(dir)
	if err != nil {
		return false, err
	}
	var total, done int64
	for _, size := range sizes {
		total += size
	}
	there := map[string]bool{}
	var problems []error
	if err := d.Walk(func(name string, size int64) error {
		there[name] = true
		if want, ok := sizes[name]; !ok {
			problems = append(problems, fmt.Errorf("%s is not one of these files", d.Name(name)))
		} else if same, err := d.has(dir, name, size, want); err != nil {
			return err
		} else if !same {
			problems = append(problems, fmt.Errorf("%s has other contents", d.Name(name)))
		}
		return nil
	}); err != nil {
		return false, fmt.Errorf("%s: %w", location, err)
	}
	if len(problems) > 0 {
		return false, fmt.Errorf("%s is in use: %w; give another prefix, or delete what is there", location,
			errors.Join(problems...))
	}
	existed = true
	for _, name := range names {
		if !there[name] {
			existed = false
			if err := d.send(filepath.Join(dir, filepath.FromSlash(name)), name); err != nil {
				return false, fmt.Errorf("%s: %w", d.Name(name), err)
			}
		}
		done += sizes[name]
		progress(done, total)
	}
	return existed, nil
}

// filesIn returns the files below a directory, sorted, with their sizes in bytes.
func filesIn(dir string) (names []string, sizes map[string]int64, err error) {
	sizes = map[string]int64{}
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		hidden := name != "." && strings.HasPrefix(e.Name(), ".")
		switch {
		case err != nil:
			return err
		case hidden && e.IsDir():
			return fs.SkipDir
		case hidden || e.IsDir():
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		names, sizes[name] = append(names, name), info.Size()
		return nil
	})
	slices.Sort(names)
	return names, sizes, err
}

// has reports whether an object has the content of a file.
func (d *Data) has(dir, name string, size, want int64) (bool, error) {
	if size != want {
		return false, nil
	}
	file, err := os.Open(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		return false, err
	}
	defer file.Close()
	r, _, _, err := d.Open(name)
	if err != nil {
		return false, err
	}
	ours, theirs := make([]byte, pieceSize), make([]byte, pieceSize)
	for at := int64(0); at < size; at += pieceSize {
		n := min(pieceSize, size-at)
		if _, err := file.ReadAt(ours[:n], at); err != nil && err != io.EOF {
			return false, err
		}
		if _, err := r.ReadAt(theirs[:n], at); err != nil && err != io.EOF {
			return false, err
		}
		if !bytes.Equal(ours[:n], theirs[:n]) {
			return false, nil
		}
	}
	return true, nil
}

// send copies a file to an object.
func (d *Data) send(path, name string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	w, err := d.CreateNew(name)
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := io.Copy(w, file); err != nil {
		return err
	}
	return w.Commit()
}
