package role

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/store/bucket"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/store/tensorboard"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// recordLimit is the time that the last scalars of a job have to be written.
const recordLimit = 5 * time.Second

// Record has the scalars of a job written for TensorBoard, if it has --tensorboard_log_dir. It adds
// to the functions of a master's configuration that is complete otherwise. The returned function
// has the rest written; it is called when the master has returned.
func Record(c *master.Config) (end func()) {
	if c.Job.TensorBoardLogDir == "" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	host, _ := os.Hostname()
	r := tensorboard.Start(tensorboard.Config{
		Open: func() (tensorboard.Place, error) { return openRun(ctx, c.Job) },
		Name: c.Job.TensorBoardLogDir, Session: sessionOf(c), Host: host,
	})
	onStatus, onEvent, problems := c.OnStatus, c.OnEvent, c.Problems
	c.OnStatus = func(s *wire.JobStatus) {
		r.Status(s)
		if onStatus != nil {
			onStatus(s)
		}
	}
	c.OnEvent = func(e master.Event) {
		if f := factOf(e, c.Job); f != nil {
			r.Fact(f)
		}
		if onEvent != nil {
			onEvent(e)
		}
	}
	c.Problems = func() (all []string) {
		if problems != nil {
			all = problems()
		}
		if why := r.Problem(); why != "" {
			all = append(all, why)
		}
		return all
	}
	return func() {
		defer cancel()
		limited, cancel := context.WithTimeout(ctx, recordLimit)
		defer cancel()
		r.End(limited)
	}
}

// openRun opens the directory of the job's event files: below --tensorboard_log_dir, with the name
// of the job, so that TensorBoard shows several jobs as runs.
func openRun(ctx context.Context, j *job.Job) (tensorboard.Place, error) {
	u, err := checkpoint.ParseLocation(j.TensorBoardLogDir)
	switch {
	case err != nil:
		return tensorboard.Place{}, err
	case u == nil:
		return tensorboard.Directory(filepath.Join(j.TensorBoardLogDir, j.Name)), nil
	}
	u.Path += "/" + j.Name
	files, err := bucket.Open(ctx, u.String())
	return tensorboard.Objects(files), err
}

// sessionOf returns what a master begins with.
func sessionOf(c *master.Config) tensorboard.Session {
	switch {
	case c.Former != nil:
		return tensorboard.Successor
	case c.Resume:
		return tensorboard.Continued
	}
	return tensorboard.First
}

// factOf returns an event of the master as a fact for TensorBoard; nil: it is none. Only the steps
// of a training are versions of its model.
func factOf(e master.Event, j *job.Job) tensorboard.Fact {
	if e, ok := e.(master.Evaluated); ok {
		return tensorboard.Evaluation{Version: e.Version, Metrics: e.Metrics}
	}
	if !j.Trains() {
		return nil
	}
	switch e := e.(type) {
	case master.RolledBack:
		return tensorboard.Rollback{Version: e.Version, ModelGeneration: e.ModelGeneration}
	case master.TrainingRestarted:
		return tensorboard.Rollback{ModelGeneration: e.ModelGeneration}
	case master.Resumed:
		return tensorboard.Rollback{Version: e.Version}
	case master.WorldFormed:
		return tensorboard.World{ID: e.World.ID, Version: e.Version}
	}
	return nil
}
