package local

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Files of a job's directory that are written while the job runs.
const (
	statusFile      = "status.json"
	masterFile      = "master.json"
	recordFile      = "record"
	incarnationFile = "incarnation"
)

// rooms are the bytes on the disk that a job keeps free for a file, so that it can be replaced
// when the disk is full: the status for the end of the job, and the address of a master that
// replaces another.
var rooms = map[string]int{statusFile: 64 << 10, masterFile: 4 << 10}

// roomSuffix ends the name of the file that keeps the room for another.
const roomSuffix = ".room"

// reserve frees space on the disk for later versions of the files of rooms.
func (d dir) reserve() error {
	for file, size := range rooms {
		if err := d.reserveFor(file, size); err != nil {
			return err
		}
	}
	return nil
}

func (d dir) reserveFor(file string, size int) error {
	room := d.path(file + roomSuffix)
	if info, err := os.Stat(room); err == nil && info.Size() >= int64(size) {
		return nil
	}
	err := os.WriteFile(room, bytes.Repeat([]byte{' '}, size), private)
	if err != nil {
		os.Remove(room) // what is there of it would be no room
	}
	return err
}

// writeReserved replaces a file atomically by the one that keeps its room, which takes no room on
// the disk.
func (d dir) writeReserved(file string, text []byte) error {
	room, err := os.OpenFile(d.path(file+roomSuffix), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	info, err := room.Stat()
	if err == nil && info.Size() < int64(len(text)) {
		err = fmt.Errorf("write %s: %d bytes, room is kept for %d", d.path(file), len(text), info.Size())
	}
	if err == nil {
		_, err = room.WriteAt(text, 0)
	}
	if err == nil {
		err = room.Truncate(int64(len(text)))
	}
	if err = errors.Join(err, room.Close()); err != nil {
		return err
	}
	return os.Rename(room.Name(), d.path(file))
}

// replace replaces a file of the state atomically. It returns when the record and the incarnation
// are on the disk.
func (d dir) replace(file string, text []byte) error {
	switch file {
	case recordFile, incarnationFile:
		return d.writeSynced(file, text)
	case masterFile:
		err := d.write(file, text)
		if noSpace(err) == nil {
			return err
		}
		if d.writeReserved(file, text) != nil {
			return err
		}
		// what the former version had, if nobody was faster
		d.reserveFor(file, rooms[file])
		return nil
	}
	return d.write(file, text)
}

// store writes the status of a job that has no master. If the disk is full it takes the room that
// is kept for it.
func (d dir) store(status *wire.JobStatus) error {
	text, err := encode(status)
	if err != nil {
		return err
	}
	err = d.write(statusFile, text)
	if noSpace(err) == nil {
		return err
	}
	if len(text) > rooms[statusFile] {
		status.Evaluations, status.Pods = nil, nil // the state and its reason matter
		if text, err = encode(status); err != nil {
			return err
		}
	}
	return d.writeReserved(statusFile, text)
}

func encode(status *wire.JobStatus) ([]byte, error) {
	text, err := protojson.MarshalOptions{Multiline: true}.Marshal(status)
	return append(text, '\n'), err
}

// noSpace returns the error of a full disk, or of a user's used-up share of it, that is in err;
// nil if none is.
func noSpace(err error) error {
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		if errors.Is(err, full) {
			return full
		}
	}
	return nil
}

// trouble describes an error of writing to the state directory.
func (d dir) trouble(err error) string {
	home := filepath.Dir(filepath.Dir(string(d)))
	switch noSpace(err) {
	case syscall.ENOSPC:
		return "no space left on " + home
	case syscall.EDQUOT:
		return "disk quota exceeded on " + home
	}
	return fmt.Sprintf("cannot write to %s: %v", home, err)
}

// unwritable explains why a job cannot start.
func (d dir) unwritable(err error) error {
	home := filepath.Dir(filepath.Dir(string(d)))
	if noSpace(err) != nil {
		return fmt.Errorf("write the state of job %s: %s: free space, or set ELASTICDL_HOME to a "+
			"directory with more: %w", d.name(), d.trouble(err), err)
	}
	return fmt.Errorf("write the state of job %s to %s: %w: set ELASTICDL_HOME to a directory that "+
		"can be written", d.name(), home, err)
}

// full returns what keeps files from being written to the directory of a job, "" if nothing does.
func (d dir) full() string {
	probe := d.path("probe")
	defer os.Remove(probe)
	if err := os.WriteFile(probe, []byte{'\n'}, private); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return d.trouble(err)
	}
	return ""
}

// backlog holds the files of a job's state that could not be written. It belongs to the launcher,
// which outlives all masters: what it keeps the next master reads, and the launcher writes it as
// soon as that is possible.
type backlog struct {
	dir dir
	log *slog.Logger

	mu   sync.Mutex
	kept map[string]kept
}

// kept is a file that could not be written.
type kept struct {
	text    []byte
	since   time.Time // when the launcher got it
	problem string    // why it cannot be written
}

func newBacklog(d dir, log *slog.Logger) *backlog {
	return &backlog{dir: d, log: log, kept: make(map[string]kept)}
}

// put writes a file, or keeps it until it can be written.
func (k *backlog) put(file string, text []byte) (written bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.dir.replace(file, text); err != nil {
		problem := k.dir.trouble(err)
		if len(k.kept) == 0 {
			k.log.Error("The state of the job is kept in memory, as it cannot be written", "reason",
				problem, "file", file, "error", err)
		}
		k.kept[file] = kept{text, time.Now(), problem}
		return false
	}
	k.forget(file)
	return true
}

// forget drops a file that is written. The caller holds the mutex.
func (k *backlog) forget(file string) {
	if _, ok := k.kept[file]; !ok {
		return
	}
	delete(k.kept, file)
	if len(k.kept) == 0 {
		k.log.Info("The state of the job is written again")
	}
}

// get returns a file that is kept; ok is false if none of the name is.
func (k *backlog) get(file string) (_ kept, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	it, ok := k.kept[file]
	return it, ok
}

// retry writes what is kept, as far as that is possible.
func (k *backlog) retry() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for file, it := range k.kept {
		if k.dir.replace(file, it.text) == nil {
			k.forget(file)
		}
	}
}

// keepEvery is the time between two attempts to write what is kept.
const keepEvery = time.Second

// run retries until done is closed.
func (k *backlog) run(done <-chan struct{}) {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			k.retry()
		case <-done:
			return
		}
	}
}

// state writes the state of a master's job: to the disk or, if that fails, to memory, from which
// the file is written later.
type state struct {
	dir  dir
	give func(file string, text []byte) (written bool, err error) // to memory

	mu      sync.Mutex
	given   map[string]bool // files in memory
	problem string          // why
}

// write replaces a file, and returns when the next master will find it.
func (s *state) write(file string, text []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var failed error
	if !s.given[file] {
		if failed = s.dir.replace(file, text); failed == nil {
			return nil
		}
	}
	written, err := s.give(file, text)
	switch {
	case err != nil:
		return errors.Join(failed, err)
	case written:
		delete(s.given, file)
		if len(s.given) == 0 {
			s.problem = ""
		}
	case failed != nil:
		s.given[file] = true
		s.problem = s.dir.trouble(failed) + ": the state of the job is kept in memory until it can be written there"
	}
	return nil
}

// problems returns what is wrong with the disk of the state.
func (s *state) problems() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.problem == "" {
		return nil
	}
	return []string{s.problem}
}

// store writes the status of the job.
func (s *state) store(status *wire.JobStatus) error {
	text, err := encode(status)
	if err != nil {
		return err
	}
	return s.write(statusFile, text)
}
