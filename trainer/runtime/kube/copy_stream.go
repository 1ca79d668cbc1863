package kube

import (
	"archive/tar"
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/elasticdl/elasticdl/trainer/runtime/role"
)

// Answers of a receiver, on one line. After it the receiver reads what still comes: an unread
// stream does not end.
const (
	received = "received"
	existing = "existing"
	failed   = "failed: " // and why
)

// files are a directory's. A stream of them is a tar archive in the PAX format: first a global
// header that says which files follow, then the files in the order of their names.
type files struct {
	dir  string
	list []file
}

type file struct {
	name string // from the directory, with slashes
	size int64
	sum  string // SHA-256, hexadecimal
}

// whole identifies all files of a stream.
type whole struct {
	files, bytes int64
	// SHA-256 of their names, sizes and sums
	sum string
}

// The records that a stream has in its PAX headers.
const (
	// of the global header
	recordFiles = "ELASTICDL.files"
	recordBytes = "ELASTICDL.bytes"
	// of the global header, for all files, and of each file
	recordSum = "ELASTICDL.sha256"
)

// tally counts files for whole.
type tally struct {
	whole
	hash hash.Hash
}

func newTally() *tally { return &tally{hash: sha256.New()} }

func (t *tally) add(f file) {
	t.files++
	t.bytes += f.size
	fmt.Fprintf(t.hash, "%s %d %q\n", f.sum, f.size, f.name)
	t.sum = hex.EncodeToString(t.hash.Sum(nil))
}

// whole identifies the files, after sumUp.
func (f *files) whole() whole {
	t := newTally()
	for _, file := range f.list {
		t.add(file)
	}
	return t.whole
}

func (f *files) total() int64 {
	var total int64
	for _, file := range f.list {
		total += file.size
	}
	return total
}

// listFiles reads a directory through, for the sums.
func listFiles(ctx context.Context, dir string, progress func(done, total int64)) (*files, error) {
	found, err := scan(dir)
	if err == nil && len(found.list) == 0 {
		err = errors.New("has no files")
	}
	if err == nil {
		err = found.sumUp(ctx, progress)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", dir, err)
	}
	return found, nil
}

// scan returns the files of a directory in the order of their names, without their sums.
func scan(dir string) (*files, error) {
	found := &files{dir: dir}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is no file", path)
		}
		name, err := filepath.Rel(dir, path)
		found.list = append(found.list, file{name: filepath.ToSlash(name), size: info.Size()})
		return err
	})
	return found, err
}

func (f *files) sumUp(ctx context.Context, progress func(done, total int64)) (err error) {
	var done int64
	for i := range f.list {
		one := &f.list[i]
		if err := ctx.Err(); err != nil {
			return err
		}
		if one.sum, err = sum(f.path(*one)); err != nil {
			return err
		}
		done += one.size
		progress(done, f.total())
	}
	return nil
}

func (f *files) path(of file) string { return filepath.Join(f.dir, filepath.FromSlash(of.name)) }

func sum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	_, err = io.Copy(hash, f)
	return hex.EncodeToString(hash.Sum(nil)), err
}

// write writes the stream of the files.
func (f *files) write(w io.Writer, progress func(done int64)) error {
	archive := tar.NewWriter(w)
	if err := f.whole().write(archive); err != nil {
		return err
	}
	counted := &counter{w: archive, progress: progress}
	for _, file := range f.list {
		if err := f.writeOne(archive, counted, file); err != nil {
			return fmt.Errorf("send %s: %w", f.path(file), err)
		}
	}
	return archive.Close()
}

// write writes the global header of a stream.
func (all whole) write(archive *tar.Writer) error {
	return archive.WriteHeader(&tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{
		recordFiles: strconv.FormatInt(all.files, 10), recordBytes: strconv.FormatInt(all.bytes, 10),
		recordSum: all.sum,
	}})
}

// write writes the header of a file, whose bytes follow.
func (f file) write(archive *tar.Writer) error {
	return archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Size: f.size, Mode: 0o644,
		Format: tar.FormatPAX, PAXRecords: map[string]string{recordSum: f.sum}})
}

func (f *files) writeOne(archive *tar.Writer, w io.Writer, of file) error {
	from, err := os.Open(f.path(of))
	if err != nil {
		return err
	}
	defer from.Close()
	if err := of.write(archive); err != nil {
		return err
	}
	_, err = io.CopyN(w, from, of.size)
	if errors.Is(err, io.EOF) {
		err = errors.New("is shorter than it was")
	}
	return err
}

// counter counts how much has been written.
type counter struct {
	w        io.Writer
	done     int64
	progress func(done int64)
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.done += int64(n)
	c.progress(c.done)
	return n, err
}

// Receive takes a stream of files and makes a directory of them: all of them with the sums that
// were announced, or none. A directory that has them already is left unchanged. The sender gets the
// result on w.
func Receive(r io.Reader, w io.Writer, dir string) error {
	answer, err := receive(r, dir, func(done, total int64) {})
	if err != nil {
		answer = failed + role.Brief(err.Error())
	}
	if _, e := fmt.Fprintln(w, answer); e != nil {
		return errors.Join(err, e)
	}
	// until the sender has read the answer, or has ended
	io.Copy(io.Discard, r)
	return err
}

