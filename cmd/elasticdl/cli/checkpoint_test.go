package cli

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/store/bucket"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
)

// writeCommit writes a commit with a number of shards, as a job does: commit DIR NUMBER SHARDS.
// With a further argument the commit lacks its record.
func writeCommit(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 3 {
		ts.Fatalf("usage: commit DIR NUMBER SHARDS [begun]")
	}
	number, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	shards, err := strconv.Atoi(args[2])
	ts.Check(err)
	ts.Check(makeCommit(ts.MkAbs(args[0]), number, shards, len(args) == 3))
}

// makeCommit writes a commit with a number of shards; without its record it is incomplete.
func makeCommit(dir string, number int64, shards int, record bool) error {
	d := checkpoint.Dir{Files: checkpoint.Local(dir)}
	layout := param.Layout{
		{Name: "dense/w", Shape: []int{20, 50}, Trainable: true},
		{Name: "dense/b", Shape: []int{50}, Trainable: true}, {Name: "bn/mean", Shape: []int{10}},
	}
	values, slots := make([]float32, layout.Len()), make([]float32, layout.Trainable())
	for i := range values {
		values[i] = float32(number) + float32(i)/1024
	}
	c := checkpoint.Commit{
		Format: checkpoint.Format, Number: number,
		Time:    time.Now().Add(-time.Duration(100-number) * time.Hour).UTC().Truncate(time.Second),
		JobName: "mnist", Job: "0f1e-uid",
		Lineage:         []checkpoint.Ancestor{{Job: "first-uid", Number: 7}, {Job: "second-uid", Number: 9}},
		ModelDef:        "mnist.mnist_mlp.custom_model",
		ModelGeneration: 2, Version: 100 * number, Layout: checkpoint.VariablesOf(layout), Optimizer: "Momentum",
		Slots: 1, Records: 12800 * number,
		Cut: checkpoint.Cut{RecordsPerTask: 128, Shuffle: true, Seed: 5, Shards: "abc"},
		Evaluations: []checkpoint.Evaluation{
			{Version: 50, Metrics: map[string]float64{"accuracy": 0.9125, "loss": 0.25}}},
	}
	c.Ledger.Settle(3)
	c.Ledger.Add(ledger.Task{Epoch: 4, Number: 0}, 128, 128)
	c.Ledger.Add(ledger.Task{Epoch: 4, Number: 6}, 40, 128)
	for i, span := range param.Partition(len(values), shards) {
		p := checkpoint.Part{Start: span.Start, Values: values[span.Start:span.End]}
		if span.Start < len(slots) {
			p.Slots = [][]float32{slots[span.Start:min(span.End, len(slots))]}
		}
		s, err := checkpoint.WriteShard(d, checkpoint.Name{Number: number}, checkpoint.ShardFile(i, shards), p)
		if err != nil {
			return err
		}
		c.Shards = append(c.Shards, s)
	}
	if !record {
		return nil
	}
	return d.WriteCommit(c)
}

// flip damages one bit of a byte of a file, which may be given by a pattern: flip FILE BYTE
func flip(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	if found, _ := filepath.Glob(path); len(found) == 1 {
		path = found[0]
	}
	file, err := os.ReadFile(path)
	ts.Check(err)
	at, err := strconv.Atoi(args[1])
	ts.Check(err)
	file[at] ^= 4
	ts.Check(os.WriteFile(path, file, 0o644))
}

// upload copies a directory of commits to a bucket: upload DIR s3://BUCKET/PREFIX
func upload(ts *testscript.TestScript, _ bool, args []string) {
	to := s3(ts, args[1])
	dir := ts.MkAbs(args[0])
	ts.Check(filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		file, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		w, err := to.Create(filepath.ToSlash(name))
		if err != nil {
			return err
		}
		defer w.Abort()
		if _, err := w.Write(file); err != nil {
			return err
		}
		return w.Commit()
	}))
}

// download copies an object to a file: download s3://BUCKET/NAME FILE
func download(ts *testscript.TestScript, _ bool, args []string) {
	from, name := path.Split(args[0])
	r, size, closer, err := s3(ts, from).Open(name)
	ts.Check(err)
	defer closer.Close()
	file, err := io.ReadAll(io.NewSectionReader(r, 0, size))
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), file, 0o644))
}

// s3 opens a location in the S3 store of the script tests.
func s3(ts *testscript.TestScript, location string) checkpoint.Files {
	os.Setenv("AWS_ACCESS_KEY_ID", ts.Getenv("AWS_ACCESS_KEY_ID"))
	os.Setenv("AWS_SECRET_ACCESS_KEY", ts.Getenv("AWS_SECRET_ACCESS_KEY"))
	f, err := bucket.Open(context.Background(), location+"?"+ts.Getenv("S3"))
	ts.Check(err)
	return f
}

func TestBytesText(t *testing.T) {
	sizes := []int64{0, 999, 1000, 4240, 999_949, 999_950, 14_700_000, 3e12, 5e18}
	want := []string{"0 B", "999 B", "1.0 kB", "4.2 kB", "999.9 kB", "1.0 MB", "14.7 MB", "3.0 TB", "5000.0 PB"}
	var got []string
	for _, n := range sizes {
		got = append(got, bytesText(n))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// until wraps files, and ends a context when the first shard is opened.
type until struct {
	checkpoint.Files
	end context.CancelFunc
}

func (u until) Open(name string) (io.ReaderAt, int64, io.Closer, error) {
	if strings.Contains(name, "shard") {
		u.end()
	}
	return u.Files.Open(name)
}

// A commit that was not read to its end, because the command was interrupted, is not reported as
// damaged.
func TestInterruptedVerify(t *testing.T) {
	dir := t.TempDir()
	if err := makeCommit(dir, 1, 2, true); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var out strings.Builder
	cmd := new(cobra.Command)
	cmd.SetContext(ctx)
	cmd.SetOut(&out)
	c := commits{location: dir, name: dir}
	err := c.verify(cmd, checkpoint.Dir{Files: interruptible{until{checkpoint.Local(dir), cancel}, ctx}})
	if !errors.Is(err, context.Canceled) || out.Len() > 0 {
		t.Errorf("%v, with the words %q", err, &out)
	}
}
