package incluster

import (
	"encoding/json"
	"os"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// A job whose spec says that it is resumed continues from its own checkpoints. Otherwise it moves
// them aside and starts over. Its model is next to them, because the job names no place for it.
func TestMasterResumes(t *testing.T) {
	var j *job.Job
	c := newNodes(t, func(of *job.Job) {
		of.Volumes = []job.Volume{{ClaimName: "c", MountPath: t.TempDir()}}
		of.CheckpointDir, of.CheckpointSteps, of.NumEpochs = of.ClaimDir(), 1000, 1
		j = of
	})
	for _, run := range []struct {
		resume       string
		epochs       int
		before, done int64
		aside        bool
	}{
		{"", 1, 0, 512, false},
		{"the-job", 2, 512, 1024, false},
		{"the-job-before", 1, 0, 512, true},
	} {
		j.NumEpochs = run.epochs
		text, err := json.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		c.edit("elasticdl-test", map[string]string{manifest.KeyJob: string(text),
			manifest.KeyResume:  run.resume,
			manifest.KeyJournal: `{"entries":[{"n":7,"kind":"TrainingFailed","text":"no data"}]}`})
		// as if the state were another Job's
		c.put(&core.ConfigMap{ObjectMeta: meta.ObjectMeta{Name: "elasticdl-test-state", Namespace: "default"}})
		c.apiServer.mu.Lock()
		clear(c.pods)
		c.apiServer.mu.Unlock()
		if err := os.RemoveAll(j.ResultDir()); err != nil {
			t.Fatal(err)
		}
		if err := <-c.begin(t.Context(), "master-a"); err != nil {
			t.Fatal(err)
		}
		if s := c.status(); s.State != "Succeeded" || s.RecordsBefore != run.before || s.RecordsDone != run.done {
			t.Errorf("resume=%q: %s, %d records, %d of them before", run.resume, s.State, s.RecordsDone,
				s.RecordsBefore)
		}
		if history := c.status().History; len(history) > 0 != (run.before > 0) || len(history) > 0 &&
			history[0].Text != "the job Failed: no data" {
			t.Errorf("resume=%q: history %v", run.resume, history)
		}
		if _, err := os.Stat(j.CheckpointDir + ".before"); (err == nil) != run.aside {
			t.Errorf("resume=%q: checkpoints of an earlier job are set aside: %v", run.resume, err)
		}
		if _, err := os.Stat(j.ResultDir() + "/model.safetensors"); err != nil {
			t.Errorf("resume=%q: %v", run.resume, err)
		}
	}
}