func receive(r io.Reader, dir string, progress func(done, total int64)) (answer string, err error) {
	archive := tar.NewReader(bufio.NewReaderSize(r, 1<<20))
	sent, err := readWhole(archive)
	if err != nil {
		return "", fmt.Errorf("read what is sent: %w", err)
	}
	there, err := sent.isIn(dir)
	if err != nil {
		return "", err
	}
	if there {
		return existing, nil
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", err
	}
	partial, err := os.MkdirTemp(parent, "."+filepath.Base(dir)+".partial-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(partial)
	if err := sent.receive(archive, partial, func(done int64) { progress(done, sent.bytes) }); err != nil {
		return "", err
	}
	if err := os.Chmod(partial, 0o755); err != nil {
		return "", err
	}
	if err := os.Rename(partial, dir); err != nil {
		if there, e := sent.isIn(dir); e == nil && there { // another, with the same, was faster
			return existing, nil
		}
		return "", err
	}
	return received, syncDir(parent)
}

// readWhole reads the global header of a stream.
func readWhole(archive *tar.Reader) (all whole, err error) {
	h, err := archive.Next()
	switch {
	case errors.Is(err, tar.ErrHeader):
		return all, errors.New("expected a tar archive; is the image of another version of elasticdl?")
	case err != nil:
		return all, unexpected(err)
	case h.Typeflag != tar.TypeXGlobalHeader:
		return all, fmt.Errorf("expected a global header, found %q", h.Name)
	}
	for record, n := range map[string]*int64{recordFiles: &all.files, recordBytes: &all.bytes} {
		if *n, err = strconv.ParseInt(h.PAXRecords[record], 10, 64); err != nil || *n < 0 {
			return all, fmt.Errorf("expected a number as %s, found %q", record, h.PAXRecords[record])
		}
	}
	all.sum = h.PAXRecords[recordSum]
	return all, nil
}

// receive writes the files that follow the global header to a directory. It fails if they are not
// exactly the ones that were announced.
func (all whole) receive(archive *tar.Reader, dir string, progress func(done int64)) error {
	counted := &counter{w: io.Discard, progress: progress}
	for got := newTally(); ; {
		h, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF) && got.whole == all:
			return nil
		case errors.Is(err, io.EOF) && got.files < all.files:
			return fmt.Errorf("receive files: the stream ended after %d of %d: %w", got.files, all.files,
				io.ErrUnexpectedEOF)
		case errors.Is(err, io.EOF):
			return fmt.Errorf("receive files: they are not the %d files that were announced", all.files)
		case err != nil:
			return fmt.Errorf("receive files: %w", err)
		}
		f, err := fileOf(h)
		if err != nil {
			return fmt.Errorf("receive files: %w", err)
		}
		if got.add(f); got.files > all.files || got.bytes > all.bytes {
			return fmt.Errorf("receive %s: expected %d files of %d bytes, and there are more", f.name,
				all.files, all.bytes)
		}
		path := filepath.Join(dir, filepath.FromSlash(f.name))
		if err := f.receive(io.TeeReader(archive, counted), path); err != nil {
			return fmt.Errorf("receive %s: %w", f.name, err)
		}
	}
}

// fileOf returns the file of a header, if it is one that a sender writes: a regular file, whole, of
// a name within the directory.
func fileOf(h *tar.Header) (file, error) {
	f := file{name: h.Name, size: h.Size, sum: h.PAXRecords[recordSum]}
	sparse := slices.ContainsFunc(slices.Collect(maps.Keys(h.PAXRecords)), func(record string) bool {
		return strings.HasPrefix(record, "GNU.sparse.")
	})
	switch {
	case h.Typeflag != tar.TypeReg || sparse:
		return f, fmt.Errorf("expected a regular file, found %q of type %q", h.Name, h.Typeflag)
	case !filepath.IsLocal(filepath.FromSlash(f.name)) || path.Clean(f.name) != f.name || f.name == ".":
		return f, fmt.Errorf("expected a name within the directory, found %q", f.name)
	case f.sum == "":
		return f, fmt.Errorf("expected the SHA-256 of %s, found none", f.name)
	}
	return f, nil
}

// isIn reports whether a directory holds exactly these files. It is an error if the directory holds
// others.
func (all whole) isIn(dir string) (bool, error) {
	found, err := scan(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(found.list) == 0 {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	same := int64(len(found.list)) == all.files && found.total() == all.bytes
	if same {
		if err := found.sumUp(context.Background(), func(done, total int64) {}); err != nil {
			return false, err
		}
	}
	if !same || found.whole() != all {
		return false, fmt.Errorf("%s already exists and holds other files: choose another place, or delete it", dir)
	}
	return true, nil
}

// receive writes one file of a stream.
func (f file) receive(stream io.Reader, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	to, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer to.Close()
	hash := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(to, hash), stream, f.size); err != nil {
		return unexpected(err)
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != f.sum {
		return fmt.Errorf("its sum is %s, not %s: it changed on the way, or while it was sent", got, f.sum)
	}
	return errors.Join(to.Sync(), to.Close())
}

// unexpected returns the error of a stream that has ended too soon.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// syncDir makes a rename in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
