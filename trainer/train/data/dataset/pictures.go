package dataset

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/png"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// folders writes the images of a part, each into the directory of its class.
type folders struct {
	dir      string // directory of the part
	step     Progress
	progress func(Progress)
	made     map[string]bool // directories that were created
}

func (m *making) folders(part string, total int64) *folders {
	return &folders{
		dir: filepath.Join(m.dir, part), step: Progress{Step: "write " + part, Total: total},
		progress: m.progress, made: map[string]bool{},
	}
}

// add writes one image. path is relative to the directory of the part, with slashes. The file must
// not exist.
func (f *folders) add(ctx context.Context, path string, picture []byte) error {
	if !filepath.IsLocal(filepath.FromSlash(path)) {
		return fmt.Errorf("write %s: the path leads out of the data set", path)
	}
	file := filepath.Join(f.dir, filepath.FromSlash(path))
	if dir := filepath.Dir(file); !f.made[dir] {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
		f.made[dir] = true
	}
	if err := create(file, picture); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if f.step.Done++; f.step.Done%256 == 0 || f.step.Done == f.step.Total {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		f.progress(f.step)
	}
	return nil
}

// create writes a new file. It fails if the file exists.
func create(path string, content []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	if _, err = file.Write(content); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}

// countImages returns the number of images below a directory.
func countImages(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && isImage(path) {
			n++
		}
		return err
	})
	return n, err
}

func isImage(path string) bool {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".jpeg", ".png":
		return true
	}
	return false
}

// oneBuffer is a png.EncoderBufferPool of one buffer, for an encoder that is used by one goroutine.
type oneBuffer struct{ b *png.EncoderBuffer }

func (o *oneBuffer) Get() *png.EncoderBuffer  { return o.b }
func (o *oneBuffer) Put(b *png.EncoderBuffer) { o.b = b }

// pictures writes digits as grey PNG files LABEL/INDEX.png. A label without items gets an empty
// directory.
func (f *format) pictures(ctx context.Context, m *making) error {
	grey := image.NewGray(image.Rect(0, 0, side, side))
	var picture bytes.Buffer
	encoder := png.Encoder{BufferPool: new(oneBuffer)}
	return f.parts(m, func(part string, from items) error {
		to := m.folders(part, int64(from.total()))
		for label := range labels {
			if err := os.Mkdir(filepath.Join(to.dir, fmt.Sprint(label)), 0o777); err != nil {
				return fmt.Errorf("write %s: %w", part, err)
			}
		}
		for i := range from.total() {
			label, err := from.next(grey.Pix)
			if err != nil {
				return err
			}
			picture.Reset()
			if err := encoder.Encode(&picture, grey); err != nil {
				return fmt.Errorf("write %s: %w", part, err)
			}
			if err := to.add(ctx, fmt.Sprintf("%d/%05d.png", label, i), picture.Bytes()); err != nil {
				return err
			}
		}
		return nil
	})
}
