package ps

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/store/outage"
	"github.com/elasticdl/elasticdl/trainer/train/zoo"
)

// Initial makes the layout of a job's model, and the initial values of one of that many parts of
// it, as [param.Partition] cuts it: those of the exported model that it starts from
// (--checkpoint_dir_for_init), else of the job's seed. A checkpoint that it starts from is no
// initial value: a model generation begins with it. Storage that fails is waited for.
func Initial(ctx context.Context, j *job.Job, model *zoo.Model, part, parts int, open checkpoint.Opener,
	log *slog.Logger) (param.Layout, []float32, error) {
	layout, values, err := model.Initial(j.Seed, part, parts)
	if err != nil || j.CheckpointDirForInit == "" {
		return layout, values, err
	}
	err = outage.Patience{Log: log}.Reach(ctx, func() error {
		from, err := open.Find(j.CheckpointDirForInit)
		if err == nil && from.File != "" {
			err = from.Load(layout, param.Partition(layout.Len(), parts)[part].Start, values)
		}
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("--checkpoint_dir_for_init=%s: %w", j.CheckpointDirForInit, err)
	}
	return layout, values, nil
}
