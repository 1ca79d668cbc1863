package incluster

import (
	"errors"
	"os"
	"testing"

	"github.com/elasticdl/elasticdl/test/pace"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/train/data/example"
	"github.com/elasticdl/elasticdl/trainer/train/recordio"
	"github.com/elasticdl/elasticdl/trainer/train/zoo"
)

// The models of the jobs of these tests need almost no computation.
func TestMain(m *testing.M) {
	if err := zoo.Add(pace.Small, pace.Patient); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// patient returns a change that makes a job slow until hurry is called. So a test disturbs it on a
// machine of any speed.
func patient(t *testing.T, epochs int) (slow func(*job.Job), hurry func()) {
	home := t.TempDir()
	t.Setenv("ELASTICDL_HOME", home)
	slow = func(j *job.Job) { j.ModelDef, j.NumEpochs = pace.Patient.Def(), epochs }
	return slow, func() {
		if err := pace.Hurry(home); err != nil {
			t.Fatal(err)
		}
	}
}

// writeRecords writes n records of artificial images with labels.
func writeRecords(t *testing.T, path string, n int) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w, err := recordio.NewWriter(file, recordio.Snappy, 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	image := make([]byte, 28*28)
	for i := range n {
		image[i%len(image)] = byte(i)
		record := example.Append(nil, example.Value{Name: "image", Bytes: [][]byte{image}},
			example.Value{Name: "label", Ints: []int64{int64(i % 10)}})
		if err := w.Write(record); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), file.Close()); err != nil {
		t.Fatal(err)
	}
}
