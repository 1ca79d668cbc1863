package role

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/store/outage"
)

// plan returns the data of a job with a CSV file to train on, and one to measure on.
func plan(t *testing.T) (*records, *job.Job) {
	t.Helper()
	dir := t.TempDir()
	j := job.Default()
	j.ModelDef = "mnist.mnist_mlp.custom_model"
	j.TrainingData, j.ValidationData = filepath.Join(dir, "train.csv"), filepath.Join(dir, "test.csv")
	for path, text := range map[string]string{j.TrainingData: "a,b\n1,2\n3,4\n", j.ValidationData: "a,b\n5,6\n"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Plan(j, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return c.Data.(*records), j
}

func TestIndex(t *testing.T) {
	r, _ := plan(t)
	training, validation, err := r.Index(t.Context())
	if err != nil || len(training) != 1 || training[0].Count != 2 || len(validation) != 1 || validation[0].Count != 1 {
		t.Errorf("%v, %v, %v", training, validation, err)
	}
	if bytes, of := r.Indexed(); bytes != 20 || of != 20 {
		t.Errorf("%d bytes of %d", bytes, of)
	}
	for kind, shard := range map[task.Kind]string{task.Training: "train.csv", task.Evaluation: "test.csv"} {
		if b := r.Blocks(task.Task{Kind: kind, Shard: shard, End: 1}); len(b) != 1 || b[0].Offset != 4 {
			t.Errorf("%v: %s is in %v", kind, shard, b)
		}
	}
	if b := r.Blocks(task.Task{Kind: task.Export}); b != nil {
		t.Errorf("an export is in %v", b)
	}
}

// A path that has never been there is a mistake, and said at once; so is bad data. Each is named by
// its flag.
func TestIndexOfNothing(t *testing.T) {
	for flag, spoil := range map[string]func(*job.Job) error{
		"--output=":       func(j *job.Job) error { j.Output = filepath.Join(j.TrainingData, "model"); return nil },
		"--training_data": func(j *job.Job) error { return os.Remove(j.TrainingData) },
		"--validation_data": func(j *job.Job) error {
			return os.WriteFile(j.ValidationData, []byte("a,b\n5\n"), 0o644)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, j := plan(t)
			if err := spoil(j); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			_, _, err := r.Index(t.Context())
			if err == nil || !strings.HasPrefix(err.Error(), flag) ||
				!strings.Contains(err.Error(), ".csv") || time.Since(began) > 0 {
				t.Errorf("%s: %v after %v", flag, err, time.Since(began))
			}
		})
	}
}

// A file that goes while it is looked at is waited for, until ctx ends or the limit is reached.
func TestIndexWaits(t *testing.T) {
	for _, away := range []time.Duration{time.Minute, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			r, j := plan(t)
			dir := filepath.Join(t.TempDir(), "data")
			// leads nowhere
			if err := errors.Join(os.Mkdir(dir, 0o755), os.Symlink("b.csv", filepath.Join(dir, "a.csv"))); err != nil {
				t.Fatal(err)
			}
			j.TrainingData = dir
			defer time.AfterFunc(away, func() {
				os.WriteFile(filepath.Join(dir, "b.csv"), []byte("a,b\n1,2\n"), 0o644)
			}).Stop()
			began := time.Now()
			training, _, err := r.Index(t.Context())
			took := time.Since(began)
			if away < timing.Storage && (err != nil || len(training) != 2 || took < away ||
				took > away+timing.StoragePause) {
				t.Errorf("%v, %v after %v", training, err, took)
			}
			if away > timing.Storage && (!outage.Is(err) || !strings.Contains(err.Error(), dir) ||
				took != timing.Storage) {
				t.Errorf("%v after %v", err, took)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		r, j := plan(t)
		j.TrainingData = t.TempDir()
		if err := os.Symlink("b.csv", filepath.Join(j.TrainingData, "a.csv")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		if _, _, err := r.Index(ctx); err == nil || time.Since(began) != 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
