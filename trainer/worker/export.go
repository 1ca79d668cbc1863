package worker

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/elasticdl/elasticdl/trainer/safetensors"
)

// ModelFile is the file that an export writes into --output.
const ModelFile = "model.safetensors"

// export writes the engine's values as the trained model. It appears whole or not at all. What is written of it is the
// progress of the lease.
func (w *worker) export(lease, version int64) error {
	path := filepath.Join(w.Job.Output, ModelFile)
	if err := w.writeModel(path, lease, version); err != nil {
		return fmt.Errorf("export the model to --output=%s: %w", w.Job.Output, err)
	}
	w.Log.Info("Model exported", "path", path)
	return nil
}

// written counts what goes to a file.
type written struct {
	io.Writer
	bytes int64
	tell  func(bytes int64)
}

func (w *written) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	w.bytes += int64(n)
	w.tell(w.bytes)
	return n, err
}

func (w *worker) writeModel(path string, lease, version int64) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "."+ModelFile+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // a no-op after the rename
	defer f.Close()
	buffered := bufio.NewWriterSize(&written{Writer: f, tell: func(bytes int64) { w.leases.advance(lease, bytes) }}, 1<<20)
	metadata := map[string]string{
		"job_name":  w.Job.Name,
		"model_def": w.Job.ModelDef,
		"version":   strconv.FormatInt(version, 10),
	}
	if err := safetensors.Write(buffered, w.Engine.Layout(), w.Engine.Values(), metadata); err != nil {
		return err
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
