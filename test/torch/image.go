package torch

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"debug/elf"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"
)

// debian is the interpreter from whose packages an image is made.
const debian = "/usr/bin/python3"

// loaded is a script that asks PyTorch for its needs.
//
//go:embed loaded.py
var loaded string

// idle lists parts of a tree of code that no training needs.
var idle = []string{"config-*", "dist-packages", "ensurepip", "idlelib", "include", "lib2to3",
	"pydoc_data", "test", "test_*", "tests"}

// PushImage makes an image like a user's: this machine's Debian Python and PyTorch, a shell, some
// files in /scripts, and nothing of ElasticDL. It pushes the image to a registry on this machine
// that speaks plain HTTP, and returns the image's size.
//
// Its layers are compressed: every node writes them to its disk before it unpacks them.
func PushImage(ctx context.Context, reference string, scripts ...string) (size int64, err error) {
	ref, err := name.ParseReference(reference, name.Insecure)
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "torch-image-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	system, err := writeLayer(filepath.Join(dir, "system.tar.zst"), func(l *layer) error { return l.system(ctx) })
	if err != nil {
		return 0, fmt.Errorf("make a layer of Debian's PyTorch (make torch-debian installs it): %w", err)
	}
	code, err := writeLayer(filepath.Join(dir, "scripts.tar.zst"), func(l *layer) error {
		for _, script := range scripts {
			if err := l.add(script, "/scripts/"+filepath.Base(script)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("make a layer of scripts: %w", err)
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, made := range []*layer{system, code} {
		l, err := partial.CompressedToLayer(made)
		if err != nil {
			return 0, err
		}
		if image, err = mutate.AppendLayers(image, l); err != nil {
			return 0, err
		}
	}
	config, err := image.ConfigFile()
	if err != nil {
		return 0, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", runtime.GOARCH, v1.Time{Time: time.Unix(0, 0)}
	config.Config.Env = []string{"PATH=/usr/bin"}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return 0, err
	}
	if err := remote.Write(ref, image, remote.WithContext(ctx)); err != nil {
		return 0, fmt.Errorf("push %s: %w", reference, err)
	}
	return system.size + code.size, nil
}

// layer is a file in the format of tar that zstd has compressed.
type layer struct {
	path           string
	digest, diffID v1.Hash // of the file, and of what is in it
	size           int64
	to             *tar.Writer // while it is written
	has            map[string]bool
}

// writeLayer writes a layer with the entries that fill adds.
func writeLayer(path string, fill func(*layer) error) (*layer, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() // after an error
	digest, diffID := sha256.New(), sha256.New()
	packed, err := zstd.NewWriter(io.MultiWriter(file, digest), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return nil, err
	}
	l := &layer{path: path, to: tar.NewWriter(io.MultiWriter(packed, diffID)), has: make(map[string]bool)}
	if err := errors.Join(fill(l), l.to.Close(), packed.Close()); err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	l.digest, l.diffID, l.size = sha(digest), sha(diffID), info.Size()
	return l, file.Close()
}

func sha(of hash.Hash) v1.Hash {
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(of.Sum(nil))}
}

func (l *layer) Digest() (v1.Hash, error)            { return l.digest, nil }
func (l *layer) DiffID() (v1.Hash, error)            { return l.diffID, nil }
func (l *layer) Compressed() (io.ReadCloser, error)  { return os.Open(l.path) }
func (l *layer) Size() (int64, error)                { return l.size, nil }
func (l *layer) MediaType() (types.MediaType, error) { return types.OCILayerZStd, nil }

// system adds the files that PyTorch needs, and a shell, on a merged /usr.
func (l *layer) system(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, debian, "-c", loaded)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", debian, err, said.String())
	}
	for _, top := range []string{"bin", "lib", "lib64", "sbin"} {
		if err := l.link("/"+top, "usr/"+top); err != nil {
			return err
		}
	}
	if err := l.directory("/tmp", 0o1777); err != nil {
		return err
	}
	shell, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		return err
	}
	objects := []string{shell}
	for line := range strings.Lines(string(out)) {
		kind, path, _ := strings.Cut(strings.TrimSpace(line), " ")
		if kind == "object" {
			objects = append(objects, path)
		} else if err := l.tree(path); err != nil {
			return err
		}
	}
	return l.objects(objects)
}

