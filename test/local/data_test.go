package local_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/train/recordio"
)

// numbered writes a RecordIO file with records of the digits, rotated by that many: each rotation
// has as many records and bytes.
func numbered(t *testing.T, path string, rotated int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(digits, "train", "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	source, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	index, err := recordio.ReadIndex(bytes.NewReader(source), int64(len(source)))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w, err := recordio.NewWriter(&out, recordio.None, 1<<14)
	if err != nil {
		t.Fatal(err)
	}
	records := recordio.NewReader(bytes.NewReader(source), index)
	const n = 512
	for i := range n {
		record, err := records.Record(int64((i + rotated) % n))
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(record); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// trainOn starts a job that trains on a directory of two such files until hurry.
func trainOn(t *testing.T, data string) *launched {
	t.Helper()
	numbered(t, filepath.Join(data, "a"), 0)
	numbered(t, filepath.Join(data, "b"), 7)
	j := launch(t, "train", "--model_zoo=model_zoo", patient, "--training_data="+data,
		"--minibatch_size=16", "--num_minibatches_per_task=4",
		"--num_ps_pods=1", "--num_workers=2", "--num_epochs=4", "--checkpoint_interval=1s")
	j.until("training", trained(0.001))
	return j
}

// A suspended job does not continue with other data: it names the file and what has changed. It
// continues with a copy of what it had.
func TestResumedOnReplacedData(t *testing.T) {
	data := t.TempDir()
	j := trainOn(t, data)
	if out, err := exec.Command(program, "suspend", j.name).CombinedOutput(); err != nil {
		t.Fatalf("suspend: %v\n%s", err, out)
	}
	j.wait()
	numbered(t, filepath.Join(data, "b"), 8)
	out, err := exec.Command(program, "resume", j.name).CombinedOutput()
	want := "b has the same size and number of records, and other contents; restore the data"
	if err == nil || !strings.Contains(string(out), want) {
		t.Fatalf("resume on other data: %v\n%s\nwant %q", err, out, want)
	}
	copied := t.TempDir()
	numbered(t, filepath.Join(copied, "b"), 7) // at another time
	if err := os.Rename(filepath.Join(copied, "b"), filepath.Join(data, "b")); err != nil {
		t.Fatal(err)
	}
	j.hurry()
	if out, err := exec.Command(program, "resume", j.name).CombinedOutput(); err != nil {
		t.Fatalf("resume on a copy of the data: %v\n%s", err, out)
	}
	if s := j.status(); s.State != "Succeeded" || s.RecordsDone != 4*1024 {
		t.Errorf("%s with %d records, want %d", s.State, s.RecordsDone, 4*1024)
	}
}

// A job whose data is replaced while it runs trains on none of the other records: it fails, and
// names the file.
func TestDataReplacedWhileItIsRead(t *testing.T) {
	data := t.TempDir()
	j := trainOn(t, data)
	for _, name := range []string{"a", "b"} {
		numbered(t, filepath.Join(data, name), 100)
	}
	j.hurry()
	s := j.end(1)
	if !strings.Contains(s.Reason, filepath.Join(data, "")) || !strings.Contains(s.Reason, "the file has changed") {
		t.Errorf("%s: %s", s.State, s.Reason)
	}
}
