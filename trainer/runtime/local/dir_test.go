package local

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
)

// The files of a job's directory give access to the job: it is for the job's user only, whatever
// the user's umask, and also where an older version has made the directory. Not even the jobs'
// names are for others.
func TestDirectoryOfAJobIsPrivate(t *testing.T) {
	useHome(t)
	newLife(t)
	// of this process and those that it starts; no two tests of this package run at the same time
	before := syscall.Umask(0)
	t.Cleanup(func() { syscall.Umask(before) })
	d, err := openDir("a")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(d.logs(), 0o777), os.WriteFile(d.path("job.json"), []byte("{}"),
		0o666)); err != nil {
		t.Fatal(err)
	}
	home, err := Home()
	if err != nil {
		t.Fatal(err)
	}
	var key string
	walk := func(when string) (found []string) {
		err = filepath.WalkDir(filepath.Join(home, "jobs"), func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := e.Info()
			if err == nil && info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s: %s: %v: others may use it", when, path, info.Mode())
			}
			if e.Name() == "authority.pem" {
				text, err := os.ReadFile(path)
				key, _, _ = strings.Cut(string(text), "-----END PRIVATE KEY-----")
				return err
			}
			found = append(found, e.Name())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	startJob(t, "a")
	if found := walk("while it runs"); !contains(found, "uid", "job.json", "lock", "master.json", "master.log") {
		t.Errorf("the job has %q", found)
	}
	if !strings.Contains(key, "PRIVATE KEY") {
		t.Error("there is no key of an authority")
	}
	if err := Stop(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if found := walk("after its end"); !contains(found, "status.json") {
		t.Errorf("the ended job has %q", found)
	}
}

func contains(all []string, wanted ...string) bool {
	return !slices.ContainsFunc(wanted, func(w string) bool { return !slices.Contains(all, w) })
}

// On one machine variables of Secrets are those of the command, and written nowhere.
func TestEnvSecretsOfThisMachine(t *testing.T) {
	useHome(t)
	newLife(t)
	j := named("a")
	j.EnvSecrets = map[string]job.SecretRef{"A_TOKEN": {Secret: "hub", Key: "token"},
		"B_TOKEN": {Secret: "hub", Key: "other"}}
	t.Setenv("A_TOKEN", "hunter2")
	_, err := Start(t.Context(), j, StartOptions{})
	if want := "--env_secret=B_TOKEN=hub/other: on this machine B_TOKEN comes from this command's " +
		"environment, where it is not set: export it"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	t.Setenv("B_TOKEN", "hunter3")
	if _, err := Start(t.Context(), j, StartOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := Stop(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	os.Unsetenv("A_TOKEN")
	if _, _, err := Resume(t.Context(), "a", StartOptions{}); err == nil ||
		!strings.Contains(err.Error(), "--env_secret=A_TOKEN=hub/token: on this machine") {
		t.Errorf("resume without A_TOKEN: %v", err)
	}
	d, err := openDir("a")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(d.path("job.json"))
	if err != nil || strings.Contains(string(text), "hunter") || !strings.Contains(string(text), "hub/token") {
		t.Errorf("job.json: %s, %v", text, err)
	}
}

// A job of the same name is another one: what is left of the first is not of it.
func TestEachJobHasAnIdentityOfItsOwn(t *testing.T) {
	useHome(t)
	newLife(t)
	d, err := openDir("quick")
	if err != nil {
		t.Fatal(err)
	}
	var uids, roots []string
	for range 2 {
		startJob(t, "quick").Wait(t.Context())
		uid, a, err := d.authority()
		if err != nil {
			t.Fatal(err)
		}
		uids, roots = append(uids, uid), append(roots, a.Root().String())
	}
	if uids[0] == uids[1] || roots[0] == roots[1] {
		t.Errorf("two jobs have UIDs %q and authorities %q", uids, roots)
	}
	for file, text := range map[string]string{"uid": "\n", "authority.pem": "hunter2\n"} {
		if err := os.WriteFile(d.path(file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := d.self(identity.User, 0); err == nil || strings.Contains(err.Error(), "hunter2") ||
			!strings.Contains(err.Error(), d.path(file)) {
			t.Errorf("with %s %q: %v", file, text, err)
		}
		startJob(t, "quick").Wait(t.Context())
	}
	if err := os.Remove(d.path("authority.pem")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.self(identity.User, 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without an authority: %v", err)
	}
}

// The checkpoints of an ended job are moved aside for the next one of its name, which may have none
// itself; those that were moved before are deleted when there are others. A note reports a move
// before it happens.
func TestCheckpointsAreMovedAside(t *testing.T) {
	useHome(t)
	d, err := openDir("a")
	if err != nil {
		t.Fatal(err)
	}
	if from, to := FormerCheckpoints("a"); from != "" || to != "" {
		t.Errorf("of a job that never was: %q, %q", from, to)
	}
	for i, c := range []struct{ made, moved string }{{"1", "1"}, {"", "1"}, {"2", "2"}} {
		if err := os.MkdirAll(d.path(checkpoints), 0o700); err != nil {
			t.Fatal(err)
		}
		if c.made != "" {
			if err := os.WriteFile(filepath.Join(d.path(checkpoints), c.made), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if from, to := FormerCheckpoints("a"); (from == d.path(checkpoints) &&
			to == d.path(formerCheckpoints)) != (c.made != "") {
			t.Errorf("job %d: said to move from %q to %q", i, from, to)
		}
		lock, err := d.lock()
		if err != nil {
			t.Fatal(err)
		}
		if from, _ := FormerCheckpoints("a"); from != "" {
			t.Errorf("job %d: of one that runs %q is to be moved", i, from)
		}
		if err := d.clear(); err != nil {
			t.Fatal(err)
		}
		lock.Close()
		var there []string
		entries, _ := os.ReadDir(d.path(formerCheckpoints))
		for _, e := range entries {
			there = append(there, e.Name())
		}
		if !slices.Equal(there, []string{c.moved}) || d.leaves(checkpoints) {
			t.Errorf("job %d: %q is aside, want %s alone, and nothing where it was", i, there, c.moved)
		}
	}
}

// The next job of the name removes the files of a killed launcher.
func TestSweep(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	scratch, err := newScratch()
	if err != nil {
		t.Fatal(err)
	}
	d := dir(t.TempDir())
	for _, at := range []address{{PID: 1, Scratch: scratch}, {PID: 1}} {
		if err := errors.Join(d.writeJSON("launcher.json", at), d.clear(), os.RemoveAll(d.logs())); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(scratch); !os.IsNotExist(err) {
			t.Errorf("it is left: %v", err)
		}
	}
}

// Only workers that run a program have files: the job of another one needs no temporary directory.
func TestOnlyProgramsHaveScratch(t *testing.T) {
	useHome(t)
	newLife(t)
	for _, kind := range []job.Type{job.Train, job.Run} {
		j := named("steady")
		j.Type = kind
		t.Setenv("TMPDIR", t.TempDir())
		if _, err := Start(t.Context(), j, StartOptions{}); err != nil {
			t.Fatal(err)
		}
		var at address
		if err := home(t, "steady").readJSON("launcher.json", &at); err != nil {
			t.Fatal(err)
		}
		if has := at.Scratch != ""; has != j.Runs() {
			t.Errorf("a job of type %s has the scratch directory %q", kind, at.Scratch)
		}
		if err := Stop(t.Context(), "steady"); err != nil {
			t.Fatal(err)
		}
	}
	// a worker without one makes nothing that its starter removes
	if got := (podConfig{}).scratch(pod.ID{Role: pod.Worker}); got != "" {
		t.Errorf("a worker's directory is %q", got)
	}
}
