package local

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/run/program"
	"github.com/elasticdl/elasticdl/trainer/wire/credential"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// ErrNotFound is returned if there is no job of that name.
var ErrNotFound = errors.New("not found")

// Missing is the error about a job that this machine does not have: [ErrNotFound], with its name.
type Missing struct{ Name string }

// Error implements error.
func (m *Missing) Error() string { return fmt.Sprintf("job %s %v", m.Name, ErrNotFound) }

// Unwrap returns [ErrNotFound].
func (m *Missing) Unwrap() error { return ErrNotFound }

// Home returns the directory with the state of this user's jobs.
func Home() (string, error) {
	if home := os.Getenv("ELASTICDL_HOME"); home != "" {
		return filepath.Abs(home)
	}
	if state := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "elasticdl"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find the state directory (set ELASTICDL_HOME): %w", err)
	}
	return filepath.Join(home, ".local", "state", "elasticdl"), nil
}

// Modes of a job's files and directories. Only its user may read them, because they contain the key
// of its authority and the values of --envs.
const (
	private    fs.FileMode = 0o600
	privateDir fs.FileMode = 0o700
)

// dir is the state directory of one job.
type dir string

func openDir(name string) (dir, error) {
	if name == "" || name == "." || !filepath.IsLocal(name) || strings.ContainsAny(name, `/\`) {
		return "", fmt.Errorf("job name %q does not name a directory", name)
	}
	home, err := Home()
	if err != nil {
		return "", err
	}
	return dir(filepath.Join(home, "jobs", name)), nil
}

// checkpoints is the directory of a job's checkpoints in its own.
const checkpoints = "checkpoints"

// formerCheckpoints is the directory of the checkpoints of an earlier job of the name, as on a
// cluster.
const formerCheckpoints = checkpoints + ".before"

// CheckpointDir returns the checkpoint directory of a job without --checkpoint_dir. The start of
// another job of that name moves it aside.
func CheckpointDir(name string) (string, error) {
	d, err := openDir(name)
	return d.path(checkpoints), err
}

// FormerCheckpoints returns where the start of another job moves the checkpoints of an ended job of
// its name: from one directory to another, whose contents it removes. Both are "" if there are no
// checkpoints, or the job has not ended.
func FormerCheckpoints(name string) (from, to string) {
	d, err := openDir(name)
	if err != nil || d.alive() || d.rests() || !d.leaves(checkpoints) {
		return "", ""
	}
	return d.path(checkpoints), d.path(formerCheckpoints)
}

// leaves reports whether an earlier job of the name has left files in one of its directories.
func (d dir) leaves(name string) bool {
	entries, err := os.ReadDir(d.path(name))
	return err == nil && len(entries) > 0
}

// result is the directory of a job's trained model in its own.
const result = "model"

// ResultDir returns the directory of the trained model of a job without --output. It keeps the
// model of an earlier job of the name until the new one is complete.
func ResultDir(name string) (string, error) {
	d, err := openDir(name)
	return d.path(result), err
}

func (d dir) name() string              { return filepath.Base(string(d)) }
func (d dir) path(file string) string   { return filepath.Join(string(d), file) }
func (d dir) logs() string              { return d.path("logs") }
func (d dir) logFile(pod string) string { return filepath.Join(d.logs(), pod+".log") }

// lock locks the job for a launcher, or returns [job.ErrRunning]. The lock is released when the
// file is closed and every process that has inherited it has ended.
func (d dir) lock() (*os.File, error) {
	file, err := d.openLock()
	if err != nil {
		return nil, d.unwritable(err)
	}
	for {
		err := flock(file, syscall.LOCK_EX)
		if err == nil {
			return file, nil
		}
		// A shared lock is granted while other processes only check whether the job is alive.
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = flock(file, syscall.LOCK_SH)
		}
		switch {
		case errors.Is(err, syscall.EWOULDBLOCK):
			file.Close()
			return nil, fmt.Errorf("job %s %w", d.name(), job.ErrRunning)
		case err != nil:
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
		}
	}
}

// endLimit is the time in which the processes of an ended job end.
const endLimit = 10 * time.Second

// lockOver locks the job as lock does. If it has ended or is suspended, by its status, its last
// processes are about to go: it waits for them.
func (d dir) lockOver(ctx context.Context) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	for {
		lock, err := d.lock()
		if !errors.Is(err, job.ErrRunning) || !d.over(ctx) {
			return lock, err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// over reports whether the job has ended or is suspended, as its master says, which writes the last
// status only when its pods have ended, or else as the last status says.
func (d dir) over(ctx context.Context) bool {
	s, err := d.status(ctx)
	return err == nil && (job.State(s.State).Ended() || s.State == string(job.Suspended))
}

// openLock makes the directory of a job, and opens its lock.
func (d dir) openLock() (*os.File, error) {
	if err := os.MkdirAll(d.logs(), privateDir); err != nil {
		return nil, err
	}
	// perhaps by an older version, for all to read
	for _, made := range []string{filepath.Dir(string(d)), string(d)} {
		if err := os.Chmod(made, privateDir); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(d.path("lock"), os.O_RDWR|os.O_CREATE, private)
}

// alive reports whether a process of the job holds the lock.
func (d dir) alive() bool {
	file, err := os.Open(d.path("lock"))
	if err != nil {
		return false
	}
	defer file.Close()
	return errors.Is(flock(file, syscall.LOCK_SH), syscall.EWOULDBLOCK)
}

func flock(file *os.File, how int) error {
	for {
		err := syscall.Flock(int(file.Fd()), how|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// clear removes the files of an earlier job of the name, except its trained model, and its
// checkpoints, which it moves aside. The caller holds the lock.
func (d dir) clear() error {
	if d.leaves(checkpoints) {
		if err := errors.Join(os.RemoveAll(d.path(formerCheckpoints)),
			os.Rename(d.path(checkpoints), d.path(formerCheckpoints))); err != nil {
			return fmt.Errorf("move the checkpoints of the earlier job aside: %w", err)
		}
	}
	return cmp.Or(d.keep(result, formerCheckpoints), os.Mkdir(d.logs(), privateDir))
}

// newScratch makes a directory for the files of workers that run a program. It is a temporary one,
// because the paths of sockets must be short.
func newScratch() (string, error) {
	return program.MakeTemporary("elasticdl-job-", len("worker-1234567/agent.sock"))
}

// sweep removes the scratch directory that a killed launcher has left. The caller holds the lock.
func (d dir) sweep() error {
	var before address
	if err := d.readJSON("launcher.json", &before); err != nil || before.Scratch == "" {
		return nil // it came to no files, or to its end
	}
	return os.RemoveAll(before.Scratch)
}

// keep removes all but the lock and the named files and directories. The caller holds the lock.
func (d dir) keep(names ...string) error {
	if err := d.sweep(); err != nil {
		return err
	}
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == "lock" || slices.Contains(names, e.Name()) {
			continue
		}
		if err := os.RemoveAll(d.path(e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// authorityFile is the file of a job's authority, with its key.
const authorityFile = "authority.pem"

// identify gives the job its identity: a UID that no other job has, and an authority whose key no
// other user can read.
func (d dir) identify() error {
	uid := rand.Text()
	a, err := credential.NewAuthority(uid, time.Now())
	if err != nil {
		return err
	}
	text, err := a.Encode()
	if err != nil {
		return err
	}
	return errors.Join(d.write("uid", []byte(uid+"\n")), d.write(authorityFile, text))
}

// authority returns the job's UID and the authority of its certificates, which identify has
// written.
func (d dir) authority() (uid string, a *credential.Authority, err error) {
	text, err := os.ReadFile(d.path("uid"))
	if err != nil {
		return "", nil, fmt.Errorf("read the identity of job %s: %w", d.name(), err)
	}
	if uid = strings.TrimSpace(string(text)); uid == "" {
		return "", nil, fmt.Errorf("read the identity of job %s: %s is empty: the job has to be "+
			"started again", d.name(), d.path("uid"))
	}
	if text, err = os.ReadFile(d.path(authorityFile)); err != nil {
		return "", nil, fmt.Errorf("read the identity of job %s: %w", d.name(), err)
	}
	if a, err = credential.ParseAuthority(text); err != nil {
		return "", nil, fmt.Errorf("%s: %w", d.path(authorityFile), err)
	}
	return uid, a, nil
}

// self returns the identity and certificate of a process of this user in the job: of its master, or
// of the user.
func (d dir) self(of pod.Role, incarnation int) (*rpc.Self, error) {
	uid, a, err := d.authority()
	if err != nil {
		return nil, err
	}
	h := identity.Header{Job: uid, Role: of, Incarnation: incarnation, ModelGeneration: 1}
	card, err := a.Issue(h.Name(), time.Now(), credential.Lasting)
	if err != nil {
		return nil, err
	}
	c, err := credential.Of(card)
	if err != nil {
		return nil, err
	}
	return rpc.NewSelf(h, c), nil
}

// address tells how to reach a process. It is the content of master.json, written by each master
// when it listens, and of launcher.json.
type address struct {
	PID           int    `json:"pid"`
	Address       string `json:"address,omitempty"`
	Incarnation   int    `json:"launch,omitempty"` // the master's incarnation
	StartedUnixMs int64  `json:"started_unix_ms,omitempty"`
	// of a launcher: for files of workers that run a program
	Scratch string `json:"scratch,omitempty"`
}

// dead reports whether the process has ended. A process that got its pid since, or that is of
// another user, counts as alive.
func (a address) dead() bool { return errors.Is(syscall.Kill(a.PID, 0), syscall.ESRCH) }

// readJSON decodes a file of the directory. It returns fs.ErrNotExist if there is none.
func (d dir) readJSON(file string, v any) error {
	text, err := os.ReadFile(d.path(file))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("read %s: %w", d.path(file), err)
	}
	return nil
}

func (d dir) writeJSON(file string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", d.path(file), err)
	}
	return d.write(file, append(text, '\n'))
}

// write replaces a file of the directory atomically.
func (d dir) write(file string, text []byte) error {
	aside := d.path(file + ".new")
	if err := os.WriteFile(aside, text, private); err != nil {
		return err
	}
	return os.Rename(aside, d.path(file))
}

// exists reports whether a job of the name was ever started.
func (d dir) exists() bool {
	_, err := os.Stat(d.path("job.json"))
	return !errors.Is(err, fs.ErrNotExist)
}
