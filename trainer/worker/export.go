package worker

import (
	"fmt"
	"path/filepath"

	"github.com/elasticdl/elasticdl/trainer/checkpoint"
)

// export writes the engine's values as the trained model. It appears whole or not at all. What is written of it is the
// progress of the lease.
func (w *worker) export(lease, version int64) error {
	values := w.Engine.Values()
	m := checkpoint.Model{
		JobName: w.Job.Name, ModelDef: w.Job.ModelDef, Version: version, Layout: w.Engine.Layout(),
		Fill: func(from int, dst []float32) error { copy(dst, values[from:]); return nil },
	}
	if err := m.Export(checkpoint.Local(w.Job.Output), func(bytes int64) { w.leases.advance(lease, bytes) }); err != nil {
		return fmt.Errorf("export the model to --output=%s: %w", w.Job.Output, err)
	}
	w.Log.Info("Model exported", "path", filepath.Join(w.Job.Output, checkpoint.ModelFile))
	return nil
}
