package local

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/run/program"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// The launcher's error file gets the failure that came first, or the job's reason; that of a job
// that has not failed nothing.
func TestErrorFileOfTheLauncher(t *testing.T) {
	const early = `{"message":{"message":"E","errorCode":7,"extraInfo":{"timestamp":"1700000000"}}}`
	const late = `{"message":{"message":"L","extraInfo":{"timestamp":"1700000001"}}}`
	for name, c := range map[string]struct {
		state job.State
		files map[int]string // by worker
		want  string         // a part; "" = no file
	}{
		"the first":               {job.Failed, map[int]string{0: late, 11: early, 2: "{"}, early},
		"no worker has one":       {job.Failed, nil, `"message":"disk full"`},
		"it cannot be read":       {job.Failed, map[int]string{0: "{"}, `"message":"disk full"`},
		"the job was stopped":     {job.Stopped, map[int]string{0: late}, ""},
		"the job has succeeded":   {job.Succeeded, map[int]string{0: late}, ""},
		"it names no time at all": {job.Failed, map[int]string{0: `{"message":"text"}`}, `{"message":"text"}`},
	} {
		t.Run(name, func(t *testing.T) {
			home := dir(t.TempDir())
			if err := home.store(&wire.JobStatus{State: string(c.state), Reason: "disk full"}); err != nil {
				t.Fatal(err)
			}
			l := &launcher{dir: home, backlog: newBacklog(home, slog.New(slog.DiscardHandler)),
				scratch: t.TempDir(), errorFile: filepath.Join(t.TempDir(), "why.json"),
				log: slog.New(slog.DiscardHandler)}
			for worker, text := range c.files {
				if err := os.WriteFile(podConfig{Scratch: l.scratch}.errorFile(
					pod.ID{Role: pod.Worker, Index: worker}), []byte(text), private); err != nil {
					t.Fatal(err)
				}
			}
			l.blame()
			text, err := os.ReadFile(l.errorFile)
			if (err == nil) != (c.want != "") || !strings.Contains(string(text), c.want) {
				t.Errorf("%q, %v, want %q", text, err, c.want)
			}
		})
	}
}

// The variable that counts: the job's before the launcher's, and only for a program. Each worker
// has a file of its own.
func TestErrorFileIsNamed(t *testing.T) {
	t.Setenv(program.ErrorFileVariable, "/launcher")
	j := job.DefaultOf(job.Run)
	if got := errorFileOf(j); got != "/launcher" {
		t.Errorf("the launcher's: %q", got)
	}
	j.Envs = map[string]string{program.ErrorFileVariable: "/job"}
	if got := errorFileOf(j); got != "/job" {
		t.Errorf("the job's: %q", got)
	}
	if got := errorFileOf(job.Default()); got != "" {
		t.Errorf("of a job that trains a model: %q", got)
	}
	c := podConfig{Scratch: "/s", ErrorFiles: true, Env: j.Envs}
	for id, want := range map[pod.ID]string{{Role: pod.Worker, Index: 3}: "/s/worker-3.error.json",
		{Role: pod.PS}: "/job"} {
		if got := c.env(id)[program.ErrorFileVariable]; got != want {
			t.Errorf("%v: %q, want %q", id, got, want)
		}
	}
}
