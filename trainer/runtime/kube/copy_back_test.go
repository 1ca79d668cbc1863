package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/util/exec"

	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
)

// sender returns a stream to the command in the pod, with a directory in the place of its claim.
func sender(claim string) stream {
	return func(ctx context.Context, _ string, command []string, stdin io.Reader, stdout, stderr io.Writer) error {
		from := strings.Replace(strings.TrimPrefix(command[2], "--from="), claimMount, claim, 1)
		if err := Send(ctx, nil, from, len(command) > 3, stdout); err != nil {
			fmt.Fprintln(stderr, "elasticdl send:", err)
			return exec.CodeExitError{Err: errors.New("command terminated with exit code 1"), Code: 1}
		}
		return nil
	}
}

func TestCopyFromClaim(t *testing.T) {
	claim := t.TempDir()
	if err := os.CopyFS(filepath.Join(claim, "a/mnist"), os.DirFS(tree(t, twoFiles))); err != nil {
		t.Fatal(err)
	}
	what := Copy{Claim: "files", From: "a/mnist", To: filepath.Join(t.TempDir(), "b", "mnist"), Image: "r/elasticdl:1"}
	client, set := cluster(running)
	broken := 2 // the first stream breaks
	run := func(ctx context.Context, pod string, command []string, stdin io.Reader, stdout, stderr io.Writer) error {
		if broken--; broken == 1 { // this is the first stream
			var whole bytes.Buffer
			if err := sender(claim)(ctx, pod, command, stdin, &whole, stderr); err != nil {
				return err
			}
			stdout.Write(whole.Bytes()[:whole.Len()-2])
			return errors.New("the API server was restarted")
		}
		return sender(claim)(ctx, pod, command, stdin, stdout, stderr)
	}
	var last CopyProgress
	for _, existed := range []bool{false, true} {
		got, err := client.copyFromClaim(t.Context(), what, run, func(p CopyProgress) { last = p })
		if err != nil || got != existed {
			t.Fatalf("existed %t, %v, want %t", got, err, existed)
		}
		if !existed && (last.Done != last.Total || last.Total == 0) {
			t.Errorf("%+v", last)
		}
	}
	if got := holds(t, what.To); !maps.Equal(got, twoFiles) {
		t.Errorf("received %v, want %v", got, twoFiles)
	}
	noPods(t, set, 2)

	what.From = "nothing"
	_, err := client.copyFromClaim(t.Context(), what, run, func(CopyProgress) {})
	if err == nil || !strings.HasPrefix(err.Error(), "copy from claim files: elasticdl send: read ") ||
		!strings.HasSuffix(err.Error(), "/nothing: no such file or directory") {
		t.Errorf("nothing is there: %v", err)
	}
	if left, _ := os.ReadDir(filepath.Dir(what.To)); len(left) != 1 {
		t.Errorf("%v are left", left)
	}
}

// The model that is fetched from a checkpoint has the bytes of an export. A damaged checkpoint
// gives an error.
func TestFetchModel(t *testing.T) {
	layout := param.Layout{{Name: "w", Shape: []int{3, 2}, Trainable: true}}
	root := t.TempDir()
	d := checkpoint.Dir{Files: checkpoint.Local(filepath.Join(root, "ckpt"))}
	shard, err := checkpoint.WriteShard(d, checkpoint.Name{Number: 4}, checkpoint.ShardFile(0, 1),
		checkpoint.Part{Values: []float32{1, 2, 3, 4, 5, 6}})
	if err != nil {
		t.Fatal(err)
	}
	c := checkpoint.Commit{Format: checkpoint.Format, Number: 4, ModelGeneration: 1,
		Layout: checkpoint.VariablesOf(layout), Shards: []checkpoint.Shard{shard}}
	if err := errors.Join(d.WriteCommit(c), d.Export(&c, checkpoint.Local(filepath.Join(root, "out")),
		nil)); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join(root, "out", checkpoint.ModelFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{"ckpt", "out", "ckpt/commit-00000004", "out/model.safetensors"} {
		to := filepath.Join(root, "to "+filepath.Base(from))
		existed, err := Fetch(t.Context(), nil, filepath.Join(root, from), to, func(CopyProgress) {})
		if got := holds(t, to); err != nil || existed || len(got) != 1 || got[checkpoint.ModelFile] != string(want) {
			t.Errorf("%s: %d files, %v", from, len(got), err)
		}
	}
	file := filepath.Join(root, "ckpt/commit-00000004", shard.File)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)-1]++
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(root, "damaged")
	if _, err := Fetch(t.Context(), nil, filepath.Join(root, "ckpt"), to,
		func(CopyProgress) {}); !errors.Is(err, checkpoint.ErrDamaged) {
		t.Errorf("a damaged checkpoint: %v", err)
	}
	if _, err := os.Stat(to); !os.IsNotExist(err) {
		t.Errorf("of a damaged checkpoint there is %v", err)
	}
}
