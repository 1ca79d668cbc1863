package worker

import (
	"context"
	"fmt"
	"strings"

	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/store/outage"
)

// export writes the engine's values as the trained model. It appears whole or not at all. The
// written part is the progress of the lease. Storage that fails, as one without room, is waited
// for.
func (w *worker) export(ctx context.Context, lease, version int64) error {
	values := w.Engine.Values()
	m := checkpoint.Model{
		JobName: w.Job.Name, ModelDef: w.Job.ModelDef, Version: version, Layout: w.Engine.Layout(),
		Fill: func(from int, dst []float32) error { copy(dst, values[from:]); return nil },
	}
	out, err := w.Open.Open(w.Job.Output)
	if err != nil {
		return fmt.Errorf("export the model to --output=%s: %w", w.Job.Output, err)
	}
	var before int64 // bytes that earlier attempts have written
	err = w.patience(lease).Reach(ctx, func() error {
		last := before
		return outage.Of(m.Export(out.Files, func(bytes int64) {
			before = last + bytes
			w.leases.advance(lease, before)
		}))
	})
	if err != nil {
		return fmt.Errorf("export the model to --output=%s: %w", w.Job.Output, err)
	}
	w.Log.Info("Model exported", "path", strings.TrimSuffix(out.String(), "/")+"/"+checkpoint.ModelFile)
	return nil
}
