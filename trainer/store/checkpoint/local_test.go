package checkpoint

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/param"
)

// lastingDisk holds the bytes that survive a loss of power: of each file what it had when it was
// last synchronized, and of each directory the names that it had then. Nothing else is sure to be
// there.
type lastingDisk struct {
	content map[uint64][]byte            // by inode
	names   map[uint64]map[string]uint64 // by inode of the directory
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Ino
}

// sync notes what is on the disk from now on.
func (d *lastingDisk) sync(t *testing.T, f *os.File) error {
	at := inode(t, f.Name())
	entries, err := os.ReadDir(f.Name())
	if err != nil { // a file
		d.content[at], err = os.ReadFile(f.Name())
		return err
	}
	d.names[at] = make(map[string]uint64)
	for _, e := range entries {
		d.names[at][e.Name()] = inode(t, filepath.Join(f.Name(), e.Name()))
	}
	return nil
}

// after writes what is left of a directory after a loss of power.
func (d *lastingDisk) after(t *testing.T, dir uint64, to string) {
	t.Helper()
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(d.names[dir])) {
		at := d.names[dir][name]
		if _, isDir := d.names[at]; isDir {
			d.after(t, at, filepath.Join(to, name))
		} else if err := os.WriteFile(filepath.Join(to, name), d.content[at], 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Acknowledged writes survive a loss of power: a shard, the record of a commit, a claim.
func TestLossOfPower(t *testing.T) {
	root := filepath.Join(t.TempDir(), "ckpt")
	power := &lastingDisk{content: make(map[uint64][]byte), names: make(map[uint64]map[string]uint64)}
	d := Dir{Files: local{root, &disk{func(f *os.File) error { return power.sync(t, f) }}}}
	lost := func() Dir {
		to := t.TempDir()
		power.after(t, inode(t, root), to)
		return Dir{Files: Local(to)}
	}
	claim, err := d.Claim(Owner{Job: "a"}, Permit{}, time.Unix(1e9, 0))
	if err != nil {
		t.Fatal(err)
	}
	if err := lost().Holds(claim.Claim); err != nil {
		t.Errorf("the claim: %v", err)
	}
	layout := param.Layout{{Name: "w", Shape: []int{4}, Trainable: true}}
	for number := range int64(2) {
		n := Name{number + 1, claim.Tag()}
		values := slices.Repeat([]float32{float32(number)}, 4)
		s, err := WriteShard(d, n, ShardFile(0, 1), Part{Values: values})
		if err != nil {
			t.Fatal(err)
		}
		c := Commit{Format: Format, Number: n.Number, Claim: n.Claim, Job: "a", ModelGeneration: 1,
			Layout: VariablesOf(layout), Shards: []Shard{s}}
		if err := lost().Verify(&c); err != nil {
			t.Errorf("a shard of %v: %v", n, err)
		}
		if err := d.WriteCommit(c); err != nil {
			t.Fatal(err)
		}
		if got, damaged, err := lost().Newest(); err != nil || len(damaged) > 0 || got.Name() != n {
			t.Errorf("the newest is %+v of %v, damaged %v: %v", got, n, damaged, err)
		}
	}
	if err := d.Release(claim.Claim); err != nil {
		t.Fatal(err)
	}
	if err := lost().MayClaim(Owner{Job: "b"}, Permit{}); err != nil {
		t.Errorf("the release: %v", err)
	}
}
