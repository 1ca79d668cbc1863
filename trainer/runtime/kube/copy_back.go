package kube

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path"
	"strings"

	"k8s.io/client-go/util/exec"

	"github.com/elasticdl/elasticdl/trainer/runtime/kube/observe"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
)

// CopyFromClaim copies a directory of a claim, or the model that is in it, to this machine, where
// it is whole and checked or not there. If it already exists with the same files, it is left
// unchanged (existed). The pod that it needs is deleted at the end, whatever the end is.
func (c *Client) CopyFromClaim(ctx context.Context, what Copy, progress func(CopyProgress)) (existed bool, err error) {
	return c.copyFromClaim(ctx, what, c.exec, progress)
}

func (c *Client) copyFromClaim(ctx context.Context, what Copy, run stream,
	progress func(CopyProgress)) (existed bool, err error) {
	step := "copy from claim " + what.Claim
	const most = 1 << 40 // bytes: the size is not known before
	if err := c.checkClaim(ctx, "claim:"+what.Claim, what.Claim, false); err != nil {
		return false, err
	}
	return c.throughPod(ctx, what, most, step, progress, func(ctx context.Context, pod string) (bool, error) {
		command := []string{"/elasticdl", "send", "--from=" + path.Join(claimMount, what.From)}
		if what.Model {
			command = append(command, "--model")
		}
		return fetch(ctx, pod, command, what.To, run, func(done, total int64) {
			progress(CopyProgress{step, done, total})
		})
	})
}

// fetch writes what the command send in a pod sends to a directory.
func fetch(ctx context.Context, pod string, command []string, to string, run stream,
	progress func(done, total int64)) (existed bool, err error) {
	reader, writer := io.Pipe()
	var said bytes.Buffer
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, pod, command, strings.NewReader(""), writer, &said)
		writer.CloseWithError(err) // nil: it has sent all
		ended <- err
	}()
	answer, err := receive(reader, to, progress)
	reader.Close()
	sent := <-ended
	_, failed := errors.AsType[exec.CodeExitError](sent)
	switch {
	case err == nil:
		return answer == existing, nil
	case failed && said.Len() > 0:
		return false, exec.CodeExitError{Err: errors.New(observe.LastLine(said.String())), Code: 1}
	case sent != nil && !errors.Is(sent, io.ErrClosedPipe), errors.Is(err, io.ErrUnexpectedEOF):
		// the stream broke
		return false, errors.Join(sent, err)
	}
	return false, exec.CodeExitError{Err: err, Code: 1} // this side reports it
}

// Fetch makes a directory of this machine of what [Send] finds at a location, as
// [Client.CopyFromClaim] does with a claim.
func Fetch(ctx context.Context, open checkpoint.Opener, location, to string,
	progress func(CopyProgress)) (existed bool, err error) {
	reader, writer := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		err := Send(ctx, open, location, true, writer)
		writer.CloseWithError(err)
		sent <- err
	}()
	answer, err := receive(reader, to, func(done, total int64) {
		progress(CopyProgress{"copy " + location, done, total})
	})
	reader.Close()
	if unsent := <-sent; unsent != nil && !errors.Is(unsent, io.ErrClosedPipe) {
		return false, unsent
	}
	return answer == existing, err
}

// Send writes a stream of files, as [Receive] takes them: those of a directory, or the model at a
// location, in the format of an export. Of a checkpoint every byte is checked.
func Send(ctx context.Context, open checkpoint.Opener, location string, model bool, w io.Writer) error {
	if !model {
		found, err := listFiles(ctx, location, func(done, total int64) {})
		if err != nil {
			return err
		}
		return found.write(w, func(int64) {})
	}
	from, err := open.Find(location)
	if err != nil {
		return err
	}
	export, err := exported(from)
	if err != nil {
		return err
	}
	to := &sink{ctx: ctx, w: io.Discard, hash: sha256.New()}
	if err := export(to); err != nil {
		return err
	}
	one := file{name: checkpoint.ModelFile, size: to.n, sum: hex.EncodeToString(to.hash.Sum(nil))}
	archive := tar.NewWriter(w)
	if err := (&files{list: []file{one}}).whole().write(archive); err != nil {
		return err
	}
	if err := one.write(archive); err != nil {
		return err
	}
	if err := export(&sink{ctx: ctx, w: archive, hash: sha256.New()}); err != nil {
		return err
	}
	return archive.Close()
}

// exported returns a writer of the model in the format of an export, the same bytes each time.
func exported(from checkpoint.Source) (func(*sink) error, error) {
	if from.File != "" {
		if err := from.Check(nil); err != nil {
			return nil, err
		}
		return func(to *sink) error {
			f, size, closer, err := from.Dir.Files.Open(from.File)
			if err != nil {
				return fmt.Errorf("read model: %w", err)
			}
			defer closer.Close()
			if _, err = io.CopyBuffer(to, io.NewSectionReader(f, 0, size), make([]byte, 1<<20)); err != nil {
				err = fmt.Errorf("copy %s: %w", from.Path(), err)
			}
			return err
		}, nil
	}
	commit, _, err := from.Read()
	if err != nil {
		return nil, err
	}
	return func(to *sink) error { return from.Dir.Export(commit, to, nil) }, nil
}

// sink is a place for one file, which goes to a writer.
type sink struct {
	ctx  context.Context
	w    io.Writer
	hash hash.Hash
	n    int64
}

func (s *sink) Write(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := s.w.Write(p)
	s.hash.Write(p[:n])
	s.n += int64(n)
	return n, err
}

func (s *sink) Create(string) (checkpoint.Writer, error)    { return s, nil }
func (s *sink) CreateNew(string) (checkpoint.Writer, error) { return s, nil }
func (s *sink) Commit() error                               { return nil }
func (s *sink) Abort()                                      {}
func (s *sink) Open(string) (io.ReaderAt, int64, io.Closer, error) {
	return nil, 0, nil, fs.ErrNotExist
}
func (s *sink) List(string) ([]string, error) { return nil, nil }
func (s *sink) Remove(string) error           { return nil }
func (s *sink) String() string                { return "the stream" }
