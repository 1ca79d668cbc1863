package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/elasticdl/elasticdl/tools/kubernetes/host"
	"github.com/elasticdl/elasticdl/tools/kubernetes/proc"
)

// state is the state of a cluster, in DIR/state.json.
type state struct {
	Config
	// mark in the environment of all its processes
	Mark string `json:"mark"`
	// URL of the API server
	Server string `json:"server"`
	// URL of etcd
	Store string `json:"store"`
	// URL of etcd for other members, of which there are none
	Peer string `json:"peer"`
	// it was started completely
	Up bool `json:"up"`
	// addresses of Kueue, nil if it was never started
	Queues *queues `json:"queues,omitempty"`
	// ports of Karpenter, nil if it was never started
	Provisioner *provisioner   `json:"provisioner,omitempty"`
	Processes   []proc.Process `json:"processes"`
}

// record is the machine's record of the cluster with real nodes. It is written before any change of
// the machine, and deleted last.
type record struct {
	Dir      string        `json:"dir"`
	Mark     string        `json:"mark"`
	Settings host.Settings `json:"settings"` // values before the start
}

var recordPath = "/run/elasticdl-cluster.json" // tests use another path

func (s *state) file() string { return s.path("state.json") }

func (s *state) save() error { return writeJSON(s.file(), s) }

// loadState returns the state of the cluster in dir, or nil if there is none.
func loadState(dir string) (*state, error) {
	s := new(state)
	found, err := readJSON(filepath.Join(dir, "state.json"), s)
	if !found || err != nil {
		return nil, err
	}
	s.Dir = dir
	return s, nil
}

// loadRecord returns the record of the cluster with real nodes on this machine, or nil if there is
// none.
func loadRecord() (*record, error) {
	r := new(record)
	found, err := readJSON(recordPath, r)
	if !found || err != nil {
		return nil, err
	}
	return r, nil
}

// claim writes the record, unless there is one: if two clusters start at once, only one gets the
// machine.
func (r *record) claim() error {
	file := recordPath + "." + r.Mark
	if err := writeJSON(file, r); err != nil {
		return err
	}
	defer os.Remove(file)
	err := os.Link(file, recordPath)
	if errors.Is(err, fs.ErrExist) {
		other, lost := loadRecord()
		if other != nil {
			return other.inUse()
		}
		return errors.Join(err, lost)
	}
	return err
}

// lock prevents others from changing the cluster of the record, and returns an error if it starts
// or runs. It counts as running even if some of its processes have ended, because tests kill them.
func (r *record) lock() (*os.File, error) {
	held, err := lock(r.Dir)
	if errors.Is(err, fs.ErrNotExist) { // the directory was deleted
		return lock(recordPath)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", r.inUse(), err)
	}
	s, err := loadState(r.Dir)
	if err == nil && s != nil && s.Up && slices.ContainsFunc(s.Processes, func(p proc.Process) bool {
		return p.State() != proc.Ended
	}) {
		err = r.inUse()
	}
	if err != nil {
		held.Close()
		return nil, err
	}
	return held, nil
}

func (r *record) inUse() error {
	return fmt.Errorf("a cluster with real nodes is in %[1]s, and a machine has room for one; end "+
		"it first: cluster down --dir %[1]s", r.Dir)
}

// process returns a component by its name.
func (s *state) process(name string) (*proc.Process, bool) {
	i := slices.IndexFunc(s.Processes, func(p proc.Process) bool { return p.Name == name })
	if i < 0 {
		return nil, false
	}
	return &s.Processes[i], true
}

// run starts a component, which replaces one of that name in the state.
func (s *state) run(command proc.Command) error {
	p, err := proc.Run(command)
	if err != nil {
		return err
	}
	if old, ok := s.process(command.Name); ok {
		*old = p
	} else {
		s.Processes = append(s.Processes, p)
	}
	return s.save()
}

// end kills a component if it runs.
func (s *state) end(name string) error {
	p, ok := s.process(name)
	if !ok || p.State() == proc.Ended {
		return nil
	}
	return s.signal(name, syscall.SIGKILL, proc.Ended)
}

// remove ends a component, which is then no part of the cluster.
func (s *state) remove(name string) error {
	if err := s.end(name); err != nil {
		return err
	}
	s.Processes = slices.DeleteFunc(s.Processes, func(p proc.Process) bool { return p.Name == name })
	return s.save()
}

// running reports whether the cluster was started completely and no process of it has ended since.
func (s *state) running() bool {
	return s.Up && !slices.ContainsFunc(s.Processes, func(p proc.Process) bool { return p.State() == proc.Ended })
}

// lock prevents others from changing the cluster until the file is closed or this process ends.
func lock(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: another `cluster` command is at work on it: %w", dir, err)
	}
	return f, nil
}

func readJSON(file string, v any) (found bool, err error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", file, err)
	}
	return true, nil
}

// writeJSON replaces a file atomically: after an interruption it has the old content or the new.
func writeJSON(file string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
