package kube

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/elasticdl/elasticdl/trainer/runtime/role"
)

// Answers of a receiver, on one line. After it the receiver reads what still comes: an unread
// stream does not end.
const (
	received = "received"
	existing = "existing"
	failed   = "failed: " // and why
)

// files are a directory's. A stream of them is their JSON on a line, then their bytes one after the
// other.
type files struct {
	dir  string
	List []file `json:"files"`
}

type file struct {
	Name string `json:"name"` // from the directory, with slashes
	Size int64  `json:"size"`
	Sum  string `json:"sum"` // SHA-256, hexadecimal
}

func (f *files) total() int64 {
	var total int64
	for _, file := range f.List {
		total += file.Size
	}
	return total
}

// listFiles reads a directory through, for the sums.
func listFiles(ctx context.Context, dir string, progress func(done, total int64)) (*files, error) {
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
		found.List = append(found.List, file{Name: filepath.ToSlash(name), Size: info.Size()})
		return err
	})
	if err == nil && len(found.List) == 0 {
		err = errors.New("has no files")
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", dir, err)
	}
	var done int64
	for i := range found.List {
		f := &found.List[i]
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if f.Sum, err = sum(found.path(*f)); err != nil {
			return nil, fmt.Errorf("read %s: %w", dir, err)
		}
		done += f.Size
		progress(done, found.total())
	}
	return found, nil
}

func (f *files) path(of file) string { return filepath.Join(f.dir, filepath.FromSlash(of.Name)) }

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

// write is the stream.
func (f *files) write(w io.Writer, progress func(done int64)) error {
	header, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if _, err := w.Write(append(header, '\n')); err != nil {
		return err
	}
	counted := &counter{w: w, progress: progress}
	for _, file := range f.List {
		if err := f.writeOne(counted, file); err != nil {
			return fmt.Errorf("send %s: %w", f.path(file), err)
		}
	}
	return nil
}

func (f *files) writeOne(w io.Writer, of file) error {
	from, err := os.Open(f.path(of))
	if err != nil {
		return err
	}
	defer from.Close()
	_, err = io.CopyN(w, from, of.Size)
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
// were announced, or none. A directory that has them already is left as it is. The sender is told
// on w how it went.
func Receive(r io.Reader, w io.Writer, dir string) error {
	answer, err := receive(r, dir, func(done, total int64) {})
	if err != nil {
		answer = failed + role.Brief(err.Error())
	}
	if _, e := fmt.Fprintln(w, answer); e != nil {
		return errors.Join(err, e)
	}
	// until the sender has read the answer, or is gone
	io.Copy(io.Discard, r)
	return err
}

func receive(r io.Reader, dir string, progress func(done, total int64)) (answer string, err error) {
	stream := bufio.NewReaderSize(r, 1<<20)
	sent, err := readHeader(stream)
	if err != nil {
		return "", err
	}
	there, err := sent.same(dir)
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
	counted := &counter{w: io.Discard, progress: func(done int64) { progress(done, sent.total()) }}
	for _, f := range sent.List {
		if err := f.receive(io.TeeReader(stream, counted),
			filepath.Join(partial, filepath.FromSlash(f.Name))); err != nil {
			return "", fmt.Errorf("receive %s: %w", f.Name, err)
		}
	}
	if err := os.Chmod(partial, 0o755); err != nil {
		return "", err
	}
	if err := os.Rename(partial, dir); err != nil {
		if there, e := sent.same(dir); e == nil && there { // another, with the same, was faster
			return existing, nil
		}
		return "", err
	}
	return received, syncDir(parent)
}

// mostHeader is how many bytes the names and sums of what is sent may take: those of a million
// files.
const mostHeader = 256 << 20

func readHeader(stream *bufio.Reader) (*files, error) {
	header, err := readLine(stream, mostHeader)
	if err != nil {
		return nil, fmt.Errorf("read what is sent: %w", unexpected(err))
	}
	sent := new(files)
	decoder := json.NewDecoder(bytes.NewReader(header))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(sent); err != nil {
		return nil, fmt.Errorf("read what is sent: %w", err)
	}
	for _, f := range sent.List {
		if !filepath.IsLocal(filepath.FromSlash(f.Name)) || f.Name == "." || f.Size < 0 {
			return nil, fmt.Errorf("read what is sent: a file named %q of %d bytes", f.Name, f.Size)
		}
	}
	return sent, nil
}

// readLine reads a line of at most so many bytes, with its end.
func readLine(stream *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	for {
		part, err := stream.ReadSlice('\n')
		if len(line)+len(part) > most {
			return nil, fmt.Errorf("a line of more than %d bytes", most)
		}
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// same reports whether a directory holds exactly these files. It is an error if the directory holds
// others.
func (f *files) same(dir string) (bool, error) {
	there := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && (!d.IsDir() || path == dir && d.Type()&fs.ModeSymlink != 0) {
			there++
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) || (err == nil && there == 0) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	differs := fmt.Errorf("%s is there already and holds other files: choose another place, or delete it", dir)
	if there != len(f.List) {
		return false, differs
	}
	for _, of := range f.List {
		if got, err := sum(filepath.Join(dir, filepath.FromSlash(of.Name))); err != nil || got != of.Sum {
			return false, differs
		}
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
	if _, err := io.CopyN(io.MultiWriter(to, hash), stream, f.Size); err != nil {
		return unexpected(err)
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != f.Sum {
		return fmt.Errorf("its sum is %s, not %s: it changed on the way, or while it was sent", got, f.Sum)
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
