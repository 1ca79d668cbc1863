package local

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/identity"
)

// What is in a job's directory lets its reader into the job: it is for the job's user only, also where an older version has
// made the directory.
func TestDirectoryOfAJobIsPrivate(t *testing.T) {
	useHome(t)
	newLife(t)
	d, err := openDir("a")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(d.logs(), 0o755), os.WriteFile(d.path("job.json"), []byte("{}"), 0o644)); err != nil {
		t.Fatal(err)
	}
	startJob(t, "a")
	var key string
	err = filepath.WalkDir(string(d), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v: others may use it", path, info.Mode())
		}
		if e.Name() == "authority.pem" {
			text, err := os.ReadFile(path)
			key, _, _ = strings.Cut(string(text), "-----END PRIVATE KEY-----")
			return err
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(key, "PRIVATE KEY") {
		t.Error("there is no key of an authority")
	}
	if err := Stop(t.Context(), "a"); err != nil {
		t.Fatal(err)
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
		if _, err := d.self(identity.User, 0); err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), d.path(file)) {
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
