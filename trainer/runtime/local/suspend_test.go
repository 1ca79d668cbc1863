package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// resting is the directory of a job that is suspended, with a model of an earlier job of its name.
func resting(t *testing.T) dir {
	t.Helper()
	t.Setenv("ELASTICDL_HOME", t.TempDir())
	d, err := openDir("rests")
	if err != nil {
		t.Fatal(err)
	}
	j := named("rests")
	j.CheckpointDir = d.path(checkpoints)
	err = errors.Join(os.MkdirAll(d.logs(), privateDir), d.writeJSON("job.json", j),
		d.store(&wire.JobStatus{Name: "rests", State: string(job.Suspended)}),
		os.Mkdir(d.path(result), privateDir),
		os.WriteFile(filepath.Join(d.path(result), "model.safetensors"), []byte("of before"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A suspended job is neither dead nor replaced by another, and can be stopped.
func TestSuspendedJob(t *testing.T) {
	d := resting(t)
	if s, err := Status(t.Context(), "rests"); err != nil || s.State != "Suspended" {
		t.Errorf("status: %v, %v", s, err)
	}
	if err := Suspend(t.Context(), "rests"); err != nil {
		t.Errorf("suspended again: %v", err)
	}
	if _, err := Start(t.Context(), named("rests"), StartOptions{}); !errors.Is(err, ErrSuspended) {
		t.Errorf("another job of the name: %v", err)
	}
	if _, err := d.reopen(nil); err != nil {
		t.Errorf("it cannot be resumed: %v", err)
	}
	if d = resting(t); Stop(t.Context(), "rests") != nil {
		t.Error("it cannot be stopped")
	}
	if s, err := Status(t.Context(), "rests"); err != nil || s.State != "Stopped" ||
		s.Reason != "stopped: by the user" {
		t.Errorf("stopped: %v, %v", s, err)
	}
	if err := Suspend(t.Context(), "rests"); err == nil || err.Error() != "suspend job rests: it has ended: Stopped" {
		t.Errorf("suspended after its end: %v", err)
	}
	if err := d.clear(); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(d.path(result), "model.safetensors")); err != nil ||
		string(text) != "of before" {
		t.Errorf("the model of the earlier job is deleted before there is another: %v", err)
	}
}

// A job that was scaled continues with as many workers as it had, as on a cluster.
func TestResumedJobIsScaled(t *testing.T) {
	d := resting(t)
	if err := d.store(&wire.JobStatus{Name: "rests", State: string(job.Suspended), Workers: 5}); err != nil {
		t.Fatal(err)
	}
	j, err := d.reopen(nil)
	if err != nil || j.NumWorkers != 5 {
		t.Fatalf("resumed with %d workers, want 5: %v", j.NumWorkers, err)
	}
	// the launcher and the master of a detached job read it
	if j, err = Job("rests"); err != nil || j.NumWorkers != 5 {
		t.Errorf("the job has %d workers, want 5: %v", j.NumWorkers, err)
	}
}

// A suspended job owns the checkpoints of its program until it is stopped.
func TestStoppedJobReleasesCheckpoints(t *testing.T) {
	d, path := resting(t), filepath.Join(t.TempDir(), "kept.pt")
	record := fmt.Sprintf(
		`{"format": 2, "life": 1, "program": {"claims": [{"path": %q}, {"path": "/not/there.pt"}]}}`, path)
	if err := errors.Join(d.write("uid", []byte("u1\n")), d.write(recordFile, []byte(record))); err != nil {
		t.Fatal(err)
	}
	owners := checkpoint.Dir{Files: checkpoint.Local(path)}
	if _, err := owners.Claim(d.owner("u1", 1), checkpoint.Permit{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	other := checkpoint.Owner{Job: "u2", Name: "other"}
	if err := owners.MayClaim(other, checkpoint.Permit{}); !errors.Is(err, checkpoint.ErrOwned) {
		t.Errorf("while it is suspended another job finds %v", err)
	}
	if err := Stop(t.Context(), "rests"); err != nil {
		t.Fatal(err)
	}
	if err := owners.MayClaim(other, checkpoint.Permit{}); err != nil {
		t.Errorf("after it was stopped another job finds %v", err)
	}
}

// A resume that fails leaves the job as it was, whatever fails: what the job needs, the launcher,
// or the first master.
func TestFailedResumeLeavesTheJob(t *testing.T) {
	for name, o := range map[string]StartOptions{
		"check":             {Check: func(*job.Job) error { return errors.New("--training_data=/absent: no such file") }},
		"master":            {Binary: "/bin/false"},
		"no binary":         {Binary: "/no/such/elasticdl"},
		"detached launcher": {Binary: "/bin/false", Detach: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := resting(t)
			if err := d.identify(); err != nil {
				t.Fatal(err)
			}
			if _, _, err := Resume(t.Context(), "rests", o); err == nil ||
				!strings.Contains(err.Error(), "resume job rests: ") {
				t.Errorf("it is resumed: %v", err)
			}
			if s, err := Status(t.Context(), "rests"); err != nil || s.State != string(job.Suspended) {
				t.Errorf("then it is %v, %v", s, err)
			}
		})
	}
}

// A command that waits for a suspended job prints that once, and waits for its end.
func TestWaitForASuspendedJob(t *testing.T) {
	d := resting(t)
	synctest.Test(t, func(t *testing.T) {
		go func() {
			time.Sleep(time.Minute)
			d.store(&wire.JobStatus{Name: "rests", State: string(job.Succeeded)})
		}()
		told := 0
		s, err := Wait(t.Context(), "rests", func() { told++ })
		if err != nil || s.State != "Succeeded" || told != 1 {
			t.Errorf("%v, %v; reported %d times", s, err, told)
		}
	})
}