// objects adds programs and libraries under all their names in their directories, and the loader
// under the name by which they refer to it.
func (l *layer) objects(paths []string) error {
	loader, err := interpreter(debian)
	if err != nil {
		return err
	}
	names := []string{loader}
	for _, path := range paths {
		if err := l.add(path, path); err != nil {
			return err
		}
		// alternatives are linked from there
		libraries := filepath.Join("/usr/lib", filepath.Base(filepath.Dir(path)))
		for _, dir := range []string{filepath.Dir(path), filepath.Dir(filepath.Dir(path)), libraries, "/usr/bin"} {
			if !l.has["names of "+dir] {
				l.has["names of "+dir] = true
				found, _ := filepath.Glob(dir + "/*") // there may be no such directory
				names = append(names, found...)
			}
		}
	}
	for _, path := range names {
		if info, err := os.Lstat(path); err != nil || info.Mode()&fs.ModeSymlink == 0 && path != loader {
			continue
		}
		if to, err := filepath.EvalSymlinks(path); err == nil && slices.Contains(paths, to) {
			if err := l.link("/usr/"+strings.TrimPrefix(strings.TrimPrefix(path, "/usr"), "/"), to); err != nil {
				return err
			}
		}
	}
	return nil
}

// interpreter returns the path of the loader that a program names.
func interpreter(program string) (string, error) {
	file, err := elf.Open(program)
	if err != nil {
		return "", err
	}
	defer file.Close()
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP {
			text, err := io.ReadAll(p.Open())
			return strings.TrimRight(string(text), "\x00"), err
		}
	}
	return "", fmt.Errorf("%s has no loader", program)
}

// tree adds a file, or a directory without its idle parts.
func (l *layer) tree(root string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		isIdle := func(pattern string) bool {
			match, _ := filepath.Match(pattern, entry.Name()) // the patterns are right
			return match
		}
		skipped := path != root && slices.ContainsFunc(idle, isIdle)
		switch {
		case skipped && entry.IsDir():
			return filepath.SkipDir
		case skipped, entry.IsDir():
			return nil
		}
		return l.add(path, path)
	})
}

// add adds a file of this machine, or a link.
func (l *layer) add(from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return l.link(to, target)
	}
	if !info.Mode().IsRegular() || l.has[to] {
		return nil
	}
	l.has[to] = true
	if err := l.directory(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	file, err := os.Open(from)
	if err != nil {
		return err
	}
	defer file.Close()
	// Compiled code is valid for source of that time.
	header := &tar.Header{Name: to[1:], Typeflag: tar.TypeReg, Mode: int64(info.Mode().Perm()),
		Size: info.Size(), ModTime: info.ModTime().Truncate(time.Second)}
	if err := l.to.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(l.to, file)
	return err
}

func (l *layer) link(path, to string) error {
	if l.has[path] {
		return nil
	}
	l.has[path] = true
	if err := l.directory(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return l.to.WriteHeader(&tar.Header{Name: path[1:], Typeflag: tar.TypeSymlink, Linkname: to,
		Mode: 0o777, ModTime: time.Unix(0, 0)})
}

func (l *layer) directory(path string, mode int64) error {
	if path == "/" || l.has[path] {
		return nil
	}
	l.has[path] = true
	if err := l.directory(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return l.to.WriteHeader(&tar.Header{Name: path[1:] + "/", Typeflag: tar.TypeDir, Mode: mode,
		ModTime: time.Unix(0, 0)})
}
