//go:build e2e

package e2e

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestDashboard looks at a job through the API server. The page is that of the master, a second
// old: a killed worker is on it within 10 s. Without the permission to forward ports, the page says
// which is missing, and has what the master wrote. Stacks of a program come by the same way.
func TestDashboard(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	script := ns.program("script", []string{"--num_workers=2", "--envs=PLANTED=planted-in-envs"}, "plain.py", "0.1")
	job := ns.train("watched", append(small, mlp, "--num_epochs=1000", "--num_ps_pods=1", "--num_workers=2")...)
	job.runs("master", "worker-0", "worker-1")
	page := ns.dashboard(*elasticdl, "dashboard", "watched", "--namespace="+ns.name)
	page.shows("its curves", patience, `id="chart-speed"`, "worker-1")
	if text := page.get(); strings.Contains(text, "some seconds old") {
		t.Errorf("the page is not of the master:\n%s", text)
	}
	if !crash(job.pod("worker-1")) {
		t.Fatal("worker-1 has no process")
	}
	began := time.Now()
	page.shows("the kill and the recovery", 10*time.Second, "killed (signal 9)", ">Recovered<")
	took(t, "a kill is on the page", began)

	script.runs("worker-0", "worker-1")
	eventually(t, "stacks of both ranks", patience, func() bool {
		out, err := ns.try(*elasticdl, "stacks", "script")
		return err == nil && strings.Contains(out, "rank") && strings.Contains(out, "plain.py")
	})

	eventually(t, "steps of the program", patience, func() bool {
		out, err := ns.try("kubectl", "logs", "elasticdl-script-worker-0")
		return err == nil && strings.Contains(out, "rank")
	})
	file := filepath.Join(t.TempDir(), "d.tar.gz")
	ns.elasticdl("debug-dump", "script", "--file="+file)
	dumped := unpacked(t, file)
	for name, want := range map[string]string{"cluster/pods.json": "[redacted PLANTED]",
		"cluster/nodes.json":  "kubelet",
		"cluster/events.json": "Scheduled", "cluster/settings.json": "plain.py", "stacks.txt": "plain.py",
		"logs/worker-0.log": "rank", "manifest.json": `"missing": []`} {
		if !strings.Contains(dumped[name], want) {
			t.Errorf("%s of the dump lacks %q:\n%.1000s", name, want, dumped[name])
		}
	}
	for name, text := range dumped {
		if strings.Contains(text, "planted-in-envs") || strings.Contains(text, "PRIVATE KEY") {
			t.Errorf("%s of the dump has a secret", name)
		}
	}

	s := &submitter{namespace: ns, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	s.make()
	const missing = `resource "pods/portforward"`
	limited := ns.dashboard(*elasticdl, "dashboard", "watched", "--namespace="+ns.name, "--kubeconfig="+s.kubeconfig)
	limited.shows("what the master wrote", patience, `id="chart-speed"`, "some seconds old")
	if text := strings.ReplaceAll(limited.get(), "&#34;", `"`); !strings.Contains(text, missing) {
		t.Errorf("the page does not name the permission:\n%s", text)
	}
	if out, err := s.try("stacks", "script"); err == nil || !strings.Contains(out, missing) {
		t.Errorf("stacks: %v\n%s", err, out)
	}
}

// unpacked returns the files of a dump.
func unpacked(t *testing.T, file string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("tar", "-xzf", file, "-C", dir, "--strip-components=1").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	files := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		files[strings.TrimPrefix(path, dir+"/")] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// dashboard is a page that a command serves.
type dashboard struct {
	t       *testing.T
	client  *http.Client
	address string
}

// dashboard starts a command that serves a page, until the test ends.
func (ns *namespace) dashboard(name string, args ...string) *dashboard {
	ns.t.Helper()
	cmd := exec.Command(name, args...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		ns.t.Fatal(err)
	}
	ns.t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGINT)
		io.Copy(io.Discard, out)
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		ns.t.Fatal(err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		ns.t.Fatal(err)
	}
	_, address, _ := strings.Cut(strings.TrimSpace(line), ": ")
	return &dashboard{ns.t, &http.Client{Jar: jar, Timeout: 30 * time.Second}, address}
}

// get returns the page.
func (d *dashboard) get() string {
	d.t.Helper()
	answer, err := d.client.Get(d.address)
	if err != nil {
		d.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Sprint(answer.Status, " ", string(text))
	}
	return string(text)
}

// shows waits until the page has texts.
func (d *dashboard) shows(what string, limit time.Duration, texts ...string) {
	d.t.Helper()
	eventually(d.t, what, limit, func() bool {
		page := d.get()
		for _, text := range texts {
			if !strings.Contains(page, text) {
				return false
			}
		}
		return true
	})
}
