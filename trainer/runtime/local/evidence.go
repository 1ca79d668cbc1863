package local

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elasticdl/elasticdl/trainer/runtime/role"
)

// Evidence returns what this machine knows of a job besides its status, journal and logs. It
// returns [ErrNotFound] if there is no such job.
func Evidence(_ context.Context, name string) ([]role.Evidence, error) {
	d, err := existing(name)
	if err != nil {
		return nil, err
	}
	var all []role.Evidence
	// The key of the job's authority is in none of them.
	for _, file := range []string{"job.json", "launcher.json", masterFile, stopFile, recordFile} {
		text, err := d.readAny(file)
		if text == nil && err == nil {
			continue
		}
		e := role.Evidence{Name: "machine/" + strings.TrimSuffix(file, ".json") + ".json", Why: err}
		if err == nil {
			e.Value, e.Why = role.Tree(text)
		}
		all = append(all, e)
	}
	files, err := d.files()
	all = append(all, role.Evidence{Name: "machine/files.json", Value: files, Why: err})
	machine, err := d.machine()
	return append(all, role.Evidence{Name: "machine/machine.json", Value: machine, Why: err}), nil
}

// mostFiles is the largest number of files that a list of a job's directory has.
const mostFiles = 5000

// file is a file of a job's directory.
type file struct {
	Path     string    `json:"path"`
	Mode     string    `json:"mode"`
	Bytes    int64     `json:"bytes"`
	Modified time.Time `json:"modified"`
}

// files lists the directory of the job, without its contents.
func (d dir) files() ([]file, error) {
	var all []file
	err := filepath.WalkDir(string(d), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			// a file that is deleted meanwhile is left out
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return nil
		}
		if len(all) == mostFiles {
			return fmt.Errorf("only the first %d files", mostFiles)
		}
		name, _ := filepath.Rel(string(d), path) // path is in d
		all = append(all, file{name, info.Mode().String(), info.Size(), info.ModTime()})
		return nil
	})
	return all, err
}

// machine is the machine that a job runs on.
type machine struct {
	OS           string            `json:"os"`
	Architecture string            `json:"architecture"`
	Kernel       string            `json:"kernel"`
	Hostname     string            `json:"hostname"`
	Processors   int               `json:"processors"`
	Memory       map[string]string `json:"memory"` // as the kernel tells it
	Load         string            `json:"load"`
	// free and all bytes of the file system with the job's directory
	DiskFree  uint64 `json:"diskFreeBytes"`
	DiskBytes uint64 `json:"diskBytes"`
}

func (d dir) machine() (machine, error) {
	m := machine{OS: runtime.GOOS, Architecture: runtime.GOARCH, Processors: runtime.NumCPU(),
		Memory: make(map[string]string)}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	m.Hostname, _ = os.Hostname() // one of many facts
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load = strings.TrimSpace(string(text))
	}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			key, value, _ := strings.Cut(line, ":")
			switch key {
			case "MemTotal", "MemFree", "MemAvailable", "SwapTotal", "SwapFree", "Shmem":
				m.Memory[key] = strings.TrimSpace(value)
			}
		}
	}
	var disk unix.Statfs_t
	err := unix.Statfs(string(d), &disk)
	m.DiskFree, m.DiskBytes = disk.Bavail*uint64(disk.Bsize), disk.Blocks*uint64(disk.Bsize)
	return m, err
}
