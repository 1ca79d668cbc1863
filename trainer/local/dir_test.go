package local

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/identity"
	"github.com/elasticdl/elasticdl/trainer/pod"
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
	var secret string
	err = filepath.WalkDir(string(d), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v: others may use it", path, info.Mode())
		}
		if e.Name() == "secret" {
			text, err := os.ReadFile(path)
			secret = strings.TrimSpace(string(text))
			return err
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if secret == "" {
		t.Error("there is no secret")
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
	var uids, secrets []string
	for range 2 {
		startJob(t, "quick").Wait(t.Context())
		h, err := d.identity(pod.Master)
		if err != nil {
			t.Fatal(err)
		}
		uids, secrets = append(uids, h.Job), append(secrets, h.Secret)
	}
	if uids[0] == uids[1] || secrets[0] == secrets[1] {
		t.Errorf("two jobs have UIDs %q and secrets %q", uids, secrets)
	}
	for file, text := range map[string]string{"uid": "\n", "secret": "short\n"} {
		if err := os.WriteFile(d.path(file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := d.identity(identity.User); err == nil || strings.Contains(err.Error(), "short") {
			t.Errorf("with %s %q: %v", file, text, err)
		}
		startJob(t, "quick").Wait(t.Context())
	}
	if err := os.Remove(d.path("secret")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.identity(identity.User); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a secret: %v", err)
	}
}
