package worker

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/elasticdl/elasticdl/trainer/safetensors"
)

// ModelFile is the file that an export writes into --output.
const ModelFile = "model.safetensors"

// export writes the engine's values as the trained model. It appears whole or not at all.
func (w *worker) export(version int64) error {
	path := filepath.Join(w.Job.Output, ModelFile)
	if err := w.writeModel(path, version); err != nil {
		return fmt.Errorf("export the model to --output=%s: %w", w.Job.Output, err)
	}
	w.Log.Info("Model exported", "path", path)
	return nil
}

func (w *worker) writeModel(path string, version int64) error {
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
	buffered := bufio.NewWriterSize(f, 1<<20)
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
