package local

import (
	"slices"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// Each full disk is named once, by the first directory that the job has on it, until there is
// room enough again.
func TestDisks(t *testing.T) {
	t.Setenv("TMPDIR", "/tmp")
	j := job.Default()
	j.Output, j.CheckpointDir, j.PredictionOutputs = "/out", "s3://bucket/ckpt", "/more/predictions.csv"
	d := newDisks("/home/jobs/j", j)
	if want := []string{"/home", "/tmp", "/out", "/more"}; !slices.Equal(d.dirs, want) {
		t.Fatalf("the directories are %q, want %q", d.dirs, want)
	}
	room := map[string]uint64{"a": 1 << 30, "b": 1 << 30}
	d.free = func(dir string) (string, uint64, bool) {
		disk := map[string]string{"/home": "a", "/tmp": "b", "/out": "b"}[dir]
		return disk, room[disk], disk != ""
	}
	for _, c := range []struct {
		a, b uint64
		want []string
	}{
		{1 << 30, 1 << 30, nil},
		{1 << 30, 0, []string{"no space left on /tmp"}},
		{4096, 500 << 10, []string{"no space left on /home", "no space left on /tmp"}},
		{1 << 20, 500 << 10, []string{"no space left on /tmp"}},
		{500 << 10, 1 << 20, nil},
		{fullBelow - 1, fullBelow, []string{"no space left on /home"}},
	} {
		room["a"], room["b"] = c.a, c.b
		d.look()
		if got := d.problems(); !slices.Equal(got, c.want) {
			t.Errorf("with %d and %d bytes of room: %q, want %q", c.a, c.b, got, c.want)
		}
	}
	if disk, bytes, ok := freeOn(t.TempDir() + "/not/there/yet"); !ok || disk == "" || bytes == 0 {
		t.Errorf("the disk of this test: %q, %d, %t", disk, bytes, ok)
	}
}
