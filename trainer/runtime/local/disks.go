package local

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// A disk is full when it has less room than fullBelow, and is not full any more when it has
// roomAgain: in bytes.
const (
	fullBelow = 64 << 10
	roomAgain = 1 << 20
)

// disks looks at the disks of the directories that a job writes to, so that its status names a full
// one.
type disks struct {
	dirs []string
	free func(dir string) (disk string, bytes uint64, ok bool)

	mu   sync.Mutex
	full map[string]string // the directory to name, by disk
}

// newDisks returns the disks of a job: those of its state, of temporary files, and of what it
// writes.
func newDisks(d dir, j *job.Job) *disks {
	dirs := []string{filepath.Dir(filepath.Dir(string(d))), os.TempDir(), j.Output, j.CheckpointDir, j.Program.LogDir,
		j.TensorBoardLogDir}
	if j.PredictionOutputs != "" {
		dirs = append(dirs, filepath.Dir(j.PredictionOutputs))
	}
	dirs = slices.DeleteFunc(dirs, func(dir string) bool { return dir == "" || job.InBucket(dir) })
	return &disks{dirs: dirs, free: freeOn, full: make(map[string]string)}
}

// freeOn returns the disk of a directory, or of its parent if it does not exist yet, and how much
// room this process has there.
func freeOn(dir string) (disk string, bytes uint64, ok bool) {
	var s unix.Statfs_t
	for {
		err := unix.Statfs(dir, &s)
		if err == nil {
			break
		}
		if parent := filepath.Dir(dir); err == unix.ENOENT && parent != dir {
			dir = parent
			continue
		}
		return "", 0, false
	}
	blocks := s.Bavail
	if os.Geteuid() == 0 {
		blocks = s.Bfree
	}
	return fmt.Sprint(s.Fsid), blocks * uint64(s.Bsize), s.Blocks > 0
}

// look notes which disks are full.
func (d *disks) look() {
	seen := make(map[string]bool)
	for _, dir := range d.dirs {
		disk, bytes, ok := d.free(dir)
		if !ok || seen[disk] {
			continue
		}
		seen[disk] = true
		d.mu.Lock()
		switch _, full := d.full[disk]; {
		case !full && bytes < fullBelow:
			d.full[disk] = dir
		case full && bytes >= roomAgain:
			delete(d.full, disk)
		}
		d.mu.Unlock()
	}
}

// run looks until done is closed. A look may take long, on a network file system whose server is
// away.
func (d *disks) run(done <-chan struct{}) {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		d.look()
		select {
		case <-tick.C:
		case <-done:
			return
		}
	}
}

// problems returns which disks are full, in the order of the directories.
func (d *disks) problems() (all []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, dir := range d.dirs {
		for _, full := range d.full {
			if text := "no space left on " + dir; full == dir && !slices.Contains(all, text) {
				all = append(all, text)
			}
		}
	}
	return all
}
