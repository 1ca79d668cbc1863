package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/test/flags"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/run/fetch"
)

// The archive contains the files that the job names and that its workers unpack; it is uploaded
// through a pod of the image that has elasticdl.
func TestUpload(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "net"), 0o755),
		os.WriteFile(filepath.Join(dir, "net/main.py"), []byte("print(1)"), 0o644)); err != nil {
		t.Fatal(err)
	}
	settle := func(more ...string) (*job.Job, *uploading) {
		t.Helper()
		args := append([]string{"--image_name=r/pytorch", "--workdir=" + dir,
			"--volume=claim_name=c,mount_path=/data,sub_path=team"}, more...)
		c, err := flags.Job(job.Run, append(args, "--", "net/main.py")...)
		if err != nil {
			t.Fatal(err)
		}
		u, err := settleUpload(c)
		if err != nil {
			t.Fatal(err)
		}
		return c.Job, u
	}
	j, u := settle("--agent_image_name=r/elasticdl", "--image_pull_policy=Never", "--node_selector=pool=gpu")
	if err := j.ValidateCluster(); err != nil {
		t.Error(err)
	}
	work := t.TempDir()
	if err := u.pack(j, work); err != nil {
		t.Fatal(err)
	}
	how := u.copy(j, work)
	if how.From != work || how.Claim != "c" || how.To != "team/elasticdl-code/"+j.Program.CodeSHA256 ||
		how.Image != "r/elasticdl" || how.Pull != "Never" || how.Job != j || how.Flag != "--workdir="+dir {
		t.Errorf("copied as %+v", how)
	}
	if j.Program.Code != "/data/elasticdl-code/"+j.Program.CodeSHA256+"/code.tar" {
		t.Errorf("code is at %s", j.Program.Code)
	}
	to := filepath.Join(t.TempDir(), "workdir")
	if err := fetch.Unpack(filepath.Join(work, filepath.Base(j.Program.Code)), j.Program.CodeSHA256, to); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(to, "net/main.py")); err != nil || string(text) != "print(1)" {
		t.Errorf("%q, %v", text, err)
	}
	if j, u := settle(); u.copy(j, work).Image != "r/pytorch" {
		t.Errorf("without an agent image the pod is of %s", u.copy(j, work).Image)
	}

	// Files that have changed since are not uploaded under the checksum of their former content.
	if err := os.WriteFile(filepath.Join(dir, "net/main.py"), []byte("print(2)"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := u.pack(j, work); err == nil || !strings.Contains(err.Error(), "it changed while it was read; try again") {
		t.Error(err)
	}
}
