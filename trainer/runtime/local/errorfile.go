package local

import (
	"cmp"
	"os"
	"path/filepath"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/run/program"
)

// errorFileOf returns the file that is to receive why the program of a job has failed: the one that
// torchrun's variable names in the job's environment, or in that of the launcher, as in that of
// torchrun. It is "" if there is none.
func errorFileOf(j *job.Job) string {
	path := cmp.Or(j.Envs[program.ErrorFileVariable], os.Getenv(program.ErrorFileVariable))
	if path == "" || !j.Runs() {
		return ""
	}
	if whole, err := filepath.Abs(path); err == nil {
		return whole
	}
	return path
}

// errorFile returns the file to which a worker writes the failure of its processes, for the
// launcher.
func (c podConfig) errorFile(id pod.ID) string {
	return filepath.Join(c.Scratch, id.String()+".error.json")
}

// blame writes the error file of a job that has failed: what the worker has written whose failure
// came first, or if none has, the job's reason. It is called when no worker is left.
func (l *launcher) blame() {
	if l.errorFile == "" {
		return
	}
	status, err := l.stored()
	if err != nil || status.State != string(job.Failed) {
		return
	}
	text := firstError(l.scratch)
	if text == nil {
		text = program.Exit{Code: 1, At: time.Now(), Failure: &program.Failure{Message: status.Reason}}.ErrorFile()
	}
	if err := os.WriteFile(l.errorFile, text, 0o644); err != nil {
		l.log.Warn("Write the error file of the job", program.ErrorFileVariable, l.errorFile, "error", err)
	}
}

// firstError returns the text of the error file in a directory whose failure came first, nil if
// there is none.
func firstError(dir string) (text []byte) {
	paths, _ := filepath.Glob(filepath.Join(dir, "*.error.json")) // the pattern is valid
	var first time.Time
	for _, path := range paths {
		its, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		f, err := program.ParseFailure(its)
		if err == nil && (text == nil || f.Time.Before(first)) {
			text, first = its, f.Time
		}
	}
	return text
}
