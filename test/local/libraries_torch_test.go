//go:build torch

package local_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/elasticdl/elasticdl/test/torch"
)

// TestDataLibraries runs each part of docs/data.md that reads data, with the real libraries, on two
// workers, and kills a process: each record is in the model once in each epoch.
func TestDataLibraries(t *testing.T) {
	python := torch.Libraries(t)
	text, err := os.ReadFile("../../docs/data.md")
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	make := exec.Command(python, "testdata/libraries.py", home, "lines", "tars", "rows", "optimized")
	if out, err := make.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, value := range map[string]string{"OMP_NUM_THREADS": "1", "HF_HOME": filepath.Join(home, "cache"),
		"HF_HUB_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"} {
		t.Setenv(name, value)
	}
	parts := regexp.MustCompile("(?ms)^```python adapter\n# (.*?)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	for _, part := range parts {
		t.Run(part[1], func(t *testing.T) {
			dir := t.TempDir()
			script := ""
			for _, piece := range []string{"testdata/libraries_before.py", "", "testdata/libraries_after.py"} {
				code := []byte(part[2])
				if piece != "" {
					if code, err = os.ReadFile(piece); err != nil {
						t.Fatal(err)
					}
				}
				script += strings.ReplaceAll(string(code), `"/data/`, `"`+home+"/") + "\n\n"
			}
			main := filepath.Join(dir, "main.py")
			if err := os.WriteFile(main, []byte(script), 0o644); err != nil {
				t.Fatal(err)
			}
			j := scriptAt(t, python, main, dir, nil, "--num_workers=2", "--heartbeat_timeout=10s")
			pids := j.whole(2)
			syscall.Kill(pids[1], syscall.SIGKILL)
			j.whole(2, pids[1])
			j.enough()
			s := j.end(0)
			if s.State != "Succeeded" || s.Restarts != 0 {
				t.Errorf("%s, %d failures counted: %s", s.State, s.Restarts, s.Reason)
			}
			if !strings.Contains(j.log(""), "counted 200 right, 0 wrong") {
				t.Error("no process has counted every record")
			}
			if out, err := exec.Command(program, "audit", j.name).CombinedOutput(); err != nil {
				t.Errorf("audit: %v\n%s", err, out)
			}
			j.nobody()
		})
	}
	if len(parts) < 8 {
		t.Errorf("the page has %d parts", len(parts))
	}
}
