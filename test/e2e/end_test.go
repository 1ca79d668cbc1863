//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Nothing of a job is left, however and whenever it is removed.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	const name = "gone"
	before := ns.everything("")
	for how, remove := range map[string]func(){
		"elasticdl stop":     func() { t.Log(ns.elasticdl("stop", name)) },
		"kubectl delete job": func() { ns.kubectl("delete", "job", "elasticdl-"+name+"-master") },
	} {
		t.Run(how, func(t *testing.T) {
			ns.t = t
			j := ns.train(name, slices.Concat(small,
				[]string{mlp, "--num_epochs=1000", "--num_ps_pods=2", "--num_workers=3", "--minibatch_size=64"})...)
			j.runs("ps-0", "ps-1", "worker-0", "worker-1", "worker-2")
			j.trains(0.0001)
			labelled := ns.everything("elasticdl-job-name=" + name)
			all := slices.DeleteFunc(ns.everything(""), func(o string) bool { return slices.Contains(before, o) })
			if !slices.Equal(labelled, all) {
				t.Errorf("the job has made\n%q, and its label is on\n%q", all, labelled)
			}
			began := time.Now()
			remove()
			var left []string
			defer func() {
				if t.Failed() {
					t.Logf("left: %q", left)
				}
			}()
			eventually(t, "end of all that the job has made", patience, func() bool {
				left = slices.DeleteFunc(ns.everything(""), func(o string) bool { return slices.Contains(before, o) })
				return len(left) == 0
			})
			took(t, "removed to nothing of its objects left", began)
			if out := ns.elasticdl("list"); strings.Contains(out, name) {
				t.Errorf("elasticdl list:\n%s", out)
			}
		})
	}
	ns.t = t
}

// kubectl wait works: Complete for a job that succeeded, Failed for one that did not, with the
// reason in its status.
func TestTheTruthIsTold(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	good := ns.train("good",
		slices.Concat(small, []string{mlp, "--num_epochs=1", "--num_ps_pods=1", "--num_workers=2",
			"--minibatch_size=64"})...)
	bad := ns.train("bad", slices.Concat(small, []string{mlp, "--num_epochs=1", "--num_ps_pods=1",
		"--num_workers=2", "--minibatch_size=64",
		"--volume=host_path=" + corrupt(t) + ",mount_path=/data"})...)
	ns.kubectl("wait", "--for=condition=elasticdl.dev/Running", "job/elasticdl-good-master",
		"--timeout="+wholeJob.String())
	ns.kubectl("wait", "--for=condition=complete", "job/elasticdl-good-master", "--timeout="+wholeJob.String())
	// the Job controller has written its own conditions since, and keeps those of the master
	for _, condition := range []string{"Complete", "Running=False", "Failed=False", "Admitted=False"} {
		ns.kubectl("wait", "--for=condition=elasticdl.dev/"+condition, "job/elasticdl-good-master", "--timeout=1m")
	}
	ns.kubectl("wait", "--for=condition=elasticdl.dev/Failed", "job/elasticdl-bad-master",
		"--timeout="+wholeJob.String())
	ns.kubectl("wait", "--for=condition=failed", "job/elasticdl-bad-master", "--timeout="+wholeJob.String())
	good.ends(1)
	for _, wrong := range [][]string{
		{"--for=condition=failed", "job/elasticdl-good-master"},
		{"--for=condition=complete", "job/elasticdl-bad-master"},
	} {
		if out, err := ns.try("kubectl", append([]string{"wait", "--timeout=1s"}, wrong...)...); err == nil {
			t.Errorf("kubectl wait %v: %s", wrong, out)
		}
	}
	out, err := ns.try(*elasticdl, "wait", "bad")
	if exitCode(err) != 1 || len(grep(out, `bad Failed: .*offset \d+`)) == 0 {
		t.Errorf("elasticdl wait bad: exit code %d\n%s", exitCode(err), out)
	}
	if out := ns.elasticdl("status", "bad"); len(grep(out, `offset \d+`)) == 0 {
		t.Errorf("elasticdl status bad does not say what was wrong:\n%s", out)
	}
	bad.ask(func() bool {
		if s := bad.now[jobs]["elasticdl-bad-master"].condition("Failed"); s == nil ||
			s.Reason != "BackoffLimitExceeded" {
			t.Errorf("the Failed condition is %v, want by the backoff limit, which its master has set to 0", s)
		}
		return true
	})
}

// corrupt returns the path of a copy of the digits in which some bytes are wrong.
func corrupt(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(filepath.Dir(digits), "corrupt-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS(digits)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "mnist", "train", "data-*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files of records: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text[len(text)*3/4] ^= 0xff
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The status names a missing image, and the job can be stopped.
func TestAbsentImageIsNamed(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	absent := registry + "/nobody/has-pushed:this"
	j := ns.train("imageless",
		slices.Concat(small, []string{mlp, "--num_epochs=1", "--num_ps_pods=1", "--num_workers=1",
			"--worker_image=" + absent})...)
	j.runs("master")
	eventually(t, "word of the image in elasticdl status", patience, func() bool {
		return len(grep(ns.elasticdl("status", "imageless"), `worker-0 .*(ErrImagePull|ImagePullBackOff).*`)) > 0
	})
	t.Log(ns.elasticdl("status", "imageless"))
	ns.elasticdl("stop", "imageless")
}
