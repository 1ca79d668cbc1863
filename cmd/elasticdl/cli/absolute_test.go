package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// The paths of a job are made absolute, so that it can be resumed from another directory. Locations
// in buckets, and the arguments of a program, stay unchanged.
func TestPathsAreAbsolute(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	j := job.Default()
	j.TrainingData, j.ValidationData, j.PredictionData = "train", "../test", "/data/predict"
	j.Output, j.CheckpointDir, j.CheckpointDirForInit, j.PredictionOutputs = "out", "s3://bucket/ckpt",
		"init", "out.csv"
	if err := makeAbsolute(j); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{
		{j.TrainingData, filepath.Join(dir, "train")},
		{j.ValidationData, filepath.Join(filepath.Dir(dir), "test")}, {j.PredictionData, "/data/predict"},
		{j.Output, filepath.Join(dir, "out")}, {j.CheckpointDir, "s3://bucket/ckpt"},
		{j.CheckpointDirForInit, filepath.Join(dir, "init")},
		{j.PredictionOutputs, filepath.Join(dir, "out.csv")}, {j.Program.Workdir, ""},
	} {
		if c[0] != c[1] {
			t.Errorf("%q, want %q", c[0], c[1])
		}
	}

	p := job.Default()
	p.Type, p.Program.Command, p.Program.LogDir = job.Run, []string{"main.py", "--data=train"}, "logs"
	p.Envs = map[string]string{"TORCHELASTIC_ERROR_FILE": "why.json", "DATA": "train"}
	if err := makeAbsolute(p); err != nil {
		t.Fatal(err)
	}
	if p.Program.Workdir != dir || p.Program.LogDir != filepath.Join(dir, "logs") ||
		p.Envs["TORCHELASTIC_ERROR_FILE"] != filepath.Join(dir, "why.json") {
		t.Errorf("a program: in %q, logs in %q, %v", p.Program.Workdir, p.Program.LogDir, p.Envs)
	}
	if strings.Join(p.Program.Command, " ") != "main.py --data=train" || p.Envs["DATA"] != "train" {
		t.Errorf("a program: %q, %v", p.Program.Command, p.Envs)
	}
}

// The working directory keeps the name that its user knows, also behind a symbolic link. One that
// was deleted is refused.
func TestWorkingDirectory(t *testing.T) {
	dir := t.TempDir()
	real, link, gone := filepath.Join(dir, "real"), filepath.Join(dir, "link"), filepath.Join(dir, "gone")
	if err := errors.Join(os.Mkdir(real, 0o755), os.Mkdir(gone, 0o755), os.Symlink(real, link)); err != nil {
		t.Fatal(err)
	}
	program := func() *job.Job {
		j := job.Default()
		j.Type, j.Program.Command = job.Run, []string{"main.py"}
		return j
	}
	t.Chdir(real)
	t.Setenv("PWD", link)
	if j := program(); makeAbsolute(j) != nil || j.Program.Workdir != link {
		t.Errorf("%q, want %q", j.Program.Workdir, link)
	}
	t.Chdir(gone)
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	if err := makeAbsolute(program()); err == nil || !strings.Contains(err.Error(), "does not exist any more") {
		t.Errorf("a deleted directory: %v", err)
	}
}
