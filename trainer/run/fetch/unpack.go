package fetch

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/elasticdl/elasticdl/trainer/elastic/source"
)

// The most that an archive may have in it.
const (
	maxEntries  = 100_000
	maxUnpacked = 2 << 30 // bytes
)

// Unpack makes a directory of a .tar archive of this machine that has a checksum. It is there whole
// and checked, or not at all.
func Unpack(file, sha256sum, dir string) (err error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("unpack %s: the file no longer exists; upload it again, as elasticdl run "+
			"--workdir does", file)
	}
	if err != nil {
		return fmt.Errorf("unpack %s: %w", file, err)
	}
	defer f.Close()
	if err := os.Mkdir(dir, 0o777); err != nil {
		return fmt.Errorf("unpack %s: %w", file, err)
	}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
		}
	}()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("unpack %s: %w", file, err)
	}
	defer root.Close()
	h := sha256.New()
	from := io.TeeReader(bufio.NewReaderSize(f, 1<<16), h)
	u := unpacking{root: root, left: maxUnpacked}
	damage := u.tar(from)
	if _, err := io.Copy(io.Discard, from); err != nil {
		return fmt.Errorf("unpack %s: %w", file, err)
	}
	if sum := hex.EncodeToString(h.Sum(nil)); sum != sha256sum { // which explains any damage
		return mismatch("unpack "+file, sum, sha256sum)
	}
	if damage != nil {
		return fmt.Errorf("unpack %s: %w", file, damage)
	}
	return nil
}

// unpack writes the files of an archive below a directory. A root of package os cannot be left, not
// even by links; there are no links in an archive either, since a script could follow one later.
func unpack(file string, kind source.Archive, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	u := unpacking{root: root, left: maxUnpacked}
	if kind == source.Zip {
		return u.zip(file)
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	from := io.Reader(bufio.NewReaderSize(f, 1<<16))
	if kind == source.GzipTar {
		if from, err = gzip.NewReader(from); err != nil {
			return fmt.Errorf("not a .tar.gz: %w", err)
		}
	}
	return u.tar(from)
}

// unpacking is an archive that is being unpacked.
type unpacking struct {
	root    *os.Root
	entries int
	left    int64 // bytes that may still come
}

func (u *unpacking) tar(from io.Reader) error {
	for r := tar.NewReader(from); ; {
		h, err := r.Next()
		switch {
		case err == io.EOF && u.entries == 0:
			return errors.New("nothing is in the archive")
		case err == io.EOF:
			// so that gzip checks its own sum
			_, err := io.Copy(io.Discard, io.LimitReader(from, 1<<20))
			return err
		case err != nil:
			return fmt.Errorf("unpack: %w", err)
		case h.Typeflag == tar.TypeXGlobalHeader: // as git archive writes
			continue
		}
		if err := u.add(h.Name, h.FileInfo().Mode(), r, h.Typeflag == tar.TypeReg ||
			h.Typeflag == tar.TypeDir); err != nil {
			return err
		}
	}
}

func (u *unpacking) zip(file string) error {
	archive, err := zip.OpenReader(file)
	if err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	defer archive.Close()
	for _, f := range archive.File {
		r, err := f.Open()
		if err != nil {
			return fmt.Errorf("unpack %s: %w", f.Name, err)
		}
		err = u.add(f.Name, f.Mode(), r, true)
		r.Close()
		if err != nil {
			return err
		}
	}
	if u.entries == 0 {
		return errors.New("nothing is in the archive")
	}
	return nil
}

// add writes one entry; plain is whether it is a file or a directory as far as the archive's own
// types go.
func (u *unpacking) add(name string, mode fs.FileMode, from io.Reader, plain bool) error {
	if u.entries++; u.entries > maxEntries {
		return fmt.Errorf("more than %d entries in the archive", maxEntries)
	}
	clean := path.Clean(strings.TrimSuffix(name, "/"))
	if name == "" || strings.ContainsAny(name, "\\\x00") || !filepath.IsLocal(filepath.FromSlash(clean)) {
		return fmt.Errorf("unpack %q: the path leads out of the archive", name)
	}
	if !plain || !mode.IsRegular() && !mode.IsDir() {
		return fmt.Errorf("unpack %s: neither a file nor a directory; expected an archive without "+
			"links, as tar --dereference makes it", name)
	}
	if mode.IsDir() {
		if err := u.root.MkdirAll(clean, 0o777); err != nil {
			return fmt.Errorf("unpack: %w", err)
		}
		return nil
	}
	if err := u.root.MkdirAll(path.Dir(clean), 0o777); err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	file, err := u.root.OpenFile(clean, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666|mode.Perm()&0o111)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("unpack %s: the archive contains it twice", name)
	}
	if err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	n, err := io.Copy(file, io.LimitReader(from, u.left+1))
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("unpack %s: %w", name, err)
	}
	if u.left -= n; u.left < 0 {
		return fmt.Errorf("more than %d bytes in the archive: data belongs on a volume", int64(maxUnpacked))
	}
	return nil
}
